"""Shell of the real machines in a world: one process, no journal, no encoding; every message takes one delay.

The physics tells when inputs arrive and tasks end; the machines decide everything else. A runner stands for
the nodes of its cluster and hears of starts and ends at once. As in ``sim.replay.hanse_policy``, a job ends
one message before its broker reports it, because under other policies the scheduler hears of an end directly.
"""

import gc
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from time import process_time_ns
from typing import Final

import msgspec
import numpy as np

from hanse.core.messaging.link import NEVER
from hanse.core.runner.runner import Runner
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    KillAttempt,
    LaunchAttempt,
    RequestRejected,
    SendMessage,
    WakeAt,
)
from hanse.model.events import (
    BackendReported,
    Booted,
    CapacityWithheld,
    JobSubmitted,
    MessageReceived,
    TasksChanged,
    Tick,
)
from hanse.model.ids import JobId, TaskId, index_of, job_of
from hanse.model.messages import AttemptEnd, Envelope, Outcome, ResourceUsage, WithheldCapacity
from hanse.model.resources import Resources
from hanse.policy.hashing import hash_numbers
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled.compiled_physics import CompiledPhysics
from hanse.sim.worlds.league.league_setup import (
    LONG,
    WorldJobs,
    WorldLeagueSettings,
    broker_of_jobs,
    make_world_league,
)
from hanse.sim.worlds.physics import EventKind, WorldEvent, WorldPhysics

CLIENT: Final = "replay"
BEATS_BEFORE: Final = 2
"""Beats between the start of the machines and the first arrival: the second one opens every shard."""
JOBS_PER_REPORT: Final = 100
"""Arrived jobs between two calls of the progress function."""

Physics = CompiledPhysics | WorldPhysics
ShellEvent = tuple[int, int, str, Envelope | int | None]
"""Time, number, target and content: a message, an arriving job, or None for a tick."""


class WorldShell:
    """Shell of one league in one world."""

    def __init__(
        self, world: WorldColumns, work: WorkColumns, physics: Physics, settings: WorldLeagueSettings
    ) -> None:
        self.world, self.work, self.physics = world, work, physics
        self.down: dict[int, int] = {}
        """Node -> outages that it is in."""
        self.league = make_world_league(world, work, settings)
        self.handle = {name: machine.handle for name, machine in self.league.machines.items()}
        self.jobs = WorldJobs(world, work)
        self.delay, self.lead = settings.delay_us, BEATS_BEFORE * LONG + 20 * settings.delay_us
        self.heap: list[ShellEvent] = []
        self.lane: deque[ShellEvent] = deque()
        self.ticks: dict[tuple[str, int], None] = {}
        self.number = self.messages = self.message_bytes = 0
        self.ids: dict[JobId, int] = {}
        self.id_of: list[JobId] = [JobId(0)] * work.job_count
        self.running: dict[int, tuple[str, TaskId, int]] = {}
        """Task of the work -> its runner, task and attempt."""
        self.ended = [-1] * work.job_count
        self.ended_jobs = self.arrived_jobs = 0
        self.decision_ns: list[int] = []
        self._encode = msgspec.msgpack.Encoder().encode
        self._broker = broker_of_jobs(work, settings.brokers)
        self._offset = work.job_offset.tolist()
        self._arrival = work.job_arrival.tolist()
        for position, (name, machine) in enumerate(self.league.machines.items()):
            self._perform(0, name, machine.handle(Booted(0, 1, hash_numbers(settings.seed, position) >> 2)))
            if isinstance(machine, Runner):
                self._perform(0, name, machine.handle(BackendReported(0, (), ())))
        self._schedule_arrival()

    def play(self, jobs: int) -> None:
        """Go on until so many jobs have arrived and, with the last of them, until all have ended."""
        last = len(self.ended)
        while self.ended_jobs < last and (self.arrived_jobs < jobs or jobs == last):
            self._step()

    def _step(self) -> None:
        """Handle the next message, tick, arrival, or all events of the physics of one moment."""
        in_lane = bool(self.lane) and (not self.heap or self.lane[0] < self.heap[0])
        next_at = self.lane[0][0] if in_lane else self.heap[0][0]
        if self.physics.next_time() <= next_at - self.lead:
            now, events = self.physics.advance(next_at - self.lead)
            self._on_physics(now + self.lead, events)
            return
        if in_lane:
            now, _, name, envelope = self.lane.popleft()
            self._perform(now, name, self.handle[name](MessageReceived(now, envelope)))  # type: ignore[arg-type]
            return
        now, _, name, what = heappop(self.heap)
        if what is None:
            del self.ticks[name, now]
            self._perform(now, name, self.handle[name](Tick(now)))
        else:
            assert isinstance(what, int)
            self._on_arrival(now, what)

    def _on_physics(self, now: int, events: list[WorldEvent]) -> None:
        """Report ends, losses and outages of one moment, one event of a kind for each runner."""
        ends: dict[str, list[AttemptEnd]] = {}
        withheld: dict[str, list[WithheldCapacity]] = {}
        for _, kind, number in events:
            if kind is EventKind.DOWN or kind is EventKind.UP:
                runner = self.league.runner_of_cluster[int(self.world.node_cluster[number])]
                whole = self.league.capacities[number] if kind is EventKind.DOWN else Resources()
                node = number - self.league.first_node[runner]
                withheld.setdefault(runner, []).append((node, whole))
                self.down[number] = self.down.get(number, 0) + (1 if kind is EventKind.DOWN else -1)
            elif kind is EventKind.ENDED or kind is EventKind.LOST:
                runner, task, attempt = self.running.pop(number)
                outcome = Outcome.SUCCEEDED if kind is EventKind.ENDED else Outcome.LOST
                seconds = now - self.lead - int(self.physics.run_time[number])
                usage = ResourceUsage(run_time=max(1, seconds)) if kind is EventKind.ENDED else None
                ends.setdefault(runner, []).append(AttemptEnd(task, attempt, outcome, usage=usage))
        for runner, amounts in withheld.items():
            self._perform(now, runner, self.handle[runner](CapacityWithheld(now, tuple(amounts))))
        for runner, ended in ends.items():
            self._perform(now, runner, self.handle[runner](TasksChanged(now, (), tuple(ended))))

    def _on_arrival(self, now: int, job: int) -> None:
        if not job:
            self.messages = self.message_bytes = 0
        self.arrived_jobs = job + 1
        self._schedule_arrival()
        brokers = self.league.brokers
        name = brokers[self._broker[job]]
        work = self.work
        needs = work.needs[int(work.needs_offset[job]) : int(work.needs_offset[job + 1])].tolist()
        event = JobSubmitted(
            now, CLIENT, job, self.jobs.make_spec(job, tuple([self.id_of[at] for at in needs]))
        )
        began = process_time_ns()
        effects = self.handle[name](event)
        self.decision_ns.append(process_time_ns() - began)
        self._perform(now, name, effects)

    def _schedule_arrival(self) -> None:
        job = self.arrived_jobs
        if job < len(self._arrival):
            self.number += 1
            heappush(self.heap, (self._arrival[job] + self.lead, self.number, "", job))

    def _perform(self, now: int, name: str, effects: list[Effect]) -> None:
        """Perform the effects of a machine in order."""
        for effect in effects:
            if isinstance(effect, SendMessage):
                self.messages += 1
                self.message_bytes += len(self._encode(effect.envelope))
                self.number += 1
                self.lane.append((now + self.delay, self.number, effect.envelope.target, effect.envelope))
            elif isinstance(effect, WakeAt):
                at = max(effect.at, now)
                if (name, at) not in self.ticks and at < NEVER:
                    self.ticks[name, at] = None
                    self.number += 1
                    heappush(self.heap, (at, self.number, name, None))
            elif isinstance(effect, LaunchAttempt):
                self._launch(now, name, effect)
            elif isinstance(effect, KillAttempt):
                self._kill(now, name, effect)
            elif isinstance(effect, JobSettled):
                self.ended_jobs += 1
                self.ended[self.ids[effect.job]] = now - self.lead - self.delay
            elif isinstance(effect, JobAccepted):
                self.ids[effect.job] = effect.request
                self.id_of[effect.request] = effect.job
            else:
                assert not isinstance(effect, RequestRejected), effect

    def _kill(self, now: int, runner: str, effect: KillAttempt) -> None:
        """End an attempt at once: the rest of a gang of which one task was lost."""
        task = self._offset[self.ids[job_of(effect.task)]] + index_of(effect.task)
        if self.running.get(task) == (runner, effect.task, effect.attempt):
            del self.running[task]
            self.physics.withdraw(task, now - self.lead)
            ended = AttemptEnd(effect.task, effect.attempt, Outcome.CANCELLED)
            self._perform(now, runner, self.handle[runner](TasksChanged(now, (), (ended,))))

    def _launch(self, now: int, runner: str, effect: LaunchAttempt) -> None:
        task = self._offset[self.ids[job_of(effect.task)]] + index_of(effect.task)
        node = self.league.first_node[runner] + effect.node
        if self.down.get(node):  # the order was on its way when the node went down
            ended = AttemptEnd(effect.task, effect.attempt, Outcome.UNSTARTED)
            self._perform(now, runner, self.handle[runner](TasksChanged(now, (), (ended,))))
            return
        self.running[task] = (runner, effect.task, effect.attempt)
        self.physics.start(task, node, now - self.lead)
        started = TasksChanged(now, ((effect.task, effect.attempt),), ())
        self._perform(now, runner, self.handle[runner](started))


def run_world_league(
    world: WorldColumns,
    work: WorkColumns,
    settings: WorldLeagueSettings,
    compiled: bool,
    progress: Callable[[int], bool] | None = None,
) -> WorldOutcome:
    """Run the league of the settings in a world; ``compiled``: with the physics in C."""
    on = gc.isenabled()
    gc.disable()
    try:
        if not compiled:
            return _play_all(world, work, WorldPhysics(world, work), settings, progress)
        with CompiledPhysics(world, work) as physics:
            return _play_all(world, work, physics, settings, progress)
    finally:
        if on:
            gc.enable()


def _play_all(
    world: WorldColumns, work: WorkColumns, physics: Physics, settings: WorldLeagueSettings,
    progress: Callable[[int], bool] | None,
) -> WorldOutcome:  # fmt: skip
    shell = WorldShell(world, work, physics, settings)
    done = 0
    while shell.ended_jobs < work.job_count:
        done = min(work.job_count, done + JOBS_PER_REPORT)
        shell.play(done)
        if progress is not None and not progress(shell.ended_jobs):
            break
    return msgspec.structs.replace(
        physics.outcome(complete=shell.ended_jobs == work.job_count),
        messages=shell.messages,
        message_bytes=shell.message_bytes,
        decision_ns=np.asarray(shell.decision_ns, np.int64),
    )
