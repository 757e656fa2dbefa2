"""Hawk (ATC 2015): long jobs central, short jobs as in Sparrow, and idle nodes steal.

A node that becomes idle with an empty queue asks up to ten random nodes of the long partition, one after the
other, for the first run of short probes that wait there behind a long task, and takes them all. Queues are
first in, first out.

Choices where the paper leaves it open: two probes a short task, drawn with replacement over all nodes; the
victims' queues are inspected when the thief becomes idle, and the probes it gets arrive after one round trip
per node asked; each request counts as one message, as in the authors' simulator, whose figures leave the
replies out.
"""

from collections import deque
from typing import Any, Final

from hanse.sim.baselines.task_level.long_short_split import LongShortSplit
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload

PROBES_PER_TASK: Final = 2
STEAL_ATTEMPTS: Final = 10
STEAL_MAX: Final = 10_000
"""Probes taken from one node at once."""


class _Hawk(LongShortSplit):
    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        self.waiting: list[deque[int]] = [deque() for _ in range(settings.nodes)]

    def arrive(self, now: int, job: int) -> None:
        """Place a long job; probe for a short one."""
        if self.short[job]:
            probes = PROBES_PER_TASK * (self.past[job] - self.next_task[job])
            chosen = self.random.choices(self.all_nodes, k=probes)
        else:
            chosen = self.place_long(now, job)
        self.messages += len(chosen)
        self.call_at(now + self.delay, self.on_probes, job, chosen)

    def on_probes(self, now: int, job: int, nodes: list[int]) -> None:
        """Handle the arrival of a job's probes at their nodes."""
        idle, waiting = self.idle, self.waiting
        long = not self.short[job]
        for node in nodes:
            if idle[node]:
                idle[node] = False
                self.launch(now, node, job)
            else:
                self.long_queued[node] += long
                waiting[node].append(job)

    def on_node_free(self, now: int, node: int, _: Any) -> None:
        """Serve the oldest probe, or steal."""
        queue = self.waiting[node]
        if queue:
            job = queue.popleft()
            if not self.short[job]:
                self.long_queued[node] -= 1
            self.launch(now, node, job)
        else:
            self.idle[node] = True
            self.steal(now, node)

    def steal(self, now: int, thief: int) -> None:
        """Ask one random node after the other until one has short probes behind a long task."""
        draw, low = self.random.random, self.first_long_node
        width = len(self.all_nodes) - low
        for attempt in range(1, STEAL_ATTEMPTS + 1):
            victim = low + int(draw() * width)
            self.messages += 1
            if self.waiting[victim] and (self.runs_long[victim] or self.long_queued[victim]):
                stolen = self.take_short_probes(victim)
                if stolen:
                    self.call_at(now + attempt * self.round_trip, self.on_stolen_probes, thief, stolen)
                    return

    def take_short_probes(self, victim: int) -> list[int]:
        """Remove and return the first run of short probes behind a long task from a node's queue."""
        queue, short = list(self.waiting[victim]), self.short
        first = 0
        if not self.runs_long[victim]:
            while first < len(queue) and short[queue[first]]:
                first += 1
        while first < len(queue) and not short[queue[first]]:
            first += 1
        past = first
        while past < len(queue) and short[queue[past]] and past - first < STEAL_MAX:
            past += 1
        if past > first:
            self.waiting[victim] = deque(queue[:first] + queue[past:])
        return queue[first:past]

    def on_stolen_probes(self, now: int, thief: int, jobs: list[int]) -> None:
        """Handle the arrival of stolen probes."""
        self.waiting[thief].extend(jobs)
        if self.idle[thief]:
            self.idle[thief] = False
            self.on_node_free(now, thief, None)


def hawk(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run Hawk."""
    return _Hawk(workload, settings).run(progress)
