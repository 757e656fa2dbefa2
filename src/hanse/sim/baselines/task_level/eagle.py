"""Eagle (SoCC 2016): Hawk's split without stealing, with succinct state sharing and sticky probes.

*Succinct state sharing*: every long probe brings its node a bit map of the nodes that hold long work. A node
that runs or queues a long task rejects a short probe and returns its map; the job probes again, avoiding the
nodes marked in the freshest map that it has; a probe rejected twice goes to nodes for short jobs only.
*Sticky batch probing*: a probe stays at its node until all tasks of its job are launched. Nodes serve the
probe with the least remaining work (estimate x tasks not yet launched), but one probe may overtake another
only while the total that overtook the other is at most five of its own estimates. At least twenty probes a
job.

Choices where the paper leaves it open: a rejection and the next probe each take a message, so the second
round arrives after three and the third after five (the authors' simulator charges one and two less); probes
of jobs whose last task has been launched vanish without a message a round trip later, as in that simulator.
"""

from typing import Any, Final

import numpy as np

from hanse.sim.baselines.task_level.long_short_split import LongShortSplit
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload

PROBES_PER_TASK: Final = 2
PROBES_MIN: Final = 20
BYPASS_MAX: Final = 5
"""Number of its own estimates by which a probe may be overtaken."""
ROUNDS: Final = 2
"""Rounds of probing before the nodes for short jobs are used."""

Probe = list[int]
"""Job, and the estimates by which the probe has been overtaken; changed in place."""


class _LongWorkMap:
    """Map of the nodes with long work when a long job was placed; the list of the others is made on first
    use."""

    def __init__(self, number: int, work: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        self.number = number
        """Number of the map; later maps have larger ones."""
        self.is_without_long = work == 0
        self.nodes: list[int] | None = None

    def nodes_without_long(self) -> list[int]:
        """Return the nodes without long work."""
        if self.nodes is None:
            self.nodes = np.flatnonzero(self.is_without_long).tolist()
        return self.nodes


class _Eagle(LongShortSplit):
    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        self.waiting: list[list[Probe]] = [[] for _ in range(settings.nodes)]
        self.maps: list[_LongWorkMap | None] = [None] * settings.nodes
        self.placed_long_jobs = 0
        self.unlaunched = [past - first for first, past in zip(self.next_task, self.past, strict=True)]
        """Tasks not yet launched, as the nodes know it: a round trip late."""
        self.least_estimate = min(workload.estimate, default=0)

    def arrive(self, now: int, job: int) -> None:
        """Place a long job; probe for a short one."""
        if self.short[job]:
            probes = max(PROBES_MIN, PROBES_PER_TASK * (self.past[job] - self.next_task[job]))
            chosen = self.random.choices(self.all_nodes, k=probes)
            self.messages += probes
            self.call_at(now + self.delay, self.on_probes, job, (1, chosen))
            return
        chosen = self.place_long(now, job)
        self.placed_long_jobs += 1
        self.messages += len(chosen)
        self.call_at(
            now + self.delay,
            self.on_long_probes,
            job,
            (_LongWorkMap(self.placed_long_jobs, self.work), chosen),
        )

    def on_long_probes(self, now: int, job: int, probe: tuple[_LongWorkMap, list[int]]) -> None:
        """Handle the arrival of long probes, with the map, at their nodes."""
        marks, nodes = probe
        for node in nodes:
            self.maps[node] = marks
            self.long_queued[node] += 1
            self.enqueue(now, node, job)

    def on_probes(self, now: int, job: int, probe: tuple[int, list[int]]) -> None:
        """Handle the arrival of short probes; rejected ones are sent again, two messages later."""
        turn, nodes = probe
        turned_away = 0
        freshest: _LongWorkMap | None = None
        for node in nodes:
            marks = self.maps[node]
            if marks is not None and (freshest is None or marks.number > freshest.number):
                freshest = marks
            if turn <= ROUNDS and (self.runs_long[node] or self.long_queued[node]):
                turned_away += 1
            else:
                self.enqueue(now, node, job)
        if turned_away:
            self.rejects += turned_away
            self.messages += 2 * turned_away
            again = self.random.choices(self.candidates(turn, freshest), k=turned_away)
            self.call_at(now + self.round_trip, self.on_probes, job, (turn + 1, again))

    def candidates(self, turn: int, freshest: _LongWorkMap | None) -> list[int] | range:
        """Return the nodes to probe after round ``turn``."""
        if turn < ROUNDS and freshest is not None and freshest.nodes_without_long():
            return freshest.nodes_without_long()
        return range(self.first_long_node) if self.first_long_node else self.all_nodes

    def enqueue(self, now: int, node: int, job: int) -> None:
        """Add a probe to a node's queue."""
        self.waiting[node].append([job, 0])
        if self.idle[node]:
            self.idle[node] = False
            self.on_node_free(now, node, None)

    def on_node_free(self, now: int, node: int, _: Any) -> None:
        """Serve the best probe, or become idle."""
        queue = self.waiting[node]
        place = self.choose(node)
        if place < 0:
            self.idle[node] = True
            return
        job = queue[place][0]
        got = self.launch(now, node, job)
        if not got or not self.short[job]:
            queue.pop(place)
        if not self.short[job]:
            self.long_queued[node] -= 1
        elif got:
            self.send(now, self.on_task_launched, job)
            estimate = self.workload.estimate[job]
            for overtaken in queue[:place]:
                overtaken[1] += estimate

    def on_task_launched(self, _now: int, job: int, _: Any) -> None:
        """Record at the nodes that a task of a job has been launched."""
        self.unlaunched[job] -= 1

    def choose(self, node: int) -> int:
        """Return the position of the probe to serve; -1 = none. Probes of launched jobs vanish."""
        left, short, estimates = self.unlaunched, self.short, self.workload.estimate
        queue = self.waiting[node]
        best, least, slack = -1, 1 << 62, 1 << 62
        place = 0
        # once nothing is short enough to overtake the probes in front, the rest cannot win
        while place < len(queue) and slack >= self.least_estimate:
            job, overtaken = queue[place]
            if not left[job]:
                del queue[place]
                continue
            estimate = estimates[job]
            if not short[job] and not place:
                return 0
            if estimate <= slack and left[job] * estimate < least:
                best, least = place, left[job] * estimate
                if not short[job]:
                    return best
            if short[job]:
                slack = min(slack, BYPASS_MAX * estimate - overtaken)
            place += 1
        return best


def eagle(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run Eagle."""
    return _Eagle(workload, settings).run(progress)
