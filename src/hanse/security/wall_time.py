"""The wall clock, for certificates and for people. No machine ever reads it."""

import time


def wall_now() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1_000
