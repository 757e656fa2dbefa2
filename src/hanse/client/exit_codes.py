"""With which status ``hanse`` ends, so that scripts can tell what happened without reading any text.

Ordinary numbers are kept low; 65 to 78 are those of the BSD ``sysexits`` for the same meanings, 100 to 105
say how a job ended (the numbers that SkyPilot's users know), 124 is what ``timeout(1)`` gives, and 130 is
what a shell gives for an interrupt. A number never changes its meaning.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Every status of every command."""

    OK = 0
    """What was asked for was done."""
    FAILED = 1
    """It was done and the answer is bad: a promise was broken, work did not succeed, a plan must wait."""
    USAGE = 2
    """The command line was not understood; nothing was done."""
    UNPLACEABLE = 3
    """The league cannot place the job: no cluster could ever run it, or the league did not take it."""
    BAD_JOB = 65
    """A job breaks a rule of the form; nothing was submitted."""
    UNAVAILABLE = 69
    """No league can be reached, or not the part of it that knows the answer."""
    BUG = 70
    """A bug of Hanse: the traceback is for its makers."""
    FILE = 74
    """A file could not be read or written."""
    UNSURE = 75
    """The league did not say in time whether it has the job; doing the same again is safe."""
    FORBIDDEN = 77
    """The certificate or the access token does not allow this, or is not believed."""
    CONFIG = 78
    """The file of contexts, or what it points to, cannot be used."""
    JOB_FAILED = 100
    """A job that was waited for has failed."""
    JOB_NOT_FINISHED = 101
    """The job has not ended yet."""
    JOB_NOT_FOUND = 102
    """No broker knows the job, or there is no such task or output."""
    JOB_CANCELLED = 103
    """A job that was waited for was cancelled."""
    JOB_DEADLINE = 105
    """A job that was waited for was cancelled because its deadline had passed."""
    TIMEOUT = 124
    """The time given with ``--timeout`` is over; the job goes on."""
    INTERRUPTED = 130
    """Somebody pressed Ctrl-C."""
    UNTOLD = 255
    """``hanse plan`` could not tell: an error, not an answer."""
