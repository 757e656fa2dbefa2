"""Sparrow (SOSP 2013): batch sampling and late binding.

A job of m tasks sends 2 m probes to nodes drawn at random. A node queues the probes as reservations;
whenever it is free it asks the owner of the oldest one for a task (a round trip) and gets the next task not
yet launched, or none. No cancellation: a reservation whose job has nothing left costs its round trip. Seven
messages a task: two probes, two requests, two replies, one completion.

Choices where the paper leaves it open: nodes are drawn with replacement, which gives the authors' logged
figures (without replacement the median on the Google sub-trace is 4 % lower). The reply is decided when the
request is sent: all requests take the same time, so they reach the owner in the order of sending.
"""

from collections import deque
from heapq import heappush
from random import Random
from typing import Any

from hanse.sim.baselines.task_level.engine import Engine
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload

PROBES_PER_TASK = 2


class _Sparrow(Engine):
    lane_messages = 2

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        self.random = Random(settings.seed)
        self.all_nodes = range(settings.nodes)
        self.idle = [True] * settings.nodes
        self.waiting: list[deque[int]] = [deque() for _ in range(settings.nodes)]
        self.next_task = workload.offset[:-1]
        self.past = workload.offset[1:]
        self.round_trip = 2 * settings.delay_us

    def arrive(self, now: int, job: int) -> None:
        """Send the probes; all of them arrive together."""
        probes = PROBES_PER_TASK * (self.past[job] - self.next_task[job])
        self.messages += probes
        self.call_at(now + self.delay, self.on_probes, job, self.random.choices(self.all_nodes, k=probes))

    def on_probes(self, now: int, job: int, nodes: list[int]) -> None:
        """Handle the arrival of a job's probes at their nodes."""
        idle, waiting = self.idle, self.waiting
        for node in nodes:
            if idle[node]:
                idle[node] = False
                self.request_task(now, node, job)
            else:
                waiting[node].append(job)

    def request_task(self, now: int, node: int, job: int) -> None:
        """Request a task for a free node; count the request, the reply and, if there is a task, its
        completion."""
        task = self.next_task[job]
        if task == self.past[job]:
            self.messages += 2
            self.send(now, self.on_node_free, node)
            return
        self.next_task[job] = task + 1
        self.messages += 3
        self.begun += 1
        began = now + self.round_trip
        self.start[task] = began
        self.node[task] = node
        self.sequence += 1
        heappush(
            self.heap, (began + self.workload.duration[task], self.sequence, self.on_node_free, node, None)
        )

    def on_node_free(self, now: int, node: int, _: Any) -> None:
        """Serve a free node's oldest reservation."""
        queue = self.waiting[node]
        if queue:
            self.request_task(now, node, queue.popleft())
        else:
            self.idle[node] = True


def sparrow(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run Sparrow."""
    return _Sparrow(workload, settings).run(progress)
