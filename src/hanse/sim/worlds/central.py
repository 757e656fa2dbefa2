"""A run of a central policy in a world: which jobs wait, in which order, and who is asked when.

All events of one time happen first; then every waiting job is tried in order of (key, job), until none is
left or its shape fits nowhere: work is conserved unless a policy answers WAIT. A job that is tried places its
tasks one by one, in order of number, as far as they fit. Messages take no time and are not counted.

``compiled/central.c`` is the same in C, which tries a shape that fits nowhere again only when room has come
free that it fits in."""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from hanse.sim.worlds.bound_tasks import BoundTasks
from hanse.sim.worlds.columns import NEVER, WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.gangs import choose_gang
from hanse.sim.worlds.physics import EventKind, TaskState, WorldEvent, WorldPhysics
from hanse.sim.worlds.policy_view import NOWHERE, WAIT, CentralPolicy, PolicyView

ORDERS: Final = ("fifo", "fewest-remaining", "shortest-work")
"""Orders of the queue by name; a policy may have its own instead."""
WORK_WEIGHT: Final = 10
"""In the order shortest-work: seconds of waiting that make up for one more second of expected run time. So
nobody waits for ever: what arrives ten times its estimate later comes later."""


class CentralRun:
    """One run."""

    def __init__(
        self,
        world: WorldColumns,
        work: WorkColumns,
        make: Callable[[PolicyView], CentralPolicy],
        shape: list[int],
        order: str,
    ) -> None:
        self.physics = WorldPhysics(world, work)
        self.view = PolicyView(self.physics)
        self.policy = make(self.view)
        self._work, self._order, self._shape = work, order, shape
        self._offset: list[int] = work.job_offset.tolist()
        self._unfinished = np.diff(work.job_offset).tolist()
        self._waiting: dict[int, int] = {}
        """Keys of the jobs in the queue."""
        self._aside: list[int] = []
        """Jobs that answered WAIT."""
        self._next_pass = NEVER
        self._arrived = self._ended = 0
        self._bound = BoundTasks(self.view, self._place)
        self._needs_left = (np.diff(work.needs_offset) + 1).tolist()
        self._dependents: list[list[int]] = [[] for _ in range(work.job_count)]
        for job in range(work.job_count):
            for needed in work.needs[work.needs_offset[job] : work.needs_offset[job + 1]].tolist():
                self._dependents[needed].append(job)
        self._decision_ns: dict[int, int] = {}

    def play(self, jobs: int | None = None) -> bool:
        """Go on until so many jobs have ended, or all; return whether all have."""
        count = self._work.job_count
        while self._ended < min(count, count if jobs is None else jobs):
            now = min(self.physics.next_event().time, self._next_pass)
            if self._arrived < count:
                now = min(now, int(self._work.job_arrival[self._arrived]))
            assert now < NEVER, "jobs wait that can never start"
            self._play_moment(now)
        return self._ended == count

    def outcome(self) -> WorldOutcome:
        """Return the outcome so far."""
        spent = [self._decision_ns.get(job, 0) for job in range(self._arrived)]
        outcome = self.physics.outcome(self._ended == self._work.job_count)
        return msgspec.structs.replace(outcome, decision_ns=np.array(spent, np.int64))

    def _play_moment(self, now: int) -> None:
        while (event := self.physics.next_event()).time == now:
            self._on_event(event)
        self.physics.now = now
        while self._arrived < self._work.job_count and self._work.job_arrival[self._arrived] == now:
            self.policy.on_arrival(self.view, self._arrived)
            self._satisfy(self._arrived)
            self._arrived += 1
        if self._next_pass == now:
            self._end_waits()
        self._try_waiting()

    def _try_waiting(self) -> None:
        full: dict[int, None] = {}
        for _, job in sorted((key, job) for job, key in self._waiting.items()):
            if self._shape[job] not in full and self._attempt(job) == NOWHERE:
                full[self._shape[job]] = None

    def _attempt(self, job: int) -> int:
        begin = time.thread_time_ns()
        answer = self._attempt_gang(job) if self._work.job_gang[job] else self._attempt_tasks(job)
        if answer != NOWHERE:
            del self._waiting[job]
        if answer == WAIT:
            assert self.policy.pass_us > 0, "a policy waits that has no passes"
            self._aside.append(job)
            if self._next_pass == NEVER:
                self._next_pass = (self.physics.now // self.policy.pass_us + 1) * self.policy.pass_us
        self._decision_ns.setdefault(job, time.thread_time_ns() - begin)
        return answer

    def _attempt_tasks(self, job: int) -> int:
        """Place a job's tasks; where no node has room left, bind them ahead. Return 0 if all have a place."""
        answer = self._place_tasks(job)
        if answer == NOWHERE and self.view.has_ahead:
            self.view.show_ahead(True)
            answer = self._place_tasks(job)
            self.view.show_ahead(False)
        return answer

    def _place_tasks(self, job: int) -> int:
        self.policy.begin(self.view, job)
        physics = self.physics
        for task in range(self._offset[job], self._offset[job + 1]):
            if physics.attempts[task].state != TaskState.WAITING or task in self._bound.node:
                continue
            node = self.policy.choose(self.view, job, task)
            if node < 0:
                return node
            assert self.view.fits(job, node), "a policy chose a node without room"
            here = physics.links.has_input(task, physics.rack[node]) and physics.has_place(job, node)
            if self.view.has_ahead and not here:
                self._bound.add(task, node)
            else:
                self._place(task, node)
        return 0

    def _attempt_gang(self, job: int) -> int:
        nodes = choose_gang(self.view, self.policy, job)
        if isinstance(nodes, int):
            return nodes
        for task, node in zip(range(self._offset[job], self._offset[job + 1]), nodes, strict=True):
            self._place(task, node)
        return 0

    def _place(self, task: int, node: int) -> None:
        runs = self.physics.start(task, node, self.physics.now)
        self.view.show(node)
        self.policy.on_start(self.view, task, node)
        if runs:
            self.policy.on_input(self.view, task, node)

    def _put_in_queue(self, job: int) -> None:
        if job in self._aside:
            return
        unfinished, key = self._unfinished[job], 0
        own = self.policy.key(self.view, job, unfinished)
        if own is not None:
            key = own
        elif self._order == "fewest-remaining":
            key = unfinished
        elif self._order == "shortest-work":
            key = int(self._work.job_arrival[job]) + WORK_WEIGHT * int(self._work.job_estimate[job])
        self._waiting[job] = key

    def _end_waits(self) -> None:
        jobs, self._aside, self._next_pass = self._aside, [], NEVER
        for job in jobs:
            self._put_in_queue(job)

    def _satisfy(self, job: int) -> None:
        """Note that a job has one thing less to wait for; at none it is ready."""
        self._needs_left[job] -= 1
        if self._needs_left[job] == 0:
            self._put_in_queue(job)

    def _on_event(self, event: WorldEvent) -> None:
        physics, number = self.physics, event.number
        physics.now = event.time
        if event.kind == EventKind.ENDED:
            self._on_ended(event)
            return
        if event.kind == EventKind.LOST:
            self.policy.on_lost(self.view, number, physics.attempts[number].node)
            self._undo(number)
            if self._work.job_gang[physics.job_of[number]]:
                self._undo_gang(physics.job_of[number])
            return
        physics.step(event)
        if event.kind == EventKind.ARRIVED:
            self.policy.on_input(self.view, number, physics.attempts[number].node)
        elif event.kind == EventKind.STAGED:
            self._bound.start_ready(self._bound.node[number])
        elif event.kind == EventKind.DOWN:
            self.view.show(number)
            for task in self._bound.clear(number):
                self._undo(task)
        else:
            self.view.show(number)

    def _on_ended(self, event: WorldEvent) -> None:
        task, physics = event.number, self.physics
        job, node = physics.job_of[task], physics.attempts[task].node
        self.policy.on_task_end(self.view, task, node, event.time - physics.run_time[task])
        physics.step(event)
        self.view.show(node)
        self._unfinished[job] -= 1
        if self._unfinished[job] == 0:
            self._ended += 1
            self.policy.on_job_end(self.view, job)
            for dependent in self._dependents[job]:
                self._satisfy(dependent)
        elif job in self._waiting:
            self._put_in_queue(job)
        self._bound.start_ready(node)

    def _undo(self, task: int) -> None:
        """Let a task wait again."""
        attempt, job = self.physics.attempts[task], self.physics.job_of[task]
        node = attempt.node
        has_place = attempt.state in (TaskState.READING, TaskState.RUNNING)
        self.physics.withdraw(task, self.physics.now)
        if has_place:
            self.view.show(node)
        self._put_in_queue(job)

    def _undo_gang(self, job: int) -> None:
        """Let the other tasks of a gang start again, even those that have ended."""
        for task in range(self._offset[job], self._offset[job + 1]):
            attempt = self.physics.attempts[task]
            node, state = attempt.node, attempt.state
            if state == TaskState.WAITING:
                continue
            if state == TaskState.DONE:
                self._unfinished[job] += 1
            else:
                self.policy.on_lost(self.view, task, node)
            self._undo(task)
            if state != TaskState.DONE:
                self._bound.start_ready(node)
