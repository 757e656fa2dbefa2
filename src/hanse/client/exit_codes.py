"""Exit codes of ``hanse``, so that scripts can tell what happened without reading any text.

Ordinary numbers are low; 65 to 78 are those of the BSD ``sysexits`` for the same meanings, 100 to 105 say how
a job ended (as in SkyPilot), 124 is that of ``timeout(1)``, and 130 is a shell's for an interrupt. A number
never changes its meaning.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands."""

    OK = 0
    """The command succeeded."""
    FAILED = 1
    """The command ran and the result is bad: a broken promise, unsuccessful work, a plan that must wait."""
    USAGE = 2
    """The command line is invalid; nothing was done."""
    UNPLACEABLE = 3
    """The league cannot place the job: no cluster could ever run it, or the league refused it."""
    BAD_JOB = 65
    """A job breaks a rule of the form; nothing was submitted."""
    UNAVAILABLE = 69
    """The league cannot be reached, or not the part of it that knows the answer; or a package that the
    command needs is not installed."""
    BUG = 70
    """A bug of Hanse: please report the traceback."""
    FILE = 74
    """A file could not be read or written."""
    UNSURE = 75
    """The league did not confirm the job in time; repeating the command is safe."""
    FORBIDDEN = 77
    """The certificate or the access token does not allow this, or is not accepted."""
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
    """The time given with ``--timeout`` has passed; the job goes on."""
    INTERRUPTED = 130
    """The command was interrupted with Ctrl-C."""
    UNDETERMINED = 255
    """``hanse plan`` failed: an error, not an answer."""
