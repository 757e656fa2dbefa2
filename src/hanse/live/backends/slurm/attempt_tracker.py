"""Tracker of a runner's attempts: it reads their records, forces ends, and reports only certain ends.

An end is certain in three cases: this daemon took the attempt before any job; Slurm reported the end of the
job that took it, on a node that lives (``reconciler``); or the lease that its script could have read has run
out.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hanse.live.backends.interface import BackendListener
from hanse.live.backends.process.launch_requests import LaunchRefusal
from hanse.live.backends.slurm.attempt_store import (
    NO_PROGRAM,
    AttemptStore,
    EndReason,
    SlurmAttempt,
    SubmitPhase,
)
from hanse.live.backends.slurm.batch_script import BatchScriptWriter
from hanse.live.backends.slurm.exit_status import LEASE_NOTE, end_from_record, end_without_record
from hanse.live.backends.slurm.fs_thread import FsThread
from hanse.live.backends.slurm.job_names import AttemptId
from hanse.live.backends.slurm.shared_directory import AttemptRecords, SharedDirectory, parse_record_name
from hanse.model.ids import SECOND, task_text
from hanse.model.messages import AttemptEnd, Outcome

EXPLANATION_MICROSECONDS_MAX: Final = 10 * SECOND
"""Time to wait for Slurm's explanation of a task that was killed from outside."""
EXPLANATION_MICROSECONDS_LISTED_MAX: Final = 120 * SECOND
"""The same while its job is still listed: it is completing, or an epilog runs."""
SLACK_MICROSECONDS: Final = 2 * SECOND
"""Time that a script may take to end its task when the time has come."""
NO_LEASE_MICROSECONDS: Final = 10 * SECOND
"""Time to wait for a vanished attempt where no lease was ever given."""
RETRIED_OUTCOMES: Final = (Outcome.LOST, Outcome.PREEMPTED, Outcome.UNSTARTED)
"""Outcomes after which a task starts anew: the log gives the reason."""

log = logging.getLogger(__name__)


class SlurmAttemptTracker:
    """Tracker of all attempts. ``poll_soon`` requests a poll of Slurm; ``on_ended`` gets the key of an ended
    attempt."""

    def __init__(
        self,
        shared: SharedDirectory,
        store: AttemptStore,
        fs_thread: FsThread,
        poll_soon: Callable[[], None],
        on_ended: Callable[[AttemptId], None],
    ) -> None:
        self.attempts: dict[AttemptId, SlurmAttempt] = {}
        self.shared = shared
        self.fs_thread = fs_thread
        self.listener: BackendListener | None = None
        self.closed = False
        self._store = store
        self._poll_soon = poll_soon
        self._on_ended = on_ended
        self._lease_until = 0
        self._has_lapsed = False
        self._timer: asyncio.TimerHandle | None = None

    def find_live(self, keys: list[AttemptId]) -> list[SlurmAttempt]:
        """Return the attempts among ``keys`` that have not ended."""
        found = [self.attempts.get(key) for key in keys]
        return [attempt for attempt in found if attempt is not None and attempt.end is None]

    def close(self) -> None:
        """Stop all reports."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()

    # --- records --------------------------------------------------------------------------------------------

    def load(self, scripts: BatchScriptWriter) -> None:
        """Load all records, and update them from the scripts' records. Blocks."""
        lease = self.shared.read_lease()
        lapsed = 0 < lease <= time.time() * 1_000
        if lease:
            self._lease_until, self._has_lapsed = now() + lease * 1_000 - time.time_ns() // 1_000, lapsed
        for launch, end in self._store.load():
            command = scripts.read_program(launch)
            attempt = SlurmAttempt(launch, NO_PROGRAM if isinstance(command, LaunchRefusal) else command, 0)
            attempt.phase, attempt.submit_count, attempt.end = SubmitPhase.SUBMITTED, 1, end
            attempt.requested_at = self._store.saved_at(attempt.key)
            self.attempts[attempt.key] = attempt
            if end is None:
                self._reload(attempt, lapsed)

    def _reload(self, attempt: SlurmAttempt, lapsed: bool) -> None:
        words = self.shared.read_orders(attempt.key).split()
        if words[:1] == ["stop"]:
            attempt.stop_at = now()
        records = self.shared.read_records(attempt.key)
        if records.begin is None and (lapsed or not words or attempt.stop_at is not None):
            records = self.shared.revoke(attempt.key)
        attempt.begin_record, attempt.has_refusal = records.begin, records.has_refusal
        attempt.started = records.begin is not None and records.begin.kind == "ran"
        if records.end is not None:
            attempt.end_record = records.end
            attempt.end = end_from_record(attempt, records.end, None)
            if attempt.end is None:
                self._await_explanation(attempt)
        elif records.begin is not None and not attempt.started:
            attempt.end = end_without_record(attempt, _reason_not_started(attempt))
        elif attempt.started and lapsed:
            # Its script has ended it by the clock; a late script still reads this.
            self.shared.write_orders(attempt.key, "stop 0")
            attempt.end = end_without_record(attempt, EndReason(Outcome.LOST, LEASE_NOTE, -9))
        if attempt.end is not None:
            self._store.save_end(attempt.end)

    def on_files_created(self, names: list[str] | None) -> None:
        """Read the new records with these names; None: list all records first."""
        if names is None:
            self.fs_thread.submit(self.shared.list_records, self._on_scan_done)
            return
        for name in names:
            key = parse_record_name(name)
            attempt = self.attempts.get(key) if key is not None else None
            if attempt is not None and attempt.end is None:
                if name.endswith(".began") and attempt.begin_record is not None:
                    continue
                self.read_records(attempt, partial(self.on_records_read, attempt))

    def _on_scan_done(self, names: list[str] | OSError) -> None:
        if isinstance(names, list):
            self.on_files_created(names)

    def read_records(
        self, attempt: SlurmAttempt, on_done: Callable[[AttemptRecords | OSError], None]
    ) -> None:
        """Have an attempt's records read."""
        self.fs_thread.submit(lambda: self.shared.read_records(attempt.key), on_done)

    def on_records_read(self, attempt: SlurmAttempt, records: AttemptRecords | OSError) -> None:
        """Apply the records of an attempt."""
        if isinstance(records, OSError) or attempt.end is not None or self.closed:
            return
        attempt.has_refusal = records.has_refusal
        if records.begin is not None:
            attempt.begin_record = records.begin
            if records.begin.kind != "ran":
                self.finish(attempt, end_without_record(attempt, _reason_not_started(attempt)))
                return
            if not attempt.started:
                attempt.started = True
                assert self.listener is not None, "news before reconcile"
                self.listener.on_attempt_started(*attempt.key)
        if records.end is not None and attempt.end_record is None:
            attempt.end_record = records.end
            self.conclude(attempt, attempt.final_state or None)

    def conclude(self, attempt: SlurmAttempt, slurm_state: str | None) -> None:
        """Finish an attempt whose script has recorded the end; Slurm may have to explain it first."""
        assert attempt.end_record is not None, "no end to conclude from"
        end = end_from_record(attempt, attempt.end_record, slurm_state)
        if end is not None:
            self.finish(attempt, end)
        else:
            self._await_explanation(attempt)
            self._poll_soon()
            self.set_timer()

    def _await_explanation(self, attempt: SlurmAttempt) -> None:
        attempt.explanation_due = now() + EXPLANATION_MICROSECONDS_MAX
        attempt.explanation_deadline = now() + EXPLANATION_MICROSECONDS_LISTED_MAX

    def finish(self, attempt: SlurmAttempt, end: AttemptEnd) -> None:
        """Record and report the end of an attempt."""
        if attempt.end is not None or self.closed:
            return
        attempt.end = end
        if end.outcome in RETRIED_OUTCOMES:
            log.info("%s attempt %d is %s: %s", task_text(end.task), end.attempt, end.outcome, end.note)
        try:
            self._store.save_end(end)
        except OSError as error:  # after a restart the shared directory gives the end again
            log.error("the end of %s cannot be kept: %s", task_text(end.task), error)  # noqa: TRY400  the sentence says it all
        self._on_ended(attempt.key)
        assert self.listener is not None, "an end before reconcile"
        self.listener.on_attempt_ended(end)
        if attempt.phase is not SubmitPhase.WAITING and not attempt.started:
            self._poll_soon()  # its job waits in Slurm for nothing

    # --- forced ends ----------------------------------------------------------------------------------------

    def stop(self, attempt: SlurmAttempt, grace: int) -> None:
        """Order its end after ``grace`` microseconds; an attempt that has not begun never will."""
        text = f"stop {grace // 1_000}"
        self.fs_thread.submit(lambda: self.shared.write_orders(attempt.key, text))
        if not attempt.started:
            self.revoke(attempt)

    def revoke(self, attempt: SlurmAttempt) -> None:
        """Take the attempt, unless a job has taken it."""
        self.fs_thread.submit(lambda: self.shared.revoke(attempt.key), partial(self.on_records_read, attempt))

    def withdraw_start(self, attempt: SlurmAttempt, end_reason: EndReason) -> None:
        """Withdraw a start that hangs. An attempt that has begun meanwhile goes on."""

        def on_revoked(records: AttemptRecords | OSError) -> None:
            is_revoked = (
                isinstance(records, AttemptRecords)
                and records.begin is not None
                and records.begin.kind == "revoked"
            )
            if is_revoked and attempt.end_reason is None:
                attempt.end_reason = end_reason
            self.on_records_read(attempt, records)

        self.fs_thread.submit(lambda: self.shared.revoke(attempt.key), on_revoked)

    def force_end(self, attempt: SlurmAttempt, end_reason: EndReason) -> None:
        """Order its end, and wait until that is certain: its script obeys, or cannot read the lease any
        more."""
        attempt.end_reason = end_reason
        lease_until = max(self._lease_until, now()) if self._lease_until else now() + NO_LEASE_MICROSECONDS
        attempt.certain_end_at = lease_until + SLACK_MICROSECONDS
        self.stop(attempt, 0)
        self.set_timer()

    # --- time -----------------------------------------------------------------------------------------------

    def is_lease_over(self) -> bool:
        """True if there was a lease and is none now."""
        return 0 < self._lease_until <= now()

    def extend_lease(self, until: int) -> None:
        """Move the lease. First end the attempts that outlived the last one: elsewhere they count as lost."""
        if until <= self._lease_until:
            return
        if self.is_lease_over():
            self._on_lease_lapsed()
        self._lease_until, self._has_lapsed = until, False
        wall = -(-(time.time_ns() // 1_000 + until - now()) // 1_000)
        self.fs_thread.submit(lambda: self.shared.write_lease(wall))
        self.set_timer()

    def _on_lease_lapsed(self) -> None:
        """End all running attempts, because the lease is over, and prevent the start of all others."""
        if self._has_lapsed:
            return
        self._has_lapsed = True
        for attempt in self.attempts.values():
            if attempt.end is None:
                self.force_end(attempt, attempt.end_reason or EndReason(Outcome.LOST, LEASE_NOTE, -9))

    def set_timer(self) -> None:
        """Set one timer for the next time at which something is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.closed:
            return
        due = [self._lease_until] if self._lease_until and not self._has_lapsed else []
        for attempt in self.attempts.values():
            if attempt.end is None:
                due += [at for at in (attempt.certain_end_at, attempt.explanation_due) if at]
                if _is_unacknowledged(attempt):
                    due.append(attempt.submit_deadline)
        if due:
            delay = max(0, min(due) - now()) / SECOND
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        at = now()
        if self.is_lease_over():
            self._on_lease_lapsed()
        for attempt in list(self.attempts.values()):
            if attempt.end is not None:
                continue
            if attempt.certain_end_at and at >= attempt.certain_end_at:
                attempt.certain_end_at = 0
                self._read_last_records(attempt)
            elif attempt.explanation_due and at >= attempt.explanation_due:
                if attempt.has_live_job and at < attempt.explanation_deadline:
                    attempt.explanation_due = at + EXPLANATION_MICROSECONDS_MAX
                else:
                    attempt.explanation_due = 0
                    self.conclude(attempt, "")
            elif _is_unacknowledged(attempt) and attempt.submit_deadline <= at:
                self.force_end(attempt, _reason_not_submitted(attempt))
        self.set_timer()

    def _read_last_records(self, attempt: SlurmAttempt) -> None:
        """Finish an attempt at its forced end: by its last records, or else by its end reason."""

        def on_read(records: AttemptRecords | OSError) -> None:
            self.on_records_read(attempt, records)
            if attempt.end is None and attempt.end_reason is not None:
                self.finish(attempt, end_without_record(attempt, attempt.end_reason))

        self.read_records(attempt, on_read)


def _is_unacknowledged(attempt: SlurmAttempt) -> bool:
    """True if Slurm has not acknowledged it, so that it will be given up."""
    return (
        attempt.phase is not SubmitPhase.SUBMITTED
        and attempt.submit_deadline > 0
        and attempt.end_reason is None
    )


def _reason_not_submitted(attempt: SlurmAttempt) -> EndReason:
    if attempt.submit_error:
        return EndReason(Outcome.LOST, f"Slurm did not take it: {attempt.submit_error}")
    return EndReason(Outcome.UNSTARTED, "Slurm's controller does not answer")


def _reason_not_started(attempt: SlurmAttempt) -> EndReason:
    """Return the end of an attempt that was taken before any task ran."""
    if attempt.end_reason is not None:
        return attempt.end_reason
    if attempt.stop_at is not None:
        return EndReason(
            Outcome.CANCELLED, attempt.pending_reason and f"it had not begun: {attempt.pending_reason}"
        )
    return EndReason(Outcome.UNSTARTED, "no lease to start it under")


def now() -> int:
    """Return CLOCK_BOOTTIME in microseconds: the clock of all times but those in the shared directory."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
