"""Simulated process: a machine in its shell, with a clock, a journal, and several ways to crash.

On every event the shell stamps it with the local clock, appends it to the journal, hands it to the machine
and performs the effects in order. With a *group commit* the effects wait until the journal's write has come
back; a crash then tears a random tail off the uncommitted events, and no effect of the torn events was ever
performed.

A planned crash happens *at an event*, because effects belong to events: before the journal has the event,
after that but before any effect, or after the first few effects. The process restarts as a fresh machine
with the last snapshot and the journal replayed, and that must give exactly the state it had.
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
"""Events for which a planned crash with a slow journal waits for uncommitted events."""

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
"""Kinds of events; the position of a kind is its number in the digest."""
_BODY_CODES: Final[dict[type, int]] = {body: code for code, body in enumerate(Message.__args__)}
_BOOTED, _TICK, _RECEIVED, _SUBMITTED, _CANCEL, _DRAIN, BACKEND, STARTED, EXITED, WITHHELD, _ADVISED = range(
    len(KINDS)
)

Performer = Callable[[Any], None]
Performers = Mapping[type, Performer]


class Clock(msgspec.Struct, frozen=True):
    """Clock of a process: ``local = offset + true * rate / 1,000,000``. It runs while the process is down."""

    offset: int = 0
    rate: int = MILLION
    """Local microseconds in a true second."""

    def local(self, true: int) -> int:
        """Return the clock's reading at a true time."""
        return self.offset + true * self.rate // MILLION

    def true(self, local: int) -> int:
        """Return the first true time at which the clock reads at least ``local_time``."""
        return -((self.offset - local) * MILLION // self.rate)


class Durability(msgspec.Struct, frozen=True):
    """Settings of journal and snapshots. Times in microseconds."""

    commit_min: int = 0
    commit_max: int = 0
    """Range of the time that a write to the journal takes; 0: none."""
    snapshot_every: int = 500
    """Events between snapshots."""
    check_every: int = 200
    """Events between two ``machine.check()``."""


class Past(NamedTuple):
    """Copy of a process's disk; later changes of the disk do not affect it."""

    snapshot: bytes | None
    journal: tuple[Event, ...]
    epoch: int
    factory: Callable[[], Machine] | None = None
    """Factory of a machine with the settings of that journal; None: with the newest settings."""


class Process:
    """Journalled machine: a broker or a warden."""

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
        """Events since the snapshot; a crash may tear off the last ``len(uncommitted)`` of them."""
        self.snapshot: bytes | None = None
        self.unsafe: list[list[Effect]] = []
        """Effects of events that are not committed yet."""
        self.inbox: list[tuple[Performer, Any]] = []
        """Calls that wait for a paused process."""
        self.wakes: dict[int, None] = {}
        """Local times at which a tick is due."""
        self.epoch = 0
        self.hampered = DOWN
        self.marks: dict[str, int] = {}
        """Coverage marks of earlier incarnations."""
        self.is_member = True
        """True if the process belongs to the league today; others never start."""
        self._factory = self._newest = factory
        """Factory with the settings of the journal; factory with the settings of the next start."""
        self._number = number << 8
        self._receives = self._number | _RECEIVED
        self._ticks = self._number | _TICK
        self._send = network.send
        self._clock = clock
        self._offset = clock.offset
        self._rate = clock.rate
        self._drift = clock.rate - MILLION
        """Difference of rates, for the hot path: small numbers multiply and divide faster than ``_rate``."""
        self._trace = self.world.trace.extend
        self._durability = durability
        self._slow = durability.commit_max
        self.performers: Performers = {}
        """Performers of the effects that are neither sends nor wake-ups."""
        self.witness: Callable[[Process], None] | None = None
        """Listener called when the process has recovered from its own journal, before it acts."""
        self._doom: tuple[int, int] | None = None
        self._patience = 0
        self._committing = False
        self._expected: bytes | None = None
        self._checks = self._span = min(durability.check_every, durability.snapshot_every)
        """Events left, of this many, until the next check or snapshot."""
        self._unchecked = 0

    # --- inputs ---------------------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """Handle the arrival of a message."""
        if self.hampered and self._waits(self.receive, envelope):
            return
        now = self.world.now
        self._trace((now, self._receives, envelope.seq, _BODY_CODES[type(envelope.body)]))
        self.take(MessageReceived(self._offset + now + now * self._drift // MILLION, envelope))

    def tick(self, at: int) -> None:
        """Handle a time that the machine asked for."""
        if self.hampered and self._waits(self.tick, at):
            return
        if at not in self.wakes:
            return  # an earlier incarnation asked for it
        del self.wakes[at]
        now = self.world.now
        self._trace((now, self._ticks, 0, 0))
        self.take(Tick(self._offset + now + now * self._drift // MILLION))

    def submit(self, request: tuple[str, int, JobSpec]) -> None:
        """Handle a client's submission of a job."""
        if self.hampered and self._waits(self.submit, request):
            return
        client, number, spec = request
        self._note(_SUBMITTED, number, len(spec.groups))
        self.take(JobSubmitted(self.local_now(), client, number, spec))

    def cancel(self, request: tuple[str, int, JobId]) -> None:
        """Handle a client's request to cancel a job."""
        if self.hampered and self._waits(self.cancel, request):
            return
        client, number, job = request
        self._note(_CANCEL, number, job)
        self.take(CancelRequested(self.local_now(), client, number, job))

    def drain(self, request: tuple[tuple[int, ...], bool, int]) -> None:
        """Handle an operator's request to close nodes (for a time; 0: until opened), or to open them."""
        if self.hampered and self._waits(self.drain, request):
            return
        nodes, closed, span = request
        self._note(_DRAIN, len(nodes), closed)
        now = self.local_now()
        self.take(DrainRequested(now, nodes, closed, until=now + span if span else 0))

    def advise(self, answer: tuple[int, tuple[Advice, ...]]) -> None:
        """Handle an answer of the policy process."""
        if self.hampered and self._waits(self.advise, answer):
            return
        number, choices = answer
        self._note(_ADVISED, number, len(choices))
        self.take(AdviceReceived(self.local_now(), number, choices))

    def take(self, event: Event) -> None:
        """Append an event to the journal, hand it to the machine and perform the effects."""
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
        """Perform the effects of a machine in order."""
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
        """Schedule a tick at a local time, unless one is due then."""
        if at in self.wakes:
            return
        self.wakes[at] = None
        world = self.world
        true = -((self._offset - at) * MILLION // self._rate) if self._drift else at - self._offset
        if true < world.now:  # noqa: PLR1730  hot path: max() costs more
            true = world.now
        heappush(world.heap, (true, world.number(), self.tick, at))

    # --- clock ----------------------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """Clock of the process."""
        return self._clock

    def local_now(self) -> Instant:
        """Return the clock's reading."""
        return self._offset + self.world.now * self._rate // MILLION

    # --- faults ---------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True if the process is not down (it may be paused)."""
        return not self.hampered & DOWN

    def connect(self, performers: Performers) -> None:
        """Set the performers of effects."""
        self.performers = performers

    def doom(self, downtime: int) -> None:
        """Plan a crash at the next event, with a restart after so many microseconds."""
        if self.up:
            self.hampered |= DOOMED
            self._doom = (self.rng.randrange(3), downtime)
            self._patience = DOOM_EVENTS_MAX

    def pause(self, _: Any = None) -> None:
        """Pause the process: inputs wait."""
        if self.up:
            self.hampered |= PAUSED

    def resume(self, _: Any = None) -> None:
        """Resume the process, beginning with the inputs that waited."""
        if not self.hampered & PAUSED:
            return
        self.hampered &= ~PAUSED
        waited, self.inbox = self.inbox, []
        for action, payload in waited:
            action(payload)

    def crash(self, kept: int | None = None) -> None:
        """Crash now. Of the uncommitted events the first ``kept`` survive (None: all)."""
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
        """Restart: snapshot, journal, then ``Booted``. With a downtime: crash again at that event."""
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
        """Cancel a planned crash."""
        self.hampered &= ~DOOMED
        self._doom = None

    def disk(self) -> Past:
        """Return a copy of the disk as it is now, without uncommitted events."""
        journal = self.journal[: len(self.journal) - len(self.unsafe)]
        torn = self.journal[len(journal) :]
        epoch = self.epoch - sum(type(event) is Booted for event in torn)
        return Past(self.snapshot, tuple(journal), epoch, self._factory)

    def lived(self, past: Past) -> Machine:
        """Return a fresh machine with the history of a disk and the newest settings."""
        factory = past.factory or self._newest
        machine = factory()
        if past.snapshot is not None:
            machine.restore(past.snapshot)
        for event in past.journal:
            machine.handle(event)
        return machine if factory is self._newest else _carried(machine, self._newest)

    def reconfigure(self, factory: Callable[[], Machine]) -> None:
        """Set the factory with the settings of the next start."""
        self._newest = factory

    def rewind(self, past: Past) -> None:
        """Replace the disk for the next start."""
        assert not self.up, "a running process has a newer disk"
        self.snapshot, self.journal, self.epoch = past.snapshot, list(past.journal), past.epoch
        self._factory = past.factory or self._newest
        self._expected = None

    def replayed(self) -> Machine:
        """Return a fresh machine with this process's snapshot and journal."""
        machine = self._factory()
        if self.snapshot is not None:
            machine.restore(self.snapshot)
        settled: dict[type, Any] = {kind: self.performers.get(kind) for kind in (TaskSettled, TasksSettled)}
        for event in self.journal:
            for effect in machine.handle(event):
                # A crash may have hidden it, but the journal has its event: it counts and must agree.
                judge = settled.get(type(effect))
                if judge is not None:
                    judge(effect)
        return machine

    def _bury(self) -> None:
        """Reset the process after a crash, whatever was kept."""
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
                "ledger equals journal replay", f"{self.name} restarted with another state: {where}"
            )
        self._expected = None
        if self._factory is not self._newest:
            self.machine = _carried(self.machine, self._newest)
            self._factory = self._newest
            self._take_snapshot()

    def _waits(self, action: Performer, payload: Any) -> bool:
        """True if an input is lost because the process is down, or waits because it is paused."""
        if self.hampered & DOWN:
            return True
        if self.hampered & PAUSED:
            self.inbox.append((action, payload))
            return True
        return False

    def _die_at(self, event: Event) -> None:
        """Perform the planned crash: before the journal, after it, or after some of the effects."""
        assert self._doom is not None
        where, downtime = self._doom
        if self._slow and where < 2 and not self.unsafe and self._patience:
            self._patience -= 1  # wait for an event that finds uncommitted ones: then the crash loses more
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
            # Without a group commit the event itself is committed once it is written.
            kept = self.rng.randint(0, len(self.unsafe)) if self._slow else None
            self.crash(kept)
            return
        effects = [effect for effects in self.unsafe for effect in effects]
        self.perform(effects[: self.rng.randint(0, len(effects))])
        self.crash()

    # --- journal --------------------------------------------------------------------------------------------

    def _defer(self, commands: list[Effect]) -> None:
        """Delay effects until the next write; an event without effects starts no write."""
        self.unsafe.append(commands)
        if commands and not self._committing:
            self._committing = True
            least = self._durability.commit_min
            latency = least + int((self._slow - least) * self.rng.random())
            self.world.at(self.world.now + latency, self._commit)

    def _commit(self, _: Any = None) -> None:
        """Perform the effects that waited for the write that has come back."""
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
        """Check the machine and take a snapshot, each when it is due; both are counted in events."""
        durability = self._durability
        self._unchecked += self._span
        if self._unchecked >= durability.check_every:
            self._unchecked = 0
            self.machine.check()
        if len(self.journal) >= durability.snapshot_every and not self.unsafe:
            self._take_snapshot()
        left = durability.check_every - self._unchecked
        if not self._slow:  # else each commit checks whether a snapshot is due
            left = min(left, durability.snapshot_every - len(self.journal))
        self._span = self._checks = max(1, left)

    def _take_snapshot(self) -> None:
        self.snapshot = self.machine.dump()
        self.journal.clear()

    def _note(self, kind: int, first: int, second: int) -> None:
        self._trace((self.world.now, self._number | kind, first, second))


def _carried(machine: Machine, factory: Callable[[], Machine]) -> Machine:
    """Return a machine with other settings and the same state."""
    other = factory()
    other.restore(machine.dump())
    return other
