"""Physics of a world: attempts on nodes, their rates, their transfers, outages. It decides nothing.

Whoever decides calls ``start``, ``stage`` and ``withdraw`` at a time, and ``advance`` to learn what happens
next. Between two events every task runs at a constant rate (``columns.py``); the rates on a node are computed
again when a task there begins to run or ends. Times are whole microseconds: an end is at the first
microsecond at which no work is left, so a task may do up to a microsecond more than its work.

At one time ends of tasks go first, then arrivals of inputs, nodes that come up, nodes that go down; of each,
the smaller number first. Right after a node has gone down its tasks are lost, in order of their starts.

``compiled/physics.c`` is the same in C, bit for bit.
"""

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.event_times import EventTimes
from hanse.sim.worlds.links import SharedLinks, time_after

WORK_TOLERANCE: Final = 1e-5
"""Seconds of work that may be left at an end, or be done beyond it."""


class EventKind(IntEnum):
    """Kind of an event, in the order in which events of one time happen."""

    ENDED = 0
    """The task has done its work."""
    ARRIVED = 1
    """The input has arrived and the task runs."""
    STAGED = 2
    """The input has arrived in the rack that it was staged to; the task waits."""
    UP = 3
    DOWN = 4
    LOST = 5
    """The task's node went down; the task waits again, from nothing."""


class TaskState(IntEnum):
    """State of a task in a world."""

    WAITING = 0
    STAGING = 1
    READING = 2
    """It has its place and reads its input."""
    RUNNING = 3
    DONE = 4


class WorldEvent(NamedTuple):
    """One event; ``number`` is a task, or a node for UP and DOWN."""

    time: int
    kind: EventKind
    number: int


class Attempt:
    """Present attempt of a task."""

    def __init__(self) -> None:
        self.state = TaskState.WAITING
        self.node = -1
        self.left = 0.0
        """Seconds of work left at the node's ``settled_at``."""
        self.rate = 0.0
        """Seconds of work per second."""
        self.speed = 0.0


class WorldPhysics:
    """The state of a world in which work runs."""

    def __init__(self, world: WorldColumns, work: WorkColumns) -> None:
        self.world, self.work = world, work
        self.now = 0
        nodes, tasks = len(world.node_cpu), work.task_count
        counts = np.diff(work.job_offset)
        self.job_of: list[int] = np.repeat(np.arange(work.job_count), counts).tolist()
        self.rack: list[int] = world.node_rack.tolist()
        self.free = [world.node_cpu.tolist(), world.node_memory.tolist(), world.node_gpu.tolist()]
        """Free milli-CPU, bytes and GPUs, by node."""
        self.need = [work.job_cpu.tolist(), work.job_memory.tolist(), work.job_gpu.tolist()]
        """The same amounts that each task of a job needs."""
        self.placed: list[dict[int, None]] = [{} for _ in range(nodes)]
        """Tasks with a place on each node, in order of their starts."""
        self.outages = [0] * nodes
        self.demand, self.pollution = [0.0] * nodes, [0.0] * nodes
        self.settled_at = [0] * nodes
        self.attempts = [Attempt() for _ in range(tasks)]
        self.links = SharedLinks(world, work)
        self.node, self.start_time = [-1] * tasks, [-1] * tasks
        self.run_time, self.end_time = [-1] * tasks, [-1] * tasks
        self.launches = self.wasted_core_us = 0
        self.lost: list[tuple[int, int, int, int, int]] = []
        """Attempts that were undone: task, node, start, run or -1, end."""
        self._ends, self._ups = EventTimes(), EventTimes()
        self._downs = 0
        self._outages = list(
            zip(
                work.outage_from.tolist(),
                work.outage_until.tolist(),
                work.outage_node.tolist(),
                strict=True,
            )
        )
        self._lost_node = -1

    # --- queries

    def has_place(self, job: int, node: int) -> bool:
        """Return whether a task of a job can start on a node now."""
        enough = all(free[node] >= need[job] for free, need in zip(self.free, self.need, strict=True))
        return enough and not self.outages[node] and self.is_allowed(job, node)

    def is_allowed(self, job: int, node: int) -> bool:
        """Return whether a job may run on a node's class."""
        return bool(int(self.work.job_classes[job]) >> int(self.world.node_class[node]) & 1)

    def next_event(self) -> WorldEvent:
        """Return the next event without letting it happen; its time is ``NEVER`` if there is none."""
        if self._lost_node >= 0:
            return WorldEvent(self.now, EventKind.LOST, next(iter(self.placed[self._lost_node])))
        time, task, _ = self._ends.first()
        found = WorldEvent(time, EventKind.ENDED, task)
        time, task, _ = self.links.arrivals.first()
        if time < found.time:
            staging = self.attempts[task].state == TaskState.STAGING
            found = WorldEvent(time, EventKind.STAGED if staging else EventKind.ARRIVED, task)
        time, node, _ = self._ups.first()
        if time < found.time:
            found = WorldEvent(time, EventKind.UP, node)
        if self._downs < len(self._outages) and self._outages[self._downs][0] < found.time:
            found = WorldEvent(self._outages[self._downs][0], EventKind.DOWN, self._outages[self._downs][2])
        return found

    def next_time(self) -> int:
        """Return the time of the next event; ``NEVER`` if there is none."""
        return self.next_event().time

    def outcome(self, complete: bool) -> WorldOutcome:
        """Return the outcome so far, without messages and decision times, which belong to whoever decides."""
        return WorldOutcome(
            node=np.array(self.node, np.int32),
            start=np.array(self.start_time, np.int64),
            run=np.array(self.run_time, np.int64),
            end=np.array(self.end_time, np.int64),
            launches=self.launches,
            wasted_core_us=self.wasted_core_us,
            bytes_rack=self.links.bytes[0],
            bytes_lan=self.links.bytes[1],
            bytes_wan=self.links.bytes[2],
            messages=0,
            message_bytes=0,
            decision_ns=np.zeros(0, np.int64),
            complete=complete,
            lost=np.array(self.lost, np.int64).reshape(-1, 5),
        )

    # --- decisions

    def start(self, task: int, node: int, now: int) -> bool:
        """Give a waiting task a place. It reads its input first, or runs at once (True)."""
        self._move(now)
        attempt, job = self.attempts[task], self.job_of[task]
        assert attempt.state == TaskState.WAITING, "a task was started that does not wait"
        assert self.has_place(job, node), "a task was started where it cannot run"
        for free, need in zip(self.free, self.need, strict=True):
            free[node] -= need[job]
        self.placed[node][task] = None
        attempt.node = node
        template, node_class = int(self.work.job_template[job]), int(self.world.node_class[node])
        attempt.speed = float(self.work.template_speed[template, node_class])
        attempt.state = TaskState.READING
        self.launches += 1
        self.node[task], self.start_time[task] = node, now
        if self.links.start(task, job, self.rack[node], now):
            return False
        self._begin_to_run(task)
        return True

    def stage(self, task: int, rack: int, now: int) -> bool:
        """Bring a waiting task's input to a rack without a place. True: a STAGED event follows; False: there
        is nothing to move. After that the task starts in that rack without a transfer."""
        self._move(now)
        attempt = self.attempts[task]
        assert attempt.state == TaskState.WAITING, "a task was staged that does not wait"
        if not self.links.start(task, self.job_of[task], rack, now):
            self.links.staged_rack[task] = rack
            return False
        attempt.state = TaskState.STAGING
        return True

    def withdraw(self, task: int, now: int) -> None:
        """Undo a task's attempt, even one that has ended: the task waits again, from nothing. An input that
        was staged stays where it is."""
        self._move(now)
        attempt = self.attempts[task]
        if attempt.state == TaskState.WAITING:
            return
        if attempt.state != TaskState.STAGING:
            self._note_lost(task)
        if attempt.state in (TaskState.STAGING, TaskState.READING):
            self.links.stop(task, now)
        if attempt.state in (TaskState.READING, TaskState.RUNNING):
            self._leave_node(task)
        attempt.state, attempt.node = TaskState.WAITING, -1
        self.node[task] = self.start_time[task] = self.run_time[task] = self.end_time[task] = -1

    def advance(self, until: int) -> tuple[int, list[WorldEvent]]:
        """Let the events of the next time happen, if that is not after ``until``; return the time and them.

        Without such events only the clock moves, to ``until``.
        """
        assert until >= self.now, "a world cannot go back in time"
        events = []
        now = min(self.next_event().time, until)
        while (event := self.next_event()).time <= now:
            self.step(event)
            events.append(event)
        self.now = now
        return now, events

    def step(self, event: WorldEvent) -> None:
        """Let the event happen that ``next_event`` has returned."""
        self.now = event.time
        if event.kind == EventKind.ENDED:
            self._end(event.number)
        elif event.kind == EventKind.ARRIVED:
            self.links.stop(event.number, self.now)
            self._begin_to_run(event.number)
        elif event.kind == EventKind.STAGED:
            self.links.staged_rack[event.number] = self.links.stop(event.number, self.now).target
            self.attempts[event.number].state = TaskState.WAITING
        elif event.kind == EventKind.UP:
            self._ups.remove(self._ups.first()[2])
            self.outages[event.number] -= 1
        elif event.kind == EventKind.DOWN:
            self._ups.set(self._downs, self._outages[self._downs][1], event.number)
            self._downs += 1
            self.outages[event.number] += 1
            self._lost_node = event.number if self.placed[event.number] else -1
        else:
            self.withdraw(event.number, self.now)

    # --- inner parts

    def _move(self, now: int) -> None:
        assert self.now <= now <= self.next_event().time, "a decision came out of order: advance first"
        self.now = now

    def _begin_to_run(self, task: int) -> None:
        attempt = self.attempts[task]
        self._settle(attempt.node)
        attempt.state = TaskState.RUNNING
        attempt.left = float(self.work.task_work[task])
        self.run_time[task] = self.now
        self._adjust(attempt.node)

    def _end(self, task: int) -> None:
        attempt = self.attempts[task]
        self._leave_node(task)
        assert abs(attempt.left) <= WORK_TOLERANCE, "a task ended with work left, or after its end"
        attempt.state = TaskState.DONE
        self.end_time[task] = self.now

    def _leave_node(self, task: int) -> None:
        attempt, job = self.attempts[task], self.job_of[task]
        node = attempt.node
        self._settle(node)
        del self.placed[node][task]
        for free, need in zip(self.free, self.need, strict=True):
            free[node] += need[job]
        if attempt.state == TaskState.RUNNING:
            self._adjust(node)
        if self._lost_node == node and not self.placed[node]:
            self._lost_node = -1

    def _note_lost(self, task: int) -> None:
        end = self.end_time[task] if self.attempts[task].state == TaskState.DONE else self.now
        start = self.start_time[task]
        self.lost.append((task, self.node[task], start, self.run_time[task], end))
        self.wasted_core_us += self.need[0][self.job_of[task]] * (end - start) // 1000

    def running_on(self, node: int) -> list[int]:
        """Return the tasks that run on a node, in order of their starts."""
        return [task for task in self.placed[node] if self.attempts[task].state == TaskState.RUNNING]

    def work_left(self, task: int) -> float:
        """Return the seconds of work left of a task that runs; hidden from policies other than an oracle."""
        attempt = self.attempts[task]
        return attempt.left - attempt.rate * ((self.now - self.settled_at[attempt.node]) * 1e-6)

    def _settle(self, node: int) -> None:
        """Bring the work left of a node's tasks to now."""
        seconds = (self.now - self.settled_at[node]) * 1e-6
        self.settled_at[node] = self.now
        for task in self.running_on(node):
            self.attempts[task].left -= self.attempts[task].rate * seconds

    def _adjust(self, node: int) -> None:
        """Compute the rates and the earliest end on a node whose tasks have changed; it must be settled."""
        work, running = self.work, self.running_on(node)
        demand = pollution = 0.0
        for task in running:
            demand += float(work.job_demand[self.job_of[task]])
            pollution += float(work.job_pollution[self.job_of[task]])
        self.demand[node], self.pollution[node] = demand, pollution
        crowding = self._crowding(demand / float(self.world.node_bandwidth[node]))
        cores = int(self.world.node_cpu[node]) / 1000.0
        ends = []
        for task in running:
            attempt, job = self.attempts[task], self.job_of[task]
            others = pollution - float(work.job_pollution[job])
            attempt.rate = attempt.speed / (
                1.0
                + float(work.job_bandwidth_sensitivity[job]) * crowding
                + float(work.job_cache_sensitivity[job]) * others / cores
            )
            ends.append((time_after(self.now, attempt.left, attempt.rate), task))
        if ends:
            self._ends.set(node, *min(ends))
        else:
            self._ends.remove(node)

    def _crowding(self, used: float) -> float:
        """Return ``g`` of columns.py."""
        knee, slope = self.world.knee, self.world.slope
        return knee * used * used * used if used <= 1.0 else knee + slope * (used - 1.0)
