"""The wall clock: what certificates are judged by and people are told. No machine ever sees it."""

import time


def wall_now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000
