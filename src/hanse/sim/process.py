"""Simulated process: a machine in its shell, with a clock and several ways to crash.

On every event the shell stamps it with the local clock, hands it to the machine and performs the effects in
order. Nothing survives a crash but the number of starts: a process with more to remember has a journal
(``sim.journalled_process``) or a backend (``sim.runner_process``).

A planned crash happens *at an event*, because effects belong to events: before the machine has the event, or
after the first few effects.
"""

from collections.abc import Callable, Mapping
from heapq import heappush
from random import Random
from typing import Any, Final

from hanse.core.machine import Machine
from hanse.model.effects import Effect, SendMessage, WakeAt
from hanse.model.events import Booted, Event, MessageReceived, Tick
from hanse.model.ids import Instant
from hanse.model.messages import Envelope
from hanse.sim.disk import Durability
from hanse.sim.event_codes import BODY_CODES, BOOTED, RECEIVED, TICK
from hanse.sim.network import SimulatedLink, SimulatedNetwork
from hanse.sim.process_clock import MILLION, ProcessClock
from hanse.sim.world import VirtualWorld

DOWN: Final = 1
PAUSED: Final = 2
CRASH_PLANNED: Final = 4

Performer = Callable[[Any], None]
Performers = Mapping[type, Performer]


class Process:
    """Machine in its shell, without a journal."""

    __slots__ = (
        "_clock",
        "_drift",
        "_durability",
        "_events_to_upkeep",
        "_factory",
        "_number",
        "_offset",
        "_planned_crash",
        "_rate",
        "_receive_code",
        "_send",
        "_tick_code",
        "_trace",
        "epoch",
        "inbox",
        "is_member",
        "links",
        "machine",
        "marks",
        "name",
        "network",
        "performers",
        "rng",
        "suspension",
        "tick_times",
        "world",
    )

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
        self.inbox: list[tuple[Performer, Any]] = []
        """Calls that wait for a paused process."""
        self.tick_times: dict[int, None] = {}
        """Local times at which a tick is due."""
        self.epoch = 0
        """Number of starts that are remembered."""
        self.suspension = DOWN
        self.marks: dict[str, int] = {}
        """Coverage marks of earlier incarnations."""
        self.is_member = True
        """True if the process belongs to the league today; others never start."""
        self._factory = factory
        """Factory of a machine without a history."""
        self._number = number << 8
        self._receive_code = self._number | RECEIVED
        self._tick_code = self._number | TICK
        self._send = network.send
        self._clock = clock
        self._offset = clock.offset
        self._rate = clock.rate
        self._drift = clock.rate - MILLION
        """Difference of rates, for the hot path: small numbers multiply and divide faster than ``_rate``."""
        self._trace = self.world.trace.extend
        self.performers: Performers = {}
        """Performers of the effects that are neither sends nor wake-ups."""
        self._planned_crash: tuple[int, int] | None = None
        self._durability = durability
        self._events_to_upkeep = durability.check_every
        """Events left until the machine is checked."""

    # --- inputs ---------------------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """Handle the arrival of a message."""
        if self.suspension and self._is_held_back(self.receive, envelope):
            return
        now = self.world.now
        self._trace((now, self._receive_code, envelope.seq, BODY_CODES[type(envelope.body)]))
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

    def handle(self, event: Event) -> None:
        """Hand an event to the machine and perform the effects."""
        if self.suspension:
            self._crash_at(event)
            return
        if self.world.story is not None:
            self.world.story.on_event(self.world.now, self.name, event)
        self.perform(self.machine.handle(event))
        self._events_to_upkeep -= 1
        if self._events_to_upkeep <= 0:
            self._events_to_upkeep = self._durability.check_every
            self.machine.check()

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

    def crash(self, _: int | None = None) -> None:
        """Crash now."""
        if not self.is_up:
            return
        if self.world.story is not None:
            self.world.story.on_fault(self.world.now, self.name, "crashes")
        self._stop_machine()

    def restart(self, downtime: int | None = None) -> None:
        """Restart, beginning with ``Booted``. With a downtime: crash again at that event."""
        if self.is_up or not self.is_member:
            return
        self._recover()
        self.suspension = 0
        if downtime is not None:
            self.schedule_crash(downtime)
        if self.world.story is not None:
            self.world.story.on_fault(self.world.now, self.name, f"starts, epoch {self.epoch + 1}")
        self.epoch += 1
        self._add_to_trace(BOOTED, self.epoch, 0)
        self.handle(Booted(self.local_now(), self.epoch, self.rng.getrandbits(62)))

    def cancel_planned_crash(self) -> None:
        """Cancel a planned crash."""
        self.suspension &= ~CRASH_PLANNED
        self._planned_crash = None

    def _recover(self) -> None:
        """Make the machine of the next start."""
        self.machine = self._factory()

    def _stop_machine(self) -> None:
        """Reset the process after a crash, whatever was kept."""
        for mark, times in self.machine.marks.items():
            self.marks[mark] = self.marks.get(mark, 0) + times
        self.inbox.clear()
        self.tick_times.clear()
        self.suspension = DOWN
        self._planned_crash = None

    def _is_held_back(self, action: Performer, payload: Any) -> bool:
        """True if an input is lost because the process is down, or waits because it is paused."""
        if self.suspension & DOWN:
            return True
        if self.suspension & PAUSED:
            self.inbox.append((action, payload))
            return True
        return False

    def _crash_at(self, event: Event) -> None:
        """Perform the planned crash: before the machine has the event, or after some of the effects."""
        assert self._planned_crash is not None
        where, downtime = self._planned_crash
        self.world.call_at(self.world.now + downtime, self.restart)
        if where:
            if self.world.story is not None:
                self.world.story.on_event(self.world.now, self.name, event)
            effects = self.machine.handle(event)
            self.perform(effects[: self.rng.randint(0, len(effects))])
        self.crash()

    def _add_to_trace(self, kind: int, first: int, second: int) -> None:
        self._trace((self.world.now, self._number | kind, first, second))
