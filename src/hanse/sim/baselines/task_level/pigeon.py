"""Pigeon (SoCC 2019): split every job over groups of nodes, each with a coordinator of its own.

A distributor sends each of the NM groups an equal part of a job's tasks and deals the rest to distinct
groups drawn at random: no probes, no feedback. A coordinator gives a task an unreserved idle node; a short
task may also have a reserved one; else the task waits in the coordinator's high (short) or low (long) queue,
first come first served. A reserved node that becomes idle serves the high queue only; another serves the
high queue, but takes one low task after ``FAIR_WEIGHT`` high ones. Four messages a task: to the coordinator,
to the node, and the end to both the coordinator and the distributor.

Choices where the paper leaves it open: groups as equal as the nodes allow; reserved nodes are
``short_percent`` of a group, rounded, at least one if the share is not 0 and the group has more than one
node. An unreserved idle node is preferred for short tasks too. Idle nodes are taken last in, first out. The
weight is that of the authors' C++ simulator.
"""

from collections import deque
from heapq import heappush
from random import Random
from typing import Any, Final

from hanse.sim.baselines.task_level.engine import Engine
from hanse.sim.baselines.task_level.job_ranks import is_short
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload

FAIR_WEIGHT: Final = 100_000
"""High-priority tasks served in a row while low ones wait."""


def _reserved_nodes(nodes: int, percent: float) -> int:
    """Return the number of a group's nodes reserved for short tasks."""
    return max(1, round(nodes * percent / 100)) if nodes > 1 and percent else 0


class _Pigeon(Engine):
    notice_messages = 1

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        self.random = Random(settings.seed)
        nodes = settings.nodes
        self.groups = max(1, round(nodes / settings.pigeon_group))
        self.short = is_short(workload, settings)
        self.group_of = [node * self.groups // nodes for node in range(nodes)]
        self.reserved = [False] * nodes
        self.open_idle: list[list[int]] = [[] for _ in range(self.groups)]
        self.reserved_idle: list[list[int]] = [[] for _ in range(self.groups)]
        for node in reversed(range(nodes)):
            self.open_idle[self.group_of[node]].append(node)
        for group, idle in enumerate(self.open_idle):
            for _ in range(_reserved_nodes(len(idle), settings.short_percent)):
                node = idle.pop()
                self.reserved[node] = True
                self.reserved_idle[group].append(node)
        self.high: list[deque[int]] = [deque() for _ in range(self.groups)]
        self.low: list[deque[int]] = [deque() for _ in range(self.groups)]
        self.served_high = [0] * self.groups

    def arrive(self, now: int, job: int) -> None:
        """Deal the tasks over the groups in turn, so that neighbours in the trace go to different groups."""
        first, past = self.workload.offset[job], self.workload.offset[job + 1]
        groups = self.groups
        full = first + (past - first) // groups * groups
        parts = (
            [(group, range(first + group, full, groups)) for group in range(groups)] if full > first else []
        )
        extra = self.random.sample(range(groups), past - full)
        parts += [
            (group, range(task, task + 1)) for group, task in zip(extra, range(full, past), strict=True)
        ]
        self.messages += past - first
        self.send(now, self.on_tasks, parts, self.short[job])

    def on_tasks(self, now: int, parts: list[tuple[int, range]], short: bool) -> None:
        """Handle the parts of a job at their coordinators."""
        for group, tasks in parts:
            idle, kept = self.open_idle[group], self.reserved_idle[group]
            queue = self.high[group] if short else self.low[group]
            for task in tasks:
                if idle:
                    self.launch(now, idle.pop(), task)
                elif short and kept:
                    self.launch(now, kept.pop(), task)
                else:
                    queue.append(task)

    def launch(self, now: int, node: int, task: int) -> None:
        """Start a task; count its launch and the two messages at its end."""
        began = now + self.delay
        self.start[task] = began
        self.node[task] = node
        self.begun += 1
        self.messages += 3
        self.sequence += 1
        ended_at = began + self.workload.duration[task] + self.delay
        heappush(self.heap, (ended_at, self.sequence, self.on_node_free, node, None))

    def on_node_free(self, now: int, node: int, _: Any) -> None:
        """Handle an idle node at its coordinator."""
        group = self.group_of[node]
        high, low = self.high[group], self.low[group]
        if self.reserved[node]:
            if high:
                self.launch(now, node, high.popleft())
            else:
                self.reserved_idle[group].append(node)
        elif high and (not low or self.served_high[group] < FAIR_WEIGHT):
            self.served_high[group] += 1
            self.launch(now, node, high.popleft())
        elif low:
            self.served_high[group] = 0
            self.launch(now, node, low.popleft())
        else:
            self.open_idle[group].append(node)


def pigeon(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run Pigeon."""
    return _Pigeon(workload, settings).run(progress)
