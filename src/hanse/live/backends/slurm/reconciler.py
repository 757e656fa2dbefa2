"""Reconciliation of requested attempts with Slurm's jobs, at every poll.

1. The controller acknowledges a job and crashes before it is saved. 2. Another one starts, does not know the
job, and gives its number to a job of others. So only names identify jobs, and a missing job is submitted
again if it has not begun: should the first be alive somewhere, only one of the two begins.

1. A node falls silent; Slurm calls it down and its jobs failed. 2. The step goes on there, and its task with
it. So an attempt on such a node is ordered to end, and counts as lost when its script records that, or when
the lease that the script could have read has run out.
"""

import logging
from collections.abc import Callable
from typing import Final

from hanse.live.backends.slurm.attempt_store import EndReason, SlurmAttempt, SubmitPhase
from hanse.live.backends.slurm.attempt_tracker import SLACK_MICROSECONDS, SlurmAttemptTracker, now
from hanse.live.backends.slurm.driver import PENDING_STATES, SlurmJob
from hanse.live.backends.slurm.exit_status import (
    NEVER_STARTED,
    UNEXPLAINED,
    end_without_record,
    explain_state,
)
from hanse.live.backends.slurm.job_names import AttemptId, job_comment
from hanse.live.backends.slurm.poller import PollResult
from hanse.live.backends.slurm.shared_directory import AttemptRecords
from hanse.live.backends.slurm.stalled_starts import SCRIPT_DELAY_MICROSECONDS, find_requeue, find_stall
from hanse.live.backends.slurm.submitter import START_MICROSECONDS_MAX
from hanse.model.ids import SECOND, task_text
from hanse.model.messages import Outcome

SUBMITS_MAX: Final = 5
"""Submissions of an attempt that Slurm forgets."""
MISSING_POLLS_MAX: Final = 2
"""Polls in a row without a job, after which Slurm has forgotten it."""
LINGER_MICROSECONDS: Final = 5 * SECOND
"""Time that a useless job may run on."""

log = logging.getLogger(__name__)


class SlurmReconciler:
    """Reconciler of a tracker's attempts. ``submit``: submits these; ``begin_max``: see ``settings``."""

    def __init__(
        self, tracker: SlurmAttemptTracker, submit: Callable[[list[AttemptId]], None], begin_max: int
    ) -> None:
        self._tracker = tracker
        self._submit = submit
        self._begin_max = begin_max
        self._rereading: dict[AttemptId, None] = {}
        self._useless_since: dict[tuple[int, int], int] = {}
        self.lingering_jobs: frozenset[tuple[int, int]] = frozenset()
        """Useless jobs (number, element) that Slurm does not let go: their resources are not free."""

    def reconcile(self, result: PollResult, closed_nodes: frozenset[int] = frozenset()) -> None:
        """Check every attempt, and submit those that wait. ``closed_nodes``: nodes that take no jobs now.

        A submission without an answer may have been taken. So it is repeated only after later polls that do
        not show it. An overloaded controller can take it even then; then there are two jobs, and the second
        to begin finds the attempt taken.
        """
        waiting = []
        for key, attempt in self._tracker.attempts.items():
            if attempt.end is None:
                jobs = result.by_key.get(key, [])
                self._reconcile_attempt(attempt, jobs, result.at)
                self._check_stall(attempt, jobs, attempt.launch.node in closed_nodes, result.at)
                if _is_resubmit_due(attempt, result.at):
                    waiting.append(key)
        self._submit(waiting)

    def _check_stall(self, attempt: SlurmAttempt, jobs: list[SlurmJob], closed: bool, at: int) -> None:
        """Withdraw a start that hangs in Slurm for too long."""
        stall = None
        if attempt.phase is SubmitPhase.SUBMITTED and attempt.stop_at is None and attempt.end_record is None:
            if attempt.started:
                stall = find_requeue(_begun_jobs(attempt, jobs), self._begin_max)
            else:
                stall = find_stall(jobs, closed, self._begin_max, attempt.launch.attempt)
        if stall is None:
            attempt.stalled_since = 0
            return
        attempt.stalled_since = attempt.stalled_since or at
        if at - attempt.stalled_since >= stall.limit:
            end_attempt = self._tracker.force_end if attempt.started else self._tracker.withdraw_start
            self._reread_and_decide(
                attempt, lambda known: self._on_stalled(attempt, stall.reason, known, end_attempt)
            )

    def _on_stalled(
        self,
        attempt: SlurmAttempt,
        reason: str,
        records: AttemptRecords,
        end_attempt: Callable[[SlurmAttempt, EndReason], None],
    ) -> None:
        if records.begin is not None and end_attempt == self._tracker.withdraw_start:
            return  # it has begun meanwhile
        task, number = attempt.key
        log.warning("%s attempt %d is taken back from Slurm: %s", task_text(task), number, reason)
        end_attempt(attempt, EndReason(Outcome.LOST, reason))

    def find_useless_jobs(self, result: PollResult) -> list[SlurmJob]:
        """Return the jobs to cancel: of attempts that have ended, or that do not obey. Running ones get some
        time to end alone: a script records its end before Slurm does."""
        found: list[SlurmJob] = []
        since: dict[tuple[int, int], int] = {}
        lingering: list[tuple[int, int]] = []
        for key, jobs in result.by_key.items():
            attempt = self._tracker.attempts.get(key)
            if attempt is not None and attempt.end is None and not _is_disobeying(attempt, result.at):
                continue
            for job in jobs:
                if job.has_ended:
                    continue
                job_key = (job.number, job.element)
                since[job_key] = self._useless_since.get(job_key, result.at)
                is_lingering = result.at - since[job_key] >= LINGER_MICROSECONDS
                if job.state in PENDING_STATES or (is_lingering and job.state != "COMPLETING"):
                    found.append(job)
                if is_lingering and (attempt is None or attempt.end is not None):
                    lingering.append(job_key)  # the league counts its resources as free
        self._useless_since, self.lingering_jobs = since, frozenset(lingering)
        return found

    def _reconcile_attempt(self, attempt: SlurmAttempt, jobs: list[SlurmJob], at: int) -> None:
        if jobs and attempt.phase is SubmitPhase.WAITING:
            attempt.phase, attempt.submitted_at = SubmitPhase.SUBMITTED, at  # the answer was lost
            log.warning("Slurm has taken %s, though its answer was lost", job_comment([attempt.key]))
        if attempt.phase is not SubmitPhase.SUBMITTED or attempt.submitted_at > at:
            return
        if not jobs:
            attempt.missing_polls += 1
            if attempt.missing_polls >= MISSING_POLLS_MAX:
                self._reread_and_decide(attempt, lambda known: self._on_forgotten(attempt, known))
            return
        attempt.missing_polls = 0
        attempt.launch_times = {job.own_number: job.launched_at for job in jobs}
        attempt.has_live_job = not all(job.has_ended for job in jobs)
        if attempt.has_live_job:
            attempt.final_state = ""
            begun_jobs = _begun_jobs(attempt, jobs)
            if attempt.end_record is not None and all(job.state in PENDING_STATES for job in begun_jobs):
                self._tracker.conclude(attempt, begun_jobs[0].state)  # Slurm will launch it anew
            return
        if not attempt.final_state:
            attempt.final_since = at
        attempt.final_state = max(jobs, key=lambda job: job.number).state
        if attempt.end_record is not None:
            self._tracker.conclude(attempt, attempt.final_state)
        elif at - attempt.final_since >= SCRIPT_DELAY_MICROSECONDS:
            self._reread_and_decide(attempt, lambda known: self._on_silent_end(attempt, known, len(jobs)))

    def _reread_and_decide(self, attempt: SlurmAttempt, decide: Callable[[AttemptRecords], None]) -> None:
        """Read its records once more, and decide if they do not."""
        if attempt.end_reason is not None or attempt.key in self._rereading:
            return
        self._rereading[attempt.key] = None

        def on_read(records: AttemptRecords | OSError) -> None:
            del self._rereading[attempt.key]
            self._tracker.on_records_read(attempt, records)
            if not isinstance(records, OSError) and attempt.end is None and attempt.end_record is None:
                decide(records)

        self._tracker.read_records(attempt, on_read)

    def _on_forgotten(self, attempt: SlurmAttempt, _records: AttemptRecords) -> None:
        """Submit again, or end, an attempt whose job Slurm does not have."""
        if attempt.started:
            self._tracker.force_end(attempt, EndReason(Outcome.LOST, "Slurm forgot it while it ran"))
        elif attempt.submit_count >= SUBMITS_MAX:
            self._tracker.force_end(attempt, EndReason(Outcome.LOST, f"Slurm forgot it {SUBMITS_MAX} times"))
        else:
            task, number = attempt.key
            log.warning("Slurm forgot %s attempt %d: submitting it again", task_text(task), number)
            attempt.phase, attempt.missing_polls = SubmitPhase.WAITING, 0
            attempt.submit_deadline = (
                now() + START_MICROSECONDS_MAX
            )  # the next poll submits all of them together

    def _on_silent_end(self, attempt: SlurmAttempt, records: AttemptRecords, jobs: int) -> None:
        """End an attempt that has ended in Slurm and has no end record. The step may live on a node that
        Slurm has lost; it may live too when another execution was refused."""
        end_reason = explain_state(attempt, attempt.final_state) or UNEXPLAINED
        if attempt.final_state == "CANCELLED" and attempt.stop_at is not None:
            end_reason = EndReason(Outcome.CANCELLED)  # by this daemon, because it did not obey
        elif attempt.final_state == "CANCELLED" and not attempt.started:
            end_reason = NEVER_STARTED
        may_run = attempt.final_state in ("NODE_FAIL", "BOOT_FAIL") or records.has_refusal or jobs > 1
        if may_run or not attempt.started:
            self._tracker.force_end(attempt, end_reason)
        else:
            self._tracker.finish(attempt, end_without_record(attempt, end_reason))


def _begun_jobs(attempt: SlurmAttempt, jobs: list[SlurmJob]) -> list[SlurmJob]:
    """Return the job that took an attempt; all of its jobs if none is known to have taken it."""
    number = attempt.begin_record.job if attempt.begin_record is not None else 0
    return [job for job in jobs if job.own_number == number] or jobs


def _is_resubmit_due(attempt: SlurmAttempt, at: int) -> bool:
    """True if it should be submitted again, after a poll that began ``at``."""
    if attempt.phase is not SubmitPhase.WAITING or not attempt.submit_count or at < attempt.uncertain_since:
        return False
    attempt.missing_polls += 1
    return not attempt.uncertain_since or attempt.missing_polls >= MISSING_POLLS_MAX


def _is_disobeying(attempt: SlurmAttempt, at: int) -> bool:
    return attempt.stop_at is not None and attempt.stop_at + SLACK_MICROSECONDS < at
