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
from hanse.model.effects import Effect, SendMessage, TaskSettled, TasksSettled, WakeAt, orders_of
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
from hanse.sim.network import SimulatedLink, SimulatedNetwork
from hanse.sim.state_diff import first_difference
from hanse.sim.world import Violation, VirtualWorld

MILLION: Final = 1_000_000

DOWN: Final = 1
PAUSED: Final = 2
CRASH_PLANNED: Final = 4

CRASH_WAIT_EVENTS_MAX: Final = 30
"""Events for which a planned crash with a slow journal waits for uncommitted events."""

EVENT_KINDS: Final[tuple[type, ...]] = (
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
    len(EVENT_KINDS)
)

Performer = Callable[[Any], None]
Performers = Mapping[type, Performer]


class ProcessClock(msgspec.Struct, frozen=True):
    """Clock of a process: ``local = offset + true * rate / 1,000,000``. It runs while the process is down."""

    offset: int = 0
    rate: int = MILLION
    """Local microseconds in a true second."""

    def local_time(self, true_time: int) -> int:
        """Return the clock's reading at a true time."""
        return self.offset + true_time * self.rate // MILLION

    def true_time(self, local_time: int) -> int:
        """Return the first true time at which the clock reads at least ``local_time``."""
        return -((self.offset - local_time) * MILLION // self.rate)


class Durability(msgspec.Struct, frozen=True):
    """Settings of journal and snapshots. Times in microseconds."""

    commit_min: int = 0
    commit_max: int = 0
    """Range of the time that a write to the journal takes; 0: none."""
    snapshot_every: int = 500
    """Events between snapshots."""
    check_every: int = 200
    """Events between two ``machine.check()``."""


class DiskCopy(NamedTuple):
    """Copy of a process's disk; later changes of the disk do not affect it."""

    snapshot: bytes | None
    journal: tuple[Event, ...]
    epoch: int
    factory: Callable[[], Machine] | None = None
    """Factory of a machine with the settings of that journal; None: with the newest settings."""


class Process:
    """Journalled machine: a broker or a warden."""

    __slots__ = (
        "_clock",
        "_commit_max",
        "_crash_wait_events",
        "_drift",
        "_durability",
        "_events_to_upkeep",
        "_expected_state",
        "_factory",
        "_is_committing",
        "_next_factory",
        "_number",
        "_offset",
        "_planned_crash",
        "_rate",
        "_receive_code",
        "_send",
        "_tick_code",
        "_trace",
        "_unchecked_events",
        "_upkeep_interval",
        "epoch",
        "inbox",
        "is_member",
        "journal",
        "links",
        "machine",
        "marks",
        "name",
        "network",
        "on_recovered",
        "performers",
        "rng",
        "snapshot",
        "suspension",
        "tick_times",
        "uncommitted",
        "world",
    )  # fmt: skip

    def __init__(
        self, name: str, number: int, factory: Callable[[], Machine], network: SimulatedNetwork, rng: Random,
        clock: ProcessClock = ProcessClock(), durability: Durability = Durability(),  # noqa: B008  frozen records
    ) -> None:  # fmt: skip
        self.name = name
        self.world: VirtualWorld = network.world
        self.network = network
        self.rng = rng
        self.machine = factory()
        self.links: dict[str, SimulatedLink] = {}
        self.journal: list[Event] = []
        """Events since the snapshot; a crash may tear off the last ``len(uncommitted)`` of them."""
        self.snapshot: bytes | None = None
        self.uncommitted: list[list[Effect]] = []
        """Effects of events that are not committed yet."""
        self.inbox: list[tuple[Performer, Any]] = []
        """Calls that wait for a paused process."""
        self.tick_times: dict[int, None] = {}
        """Local times at which a tick is due."""
        self.epoch = 0
        self.suspension = DOWN
        self.marks: dict[str, int] = {}
        """Coverage marks of earlier incarnations."""
        self.is_member = True
        """True if the process belongs to the league today; others never start."""
        self._factory = self._next_factory = factory
        """Factory with the settings of the journal; factory with the settings of the next start."""
        self._number = number << 8
        self._receive_code = self._number | _RECEIVED
        self._tick_code = self._number | _TICK
        self._send = network.send
        self._clock = clock
        self._offset = clock.offset
        self._rate = clock.rate
        self._drift = clock.rate - MILLION
        """Difference of rates, for the hot path: small numbers multiply and divide faster than ``_rate``."""
        self._trace = self.world.trace.extend
        self._durability = durability
        self._commit_max = durability.commit_max
        self.performers: Performers = {}
        """Performers of the effects that are neither sends nor wake-ups."""
        self.on_recovered: Callable[[Process], None] | None = None
        """Listener called when the process has recovered from its own journal, before it acts."""
        self._planned_crash: tuple[int, int] | None = None
        self._crash_wait_events = 0
        self._is_committing = False
        self._expected_state: bytes | None = None
        self._events_to_upkeep = self._upkeep_interval = min(
            durability.check_every, durability.snapshot_every
        )
        """Events left, of this many, until the next check or snapshot."""
        self._unchecked_events = 0

    # --- inputs ---------------------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """Handle the arrival of a message."""
        if self.suspension and self._is_held_back(self.receive, envelope):
            return
        now = self.world.now
        self._trace((now, self._receive_code, envelope.seq, _BODY_CODES[type(envelope.body)]))
        self.handle(MessageReceived(self._offset + now + now * self._drift // MILLION, envelope))

    def tick(self, at: int) -> None:
        """Handle a time that the machine asked for."""
        if self.suspension and self._is_held_back(self.tick, at):
            return
        if at not in self.tick_times:
            return  # an earlier incarnation asked for it
        del self.tick_times[at]
        now = self.world.now
        self._trace((now, self._tick_code, 0, 0))
        self.handle(Tick(self._offset + now + now * self._drift // MILLION))

    def submit(self, request: tuple[str, int, JobSpec]) -> None:
        """Handle a client's submission of a job."""
        if self.suspension and self._is_held_back(self.submit, request):
            return
        client, number, spec = request
        self._add_to_trace(_SUBMITTED, number, len(spec.groups))
        self.handle(JobSubmitted(self.local_now(), client, number, spec))

    def cancel(self, request: tuple[str, int, JobId]) -> None:
        """Handle a client's request to cancel a job."""
        if self.suspension and self._is_held_back(self.cancel, request):
            return
        client, number, job = request
        self._add_to_trace(_CANCEL, number, job)
        self.handle(CancelRequested(self.local_now(), client, number, job))

    def drain(self, request: tuple[tuple[int, ...], bool, int]) -> None:
        """Handle an operator's request to close nodes (for a time; 0: until opened), or to open them."""
        if self.suspension and self._is_held_back(self.drain, request):
            return
        nodes, closed, span = request
        self._add_to_trace(_DRAIN, len(nodes), closed)
        now = self.local_now()
        self.handle(DrainRequested(now, nodes, closed, until=now + span if span else 0))

    def on_advice(self, answer: tuple[int, tuple[Advice, ...]]) -> None:
        """Handle an answer of the policy process."""
        if self.suspension and self._is_held_back(self.on_advice, answer):
            return
        number, choices = answer
        self._add_to_trace(_ADVISED, number, len(choices))
        self.handle(AdviceReceived(self.local_now(), number, choices))

    def handle(self, event: Event) -> None:
        """Append an event to the journal, hand it to the machine and perform the effects."""
        if self.suspension:
            self._crash_at(event)
            return
        if self.world.story is not None:
            self.world.story.on_event(self.world.now, self.name, event)
        self.journal.append(event)
        effects = self.machine.handle(event)
        if self._commit_max:
            self._delay_effects(effects)
        elif effects:
            self.perform(effects)
        self._events_to_upkeep = left = self._events_to_upkeep - 1
        if left <= 0:
            self._check_and_snapshot()

    def perform(self, effects: list[Effect]) -> None:
        """Perform the effects of a machine in order."""
        story = self.world.story
        for effect in effects:
            if story is not None:
                story.on_effect(self.world.now, self.name, effect)
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
        if at in self.tick_times:
            return
        self.tick_times[at] = None
        world = self.world
        true = -((self._offset - at) * MILLION // self._rate) if self._drift else at - self._offset
        if true < world.now:  # noqa: PLR1730  hot path: max() costs more
            true = world.now
        heappush(world.heap, (true, world.next_number(), self.tick, at))

    # --- clock ----------------------------------------------------------------------------------------------

    @property
    def clock(self) -> ProcessClock:
        """Clock of the process."""
        return self._clock

    def local_now(self) -> Instant:
        """Return the clock's reading."""
        return self._offset + self.world.now * self._rate // MILLION

    # --- faults ---------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """True if the process is not down (it may be paused)."""
        return not self.suspension & DOWN

    def set_performers(self, performers: Performers) -> None:
        """Set the performers of effects."""
        self.performers = performers

    def schedule_crash(self, downtime: int) -> None:
        """Plan a crash at the next event, with a restart after so many microseconds."""
        if self.is_up:
            self.suspension |= CRASH_PLANNED
            self._planned_crash = (self.rng.randrange(3), downtime)
            self._crash_wait_events = CRASH_WAIT_EVENTS_MAX

    def pause(self, _: Any = None) -> None:
        """Pause the process: inputs wait."""
        if self.is_up:
            self.suspension |= PAUSED

    def resume(self, _: Any = None) -> None:
        """Resume the process, beginning with the inputs that waited."""
        if not self.suspension & PAUSED:
            return
        self.suspension &= ~PAUSED
        delayed, self.inbox = self.inbox, []
        for action, payload in delayed:
            action(payload)

    def crash(self, kept: int | None = None) -> None:
        """Crash now. Of the uncommitted events the first ``kept`` survive (None: all)."""
        if not self.is_up:
            return
        kept = len(self.uncommitted) if kept is None else kept
        torn = len(self.uncommitted) - kept
        if torn:
            self.epoch -= sum(type(event) is Booted for event in self.journal[-torn:])
            del self.journal[-torn:]
        self._expected_state = None if torn else self.machine.dump()
        if self.world.story is not None:
            lost = f", {torn} unwritten events lost" if torn else ""
            self.world.story.on_fault(self.world.now, self.name, f"crashes{lost}")
        self._stop_machine()

    def restart(self, downtime: int | None = None) -> None:
        """Restart: snapshot, journal, then ``Booted``. With a downtime: crash again at that event."""
        if self.is_up or not self.is_member:
            return
        self._recover()
        if self.on_recovered is not None:
            self.on_recovered(self)
        self.suspension = 0
        if downtime is not None:
            self.schedule_crash(downtime)
        if self.world.story is not None:
            self.world.story.on_fault(self.world.now, self.name, f"starts, epoch {self.epoch + 1}")
        self.epoch += 1
        self._add_to_trace(_BOOTED, self.epoch, 0)
        self.handle(Booted(self.local_now(), self.epoch, self.rng.getrandbits(62)))

    def cancel_planned_crash(self) -> None:
        """Cancel a planned crash."""
        self.suspension &= ~CRASH_PLANNED
        self._planned_crash = None

    def copy_disk(self) -> DiskCopy:
        """Return a copy of the disk as it is now, without uncommitted events."""
        journal = self.journal[: len(self.journal) - len(self.uncommitted)]
        torn = self.journal[len(journal) :]
        epoch = self.epoch - sum(type(event) is Booted for event in torn)
        return DiskCopy(self.snapshot, tuple(journal), epoch, self._factory)

    def machine_from(self, disk: DiskCopy) -> Machine:
        """Return a fresh machine with the history of a disk and the newest settings."""
        factory = disk.factory or self._next_factory
        machine = factory()
        if disk.snapshot is not None:
            machine.restore(disk.snapshot)
        for event in disk.journal:
            machine.handle(event)
        return machine if factory is self._next_factory else _with_other_settings(machine, self._next_factory)

    def use_factory(self, factory: Callable[[], Machine]) -> None:
        """Set the factory with the settings of the next start."""
        self._next_factory = factory

    def replace_disk(self, disk: DiskCopy) -> None:
        """Replace the disk for the next start."""
        assert not self.is_up, "a running process has a newer disk"
        self.snapshot, self.journal, self.epoch = disk.snapshot, list(disk.journal), disk.epoch
        self._factory = disk.factory or self._next_factory
        self._expected_state = None

    def replay(self) -> Machine:
        """Return a fresh machine with this process's snapshot and journal."""
        machine = self._factory()
        if self.snapshot is not None:
            machine.restore(self.snapshot)
        settled: dict[type, Any] = {kind: self.performers.get(kind) for kind in (TaskSettled, TasksSettled)}
        for event in self.journal:
            for effect in machine.handle(event):
                # A crash may have hidden it, but the journal has its event: it counts and must agree.
                performer = settled.get(type(effect))
                if performer is not None:
                    performer(effect)
        return machine

    def _stop_machine(self) -> None:
        """Reset the process after a crash, whatever was kept."""
        for mark, times in self.machine.marks.items():
            self.marks[mark] = self.marks.get(mark, 0) + times
        self.uncommitted.clear()
        self.inbox.clear()
        self.tick_times.clear()
        self.suspension = DOWN
        self._planned_crash = None
        self._is_committing = False

    def _recover(self) -> None:
        self.machine = self.replay()
        self.machine.marks.clear()
        if self._expected_state is not None and self.machine.dump() != self._expected_state:
            difference = first_difference(self._expected_state, self.machine.dump())
            raise Violation(
                "ledger equals journal replay", f"{self.name} restarted with another state: {difference}"
            )
        self._expected_state = None
        if self._factory is not self._next_factory:
            self.machine = _with_other_settings(self.machine, self._next_factory)
            self._factory = self._next_factory
            self._take_snapshot()

    def _is_held_back(self, action: Performer, payload: Any) -> bool:
        """True if an input is lost because the process is down, or waits because it is paused."""
        if self.suspension & DOWN:
            return True
        if self.suspension & PAUSED:
            self.inbox.append((action, payload))
            return True
        return False

    def _crash_at(self, event: Event) -> None:
        """Perform the planned crash: before the journal, after it, or after some of the effects."""
        assert self._planned_crash is not None
        where, downtime = self._planned_crash
        if self._commit_max and where < 2 and not self.uncommitted and self._crash_wait_events:
            self._crash_wait_events -= (
                1  # wait for an event that finds uncommitted ones: then the crash loses more
            )
            self.suspension &= ~CRASH_PLANNED
            self.handle(event)
            self.suspension |= CRASH_PLANNED
            return
        self.world.call_at(self.world.now + downtime, self.restart)
        if where == 0:
            self.crash(self.rng.randint(0, len(self.uncommitted)))
            return
        if self.world.story is not None:
            self.world.story.on_event(self.world.now, self.name, event)
        self.journal.append(event)
        self.uncommitted.append(self.machine.handle(event))
        if where == 1:
            # Without a group commit the event itself is committed once it is written.
            kept = self.rng.randint(0, len(self.uncommitted)) if self._commit_max else None
            self.crash(kept)
            return
        effects = [effect for effects in self.uncommitted for effect in orders_of(effects)]
        self.perform(effects[: self.rng.randint(0, len(effects))])
        self.crash()

    # --- journal --------------------------------------------------------------------------------------------

    def _delay_effects(self, effects: list[Effect]) -> None:
        """Delay effects until the next write; an event without effects to perform starts no write."""
        self.uncommitted.append(effects)
        if not self._is_committing and orders_of(effects):
            self._is_committing = True
            least = self._durability.commit_min
            latency = least + int((self._commit_max - least) * self.rng.random())
            self.world.call_at(self.world.now + latency, self._on_committed)

    def _on_committed(self, _: Any = None) -> None:
        """Perform the effects that waited for the write that has come back."""
        if self.suspension and self._is_held_back(self._on_committed, None):
            return
        self._is_committing = False
        uncommitted, self.uncommitted = self.uncommitted, []
        for effects in uncommitted:
            if effects:
                self.perform(effects)
        if len(self.journal) >= self._durability.snapshot_every:
            self._take_snapshot()

    def _check_and_snapshot(self) -> None:
        """Check the machine and take a snapshot, each when it is due; both are counted in events."""
        durability = self._durability
        self._unchecked_events += self._upkeep_interval
        if self._unchecked_events >= durability.check_every:
            self._unchecked_events = 0
            self.machine.check()
        if len(self.journal) >= durability.snapshot_every and not self.uncommitted:
            self._take_snapshot()
        left = durability.check_every - self._unchecked_events
        if not self._commit_max:  # else each commit checks whether a snapshot is due
            left = min(left, durability.snapshot_every - len(self.journal))
        self._upkeep_interval = self._events_to_upkeep = max(1, left)

    def _take_snapshot(self) -> None:
        self.snapshot = self.machine.dump()
        self.journal.clear()

    def _add_to_trace(self, kind: int, first: int, second: int) -> None:
        self._trace((self.world.now, self._number | kind, first, second))


def _with_other_settings(machine: Machine, factory: Callable[[], Machine]) -> Machine:
    """Return a machine with other settings and the same state."""
    other = factory()
    other.restore(machine.dump())
    return other
