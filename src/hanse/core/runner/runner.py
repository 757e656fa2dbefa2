"""The runner: starts and stops attempts on its nodes, reports what happened, and holds the lease they run
under.

It has no journal. Attempts outlive it on the backend, so after a restart it asks the backend what is there
and opens a new *session* with its warden, which compares notes. The lease counts from when the renewal was
asked for; an independent watchdog in the shell ends every attempt when it runs out, even if this machine
hangs.
"""

import msgspec

from hanse.core.config import RunnerConfig
from hanse.core.history_check import recall
from hanse.core.messaging.link import NEVER, Link, Post
from hanse.model.effects import Command, Forgotten, Guard, Kill, Launch, WakeAt
from hanse.model.events import (
    BackendReported,
    Booted,
    Event,
    Received,
    RoomWithheld,
    TaskExited,
    TasksMoved,
    TaskStarted,
    Tick,
)
from hanse.model.ids import TaskId
from hanse.model.job import Unreachable
from hanse.model.messages import (
    Body,
    End,
    Envelope,
    Hello,
    Orders,
    Outcome,
    Rejoin,
    Report,
    RunnerBeat,
    RunnerLease,
    StartTask,
)
from hanse.model.messages.history_check import Recalled
from hanse.model.resources import Resources

NOTHING = Resources()
SESSIONS_PER_EPOCH_BITS = 20
"""A runner may open this many sessions (as a power of two) before it must restart; it opens one per lost
lease."""


class Attempt(msgspec.Struct, gc=False):
    """An attempt that lives on the backend."""

    estate: str
    moves: bool
    started: bool = False


class RunnerState(msgspec.Struct):
    """All of a runner's state."""

    session: int
    confirmed: bool
    known: bool
    lease_until: int
    beat_at: int
    running: list[tuple[tuple[TaskId, int], Attempt]]
    ended: list[End]
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
    """One runner. ``handle`` takes events in order; see ``core.machine``."""

    def __init__(self, config: RunnerConfig) -> None:
        self.config = config
        self.name = config.name
        self.marks: dict[str, int] = {}
        self._post = Post(config.name, config.timings)
        self._session = 0
        self._confirmed = False
        self._known = False
        self._lease_until = 0
        self._beat_at = NEVER
        self._running: dict[tuple[TaskId, int], Attempt] = {}
        self._ended: dict[tuple[TaskId, int], End] = {}
        self._withheld: dict[int, Resources] = {}
        self._ending: dict[tuple[TaskId, int], None] = {}
        """Attempts of lapsed estates that were told to end and have not."""
        self._held_until = 0
        """Until then the lease is not renewed while there are such."""
        self._owed = 0
        """The lease that would have been renewed meanwhile."""
        self._armed = NEVER
        self._out: list[Command] = []

    def handle(self, event: Event) -> list[Command]:
        """Take one event; return what the shell must do, in order."""
        self._out = []
        now = event.at
        if type(event) is Received:
            for body in self._post.receive(now, event.envelope):
                self._take(now, body)
        elif type(event) is not Tick:
            self._told(now, event)
        if now >= self._beat_at:
            self._beat(now)
        if now >= self._post.due:
            self._post.tick(self._out, now)
        due = self._post.due
        if self._beat_at < due:  # noqa: PLR1730  hot: min() costs more
            due = self._beat_at
        if now >= self._armed or due < self._armed:
            self._armed = due
            if due < NEVER:
                self._out.append(WakeAt(due))
        return self._out

    def _told(self, now: int, event: Event) -> None:
        """What the backend or the shell has to say."""
        if isinstance(event, TasksMoved):
            self._report(now, event.started, event.ended)
        elif isinstance(event, TaskExited):
            self._over(now, event.end)
        elif isinstance(event, TaskStarted):
            self._began(now, event.task, event.attempt)
        elif isinstance(event, RoomWithheld):
            self._withhold(now, event)
        elif isinstance(event, BackendReported):
            self._learn(now, event)
        elif isinstance(event, Booted):
            self._boot(event)

    def _boot(self, event: Booted) -> None:
        self._armed = NEVER
        self._session = event.epoch << SESSIONS_PER_EPOCH_BITS
        self._post.reopen(self.config.warden, self._session)
        self._confirmed = self._known = False
        self._running.clear()
        self._ended.clear()
        self._withheld.clear()
        self._ending.clear()
        self._lease_until = self._held_until = self._owed = 0
        self._beat_at = NEVER

    def _learn(self, now: int, event: BackendReported) -> None:
        for task, attempt, estate, moves in event.running:
            self._running[(task, attempt)] = Attempt(estate, moves, started=True)
        for end in event.ended:
            self._ended[(end.task, end.attempt)] = end
        self._withheld.update(event.withheld)
        if event.running:
            self._mark("runner.tasks_outlived_it")
        self._known = True
        self._beat(now)

    def _withhold(self, now: int, event: RoomWithheld) -> None:
        """Some of the nodes is not for the league, or is again."""
        for node, amount in event.withheld:
            if amount == NOTHING:
                self._withheld.pop(node, None)
            else:
                self._withheld[node] = amount
        self._post.send(self._out, now, self.config.warden, Report((), (), event.withheld))

    def _take(self, now: int, body: Body) -> None:
        if type(body) is RunnerLease:
            if body.session == self._session and self._known:
                self._end_lapsed(now, body.lapsed)
                self._renewed(now, body.echo)
        elif type(body) is Orders:
            self._renewed(now, body.echo)
            self._obey(now, body)
        elif isinstance(body, Rejoin) and body.session == self._session and self._known:
            self._mark("runner.rejoined")
            self._session += 1
            self._post.reopen(self.config.warden, self._session)
            self._confirmed = False
            self._beat(now)

    def _obey(self, now: int, orders: Orders) -> None:
        for start in orders.starts:
            self._start(now, start, orders.echo + self.config.timings.runner_lease)
        for stop in orders.stops:
            if (stop.task, stop.attempt) in self._running:
                self._out.append(Kill(stop.task, stop.attempt, stop.grace))
        for task, attempt in orders.forget:
            if self._ended.pop((task, attempt), None) is not None:
                self._out.append(Forgotten(task, attempt))

    def _start(self, now: int, start: StartTask, until: int) -> None:
        """Start an attempt, unless its order was so long on the way that the warden may count it as lost.

        1. A warden orders a start; the order is held up. 2. The estate's lease lapses, its broker gives the
        cluster up and starts the task elsewhere. 3. The network heals, the runner's lease is renewed, and
        the old order arrives. So an order is good only for the lease that its sender could count on
        (``until``).
        """
        key = (start.task, start.attempt)
        assert key not in self._running, f"{self.name} was told twice to start {key}"
        assert key not in self._ended, f"{self.name} was told to start {key} again"
        until = min(until, self._lease_until)
        if now >= until:
            # The watchdog would end it at once; say so instead of starting it.
            self._mark("runner.refused_without_lease")
            self._over(now, End(start.task, start.attempt, Outcome.UNSTARTED))
            return
        moves = start.unreachable is Unreachable.MOVE
        self._running[key] = Attempt(start.estate, moves)
        self._out.append(
            Launch(
                start.task, start.attempt, start.node, start.size, start.estate, moves, start.payload, until
            )
        )

    def _renewed(self, now: int, echo: int) -> None:
        """Renew the lease, unless it must run out for those that do not end.

        1. An estate lapses, and its tasks here are told to end. 2. What ends them hangs: a disk, their
        supervisor. 3. The lease is renewed for the other tasks, and theirs with it. 4. Their broker gives
        the cluster up and starts them elsewhere. So the lease that was known when they were told stays, and
        the watchdog ends all; after that they cannot be alive.
        """
        self._confirmed = True
        until = echo + self.config.timings.runner_lease
        if self._ending and now < self._held_until:
            self._mark("runner.held_its_lease")
            self._owed = max(self._owed, until)
        elif until > self._lease_until:
            self._lease_until = until
            self._out.append(Guard(until))

    def _end_lapsed(self, now: int, lapsed: tuple[str, ...]) -> None:
        """End what runs for estates whose own lease is over."""
        if not lapsed:
            return
        for (task, attempt), live in self._running.items():
            if live.moves and live.estate in lapsed:
                self._mark("runner.ended_lapsed_estate")
                self._out.append(Kill(task, attempt, 0))
                if (task, attempt) not in self._ending:
                    self._ending[task, attempt] = None
                    # After a restart it is not known which lease the watchdog has: none that is longer.
                    self._held_until = self._lease_until or now + self.config.timings.runner_lease

    def _has_ended(self, key: tuple[TaskId, int]) -> None:
        """One that the lease was held for is over; after the last of them it is renewed."""
        del self._ending[key]
        if not self._ending and self._owed > self._lease_until:
            self._lease_until = self._owed
            self._out.append(Guard(self._owed))

    def _began(self, now: int, task: TaskId, attempt: int) -> None:
        self._report(now, ((task, attempt),), ())

    def _over(self, now: int, end: End) -> None:
        self._report(now, (), (end,))

    def _report(self, now: int, started: tuple[tuple[TaskId, int], ...], ended: tuple[End, ...]) -> None:
        """Tell the warden what is new of this, in one message."""
        began = []
        for key in started:
            live = self._running.get(key)
            if live is not None and not live.started:
                live.started = True
                began.append(key)
        over = []
        for end in ended:
            key = (end.task, end.attempt)
            self._running.pop(key, None)
            if key in self._ending:
                self._has_ended(key)
            if key not in self._ended:
                self._ended[key] = end
                over.append(end)
        if began or over:
            self._post.send(self._out, now, self.config.warden, Report(tuple(began), tuple(over)))

    def _beat(self, now: int) -> None:
        self._beat_at = now + self.config.timings.runner_beat
        warden = self.config.warden
        if not self._confirmed:
            running, ended = tuple(self._running), tuple(self._ended.values())
            withheld = tuple(self._withheld.items())
            hello = Hello(self._session, now, self.config.nodes, running, ended, withheld)
            self._post.soft(self._out, warden, hello)
        self._post.soft(self._out, warden, RunnerBeat(self._session, now))

    def recall(self, number: int) -> Envelope:
        """The answer to a warden that asks what is remembered of it, under the session that it has opened."""
        warden = self.config.warden
        session = self._session if self._confirmed else 0
        answer = recall(self._post, warden, number) if session else Recalled(number, 0, 0)
        return Envelope(self.name, warden, session, 0, 0, answer)

    def _mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    def check(self) -> None:
        """Invariants."""
        self._post.check()
        assert not any(key in self._ended for key in self._running)

    def dump(self) -> bytes:
        """The whole state."""
        state = RunnerState(
            self._session,
            self._confirmed,
            self._known,
            self._lease_until,
            self._beat_at,
            list(self._running.items()),
            list(self._ended.values()),
            self._withheld,
            list(self._ending),
            self._held_until,
            self._owed,
            self._post.links,
            self._post.due,
            self._armed,
        )
        return _encode(state)

    def restore(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        saved = _decode(state)
        self._session, self._confirmed, self._known = saved.session, saved.confirmed, saved.known
        self._lease_until, self._beat_at = saved.lease_until, saved.beat_at
        self._running = dict(saved.running)
        self._ended = {(end.task, end.attempt): end for end in saved.ended}
        self._withheld = saved.withheld
        self._ending = dict.fromkeys(saved.ending)
        self._held_until, self._owed = saved.held_until, saved.owed
        self._post.restore(saved.links, saved.post_due)
        self._armed = saved.armed
