"""Derivation of the keys with which attempts prove to their submitter that they are this task and no other.

A job may carry a secret. The backend that starts an attempt derives a key from it and gives the attempt that
key alone. The holder of the secret can compute the key of every attempt; a task knows only its own.
"""

import hmac
from typing import Final

SECRET_BYTES: Final = 32
"""Length of a secret and of a key."""
_PURPOSE: Final = "hanse task key"


def derive_attempt_key(secret: bytes, job: str, index: int, attempt: int) -> bytes:
    """Return the key of an attempt. ``job``: in text form, such as ``1-7``."""
    return hmac.digest(secret, f"{_PURPOSE} {job}.{index}.{attempt}".encode(), "sha256")
