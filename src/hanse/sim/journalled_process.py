"""Simulated broker or warden: a process with a journal.

On every event the shell stamps it with the local clock, appends it to the journal, hands it to the machine
and performs the effects in order. With a *group commit* the effects wait until the journal's write has come
back; a crash then tears a random tail off the uncommitted events, and no effect of the torn events was ever
performed.

A planned crash happens *at an event*, because effects belong to events: before the journal has the event,
after that but before any effect, or after the first few effects. The process restarts as a fresh machine
with the last snapshot and the journal replayed, and that must give exactly the state it had.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from hanse.core.machine import Machine
from hanse.model.advice import Advice
from hanse.model.effects import Effect, TaskSettled, TasksSettled, has_orders, orders_of
from hanse.model.events import (
    AdviceReceived,
    Booted,
    CancelRequested,
    DrainRequested,
    Event,
    JobSubmitted,
)
from hanse.model.ids import JobId
from hanse.model.job import JobSpec
from hanse.sim.disk import DiskCopy, Durability
from hanse.sim.event_codes import ADVISED, CANCEL, DRAIN, SUBMITTED
from hanse.sim.network import SimulatedNetwork
from hanse.sim.process import CRASH_PLANNED, Process
from hanse.sim.process_clock import ProcessClock
from hanse.sim.state_diff import first_difference
from hanse.sim.world import Violation

CRASH_WAIT_EVENTS_MAX: Final = 30
"""Events for which a planned crash with a slow journal waits for uncommitted events."""


class JournalledProcess(Process):
    """Broker or warden in its shell."""

    __slots__ = (
        "_commit_max",
        "_crash_wait_events",
        "_expected_state",
        "_is_committing",
        "_next_factory",
        "_unchecked_events",
        "_upkeep_interval",
        "journal",
        "on_recovered",
        "snapshot",
        "uncommitted",
    )

    def __init__(
        self, name: str, number: int, factory: Callable[[], Machine], network: SimulatedNetwork, rng: Random,
        clock: ProcessClock = ProcessClock(), durability: Durability = Durability(),  # noqa: B008  frozen records
    ) -> None:  # fmt: skip
        super().__init__(name, number, factory, network, rng, clock, durability)
        self.journal: list[Event] = []
        """Events since the snapshot; a crash may tear off the last ``len(uncommitted)`` of them."""
        self.snapshot: bytes | None = None
        self.uncommitted: list[list[Effect]] = []
        """Effects of events that are not committed yet."""
        self._next_factory = factory
        """Factory with the settings of the next start; ``_factory`` has the settings of the journal."""
        self._commit_max = durability.commit_max
        self.on_recovered: Callable[[JournalledProcess], None] | None = None
        """Listener called when the process has recovered from its own journal, before it acts."""
        self._crash_wait_events = 0
        self._is_committing = False
        self._expected_state: bytes | None = None
        self._events_to_upkeep = self._upkeep_interval = min(
            durability.check_every, durability.snapshot_every
        )
        """Events left, of this many, until the next check or snapshot."""
        self._unchecked_events = 0

    # --- inputs ---------------------------------------------------------------------------------------------

    def submit(self, request: tuple[str, int, JobSpec]) -> None:
        """Handle a client's submission of a job."""
        if self.suspension and self._is_held_back(self.submit, request):
            return
        client, number, spec = request
        self._add_to_trace(SUBMITTED, number, len(spec.groups))
        self.handle(JobSubmitted(self.local_now(), client, number, spec))

    def cancel(self, request: tuple[str, int, JobId]) -> None:
        """Handle a client's request to cancel a job."""
        if self.suspension and self._is_held_back(self.cancel, request):
            return
        client, number, job = request
        self._add_to_trace(CANCEL, number, job)
        self.handle(CancelRequested(self.local_now(), client, number, job))

    def drain(self, request: tuple[tuple[int, ...], bool, int]) -> None:
        """Handle an operator's request to close nodes (for a time; 0: until opened), or to open them."""
        if self.suspension and self._is_held_back(self.drain, request):
            return
        nodes, closed, span = request
        self._add_to_trace(DRAIN, len(nodes), closed)
        now = self.local_now()
        self.handle(DrainRequested(now, nodes, closed, until=now + span if span else 0))

    def on_advice(self, answer: tuple[int, tuple[Advice, ...]]) -> None:
        """Handle an answer of the policy process."""
        if self.suspension and self._is_held_back(self.on_advice, answer):
            return
        number, choices = answer
        self._add_to_trace(ADVISED, number, len(choices))
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

    # --- faults ---------------------------------------------------------------------------------------------

    def schedule_crash(self, downtime: int) -> None:
        """Plan a crash at one of the next events, with a restart after so many microseconds."""
        super().schedule_crash(downtime)
        self._crash_wait_events = CRASH_WAIT_EVENTS_MAX

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
        super()._stop_machine()
        self.uncommitted.clear()
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
        if self.on_recovered is not None:
            self.on_recovered(self)

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
        if not self._is_committing and has_orders(effects):
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


def _with_other_settings(machine: Machine, factory: Callable[[], Machine]) -> Machine:
    """Return a machine with other settings and the same state."""
    other = factory()
    other.restore(machine.dump())
    return other
