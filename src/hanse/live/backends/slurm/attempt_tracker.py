"""Keeps the attempts of a runner: learns from their records, reports starts and ends, and sees to it that
what must end does, and is not called ended before that is certain.

Certain is one of three: the attempt was taken by us before any job took it; Slurm reported the end of the job
that took it, on a node that lives (``reconciler``); or the lease that its script could have read has run out.
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
"""How long to wait for Slurm's word on a task that was killed from outside."""
VERDICT_MICROSECONDS_LATE: Final = 120 * SECOND
"""The same while its job is still listed: it is completing, or an epilog runs."""
SLACK_MICROSECONDS: Final = 2 * SECOND
"""What a script may take to end its task when the time has come."""
UNLEASED_MICROSECONDS: Final = 10 * SECOND
"""How long a vanished attempt is waited for where no lease was ever given."""
GIVEN_BACK: Final = (Outcome.LOST, Outcome.PREEMPTED, Outcome.UNSTARTED)
"""Ends after which a task starts anew: the log says why."""

log = logging.getLogger(__name__)


class Keeper:
    """The attempts, and all that can happen to one of them. ``look_again``: Slurm should be asked soon;
    ``over``: an attempt has ended."""

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
        """Those of these that have not ended."""
        found = [self.attempts.get(key) for key in keys]
        return [attempt for attempt in found if attempt is not None and attempt.end is None]

    def close(self) -> None:
        """Report nothing more."""
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()

    # --- what is on record ----------------------------------------------------------------------------------

    def load(self, scripts: ScriptMaker) -> None:
        """Everything on record, brought up to date by what scripts wrote meanwhile. Blocks."""
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
            # Its script has ended it by the clock; one that is late all the same reads this.
            self.shared.order(attempt.key, "stop 0")
            attempt.end = untold(attempt, Fate(Outcome.LOST, LEASE_NOTE, -9))
        if attempt.end is not None:
            self._store.save_end(attempt.end)

    def heard(self, names: list[str] | None) -> None:
        """Files appeared among the records; None: look which."""
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
        """What an attempt's records say."""
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
        """Its script has told the end; Slurm may have to explain it."""
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
        """It is over."""
        if attempt.end is not None or self.closed:
            return
        attempt.end = end
        if end.outcome in GIVEN_BACK:
            log.info("%s attempt %d is %s: %s", task_text(end.task), end.attempt, end.outcome, end.note)
        try:
            self._store.save_end(end)
        except OSError as error:  # after a restart it is found out anew, from the shared directory
            log.error("the end of %s cannot be kept: %s", task_text(end.task), error)  # noqa: TRY400  the sentence says it all
        self._over(attempt.key)
        assert self.reports is not None, "an end before reconcile"
        self.reports.exited(end)
        if attempt.phase is not Phase.WAITING and not attempt.started:
            self._look_again()  # its job waits in Slurm for nothing

    # --- ends that are wanted -------------------------------------------------------------------------------

    def stop(self, attempt: Attempt, grace: int) -> None:
        """Order its end after so many microseconds; what has not begun never will."""
        text = f"stop {grace // 1_000}"
        self.clerk.ask(lambda: self.shared.order(attempt.key, text))
        if not attempt.started:
            self.revoke(attempt)

    def revoke(self, attempt: Attempt) -> None:
        """Take the attempt, if no job has."""
        self.clerk.ask(lambda: self.shared.revoke(attempt.key), partial(self.learn, attempt))

    def recall(self, attempt: Attempt, fate: Fate) -> None:
        """Give a start back that hangs. One that has begun meanwhile goes on as if nothing had been said."""

        def taken(known: Known | OSError) -> None:
            ours = isinstance(known, Known) and known.began is not None and known.began.verdict == "revoked"
            if ours and attempt.fate is None:
                attempt.fate = fate
            self.learn(attempt, known)

        self.clerk.ask(lambda: self.shared.revoke(attempt.key), taken)

    def doom(self, attempt: Attempt, fate: Fate) -> None:
        """Order its end, and wait until it is certain: its script obeys, or cannot read the lease any
        more."""
        attempt.fate = fate
        over = max(self._until, now()) if self._until else now() + UNLEASED_MICROSECONDS
        attempt.doomed_at = over + SLACK_MICROSECONDS
        self.stop(attempt, 0)
        self.rest()

    # --- time -----------------------------------------------------------------------------------------------

    def lease_over(self) -> bool:
        """Whether there was a lease and is none now."""
        return 0 < self._until <= now()

    def guard(self, until: int) -> None:
        """Move the lease. What outlived the last one is ended first: it counts as lost elsewhere."""
        if until <= self._until:
            return
        if self.lease_over():
            self._lapse()
        self._until, self._lapsed = until, False
        wall = -(-(time.time_ns() // 1_000 + until - now()) // 1_000)
        self.clerk.ask(lambda: self.shared.write_lease(wall))
        self.rest()

    def _lapse(self) -> None:
        """The lease is over: whatever runs ends now, and what has not begun never will."""
        if self._lapsed:
            return
        self._lapsed = True
        for attempt in self.attempts.values():
            if attempt.end is None:
                self.doom(attempt, attempt.fate or Fate(Outcome.LOST, LEASE_NOTE, -9))

    def rest(self) -> None:
        """Be woken when the next thing is due, by one timer for all."""
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
        """The time of a doomed attempt is over: what it said at last counts, or else its fate."""

        def looked(known: Known | OSError) -> None:
            self.learn(attempt, known)
            if attempt.end is None and attempt.fate is not None:
                self.finish(attempt, untold(attempt, attempt.fate))

        self.read(attempt, looked)


def _unsent(attempt: Attempt) -> bool:
    """Whether Slurm has not acknowledged it, and it should be given back some time."""
    return attempt.phase is not Phase.SUBMITTED and attempt.start_by > 0 and attempt.fate is None


def _unsubmitted(attempt: Attempt) -> Fate:
    if attempt.trouble:
        return Fate(Outcome.LOST, f"Slurm did not take it: {attempt.trouble}")
    return Fate(Outcome.UNSTARTED, "Slurm's controller does not answer")


def _taken(attempt: Attempt) -> Fate:
    """How an attempt ends that was taken before any task ran."""
    if attempt.fate is not None:
        return attempt.fate
    if attempt.stop_at is not None:
        return Fate(Outcome.CANCELLED, attempt.waited_for and f"it had not begun: {attempt.waited_for}")
    return Fate(Outcome.UNSTARTED, "no lease to start it under")


def now() -> int:
    """CLOCK_BOOTTIME, microseconds: the clock of all times here but those in the shared directory."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
