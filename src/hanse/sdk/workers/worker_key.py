"""Key of a worker: read from standard input and hidden from other tasks."""

import os
import sys
from typing import Final

from hanse.model.attempt_key_derivation import SECRET_BYTES

PR_SET_DUMPABLE: Final = 4
"""Option of ``prctl``."""
NO_KEY: Final = (
    "no key on standard input. Either this cluster's Hanse is older than the executor's: update its members. "
    "Or another task of the same user has taken it: see 'whom it trusts' in docs/user/sdk.md."
)


def read_key() -> bytes:
    """Read the key of this attempt from standard input, once; empty: there is none.

    Before that, close this process's memory and files to other processes of the same user. The supervisor of
    a root league has done so already; elsewhere nothing has. Raises ``OSError`` if that fails.
    """
    _close_to_same_user()
    text = b""
    while len(text) <= 2 * SECRET_BYTES:
        piece = os.read(0, 2 * SECRET_BYTES + 1 - len(text))
        if not piece:
            break
        text += piece
    nothing = os.open(os.devnull, os.O_RDONLY)  # calls find the same standard input as other tasks
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return b""


def _close_to_same_user() -> None:
    """Forbid dumps and tracing of this process, except by root. Forks inherit it."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  most calls never need it

        if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            raise OSError("the kernel does not close this process to other processes of its user")


def own_attempt_id() -> tuple[str, int, int]:
    """Return this attempt's id, as its backend set it: job, index, attempt."""
    variable = os.environ.get
    return variable("HANSE_JOB", ""), int(variable("HANSE_TASK", "0")), int(variable("HANSE_ATTEMPT", "0"))
