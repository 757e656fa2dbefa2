"""End of an attempt, from its script's record and Slurm's state."""

from typing import Final

from hanse.live.backends.slurm.attempt_store import EndReason, SlurmAttempt
from hanse.live.backends.slurm.batch_script import LEASE_OVER, STOPPED, EndRecord
from hanse.live.backends.slurm.driver import PENDING_STATES
from hanse.model.messages import AttemptEnd, Outcome, ResourceUsage

NOTE_LENGTH_MAX: Final = 200
CLOCKS_APART_MILLISECONDS_MAX: Final = 1_500
"""Largest difference between the clocks of controller and node, with Slurm's times in whole seconds, before a
launch seems to be later than the start of its task."""
LEASE_NOTE: Final = "the lease it ran under is over"
KILLED_CODE: Final = -9
END_REASONS: Final = {
    "BOOT_FAIL": EndReason(Outcome.LOST, "Slurm could not boot its node"),
    "CANCELLED": EndReason(Outcome.FAILED, "cancelled in Slurm by somebody else", -15),
    "DEADLINE": EndReason(Outcome.FAILED, "Slurm's deadline for it has passed", -15),
    "NODE_FAIL": EndReason(Outcome.LOST, "Slurm says that its node failed"),
    "OUT_OF_MEMORY": EndReason(Outcome.FAILED, "out of memory", KILLED_CODE),
    "PREEMPTED": EndReason(Outcome.PREEMPTED, "preempted in Slurm"),
    "REVOKED": EndReason(Outcome.LOST, "Slurm's federation ran it elsewhere"),
    "TIMEOUT": EndReason(Outcome.FAILED, "it ran into Slurm's time limit", -15),
}
"""Ends by the state of an ended job, for an attempt whose script could not record its end, or was ended from
outside."""
CONTROLLER_RETURNED: Final = EndReason(Outcome.LOST, "ended by Slurm when its controller came back", -15)
LAUNCHED_AGAIN: Final = EndReason(Outcome.LOST, "Slurm forgot that it ran, and launched it again", -15)
REQUEUED: Final = EndReason(Outcome.LOST, "Slurm ended it to launch it anew", -15)
"""Despite ``--no-requeue``: Slurm does it when its first launch was answered too late."""
ENDED_EXTERNALLY: Final = EndReason(Outcome.LOST, "ended from outside, and Slurm does not say why", -15)
NEVER_STARTED: Final = EndReason(Outcome.LOST, "cancelled in Slurm before it began")
UNEXPLAINED: Final = EndReason(
    Outcome.LOST, "it ended in Slurm without a record: check its node's shared directory"
)


def end_from_record(attempt: SlurmAttempt, record: EndRecord, slurm_state: str | None) -> AttemptEnd | None:
    """Return the end that an ``ended`` record means; None if Slurm must be asked first. ``slurm_state``: its
    answer, empty if there is none to come, None if it has not been asked."""
    task, number = attempt.key
    usage = ResourceUsage(record.cpu, record.memory, record.run_time)
    is_own_exit = record.cause == 0 and not record.ended_externally
    if record.cause == LEASE_OVER:
        return AttemptEnd(task, number, Outcome.LOST, record.code, usage, LEASE_NOTE)
    if attempt.end_reason is not None and not (is_own_exit and record.code >= 0):
        return AttemptEnd(
            task, number, attempt.end_reason.outcome, record.code, usage, attempt.end_reason.note
        )
    if record.cause == STOPPED or attempt.stop_at is not None:
        return AttemptEnd(task, number, Outcome.CANCELLED, record.code, usage)
    if record.ended_externally or record.code == KILLED_CODE:
        if slurm_state is None:
            return None
        end_reason = explain_state(attempt, slurm_state)
        if end_reason is None and record.ended_externally and not slurm_state:
            end_reason = ENDED_EXTERNALLY
        if end_reason is not None:
            return AttemptEnd(task, number, end_reason.outcome, record.code, usage, end_reason.note)
    outcome = Outcome.FAILED if record.code else Outcome.SUCCEEDED
    return AttemptEnd(task, number, outcome, record.code, usage)


def explain_state(attempt: SlurmAttempt, slurm_state: str) -> EndReason | None:
    """Return the end that Slurm's state means for an attempt ended from outside; None if it means none."""
    if slurm_state in ("", "CANCELLED"):
        if attempt.saw_outage:
            return CONTROLLER_RETURNED
        if _is_launched_again(attempt):
            return LAUNCHED_AGAIN
    return REQUEUED if slurm_state in PENDING_STATES else END_REASONS.get(slurm_state)


def _is_launched_again(attempt: SlurmAttempt) -> bool:
    """True if Slurm has launched the job of an attempt after the attempt had begun.

    1. The controller launches a job and crashes before that is saved. 2. The next one is there so soon that
    no poll failed. 3. It launches the job again; the node answers that the job runs already, cannot requeue a
    job with ``--no-requeue``, and cancels it. In Slurm that looks like a cancellation by a person.
    """
    record = attempt.begin_record
    if record is None or record.kind != "ran":
        return False
    return attempt.launch_times.get(record.job, 0) * 1_000 > record.at + CLOCKS_APART_MILLISECONDS_MAX


def end_without_record(attempt: SlurmAttempt, end_reason: EndReason) -> AttemptEnd:
    """Return the end of an attempt whose script recorded none."""
    return AttemptEnd(
        *attempt.key, end_reason.outcome, end_reason.code, note=end_reason.note[:NOTE_LENGTH_MAX]
    )
