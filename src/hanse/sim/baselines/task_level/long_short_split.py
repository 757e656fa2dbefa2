"""Common part of Hawk and Eagle: one central queue places long jobs, probes place short jobs.

The first ``short_percent`` of the nodes are for short jobs only; long jobs use the rest. The central queue
knows the estimated long work that waits at every node (not the short work) and gives each task of a long job
to the node with the least waiting time: queued estimates, less the time the running long task has already
run (at most its estimate), plus a round trip. Ties go to the lowest node number. It hears of a long task's
end at once, as in the authors' simulator. A long task travels like a probe that always finds its task:
probe, request, reply, completion.
"""

from heapq import heapify, heapreplace
from random import Random
from typing import Any

import numpy as np

from hanse.sim.baselines.task_level.engine import Engine
from hanse.sim.baselines.task_level.job_ranks import is_short
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload


class LongShortSplit(Engine):
    """Node states, the central queue and the launch of a task; Hawk and Eagle add queues and probing."""

    lane_messages = 2

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        nodes = settings.nodes
        self.random = Random(settings.seed)
        self.all_nodes = range(nodes)
        self.short = is_short(workload, settings)
        self.first_long_node = min(int(nodes * settings.short_percent / 100), nodes - 1)
        self.idle = [True] * nodes
        self.runs_long = [False] * nodes
        self.long_queued = [0] * nodes
        self.next_task = workload.offset[:-1]
        self.past = workload.offset[1:]
        self.round_trip = 2 * settings.delay_us
        self.work = np.zeros(nodes, np.int64)
        """Estimated long work placed at each node and not yet ended."""
        self.since = np.full(nodes, -1, np.int64)
        """Time of the request for the long task that each node runs, -1 = none."""
        self.expected = np.zeros(nodes, np.int64)
        """Estimate of that task."""

    def place_long(self, now: int, job: int) -> list[int]:
        """Choose nodes for the tasks of a long job by least waiting time; book their work at once."""
        low = self.first_long_node
        work, since = self.work[low:], self.since[low:]
        done = np.where(since >= 0, np.minimum(now - since, self.expected[low:]), 0)
        waits = np.where(work > 0, work - done + self.round_trip, 0)
        needed = self.past[job] - self.next_task[job]
        # the nodes that wait least are enough: no more nodes than tasks can be chosen
        lowest = np.argsort(waits, kind="stable")[:needed]
        best = [
            (wait, node) for wait, node in zip(waits[lowest].tolist(), (lowest + low).tolist(), strict=True)
        ]
        heapify(best)
        estimate = self.workload.estimate[job]
        chosen = []
        for _ in range(needed):
            wait, node = best[0]
            chosen.append(node)
            heapreplace(best, (wait + estimate, node))
        np.add.at(self.work, chosen, estimate)
        return chosen

    def launch(self, now: int, node: int, job: int) -> bool:
        """Request a task of a job for a free node; return False if there is none, and free the node a round
        trip later."""
        task = self.next_task[job]
        if task == self.past[job]:
            self.messages += 2
            self.send(now, self.on_node_free, node)
            return False
        self.next_task[job] = task + 1
        self.messages += 3
        self.begun += 1
        began = now + self.round_trip
        self.start[task] = began
        self.node[task] = node
        if self.short[job]:
            self.call_at(began + self.workload.duration[task], self.on_node_free, node)
        else:
            self.runs_long[node] = True
            self.since[node] = now
            self.expected[node] = self.workload.estimate[job]
            self.call_at(began + self.workload.duration[task], self.on_long_end, node, job)
        return True

    def on_long_end(self, now: int, node: int, job: int) -> None:
        """Handle the end of a long task: subtract its estimate from the node."""
        self.work[node] -= self.workload.estimate[job]
        self.since[node] = -1
        self.runs_long[node] = False
        self.on_node_free(now, node, None)

    def on_node_free(self, now: int, node: int, _: Any) -> None:
        """Handle a node without work."""
        raise NotImplementedError
