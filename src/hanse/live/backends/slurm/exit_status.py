"""End of an attempt, from its script's record and Slurm's state."""

from typing import Final

from hanse.live.backends.slurm.attempt_store import Attempt, Fate
from hanse.live.backends.slurm.batch_script import LEASE_OVER, STOPPED, Ended
from hanse.live.backends.slurm.driver import PENDING
from hanse.model.messages import AttemptEnd, Outcome, ResourceUsage

NOTE_LENGTH_MAX: Final = 200
CLOCKS_APART_MILLISECONDS_MAX: Final = 1_500
"""Largest difference between the clocks of controller and node, with Slurm's times in whole seconds, before a
launch seems to be later than the start of its task."""
LEASE_NOTE: Final = "the lease it ran under is over"
KILLED: Final = -9
FATES: Final = {
    "BOOT_FAIL": Fate(Outcome.LOST, "Slurm could not boot its node"),
    "CANCELLED": Fate(Outcome.FAILED, "cancelled in Slurm by somebody else", -15),
    "DEADLINE": Fate(Outcome.FAILED, "Slurm's deadline for it has passed", -15),
    "NODE_FAIL": Fate(Outcome.LOST, "Slurm says that its node failed"),
    "OUT_OF_MEMORY": Fate(Outcome.FAILED, "out of memory", KILLED),
    "PREEMPTED": Fate(Outcome.PREEMPTED, "preempted in Slurm"),
    "REVOKED": Fate(Outcome.LOST, "Slurm's federation ran it elsewhere"),
    "TIMEOUT": Fate(Outcome.FAILED, "it ran into Slurm's time limit", -15),
}
"""Ends by the state of an ended job, for an attempt whose script could not record its end, or was ended from
outside."""
SHAKEN: Final = Fate(Outcome.LOST, "ended by Slurm when its controller came back", -15)
LAUNCHED_AGAIN: Final = Fate(Outcome.LOST, "Slurm forgot that it ran, and launched it again", -15)
REQUEUED: Final = Fate(Outcome.LOST, "Slurm ended it to launch it anew", -15)
"""Despite ``--no-requeue``: Slurm does it when its first launch was answered too late."""
OUTSIDE: Final = Fate(Outcome.LOST, "ended from outside, and Slurm does not say why", -15)
NEVER_BEGAN: Final = Fate(Outcome.LOST, "cancelled in Slurm before it began")
UNEXPLAINED: Final = Fate(
    Outcome.LOST, "it ended in Slurm without a record: check its node's shared directory"
)


def told(attempt: Attempt, ended: Ended, slurm_state: str | None) -> AttemptEnd | None:
    """Return the end that an ``ended`` record means; None if Slurm must be asked first. ``slurm_state``: its
    answer, empty if there is none to come, None if it has not been asked."""
    task, number = attempt.key
    usage = ResourceUsage(ended.cpu, ended.memory, ended.ran)
    by_itself = ended.why == 0 and not ended.outside
    if ended.why == LEASE_OVER:
        return AttemptEnd(task, number, Outcome.LOST, ended.code, usage, LEASE_NOTE)
    if attempt.fate is not None and not (by_itself and ended.code >= 0):
        return AttemptEnd(task, number, attempt.fate.outcome, ended.code, usage, attempt.fate.note)
    if ended.why == STOPPED or attempt.stop_at is not None:
        return AttemptEnd(task, number, Outcome.CANCELLED, ended.code, usage)
    if ended.outside or ended.code == KILLED:
        if slurm_state is None:
            return None
        fate = explained(attempt, slurm_state)
        if fate is None and ended.outside and not slurm_state:
            fate = OUTSIDE
        if fate is not None:
            return AttemptEnd(task, number, fate.outcome, ended.code, usage, fate.note)
    outcome = Outcome.FAILED if ended.code else Outcome.SUCCEEDED
    return AttemptEnd(task, number, outcome, ended.code, usage)


def explained(attempt: Attempt, slurm_state: str) -> Fate | None:
    """Return the end that Slurm's state means for an attempt ended from outside; None if it means none."""
    if slurm_state in ("", "CANCELLED"):
        if attempt.shaken:
            return SHAKEN
        if _launched_again(attempt):
            return LAUNCHED_AGAIN
    return REQUEUED if slurm_state in PENDING else FATES.get(slurm_state)


def _launched_again(attempt: Attempt) -> bool:
    """True if Slurm has launched the job of an attempt after the attempt had begun.

    1. The controller launches a job and crashes before that is saved. 2. The next one is there so soon that
    no poll failed. 3. It launches the job again; the node answers that the job runs already, cannot requeue a
    job with ``--no-requeue``, and cancels it. In Slurm that looks like a cancellation by a person.
    """
    began = attempt.began
    if began is None or began.verdict != "ran":
        return False
    return attempt.launches.get(began.job, 0) * 1_000 > began.at + CLOCKS_APART_MILLISECONDS_MAX


def untold(attempt: Attempt, fate: Fate) -> AttemptEnd:
    """Return the end of an attempt whose script recorded none."""
    return AttemptEnd(*attempt.key, fate.outcome, fate.code, note=fate.note[:NOTE_LENGTH_MAX])
