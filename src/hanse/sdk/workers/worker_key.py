"""How a hand gets its key and keeps it: from standard input, and out of sight of other tasks."""

import os
import sys
from typing import Final

from hanse.model.attempt_key import SECRET_BYTES

PR_SET_DUMPABLE: Final = 4
"""Of ``prctl``."""
NO_KEY: Final = (
    "no key on standard input: this cluster's Hanse is older than the executor's (update its members), or "
    "another task of the same user has taken it (see 'whom it trusts' in docs/sdk.md)"
)


def read_key() -> bytes:
    """The key of this attempt, which is on standard input and can be read once; empty: there is none.

    Before that, other processes of the same user are shut out of this one's memory and files: the supervisor
    of a root league has done it already, elsewhere nobody has. Raises ``OSError`` if that cannot be done.
    """
    _hide()
    text = b""
    while len(text) <= 2 * SECRET_BYTES:
        piece = os.read(0, 2 * SECRET_BYTES + 1 - len(text))
        if not piece:
            break
        text += piece
    nothing = os.open(os.devnull, os.O_RDONLY)  # what is called here finds what other tasks find
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return b""


def _hide() -> None:
    """Say that this process may be neither dumped nor looked into, but by root. Forks inherit it."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  what is called may need it never

        if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            raise OSError("the kernel does not close this process to others of its user")


def own_attempt() -> tuple[str, int, int]:
    """Which attempt this is, as its backend says: job, index, attempt."""
    given = os.environ.get
    return given("HANSE_JOB", ""), int(given("HANSE_TASK", "0")), int(given("HANSE_ATTEMPT", "0"))
