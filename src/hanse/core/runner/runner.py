"""Runner: starts and stops attempts on its nodes, reports to its warden, and holds the lease they run under.

The runner has no journal. Attempts outlive it on the backend, so after a restart it asks the backend what
exists and opens a new *session* with its warden, which compares that with its ledger. The lease counts from
when the renewal was requested. An independent watchdog in the shell ends every attempt when the lease
expires, even if this machine hangs.
"""

import msgspec

from hanse.core.config import RunnerConfig
from hanse.core.history_check import answer_history_query
from hanse.core.messaging.link import NEVER, Link, LinkSet
from hanse.model.effects import Effect, ExtendWatchdog, ForgetAttempt, KillAttempt, LaunchAttempt, WakeAt
from hanse.model.events import (
    BackendReported,
    Booted,
    CapacityWithheld,
    Event,
    MessageReceived,
    TasksChanged,
    Tick,
)
from hanse.model.ids import TaskId
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import (
    AttemptEnd,
    Envelope,
    Message,
    OpenSession,
    Outcome,
    Rejoin,
    RunnerHeartbeat,
    RunnerLease,
    RunnerOrders,
    RunnerReport,
    StartTask,
)
from hanse.model.messages.group_layout import PlaceFinder, TaskPlace
from hanse.model.messages.history_check import HistoryReply
from hanse.model.resources import Resources

NO_RESOURCES = Resources()
SESSIONS_PER_EPOCH_BITS = 20
"""Sessions per start of a runner, as a power of two. It opens one per lost lease, and must restart after the
last."""


class LiveAttempt(
    msgspec.Struct, gc=False, rename={"shard": "estate", "is_movable": "moves", "is_started": "started"}
):
    """Attempt that exists on the backend."""

    shard: str
    is_movable: bool
    is_started: bool = False


class RunnerState(msgspec.Struct, rename={"is_confirmed": "confirmed", "is_known": "known"}):
    """State of a runner, as it is dumped."""

    session: int
    is_confirmed: bool
    is_known: bool
    lease_until: int
    beat_at: int
    running: list[tuple[tuple[TaskId, int], LiveAttempt]]
    ended: list[AttemptEnd]
    withheld: dict[int, Resources]
    ending: list[tuple[TaskId, int]]
    held_until: int
    owed: int
    links: dict[str, Link]
    post_due: int
    armed: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RunnerState).decode


class Runner:
    """Runner machine. ``handle`` takes events in order; see ``core.machine``."""

    def __init__(self, config: RunnerConfig) -> None:
        self.config = config
        self.name = config.name
        self.marks: dict[str, int] = {}
        self._links = LinkSet(config.name, config.timings)
        self._session = 0
        self._is_confirmed = False
        self._has_backend_report = False
        self._lease_until = 0
        self._beat_at = NEVER
        self._running: dict[tuple[TaskId, int], LiveAttempt] = {}
        self._ended: dict[tuple[TaskId, int], AttemptEnd] = {}
        self._withheld: dict[int, Resources] = {}
        self._lapsed_attempts: dict[tuple[TaskId, int], None] = {}
        """Attempts of lapsed shards that were killed and have not ended."""
        self._lease_held_until = 0
        """Time until which the lease is not renewed while there are such attempts."""
        self._postponed_lease = 0
        """End of the lease that would have been renewed meanwhile."""
        self._wake_at = NEVER
        self._effects: list[Effect] = []

    def handle(self, event: Event) -> list[Effect]:
        """Handle one event; return the effects for the shell, in order."""
        self._effects = []
        now = event.at
        if type(event) is MessageReceived:
            for body in self._links.receive(now, event.envelope):
                self._on_message(now, body)
        elif type(event) is not Tick:
            self._on_local_event(now, event)
        if now >= self._beat_at:
            self._beat(now)
        if now >= self._links.due:
            self._links.tick(self._effects, now)
        due = self._links.due
        if self._beat_at < due:  # noqa: PLR1730  hot: min() is slower
            due = self._beat_at
        if now >= self._wake_at or due < self._wake_at:
            self._wake_at = due
            if due < NEVER:
                self._effects.append(WakeAt(due))
        return self._effects

    def _on_local_event(self, now: int, event: Event) -> None:
        """Handle an event of the backend or the shell."""
        if isinstance(event, TasksChanged):
            self._report(now, event.started, event.ended)
        elif isinstance(event, CapacityWithheld):
            self._on_capacity_withheld(now, event)
        elif isinstance(event, BackendReported):
            self._on_backend_reported(now, event)
        elif isinstance(event, Booted):
            self._on_booted(event)

    def _on_booted(self, event: Booted) -> None:
        self._wake_at = NEVER
        self._session = event.epoch << SESSIONS_PER_EPOCH_BITS
        self._links.reopen(self.config.warden, self._session)
        self._is_confirmed = self._has_backend_report = False
        self._running.clear()
        self._ended.clear()
        self._withheld.clear()
        self._lapsed_attempts.clear()
        self._lease_until = self._lease_held_until = self._postponed_lease = 0
        self._beat_at = NEVER

    def _on_backend_reported(self, now: int, event: BackendReported) -> None:
        for task, attempt, shard, is_movable in event.running:
            self._running[(task, attempt)] = LiveAttempt(shard, is_movable, is_started=True)
        for end in event.ended:
            self._ended[(end.task, end.attempt)] = end
        self._withheld.update(event.withheld)
        if event.running:
            self._mark("runner.tasks_outlived_it")
        self._has_backend_report = True
        self._beat(now)

    def _on_capacity_withheld(self, now: int, event: CapacityWithheld) -> None:
        """Handle a change of the capacity that nodes withhold from the league."""
        for node, amount in event.withheld:
            if amount == NO_RESOURCES:
                self._withheld.pop(node, None)
            else:
                self._withheld[node] = amount
        self._links.send(self._effects, now, self.config.warden, RunnerReport((), (), event.withheld))

    def _on_message(self, now: int, body: Message) -> None:
        if type(body) is RunnerLease:
            if body.session == self._session and self._has_backend_report:
                self._end_lapsed(now, body.lapsed)
                self._renew_lease(now, body.echo)
        elif type(body) is RunnerOrders:
            self._renew_lease(now, body.echo)
            self._on_runner_orders(now, body)
        elif isinstance(body, Rejoin) and body.session == self._session and self._has_backend_report:
            self._mark("runner.rejoined")
            self._session += 1
            self._links.reopen(self.config.warden, self._session)
            self._is_confirmed = False
            self._beat(now)

    def _on_runner_orders(self, now: int, orders: RunnerOrders) -> None:
        finder = PlaceFinder(orders.layouts) if orders.layouts else None
        for start in orders.starts:
            place = None if finder is None else finder.find(start.task)
            self._start(now, start, place, orders.echo + self.config.timings.runner_lease)
        for stop in orders.stops:
            if (stop.task, stop.attempt) in self._running:
                self._effects.append(KillAttempt(stop.task, stop.attempt, stop.grace))
        for task, attempt in orders.forget:
            if self._ended.pop((task, attempt), None) is not None:
                self._effects.append(ForgetAttempt(task, attempt))

    def _start(self, now: int, start: StartTask, place: TaskPlace | None, until: int) -> None:
        """Start an attempt, unless its order took so long that the warden may count the attempt as lost.

        1. A warden orders a start, and the order is delayed. 2. The shard's lease lapses, and its broker
           gives the cluster up and starts the task elsewhere. 3. The network recovers, the runner's lease is
           renewed, and the old order arrives. So an order is valid only for the lease that its sender could
           count on (``until``).
        """
        key = (start.task, start.attempt)
        assert key not in self._running, f"{self.name} was told twice to start {key}"
        assert key not in self._ended, f"{self.name} was told to start {key} again"
        until = min(until, self._lease_until)
        if now >= until:
            # The watchdog would end it at once; report that instead of starting it.
            self._mark("runner.refused_without_lease")
            self._report(now, (), (AttemptEnd(start.task, start.attempt, Outcome.UNSTARTED),))
            return
        is_movable = start.unreachable is UnreachablePolicy.MOVE
        self._running[key] = LiveAttempt(start.shard, is_movable)
        self._effects.append(
            LaunchAttempt(
                start.task,
                start.attempt,
                start.node,
                start.size,
                start.shard,
                is_movable,
                start.payload,
                until,
                place,
            )
        )

    def _renew_lease(self, now: int, echo: int) -> None:
        """Renew the lease, unless it must expire for lapsed attempts that do not end.

        1. A shard lapses, and its attempts here are killed. 2. The kill hangs: a disk, or their supervisor.
           3. The lease is renewed for the other attempts, and so for these. 4. Their broker gives the cluster
           up and starts the tasks elsewhere. So the lease from before the kill stays, and the watchdog ends
           every attempt at its end; after that they cannot be alive.
        """
        self._is_confirmed = True
        until = echo + self.config.timings.runner_lease
        if self._lapsed_attempts and now < self._lease_held_until:
            self._mark("runner.held_its_lease")
            self._postponed_lease = max(self._postponed_lease, until)
        elif until > self._lease_until:
            self._lease_until = until
            self._effects.append(ExtendWatchdog(until))

    def _end_lapsed(self, now: int, lapsed: tuple[str, ...]) -> None:
        """Kill the movable attempts of lapsed shards."""
        if not lapsed:
            return
        for (task, attempt), live in self._running.items():
            if live.is_movable and live.shard in lapsed:
                self._mark("runner.ended_lapsed_estate")
                self._effects.append(KillAttempt(task, attempt, 0))
                if (task, attempt) not in self._lapsed_attempts:
                    self._lapsed_attempts[task, attempt] = None
                    # After a restart the watchdog's lease is unknown, but it is not longer.
                    self._lease_held_until = self._lease_until or now + self.config.timings.runner_lease

    def _finish_lapsed(self, key: tuple[TaskId, int]) -> None:
        """Note the end of a lapsed attempt; after the last one, apply the postponed lease."""
        del self._lapsed_attempts[key]
        if not self._lapsed_attempts and self._postponed_lease > self._lease_until:
            self._lease_until = self._postponed_lease
            self._effects.append(ExtendWatchdog(self._postponed_lease))

    def _report(
        self, now: int, started: tuple[tuple[TaskId, int], ...], ended: tuple[AttemptEnd, ...]
    ) -> None:
        """Report new starts and ends to the warden, in one message."""
        new_starts = []
        for key in started:
            live = self._running.get(key)
            if live is not None and not live.is_started:
                live.is_started = True
                new_starts.append(key)
        new_ends = []
        for end in ended:
            key = (end.task, end.attempt)
            self._running.pop(key, None)
            if key in self._lapsed_attempts:
                self._finish_lapsed(key)
            if key not in self._ended:
                self._ended[key] = end
                new_ends.append(end)
        if new_starts or new_ends:
            self._links.send(
                self._effects, now, self.config.warden, RunnerReport(tuple(new_starts), tuple(new_ends))
            )

    def _beat(self, now: int) -> None:
        self._beat_at = now + self.config.timings.runner_beat
        warden = self.config.warden
        if not self._is_confirmed:
            running, ended = tuple(self._running), tuple(self._ended.values())
            withheld = tuple(self._withheld.items())
            message = OpenSession(
                self._session, now, self.config.nodes, running, ended, withheld, self.config.hardware
            )
            self._links.send_soft(self._effects, warden, message)
        self._links.send_soft(self._effects, warden, RunnerHeartbeat(self._session, now))

    def answer_history_query(self, number: int) -> Envelope:
        """Answer a warden's query about its own link, under the session that the warden has opened."""
        warden = self.config.warden
        session = self._session if self._is_confirmed else 0
        answer = answer_history_query(self._links, warden, number) if session else HistoryReply(number, 0, 0)
        return Envelope(self.name, warden, session, 0, 0, answer)

    def _mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    def check(self) -> None:
        """Assert invariants."""
        self._links.check()
        assert not any(key in self._ended for key in self._running)

    def dump(self) -> bytes:
        """Return the whole state."""
        state = RunnerState(
            self._session,
            self._is_confirmed,
            self._has_backend_report,
            self._lease_until,
            self._beat_at,
            list(self._running.items()),
            list(self._ended.values()),
            self._withheld,
            list(self._lapsed_attempts),
            self._lease_held_until,
            self._postponed_lease,
            self._links.links,
            self._links.due,
            self._wake_at,
        )
        return _encode(state)

    def restore(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        saved = _decode(state)
        self._session, self._is_confirmed, self._has_backend_report = (
            saved.session,
            saved.is_confirmed,
            saved.is_known,
        )
        self._lease_until, self._beat_at = saved.lease_until, saved.beat_at
        self._running = dict(saved.running)
        self._ended = {(end.task, end.attempt): end for end in saved.ended}
        self._withheld = saved.withheld
        self._lapsed_attempts = dict.fromkeys(saved.ending)
        self._lease_held_until, self._postponed_lease = saved.held_until, saved.owed
        self._links.restore(saved.links, saved.post_due)
        self._wake_at = saved.armed
