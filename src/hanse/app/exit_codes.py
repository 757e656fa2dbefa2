"""With which status ``hanse`` ends, so that scripts can tell what happened without reading any text.

Ordinary numbers are kept low; 70 and 74 are those of the BSD ``sysexits`` for the same meanings, and 130 is
what a shell gives for an interrupt. A number never changes its meaning.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Every status of every command."""

    OK = 0
    """What was asked for was done."""
    FAILED = 1
    """It was done and the answer is bad: a promise was broken, work did not succeed."""
    USAGE = 2
    """The command line was not understood; nothing was done."""
    BUG = 70
    """A bug of Hanse: the traceback is for its makers."""
    FILE = 74
    """A file could not be read or written."""
    INTERRUPTED = 130
    """Somebody pressed Ctrl-C."""
