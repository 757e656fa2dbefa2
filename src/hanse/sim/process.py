"""A process: a machine in its shell, with its own clock, its journal, and the ways it can die.

On every event the shell stamps it with the local clock, appends it to the journal, hands it to the machine
and performs the commands in order. With a *group commit* the commands wait until the journal's write has come
back; a crash then tears a random tail off what was not yet safe, and no command of the torn events was ever
performed.

A process that is to die dies *at an event*, because that is where the effects are: before the journal has the
event, after that but before any command, or after the first few commands. It comes back as a fresh machine
with the last snapshot and the journal replayed, and that must give the very state it had.
"""

from collections.abc import Callable, Mapping
from heapq import heappush
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from hanse.core.machine import Machine
from hanse.model.advice import Advice
from hanse.model.effects import Effect, SendMessage, TaskSettled, TasksSettled, WakeAt
from hanse.model.events import (
    AdviceReceived,
    BackendReported,
    Booted,
    CancelRequested,
    CapacityWithheld,
    DrainRequested,
    Event,
    JobSubmitted,
    MessageReceived,
    TaskExited,
    TaskStarted,
    Tick,
)
from hanse.model.ids import Instant, JobId
from hanse.model.job import JobSpec
from hanse.model.messages import Envelope, Message
from hanse.sim.network import Link, Network
from hanse.sim.state_diff import first_difference
from hanse.sim.world import Violation, World

MILLION: Final = 1_000_000

DOWN: Final = 1
PAUSED: Final = 2
DOOMED: Final = 4

DOOM_EVENTS_MAX: Final = 30
"""Events for which a doomed process with a slow journal waits for a moment when it has much to lose."""

KINDS: Final[tuple[type, ...]] = (
    Booted,
    Tick,
    MessageReceived,
    JobSubmitted,
    CancelRequested,
    DrainRequested,
    BackendReported,
    TaskStarted,
    TaskExited,
    CapacityWithheld,
    AdviceReceived,
)
"""Kinds of events; a kind's position is its number in the digest."""
_BODY_CODES: Final[dict[type, int]] = {body: code for code, body in enumerate(Message.__args__)}
_BOOTED, _TICK, _RECEIVED, _SUBMITTED, _CANCEL, _DRAIN, BACKEND, STARTED, EXITED, WITHHELD, _ADVISED = range(
    len(KINDS)
)

Performer = Callable[[Any], None]
Performers = Mapping[type, Performer]


class Clock(msgspec.Struct, frozen=True):
    """A process's own clock: ``local = offset + true * rate / 1,000,000``. It runs on while the process is
    down."""

    offset: int = 0
    rate: int = MILLION
    """Local microseconds in a true second."""

    def local(self, true: int) -> int:
        """What the clock shows at a true time."""
        return self.offset + true * self.rate // MILLION

    def true(self, local: int) -> int:
        """The first true time at which the clock shows at least ``local``."""
        return -((self.offset - local) * MILLION // self.rate)


class Durability(msgspec.Struct, frozen=True):
    """How a process keeps its history. Times in microseconds."""

    commit_min: int = 0
    commit_max: int = 0
    """How long a write to the journal takes; 0: no time at all."""
    snapshot_every: int = 500
    """Events between snapshots."""
    check_every: int = 200
    """Events between two ``machine.check()``."""


class Past(NamedTuple):
    """What a process's disk has: a copy of it outlives all that happens later."""

    snapshot: bytes | None
    journal: tuple[Event, ...]
    epoch: int
    factory: Callable[[], Machine] | None = None
    """Makes a machine with the settings under which it was lived; None: with today's."""


class Process:
    """A journalled machine: a broker or a warden."""

    __slots__ = ("_checks", "_clock", "_committing", "_doom", "_drift", "_durability", "_expected",
                 "_factory", "_newest", "_number", "_offset", "_patience", "_rate", "_receives", "_send",
                 "_slow", "_span", "_ticks", "_trace", "_unchecked", "epoch", "hampered", "inbox",
                 "is_member", "journal", "links",
                 "machine", "marks", "name", "network", "performers", "rng", "snapshot", "unsafe", "wakes",
                 "witness", "world")  # fmt: skip

    def __init__(
        self, name: str, number: int, factory: Callable[[], Machine], network: Network, rng: Random,
        clock: Clock = Clock(), durability: Durability = Durability(),  # noqa: B008  frozen records
    ) -> None:  # fmt: skip
        self.name = name
        self.world: World = network.world
        self.network = network
        self.rng = rng
        self.machine = factory()
        self.links: dict[str, Link] = {}
        self.journal: list[Event] = []
        """Events since the snapshot; the last ``len(unsafe)`` of them may yet be torn off."""
        self.snapshot: bytes | None = None
        self.unsafe: list[list[Effect]] = []
        """The commands of events whose write has not come back."""
        self.inbox: list[tuple[Performer, Any]] = []
        """What waits for a paused process."""
        self.wakes: dict[int, None] = {}
        """Local times at which a tick is due."""
        self.epoch = 0
        self.hampered = DOWN
        self.marks: dict[str, int] = {}
        """Coverage marks of the incarnations that are over."""
        self.is_member = True
        """Whether it is of the league today; who is not never starts."""
        self._factory = self._newest = factory
        """Makes a machine with the settings of its past; with those that count from its next start on."""
        self._number = number << 8
        self._receives = self._number | _RECEIVED
        self._ticks = self._number | _TICK
        self._send = network.send
        self._clock = clock
        self._offset = clock.offset
        self._rate = clock.rate
        self._drift = clock.rate - MILLION
        """Times smaller numbers than ``_rate``: multiplying and dividing them is quicker."""
        self._trace = self.world.trace.extend
        self._durability = durability
        self._slow = durability.commit_max
        self.performers: Performers = {}
        """Who performs its commands, besides sends and wake-ups."""
        self.witness: Callable[[Process], None] | None = None
        """Told when it has come back from its own past, before it acts."""
        self._doom: tuple[int, int] | None = None
        self._patience = 0
        self._committing = False
        self._expected: bytes | None = None
        self._checks = self._span = min(durability.check_every, durability.snapshot_every)
        """Events left, of a span of so many, until the house is looked after."""
        self._unchecked = 0

    # --- what reaches it ------------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """A message has arrived."""
        if self.hampered and self._waits(self.receive, envelope):
            return
        now = self.world.now
        self._trace((now, self._receives, envelope.seq, _BODY_CODES[type(envelope.body)]))
        self.take(MessageReceived(self._offset + now + now * self._drift // MILLION, envelope))

    def tick(self, at: int) -> None:
        """A time that the machine asked for has come."""
        if self.hampered and self._waits(self.tick, at):
            return
        if at not in self.wakes:
            return  # another incarnation asked for it
        del self.wakes[at]
        now = self.world.now
        self._trace((now, self._ticks, 0, 0))
        self.take(Tick(self._offset + now + now * self._drift // MILLION))

    def submit(self, request: tuple[str, int, JobSpec]) -> None:
        """A client hands a job in."""
        if self.hampered and self._waits(self.submit, request):
            return
        client, number, spec = request
        self._note(_SUBMITTED, number, len(spec.groups))
        self.take(JobSubmitted(self.local_now(), client, number, spec))

    def cancel(self, request: tuple[str, int, JobId]) -> None:
        """A client wants a job ended."""
        if self.hampered and self._waits(self.cancel, request):
            return
        client, number, job = request
        self._note(_CANCEL, number, job)
        self.take(CancelRequested(self.local_now(), client, number, job))

    def drain(self, request: tuple[tuple[int, ...], bool, int]) -> None:
        """An operator closes nodes (for so long; 0: until somebody opens them), or opens them."""
        if self.hampered and self._waits(self.drain, request):
            return
        nodes, closed, span = request
        self._note(_DRAIN, len(nodes), closed)
        now = self.local_now()
        self.take(DrainRequested(now, nodes, closed, until=now + span if span else 0))

    def advise(self, answer: tuple[int, tuple[Advice, ...]]) -> None:
        """The policy process has answered."""
        if self.hampered and self._waits(self.advise, answer):
            return
        number, choices = answer
        self._note(_ADVISED, number, len(choices))
        self.take(AdviceReceived(self.local_now(), number, choices))

    def take(self, event: Event) -> None:
        """Journal an event, hand it over, perform what comes of it: the heart of the shell."""
        if self.hampered:
            self._die_at(event)
            return
        if self.world.story is not None:
            self.world.story.took(self.world.now, self.name, event)
        self.journal.append(event)
        effects = self.machine.handle(event)
        if self._slow:
            self._defer(effects)
        elif effects:
            self.perform(effects)
        self._checks = left = self._checks - 1
        if left <= 0:
            self._keep_house()

    def perform(self, effects: list[Effect]) -> None:
        """Do what the machine asked for, in order."""
        story = self.world.story
        for effect in effects:
            if story is not None:
                story.did(self.world.now, self.name, effect)
            kind = type(effect)
            if kind is SendMessage:
                envelope = effect.envelope  # type: ignore[union-attr]  # ``kind`` says what it is
                self._send(self.links[envelope.target], envelope)
            elif kind is WakeAt:
                self._wake_at(effect.at)  # type: ignore[union-attr]
            else:
                performer = self.performers.get(kind)
                if performer is not None:
                    performer(effect)

    def _wake_at(self, at: int) -> None:
        """Have a tick come at a local time, unless one will."""
        if at in self.wakes:
            return
        self.wakes[at] = None
        world = self.world
        true = -((self._offset - at) * MILLION // self._rate) if self._drift else at - self._offset
        if true < world.now:  # noqa: PLR1730  hot: max() costs more
            true = world.now
        heappush(world.heap, (true, world.number(), self.tick, at))

    # --- its clock ------------------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """Its own clock."""
        return self._clock

    def local_now(self) -> Instant:
        """What its clock shows."""
        return self._offset + self.world.now * self._rate // MILLION

    # --- what may happen to it ------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether it is not crashed (it may be paused)."""
        return not self.hampered & DOWN

    def connect(self, performers: Performers) -> None:
        """Say who performs its commands."""
        self.performers = performers

    def doom(self, downtime: int) -> None:
        """Let it die at its next event, and come back after so many microseconds."""
        if self.up:
            self.hampered |= DOOMED
            self._doom = (self.rng.randrange(3), downtime)
            self._patience = DOOM_EVENTS_MAX

    def pause(self, _: Any = None) -> None:
        """Stop it in its tracks: what reaches it waits."""
        if self.up:
            self.hampered |= PAUSED

    def resume(self, _: Any = None) -> None:
        """Let it go on, beginning with what has waited."""
        if not self.hampered & PAUSED:
            return
        self.hampered &= ~PAUSED
        waited, self.inbox = self.inbox, []
        for action, payload in waited:
            action(payload)

    def crash(self, kept: int | None = None) -> None:
        """Die now. Of the unsafe events the first ``kept`` survive (None: all); the rest is torn off."""
        if not self.up:
            return
        kept = len(self.unsafe) if kept is None else kept
        torn = len(self.unsafe) - kept
        if torn:
            self.epoch -= sum(type(event) is Booted for event in self.journal[-torn:])
            del self.journal[-torn:]
        self._expected = None if torn else self.machine.dump()
        if self.world.story is not None:
            lost = f", {torn} unwritten events lost" if torn else ""
            self.world.story.fault(self.world.now, self.name, f"crashes{lost}")
        self._bury()

    def restart(self, downtime: int | None = None) -> None:
        """Come back: snapshot, journal, then ``Booted``. With a downtime: only to die again at that very
        event."""
        if self.up or not self.is_member:
            return
        self._recover()
        if self.witness is not None:
            self.witness(self)
        self.hampered = 0
        if downtime is not None:
            self.doom(downtime)
        if self.world.story is not None:
            self.world.story.fault(self.world.now, self.name, f"starts, epoch {self.epoch + 1}")
        self.epoch += 1
        self._note(_BOOTED, self.epoch, 0)
        self.take(Booted(self.local_now(), self.epoch, self.rng.getrandbits(62)))

    def spare(self) -> None:
        """Call a planned death off."""
        self.hampered &= ~DOOMED
        self._doom = None

    def disk(self) -> Past:
        """A copy of its disk now: what is not yet safe is not there."""
        journal = self.journal[: len(self.journal) - len(self.unsafe)]
        torn = self.journal[len(journal) :]
        epoch = self.epoch - sum(type(event) is Booted for event in torn)
        return Past(self.snapshot, tuple(journal), epoch, self._factory)

    def lived(self, past: Past) -> Machine:
        """A fresh machine that has lived a past, with today's settings; this process is not changed."""
        factory = past.factory or self._newest
        machine = factory()
        if past.snapshot is not None:
            machine.restore(past.snapshot)
        for event in past.journal:
            machine.handle(event)
        return machine if factory is self._newest else _carried(machine, self._newest)

    def reconfigure(self, factory: Callable[[], Machine]) -> None:
        """Have other settings from its next start on."""
        self._newest = factory

    def rewind(self, past: Past) -> None:
        """Have another past on its disk, for its next start."""
        assert not self.up, "who is up has written more"
        self.snapshot, self.journal, self.epoch = past.snapshot, list(past.journal), past.epoch
        self._factory = past.factory or self._newest
        self._expected = None

    def replayed(self) -> Machine:
        """A fresh machine with this process's snapshot and journal."""
        machine = self._factory()
        if self.snapshot is not None:
            machine.restore(self.snapshot)
        settled: dict[type, Any] = {kind: self.performers.get(kind) for kind in (TaskSettled, TasksSettled)}
        for event in self.journal:
            for effect in machine.handle(event):
                # A crash may have kept it from the world, but it is on record: it counts, and it must agree.
                judge = settled.get(type(effect))
                if judge is not None:
                    judge(effect)
        return machine

    def _bury(self) -> None:
        """What every death does, whatever was kept."""
        for mark, times in self.machine.marks.items():
            self.marks[mark] = self.marks.get(mark, 0) + times
        self.unsafe.clear()
        self.inbox.clear()
        self.wakes.clear()
        self.hampered = DOWN
        self._doom = None
        self._committing = False

    def _recover(self) -> None:
        self.machine = self.replayed()
        self.machine.marks.clear()
        if self._expected is not None and self.machine.dump() != self._expected:
            where = first_difference(self._expected, self.machine.dump())
            raise Violation(
                "ledger equals journal replay", f"{self.name} came back with another state: {where}"
            )
        self._expected = None
        if self._factory is not self._newest:
            self.machine = _carried(self.machine, self._newest)
            self._factory = self._newest
            self._take_snapshot()

    def _waits(self, action: Performer, payload: Any) -> bool:
        """Whether what arrives is lost with a dead process or waits for a paused one."""
        if self.hampered & DOWN:
            return True
        if self.hampered & PAUSED:
            self.inbox.append((action, payload))
            return True
        return False

    def _die_at(self, event: Event) -> None:
        """The planned death: before the journal, after it, or after some of the commands."""
        assert self._doom is not None
        where, downtime = self._doom
        if self._slow and where < 2 and not self.unsafe and self._patience:
            self._patience -= 1  # wait for an event that finds others unsafe: there is more to lose
            self.hampered &= ~DOOMED
            self.take(event)
            self.hampered |= DOOMED
            return
        self.world.at(self.world.now + downtime, self.restart)
        if where == 0:
            self.crash(self.rng.randint(0, len(self.unsafe)))
            return
        if self.world.story is not None:
            self.world.story.took(self.world.now, self.name, event)
        self.journal.append(event)
        self.unsafe.append(self.machine.handle(event))
        if where == 1:
            # Without a group commit the event itself is safe once it is written.
            kept = self.rng.randint(0, len(self.unsafe)) if self._slow else None
            self.crash(kept)
            return
        effects = [effect for effects in self.unsafe for effect in effects]
        self.perform(effects[: self.rng.randint(0, len(effects))])
        self.crash()

    # --- its journal ----------------------------------------------------------------------------------------

    def _defer(self, commands: list[Effect]) -> None:
        """Let commands wait for the next write; nobody hurries for an event without any."""
        self.unsafe.append(commands)
        if commands and not self._committing:
            self._committing = True
            least = self._durability.commit_min
            latency = least + int((self._slow - least) * self.rng.random())
            self.world.at(self.world.now + latency, self._commit)

    def _commit(self, _: Any = None) -> None:
        """The write has come back: what was waiting for it may be done."""
        if self.hampered and self._waits(self._commit, None):
            return
        self._committing = False
        unsafe, self.unsafe = self.unsafe, []
        for effects in unsafe:
            if effects:
                self.perform(effects)
        if len(self.journal) >= self._durability.snapshot_every:
            self._take_snapshot()

    def _keep_house(self) -> None:
        """Check the machine and take a snapshot, each when it is time; both are counted in events."""
        durability = self._durability
        self._unchecked += self._span
        if self._unchecked >= durability.check_every:
            self._unchecked = 0
            self.machine.check()
        if len(self.journal) >= durability.snapshot_every and not self.unsafe:
            self._take_snapshot()
        left = durability.check_every - self._unchecked
        if not self._slow:  # else the commits see to the snapshots
            left = min(left, durability.snapshot_every - len(self.journal))
        self._span = self._checks = max(1, left)

    def _take_snapshot(self) -> None:
        self.snapshot = self.machine.dump()
        self.journal.clear()

    def _note(self, kind: int, first: int, second: int) -> None:
        self._trace((self.world.now, self._number | kind, first, second))


def _carried(machine: Machine, factory: Callable[[], Machine]) -> Machine:
    """A machine with other settings and the same state."""
    other = factory()
    other.restore(machine.dump())
    return other
