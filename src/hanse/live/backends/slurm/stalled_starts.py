"""Starts that hang in Slurm: acknowledged, not begun, and not in the queue for room either.

1. The controller sends a job to its node, and the node's daemon does not answer in time. 2. Slurm puts the
job back into its queue, whatever was said about requeueing, with leave to begin two minutes later; or it
shows the job as completing until it asks the node again, a minute later. 3. Until then nobody says anything,
while there may be room elsewhere. So such a start has a limit, after which it is taken back: one that has
begun all the same goes on, and one that has not never will.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hanse.live.backends.slurm.driver import PENDING, SlurmJob
from hanse.live.backends.slurm.pending_reasons import bars, in_words
from hanse.model.ids import SECOND

SETTLE_MICROSECONDS: Final = 3 * SECOND
"""How much later than Slurm's word a script's may be seen."""
BARRED_DOUBLINGS_MAX: Final = 6
"""How often the patience with a limit is doubled, once for every earlier attempt of the task. The room that a
limit bars is on offer all the same; without that a league of one cluster would take a task back from a queue
that moves slowly, and put it there again, until it counts as lost too often."""
_HELD_STATES: Final = PENDING - {"PENDING"}
_HELD_REASONS: Final = (
    "begintime",
    "jobheld",
    "jobhold",
    "joblaunchfailure",
    "launch failed",
    "job requeued",
)
"""How the reasons begin of jobs that do not wait for room: ours ask for no time, and nobody should hold
them."""
_BOOTING: Final = "CONFIGURING"
"""The node is made ready, for which Slurm has a limit of its own (``ResumeTimeout``)."""


class Stall(msgspec.Struct, frozen=True):
    """Why a start hangs, and how long it may."""

    why: str
    limit: int
    """Microseconds."""


def stall(jobs: Iterable[SlurmJob], closed: bool, begin_max: int, attempt: int = 1) -> Stall | None:
    """Why the start of an attempt that has not begun hangs, if every one of its jobs does that is not over;
    the most patient of the reasons. ``closed``: its node takes no jobs now. ``attempt``: its number, see
    ``BARRED_DOUBLINGS_MAX``."""
    found: Stall | None = None
    for job in jobs:
        if job.is_over:
            continue
        one = _stall(job, closed, begin_max, attempt)
        if one is None:
            return None
        if found is None or one.limit > found.limit:
            found = one
    return found


def went_back(jobs: Iterable[SlurmJob], begin_max: int) -> Stall | None:
    """The same for an attempt that has begun and has not told its end: its job waits in the queue again."""
    again = [job for job in jobs if job.state in PENDING]
    return Stall("Slurm ended it to launch it anew", begin_max) if again else None


def _stall(job: SlurmJob, closed: bool, begin_max: int, attempt: int) -> Stall | None:
    if job.state == _BOOTING:
        return None
    if job.state in PENDING:
        held = job.state in _HELD_STATES or job.reason.lower().startswith(_HELD_REASONS)
        if held:
            return Stall(
                f"Slurm holds it back ({job.reason or job.state}): it could not be launched",
                SETTLE_MICROSECONDS,
            )
        if bars(job.reason):
            patience = begin_max << min(max(attempt - 1, 0), BARRED_DOUBLINGS_MAX)
            return Stall(f"Slurm does not let it start: {in_words(job.reason)}", patience)
        return Stall("it waits in Slurm for a node that is closed", begin_max) if closed else None
    if job.state == "COMPLETING":
        return Stall("Slurm could not launch it", SETTLE_MICROSECONDS)
    return Stall(f"in Slurm it is {job.state}, and it has not begun", begin_max)
