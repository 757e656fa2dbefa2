"""Report on starts that wait in Slurm, for people: made from the latest poll on request."""

from collections.abc import Sequence

from hanse.live.backends.interface import PENDING_REASON_CHARACTERS_MAX, PendingAttempt
from hanse.live.backends.slurm.attempt_store import SlurmAttempt, SubmitPhase
from hanse.live.backends.slurm.driver import PENDING_STATES, SlurmJob
from hanse.live.backends.slurm.pending_reasons import explain_reason


def find_pending_attempt(
    attempt: SlurmAttempt, jobs: Sequence[SlurmJob], node_name: str, is_unavailable: bool
) -> PendingAttempt | None:
    """Return the wait of an attempt, with its reason; None: it has begun, has ended, or is being taken back.
    ``is_unavailable``: Slurm does not answer now."""
    if (
        attempt.started
        or attempt.end is not None
        or attempt.end_reason is not None
        or attempt.stop_at is not None
    ):
        return None
    launch = attempt.launch
    text = _describe_reason(attempt, [job for job in jobs if not job.has_ended])
    reason = f"Slurm does not answer now; before that: {text}" if is_unavailable else text
    return PendingAttempt(
        launch.task,
        launch.attempt,
        launch.node,
        node_name,
        attempt.requested_at,
        reason[:PENDING_REASON_CHARACTERS_MAX],
    )


def _describe_reason(attempt: SlurmAttempt, jobs: Sequence[SlurmJob]) -> str:
    if not jobs:
        if attempt.phase is SubmitPhase.SUBMITTED:
            return "it was handed to Slurm, which has not shown it yet"
        return f"Slurm has not taken it yet: {attempt.submit_error or 'it has not answered'}"
    job = max(jobs, key=lambda job: (job.number, job.element))  # the latest, if it was submitted again
    if job.state not in PENDING_STATES:
        return f"in Slurm it is {job.state}, and it has not begun"
    if not job.reason:
        return f"Slurm gives no reason yet ({job.state})"
    return f"Slurm says {explain_reason(job.reason)}"
