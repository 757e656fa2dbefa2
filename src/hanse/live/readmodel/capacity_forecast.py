"""Simulation of the clusters' near future: tasks end, and waiting tasks take the freed resources in turn.

Waiting tasks are grouped into *task classes* with the same fit. The free resources of a node only shrink
while it is served, so a class that did not fit is not tried again; this and work per node keep a run cheap.
Of simultaneous ends, tasks of the initial state come first, in the given order; then tasks by their start.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random
from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.job_table import shape_of
from hanse.live.readmodel.cluster_facts import ObservedCluster, is_suitable
from hanse.model.job import JobSpec
from hanse.model.messages import Shape
from hanse.model.resources import Dimensions, Resources, dimensions_of

STEPS_MAX: Final = 20_000
"""Task ends that one run simulates; a job that has not started by then does not start in this run."""
NEVER: Final = 1 << 62

ResourceVector = list[int]
NodeKey = tuple[int, int]
"""Cluster number and node number."""
RunningTaskTuple = tuple[str, int, Resources, int, tuple[int, ...]]
"""Cluster name, node number, size, elapsed time, and measured run times of similar tasks."""


class TaskClass:
    """Equivalence class of waiting tasks: same shape, same order of clusters."""

    def __init__(
        self, shape: Shape, ask: ResourceVector, allowed: list[list[bool]], order: tuple[int, ...]
    ) -> None:
        self.ask = ask
        self.gang, self.one_per_node = shape.gang, shape.max_per_node
        self.allowed = allowed
        """By cluster and node: True if the node may ever run such a task."""
        self.order = order
        """Cluster numbers, in the order in which the tasks try them."""

    def count_slots(self, room: ResourceVector) -> int:
        """Count the tasks of this class that fit into an amount of resources."""
        most = NEVER
        for have, need in zip(room, self.ask, strict=True):
            if need:
                most = min(most, have // need)
        return min(most, 1) if self.one_per_node else most


StartedTasks = tuple[TaskClass, NodeKey, tuple[int, ...], int]
"""Class, node, possible run times and number of tasks that started together."""


class QueueEntry(msgspec.Struct):
    """Waiting tasks of one group."""

    position: int
    """Position in the queue; smaller is served first."""
    count: int
    expected: tuple[int, ...]
    is_subject: bool


class InitialState:
    """Clusters and queue at the time of the question."""

    def __init__(self, facts: tuple[ObservedCluster, ...]) -> None:
        self.facts = facts
        self.cluster_numbers = {cluster.name: at for at, cluster in enumerate(facts)}
        self.dimensions: Dimensions = dimensions_of(
            tuple(node.capacity for cluster in facts for node in cluster.nodes)
        )
        self.free = [[self.vector(node.free) for node in cluster.nodes] for cluster in facts]
        self.queue: dict[TaskClass, deque[QueueEntry]] = {}
        self._classes: dict[tuple[Shape, tuple[int, ...]], TaskClass] = {}
        self._next_position = 0

    def vector(self, size: Resources) -> ResourceVector:
        """Convert an amount to a vector; infinite if it names a resource that no node has."""
        found = size.vector(self.dimensions)
        return list(found) if found is not None else [NEVER] * len(self.dimensions)

    def amount(self, vector: ResourceVector) -> Resources:
        """Convert a vector back to an amount."""
        cpu, memory, gpu, *custom = vector
        names = self.dimensions[3:]
        return Resources(cpu, memory, gpu, tuple(pair for pair in zip(names, custom, strict=True) if pair[1]))

    def enqueue(
        self, spec: JobSpec, group: int, count: int, expected: tuple[int, ...], is_subject: bool = False
    ) -> int:
        """Append tasks to the queue, and return their position.

        They try the clusters of their data first, then the others in order.
        """
        shape = shape_of(spec, group, count if spec.gang else 0)
        preference = {name: at for at, name in enumerate(spec.data)}
        numbers = range(len(self.facts))
        order = tuple(
            sorted(numbers, key=lambda at: (preference.get(self.facts[at].name, len(preference)), at))
        )
        task_class = self._classes.get((shape, order))
        if task_class is None:
            task_class = self._classes[shape, order] = self._make_class(shape, order)
            self.queue[task_class] = deque()
        position = self._next_position
        self.queue[task_class].append(QueueEntry(position, count, expected, is_subject))
        self._next_position += 1
        return position

    def _make_class(self, shape: Shape, order: tuple[int, ...]) -> TaskClass:
        allowed = []
        for cluster in self.facts:
            closed = not cluster.reachable or cluster.fenced or cluster.draining
            excluded = closed or not shape.allows_cluster(cluster.name)
            allowed.append(
                [not excluded and not node.draining and is_suitable(shape, node) for node in cluster.nodes]
            )
        return TaskClass(shape, self.vector(shape.ask), allowed, order)


class ForecastRun:
    """One simulated course of events, from a copy of an initial state or of another run."""

    def __init__(
        self, initial: InitialState, rng: Random | None = None, before: "ForecastRun | None" = None
    ) -> None:
        """Copy the state. ``rng``: for the ends of tasks; None: no time will pass in this run."""
        self.initial = initial
        self.rng = rng
        source = initial.queue if before is None else before.queue
        self.queue: dict[TaskClass, deque[QueueEntry]] = {
            task_class: deque(msgspec.structs.replace(entry) for entry in waiting)
            for task_class, waiting in source.items()
        }
        self.free: dict[NodeKey, ResourceVector] = {}
        """Free resources of the nodes where they differ from the initial state."""
        self.occupied: dict[tuple[TaskClass, NodeKey], None] = {}
        """Nodes that run a task of a class with at most one task per node."""
        self.started: list[StartedTasks] = []
        """Tasks that started at time zero."""
        self.ends: list[tuple[int, int, TaskClass, NodeKey]] = []
        self._end_count = 0
        if before is not None:
            self.free = {node: list(room) for node, room in before.free.items()}
            self.occupied = dict(before.occupied)

    def free_on(self, node: NodeKey) -> ResourceVector:
        """Return the free resources of a node."""
        return self.free.get(node) or self.initial.free[node[0]][node[1]]

    def add_free(self, node: NodeKey, vector: ResourceVector, sign: int) -> None:
        """Add resources to a node (``sign`` 1) or take them away (-1)."""
        self.free[node] = [have + sign * part for have, part in zip(self.free_on(node), vector, strict=True)]

    def serve_queue(self) -> Iterator[tuple[QueueEntry, int, int]]:
        """Try all waiting tasks everywhere, in order. Yield entry, cluster and number of tasks that start."""
        entries = sorted(
            ((entry.position, task_class) for task_class, waiting in self.queue.items() for entry in waiting),
            key=lambda entry: entry[0],
        )
        for position, task_class in entries:
            waiting = self.queue[task_class]
            if not waiting or waiting[0].position < position:
                continue  # an earlier task of this class found no room
            for cluster in task_class.order:
                entry, before = waiting[0], waiting[0].count
                if self._start_tasks(task_class, entry, cluster, None):
                    yield entry, cluster, before - entry.count
                if not entry.count:
                    waiting.popleft()
                    break

    def remaining_clusters(self) -> tuple[ObservedCluster, ...]:
        """Return the clusters with the room that is left."""
        nodes = [list(cluster.nodes) for cluster in self.initial.facts]
        for (cluster, node), room in self.free.items():
            nodes[cluster][node] = msgspec.structs.replace(
                nodes[cluster][node], free=self.initial.amount(room)
            )
        return tuple(
            msgspec.structs.replace(cluster, nodes=tuple(left))
            for cluster, left in zip(self.initial.facts, nodes, strict=True)
        )

    def serve_node(self, node: NodeKey, now: int) -> int:
        """Start waiting tasks on a node with freed resources. Return the subject's cluster, or -1."""
        heads = [(waiting[0].position, task_class) for task_class, waiting in self.queue.items() if waiting]
        heads.sort(key=lambda entry: entry[0])
        while heads:
            _, task_class = heads.pop(0)
            if not task_class.allowed[node[0]][node[1]]:
                continue
            waiting = self.queue[task_class]
            found = self._start_tasks(task_class, waiting[0], node[0], node[1], now)
            if found and waiting[0].is_subject:
                return node[0]
            if found and not waiting[0].count:
                waiting.popleft()
                if waiting:  # the next entry of this class has its own position
                    heads.append((waiting[0].position, task_class))
                    heads.sort(key=lambda entry: entry[0])
        return -1

    def _start_tasks(
        self, task_class: TaskClass, entry: QueueEntry, cluster: int, node: int | None, now: int = 0
    ) -> bool:
        """Start as many tasks of an entry as fit on one node, or in the whole cluster."""
        whole = node is None or bool(task_class.gang)
        nodes = range(len(task_class.allowed[cluster])) if whole or node is None else (node,)
        found: list[tuple[NodeKey, int]] = []
        left = entry.count
        for at in nodes:
            if not left:
                break
            place = (cluster, at)
            if task_class.allowed[cluster][at] and (
                not task_class.one_per_node or (task_class, place) not in self.occupied
            ):
                count = min(left, task_class.count_slots(self.free_on(place)))
                if count > 0:
                    found.append((place, count))
                    left -= count
        if not found or (task_class.gang and left):
            return False
        for place, count in found:
            self.add_free(place, [part * count for part in task_class.ask], -1)
            if task_class.one_per_node:
                self.occupied[task_class, place] = None
            if node is None:
                self.started.append((task_class, place, entry.expected, count))
                continue
            for _ in range(count):
                self._schedule_end(task_class, place, entry.expected, now)
        entry.count = left
        return True

    def _schedule_end(
        self, task_class: TaskClass, node: NodeKey, expected: tuple[int, ...], now: int
    ) -> None:
        """Draw the end of a task that starts now; a task without known run times never ends."""
        if expected:
            assert self.rng is not None
            self._end_count += 1
            heappush(self.ends, (now + self.rng.choice(expected), self._end_count, task_class, node))

    def schedule_ends(self, started: "list[StartedTasks]") -> None:
        """Draw the ends of the tasks that started at time zero."""
        for task_class, node, expected, count in started:
            for _ in range(count):
                self._schedule_end(task_class, node, expected, 0)

    def run(self, running: "RunningTaskEnds", times: list[int], order: list[int]) -> tuple[int, int]:
        """Simulate the ends of all tasks until the subject starts. Return its start time and cluster.

        ``times``: ends of the tasks of ``running``, rising; ``order``: the tasks that they belong to.
        """
        at = 0
        for _ in range(STEPS_MAX):
            first = times[at] if at < len(times) else NEVER
            if self.ends and self.ends[0][0] < first:
                now, _, task_class, node = heappop(self.ends)
                self.occupied.pop((task_class, node), None)
                self.add_free(node, task_class.ask, 1)
            elif first < NEVER:
                now, node = first, running.nodes[order[at]]
                self.add_free(node, running.sizes[order[at]], 1)
                at += 1
            else:
                break
            cluster = self.serve_node(node, now)
            if cluster >= 0:
                return now, cluster
        return NEVER, -1


def simulate_starts(
    present: ForecastRun, running: list[RunningTaskTuple], seed: int, draws: int
) -> list[tuple[int, int]]:
    """Return start time and cluster of the subject in each of ``draws`` runs; ``NEVER`` and -1: no start.

    ``present``: a run that has served its queue and in which no task of the subject starts now.
    """
    rng = Random(seed)
    ends = RunningTaskEnds(present.initial, running)
    columns = np.random.default_rng(seed)
    starts = []
    for _ in range(draws):
        trial = ForecastRun(present.initial, rng, present)
        trial.schedule_ends(present.started)
        starts.append(trial.run(ends, *ends.draw(columns)))
    return starts


class RunningTaskEnds:
    """Columns of the running tasks that have a known distribution of their ends."""

    def __init__(self, initial: InitialState, running: list[RunningTaskTuple]) -> None:
        self.nodes: list[NodeKey] = []
        self.sizes: list[ResourceVector] = []
        starts: list[int] = []
        spans: list[int] = []
        elapsed: list[int] = []
        flat: list[int] = []
        known: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for name, node, size, ran, expected in running:
            cluster = initial.cluster_numbers.get(name)
            if cluster is None or not 0 <= node < len(initial.facts[cluster].nodes):
                continue
            if expected not in known:
                known[expected] = (len(flat), sorted(expected))
                flat += known[expected][1]
            base, times = known[expected]
            first = int(np.searchsorted(times, ran, side="right"))
            if first < len(times):
                self.nodes.append((cluster, node))
                self.sizes.append(initial.vector(size))
                starts.append(base + first)
                spans.append(len(times) - first)
                elapsed.append(ran)
        self._starts, self._spans = np.array(starts, dtype=np.int64), np.array(spans, dtype=np.int64)
        self._elapsed, self._flat = np.array(elapsed, dtype=np.int64), np.array(flat, dtype=np.int64)

    def draw(self, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """Draw the times to their ends, rising, with the task of each. Every measured run time above the
        elapsed time is equally likely."""
        if not self.nodes:
            return [], []
        picks = self._starts + (rng.random(len(self.nodes)) * self._spans).astype(np.int64)
        left = self._flat[picks] - self._elapsed
        order = np.argsort(left, kind="stable")
        return left[order].tolist(), order.tolist()
