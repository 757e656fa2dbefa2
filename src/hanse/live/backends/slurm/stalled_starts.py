"""Starts that hang in Slurm: acknowledged, not begun, and not queued for resources either.

1. The controller sends a job to its node, and the node's daemon does not answer in time. 2. Slurm requeues
the job, against its options, and lets it begin two minutes later; or it shows the job as completing until it
asks the node again, a minute later. 3. Until then nothing reports the fault, while other nodes may be free.
So such a start has a limit, after which it is withdrawn: an attempt that has begun all the same goes on, and
one that has not never will.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hanse.live.backends.slurm.driver import PENDING_STATES, SlurmJob
from hanse.live.backends.slurm.pending_reasons import explain_reason, is_barred
from hanse.model.ids import SECOND

SCRIPT_DELAY_MICROSECONDS: Final = 3 * SECOND
"""Longest delay of a script's record behind Slurm's state."""
BARRED_DOUBLINGS_MAX: Final = 6
"""Doublings of the patience with a limit, once for every earlier attempt of the task. The resources that a
limit bars are on offer all the same; without the doubling a league of one cluster would take a task back from
a queue that moves slowly, and put it there again, until it counts as lost too often."""
_HELD_STATES: Final = PENDING_STATES - {"PENDING"}
_HELD_REASONS: Final = (
    "begintime",
    "jobheld",
    "jobhold",
    "joblaunchfailure",
    "launch failed",
    "job requeued",
)
"""Beginnings of reasons that do not concern free resources: Hanse's jobs ask for no start time, and no one
should hold them."""
_BOOTING: Final = "CONFIGURING"
"""The node is booting, for which Slurm has a limit of its own (``ResumeTimeout``)."""


class Stall(msgspec.Struct, frozen=True):
    """Reason and time limit of a start that hangs."""

    reason: str
    limit: int
    """Microseconds."""


def find_stall(jobs: Iterable[SlurmJob], closed: bool, begin_max: int, attempt: int = 1) -> Stall | None:
    """Return the stall of an attempt that has not begun, if each of its jobs that has not ended hangs; the
    one with the longest limit. ``closed``: its node takes no jobs now. ``attempt``: its number, see
    ``BARRED_DOUBLINGS_MAX``."""
    found: Stall | None = None
    for job in jobs:
        if job.has_ended:
            continue
        job_stall = find_job_stall(job, closed, begin_max, attempt)
        if job_stall is None:
            return None
        if found is None or job_stall.limit > found.limit:
            found = job_stall
    return found


def find_requeue(jobs: Iterable[SlurmJob], begin_max: int) -> Stall | None:
    """Return the stall of an attempt that has begun and not recorded its end: its job is pending again."""
    again = [job for job in jobs if job.state in PENDING_STATES]
    return Stall("Slurm ended it to launch it anew", begin_max) if again else None


def find_job_stall(job: SlurmJob, closed: bool, begin_max: int, attempt: int) -> Stall | None:
    """Return the stall of one Slurm job; ``closed``: the node it asks for takes no work."""
    if job.state == _BOOTING:
        return None
    if job.state in PENDING_STATES:
        held = job.state in _HELD_STATES or job.reason.lower().startswith(_HELD_REASONS)
        if held:
            return Stall(
                f"Slurm holds it back ({job.reason or job.state}): it could not be launched",
                SCRIPT_DELAY_MICROSECONDS,
            )
        if is_barred(job.reason):
            patience = begin_max << min(max(attempt - 1, 0), BARRED_DOUBLINGS_MAX)
            return Stall(f"Slurm does not let it start: {explain_reason(job.reason)}", patience)
        return Stall("it waits in Slurm for a node that is closed", begin_max) if closed else None
    if job.state == "COMPLETING":
        return Stall("Slurm could not launch it", SCRIPT_DELAY_MICROSECONDS)
    return Stall(f"in Slurm it is {job.state}, and it has not begun", begin_max)
