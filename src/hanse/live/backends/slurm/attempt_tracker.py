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

from hanse.live.backends.interface import Reports
from hanse.live.backends.process.launch_requests import Refused
from hanse.live.backends.slurm.attempt_store import NOTHING, Attempt, AttemptStore, Fate, Phase
from hanse.live.backends.slurm.batch_script import ScriptMaker
from hanse.live.backends.slurm.exit_status import LEASE_NOTE, told, untold
from hanse.live.backends.slurm.fs_thread import Clerk
from hanse.live.backends.slurm.job_names import Key
from hanse.live.backends.slurm.shared_directory import Known, SharedDirectory, key_of
from hanse.model.ids import SECOND, task_text
from hanse.model.messages import AttemptEnd, Outcome

VERDICT_MICROSECONDS_MAX: Final = 10 * SECOND
"""Time to wait for Slurm's explanation of a task that was killed from outside."""
VERDICT_MICROSECONDS_LATE: Final = 120 * SECOND
"""The same while its job is still listed: it is completing, or an epilog runs."""
SLACK_MICROSECONDS: Final = 2 * SECOND
"""Time that a script may take to end its task when the time has come."""
UNLEASED_MICROSECONDS: Final = 10 * SECOND
"""Time to wait for a vanished attempt where no lease was ever given."""
GIVEN_BACK: Final = (Outcome.LOST, Outcome.PREEMPTED, Outcome.UNSTARTED)
"""Outcomes after which a task starts anew: the log gives the reason."""

log = logging.getLogger(__name__)


class Keeper:
    """Tracker of all attempts. ``poll_soon`` requests a poll of Slurm; ``on_ended`` gets the key of an ended
    attempt."""

    def __init__(
        self,
        shared: SharedDirectory,
        store: AttemptStore,
        clerk: Clerk,
        look_again: Callable[[], None],
        over: Callable[[Key], None],
    ) -> None:
        self.attempts: dict[Key, Attempt] = {}
        self.shared = shared
        self.clerk = clerk
        self.reports: Reports | None = None
        self.closed = False
        self._store = store
        self._look_again = look_again
        self._over = over
        self._until = 0
        self._lapsed = False
        self._alarm: asyncio.TimerHandle | None = None

    def living(self, keys: list[Key]) -> list[Attempt]:
        """Return the attempts among ``keys`` that have not ended."""
        found = [self.attempts.get(key) for key in keys]
        return [attempt for attempt in found if attempt is not None and attempt.end is None]

    def close(self) -> None:
        """Stop all reports."""
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()

    # --- records --------------------------------------------------------------------------------------------

    def load(self, scripts: ScriptMaker) -> None:
        """Load all records, and update them from the scripts' records. Blocks."""
        lease = self.shared.read_lease()
        lapsed = 0 < lease <= time.time() * 1_000
        if lease:
            self._until, self._lapsed = now() + lease * 1_000 - time.time_ns() // 1_000, lapsed
        for launch, end in self._store.load():
            command = scripts.check(launch)
            attempt = Attempt(launch, NOTHING if isinstance(command, Refused) else command, 0)
            attempt.phase, attempt.submits, attempt.end = Phase.SUBMITTED, 1, end
            attempt.taken_at = self._store.saved_at(attempt.key)
            self.attempts[attempt.key] = attempt
            if end is None:
                self._reload(attempt, lapsed)

    def _reload(self, attempt: Attempt, lapsed: bool) -> None:
        words = self.shared.orders(attempt.key).split()
        if words[:1] == ["stop"]:
            attempt.stop_at = now()
        known = self.shared.read(attempt.key)
        if known.began is None and (lapsed or not words or attempt.stop_at is not None):
            known = self.shared.revoke(attempt.key)
        attempt.began, attempt.refused = known.began, known.refused
        attempt.started = known.began is not None and known.began.verdict == "ran"
        if known.ended is not None:
            attempt.ended = known.ended
            attempt.end = told(attempt, known.ended, None)
            if attempt.end is None:
                self._await_verdict(attempt)
        elif known.began is not None and not attempt.started:
            attempt.end = untold(attempt, _taken(attempt))
        elif attempt.started and lapsed:
            # Its script has ended it by the clock; a late script still reads this.
            self.shared.order(attempt.key, "stop 0")
            attempt.end = untold(attempt, Fate(Outcome.LOST, LEASE_NOTE, -9))
        if attempt.end is not None:
            self._store.save_end(attempt.end)

    def heard(self, names: list[str] | None) -> None:
        """Read the new records with these names; None: list all records first."""
        if names is None:
            self.clerk.ask(self.shared.names, self._scanned)
            return
        for name in names:
            key = key_of(name)
            attempt = self.attempts.get(key) if key is not None else None
            if attempt is not None and attempt.end is None:
                if name.endswith(".began") and attempt.began is not None:
                    continue
                self.read(attempt, partial(self.learn, attempt))

    def _scanned(self, names: list[str] | OSError) -> None:
        if isinstance(names, list):
            self.heard(names)

    def read(self, attempt: Attempt, then: Callable[[Known | OSError], None]) -> None:
        """Have an attempt's records read."""
        self.clerk.ask(lambda: self.shared.read(attempt.key), then)

    def learn(self, attempt: Attempt, known: Known | OSError) -> None:
        """Apply the records of an attempt."""
        if isinstance(known, OSError) or attempt.end is not None or self.closed:
            return
        attempt.refused = known.refused
        if known.began is not None:
            attempt.began = known.began
            if known.began.verdict != "ran":
                self.finish(attempt, untold(attempt, _taken(attempt)))
                return
            if not attempt.started:
                attempt.started = True
                assert self.reports is not None, "news before reconcile"
                self.reports.started(*attempt.key)
        if known.ended is not None and attempt.ended is None:
            attempt.ended = known.ended
            self.conclude(attempt, attempt.over_state or None)

    def conclude(self, attempt: Attempt, slurm_state: str | None) -> None:
        """Finish an attempt whose script has recorded the end; Slurm may have to explain it first."""
        assert attempt.ended is not None, "no end to conclude from"
        end = told(attempt, attempt.ended, slurm_state)
        if end is not None:
            self.finish(attempt, end)
        else:
            self._await_verdict(attempt)
            self._look_again()
            self.rest()

    def _await_verdict(self, attempt: Attempt) -> None:
        attempt.verdict_by = now() + VERDICT_MICROSECONDS_MAX
        attempt.verdict_last = now() + VERDICT_MICROSECONDS_LATE

    def finish(self, attempt: Attempt, end: AttemptEnd) -> None:
        """Record and report the end of an attempt."""
        if attempt.end is not None or self.closed:
            return
        attempt.end = end
        if end.outcome in GIVEN_BACK:
            log.info("%s attempt %d is %s: %s", task_text(end.task), end.attempt, end.outcome, end.note)
        try:
            self._store.save_end(end)
        except OSError as error:  # after a restart the shared directory gives the end again
            log.error("the end of %s cannot be kept: %s", task_text(end.task), error)  # noqa: TRY400  the sentence says it all
        self._over(attempt.key)
        assert self.reports is not None, "an end before reconcile"
        self.reports.exited(end)
        if attempt.phase is not Phase.WAITING and not attempt.started:
            self._look_again()  # its job waits in Slurm for nothing

    # --- forced ends ----------------------------------------------------------------------------------------

    def stop(self, attempt: Attempt, grace: int) -> None:
        """Order its end after ``grace`` microseconds; an attempt that has not begun never will."""
        text = f"stop {grace // 1_000}"
        self.clerk.ask(lambda: self.shared.order(attempt.key, text))
        if not attempt.started:
            self.revoke(attempt)

    def revoke(self, attempt: Attempt) -> None:
        """Take the attempt, unless a job has taken it."""
        self.clerk.ask(lambda: self.shared.revoke(attempt.key), partial(self.learn, attempt))

    def recall(self, attempt: Attempt, fate: Fate) -> None:
        """Withdraw a start that hangs. An attempt that has begun meanwhile goes on."""

        def taken(known: Known | OSError) -> None:
            ours = isinstance(known, Known) and known.began is not None and known.began.verdict == "revoked"
            if ours and attempt.fate is None:
                attempt.fate = fate
            self.learn(attempt, known)

        self.clerk.ask(lambda: self.shared.revoke(attempt.key), taken)

    def doom(self, attempt: Attempt, fate: Fate) -> None:
        """Order its end, and wait until that is certain: its script obeys, or cannot read the lease any
        more."""
        attempt.fate = fate
        over = max(self._until, now()) if self._until else now() + UNLEASED_MICROSECONDS
        attempt.doomed_at = over + SLACK_MICROSECONDS
        self.stop(attempt, 0)
        self.rest()

    # --- time -----------------------------------------------------------------------------------------------

    def lease_over(self) -> bool:
        """True if there was a lease and is none now."""
        return 0 < self._until <= now()

    def guard(self, until: int) -> None:
        """Move the lease. First end the attempts that outlived the last one: elsewhere they count as lost."""
        if until <= self._until:
            return
        if self.lease_over():
            self._lapse()
        self._until, self._lapsed = until, False
        wall = -(-(time.time_ns() // 1_000 + until - now()) // 1_000)
        self.clerk.ask(lambda: self.shared.write_lease(wall))
        self.rest()

    def _lapse(self) -> None:
        """End all running attempts, because the lease is over, and prevent the start of all others."""
        if self._lapsed:
            return
        self._lapsed = True
        for attempt in self.attempts.values():
            if attempt.end is None:
                self.doom(attempt, attempt.fate or Fate(Outcome.LOST, LEASE_NOTE, -9))

    def rest(self) -> None:
        """Set one timer for the next time at which something is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self.closed:
            return
        due = [self._until] if self._until and not self._lapsed else []
        for attempt in self.attempts.values():
            if attempt.end is None:
                due += [at for at in (attempt.doomed_at, attempt.verdict_by) if at]
                if _unsent(attempt):
                    due.append(attempt.start_by)
        if due:
            wait = max(0, min(due) - now()) / SECOND
            self._alarm = asyncio.get_running_loop().call_later(wait, self._due)

    def _due(self) -> None:
        at = now()
        if self.lease_over():
            self._lapse()
        for attempt in list(self.attempts.values()):
            if attempt.end is not None:
                continue
            if attempt.doomed_at and at >= attempt.doomed_at:
                attempt.doomed_at = 0
                self._last_look(attempt)
            elif attempt.verdict_by and at >= attempt.verdict_by:
                if attempt.lingers and at < attempt.verdict_last:
                    attempt.verdict_by = at + VERDICT_MICROSECONDS_MAX
                else:
                    attempt.verdict_by = 0
                    self.conclude(attempt, "")
            elif _unsent(attempt) and attempt.start_by <= at:
                self.doom(attempt, _unsubmitted(attempt))
        self.rest()

    def _last_look(self, attempt: Attempt) -> None:
        """Finish an attempt at its forced end: by its last records, or else by its end reason."""

        def looked(known: Known | OSError) -> None:
            self.learn(attempt, known)
            if attempt.end is None and attempt.fate is not None:
                self.finish(attempt, untold(attempt, attempt.fate))

        self.read(attempt, looked)


def _unsent(attempt: Attempt) -> bool:
    """True if Slurm has not acknowledged it, so that it will be given up."""
    return attempt.phase is not Phase.SUBMITTED and attempt.start_by > 0 and attempt.fate is None


def _unsubmitted(attempt: Attempt) -> Fate:
    if attempt.trouble:
        return Fate(Outcome.LOST, f"Slurm did not take it: {attempt.trouble}")
    return Fate(Outcome.UNSTARTED, "Slurm's controller does not answer")


def _taken(attempt: Attempt) -> Fate:
    """Return the end of an attempt that was taken before any task ran."""
    if attempt.fate is not None:
        return attempt.fate
    if attempt.stop_at is not None:
        return Fate(Outcome.CANCELLED, attempt.waited_for and f"it had not begun: {attempt.waited_for}")
    return Fate(Outcome.UNSTARTED, "no lease to start it under")


def now() -> int:
    """Return CLOCK_BOOTTIME in microseconds: the clock of all times but those in the shared directory."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
