"""Report on starts that wait in Slurm, for people: made from the latest poll on request."""

from collections.abc import Sequence

from hanse.live.backends.interface import WAIT_CHARACTERS_MAX, Wait
from hanse.live.backends.slurm.attempt_store import Attempt, Phase
from hanse.live.backends.slurm.driver import PENDING, SlurmJob
from hanse.live.backends.slurm.pending_reasons import in_words


def wait_of(attempt: Attempt, jobs: Sequence[SlurmJob], place: str, away: bool) -> Wait | None:
    """Return the wait of an attempt, with its reason; None: it has begun, has ended, or is being taken back.
    ``is_unavailable``: Slurm does not answer now."""
    if attempt.started or attempt.end is not None or attempt.fate is not None or attempt.stop_at is not None:
        return None
    launch = attempt.launch
    said = _said(attempt, [job for job in jobs if not job.is_over])
    reason = f"Slurm does not answer now; before that: {said}" if away else said
    return Wait(
        launch.task, launch.attempt, launch.node, place, attempt.taken_at, reason[:WAIT_CHARACTERS_MAX]
    )


def _said(attempt: Attempt, jobs: Sequence[SlurmJob]) -> str:
    if not jobs:
        if attempt.phase is Phase.SUBMITTED:
            return "it was handed to Slurm, which has not shown it yet"
        return f"Slurm has not taken it yet: {attempt.trouble or 'it has not answered'}"
    job = max(jobs, key=lambda job: (job.number, job.element))  # the latest, if it was submitted again
    if job.state not in PENDING:
        return f"in Slurm it is {job.state}, and it has not begun"
    if not job.reason:
        return f"Slurm gives no reason yet ({job.state})"
    return f"Slurm says {in_words(job.reason)}"
