"""Simulation of the clusters' near future: tasks end, and waiting tasks take the freed resources in turn.

Waiting tasks are grouped into *task classes* with the same fit. The free resources of a node only shrink
while it is served, so a class that did not fit is not tried again; this and work per node keep a run cheap.
Of simultaneous ends, tasks of the initial state come first, in the given order; then tasks by their start.
"""

from collections import deque
from heapq import heappop, heappush
from random import Random
from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.job_table import shape_of
from hanse.live.readmodel.cluster_facts import ClusterFacts, suits
from hanse.model.job import JobSpec
from hanse.model.messages import Shape
from hanse.model.resources import Dimensions, Resources, dimensions_of

STEPS_MAX: Final = 20_000
"""Task ends that one run simulates; a job that has not started by then does not start in this run."""
NEVER: Final = 1 << 62

Room = list[int]
Place = tuple[int, int]
"""Cluster number and node number."""
Task = tuple[str, int, Resources, int, tuple[int, ...]]
"""Cluster name, node number, size, elapsed time, and measured run times of similar tasks."""


class Kind:
    """Equivalence class of waiting tasks: same shape, same order of clusters."""

    def __init__(self, shape: Shape, ask: Room, fits: list[list[bool]], order: tuple[int, ...]) -> None:
        self.ask = ask
        self.gang, self.apart = shape.gang, shape.max_per_node
        self.open = fits
        """By cluster and node: True if the node may ever run such a task."""
        self.order = order
        """Cluster numbers, in the order in which the tasks try them."""

    def slots(self, room: Room) -> int:
        """Count the tasks of this class that fit into an amount of resources."""
        most = NEVER
        for have, need in zip(room, self.ask, strict=True):
            if need:
                most = min(most, have // need)
        return min(most, 1) if self.apart else most


class Waiting(msgspec.Struct):
    """Waiting tasks of one group."""

    turn: int
    """Position in the queue; smaller is served first."""
    count: int
    expected: tuple[int, ...]
    ours: bool


class Stage:
    """Clusters and queue at the time of the question."""

    def __init__(self, facts: tuple[ClusterFacts, ...]) -> None:
        self.facts = facts
        self.numbers = {cluster.name: at for at, cluster in enumerate(facts)}
        self.dimensions: Dimensions = dimensions_of(
            tuple(node.capacity for cluster in facts for node in cluster.nodes)
        )
        self.free = [[self.vector(node.free) for node in cluster.nodes] for cluster in facts]
        self.queue: dict[Kind, deque[Waiting]] = {}
        self._kinds: dict[tuple[Shape, tuple[int, ...]], Kind] = {}
        self._turns = 0

    def vector(self, size: Resources) -> Room:
        """Convert an amount to a vector; infinite if it names a resource that no node has."""
        found = size.vector(self.dimensions)
        return list(found) if found is not None else [NEVER] * len(self.dimensions)

    def wait(
        self, spec: JobSpec, group: int, count: int, expected: tuple[int, ...], ours: bool = False
    ) -> None:
        """Append tasks to the queue. They try the clusters of their data first, then the others in order."""
        shape = shape_of(spec, group, count if spec.gang else 0)
        near = {name: at for at, name in enumerate(spec.data)}
        places = range(len(self.facts))
        order = tuple(sorted(places, key=lambda at: (near.get(self.facts[at].name, len(near)), at)))
        kind = self._kinds.get((shape, order))
        if kind is None:
            kind = self._kinds[shape, order] = self._kind(shape, order)
            self.queue[kind] = deque()
        self.queue[kind].append(Waiting(self._turns, count, expected, ours))
        self._turns += 1

    def _kind(self, shape: Shape, order: tuple[int, ...]) -> Kind:
        fits = []
        for cluster in self.facts:
            shut = not cluster.reachable or cluster.fenced or cluster.draining
            closed = shut or not shape.allows_cluster(cluster.name)
            fits.append([not closed and not node.draining and suits(shape, node) for node in cluster.nodes])
        return Kind(shape, self.vector(shape.ask), fits, order)


class Future:
    """One simulated course of events, from a copy of an initial state or of another run."""

    def __init__(self, stage: Stage, rng: Random, before: "Future | None" = None) -> None:
        self.stage = stage
        self.rng = rng
        source = stage.queue if before is None else before.queue
        self.queue: dict[Kind, deque[Waiting]] = {
            kind: deque(msgspec.structs.replace(one) for one in waiting) for kind, waiting in source.items()
        }
        self.rooms: dict[Place, Room] = {}
        """Free resources of the nodes where they differ from the initial state."""
        self.on: dict[tuple[Kind, Place], None] = {}
        """Nodes that run a task of a class with at most one task per node."""
        self.taken: list[tuple[Kind, Place, tuple[int, ...]]] = []
        """Tasks that started at time zero, with their possible run times."""
        self.ends: list[tuple[int, int, Kind, Place]] = []
        self._count = 0
        if before is not None:
            self.rooms = {place: list(room) for place, room in before.rooms.items()}
            self.on = dict(before.on)

    def room(self, place: Place) -> Room:
        """Return the free resources of a node."""
        return self.rooms.get(place) or self.stage.free[place[0]][place[1]]

    def change(self, place: Place, size: Room, sign: int) -> None:
        """Add resources to a node (``sign`` 1) or take them away (-1)."""
        self.rooms[place] = [have + sign * part for have, part in zip(self.room(place), size, strict=True)]

    def begin(self) -> int:
        """Try all waiting tasks everywhere, in order. Return the cluster where the subject starts, or -1."""
        entries = sorted(
            ((one.turn, kind) for kind, waiting in self.queue.items() for one in waiting),
            key=lambda entry: entry[0],
        )
        for turn, kind in entries:
            waiting = self.queue[kind]
            if not waiting or waiting[0].turn < turn:
                continue  # an earlier task of this class found no room
            for cluster in kind.order:
                found = self._fill(kind, waiting[0], cluster, None)
                if found and waiting[0].ours:
                    return cluster
                if not waiting[0].count:
                    waiting.popleft()
                    break
        return -1

    def freed(self, place: Place, now: int) -> int:
        """Start waiting tasks on a node with freed resources. Return the subject's cluster, or -1."""
        heads = [(waiting[0].turn, kind) for kind, waiting in self.queue.items() if waiting]
        heads.sort(key=lambda entry: entry[0])
        while heads:
            _, kind = heads.pop(0)
            if not kind.open[place[0]][place[1]]:
                continue
            waiting = self.queue[kind]
            found = self._fill(kind, waiting[0], place[0], place[1], now)
            if found and waiting[0].ours:
                return place[0]
            if found and not waiting[0].count:
                waiting.popleft()
                if waiting:  # the next entry of this class has its own position
                    heads.append((waiting[0].turn, kind))
                    heads.sort(key=lambda entry: entry[0])
        return -1

    def _fill(self, kind: Kind, entry: Waiting, cluster: int, node: int | None, now: int = 0) -> bool:
        """Start as many tasks of an entry as fit on one node, or in the whole cluster."""
        whole = node is None or bool(kind.gang)
        nodes = range(len(kind.open[cluster])) if whole or node is None else (node,)
        found: list[tuple[Place, int]] = []
        left = entry.count
        for at in nodes:
            if not left:
                break
            place = (cluster, at)
            if kind.open[cluster][at] and (not kind.apart or (kind, place) not in self.on):
                some = min(left, kind.slots(self.room(place)))
                if some > 0:
                    found.append((place, some))
                    left -= some
        if not found or (kind.gang and left):
            return False
        for place, some in found:
            self.change(place, [part * some for part in kind.ask], -1)
            if kind.apart:
                self.on[kind, place] = None
            for _ in range(some):
                if node is None:
                    self.taken.append((kind, place, entry.expected))
                else:
                    self._run(kind, place, entry.expected, now)
        entry.count = left
        return True

    def _run(self, kind: Kind, place: Place, expected: tuple[int, ...], now: int) -> None:
        """Draw the end of a task that starts now; a task without known run times never ends."""
        if expected:
            self._count += 1
            heappush(self.ends, (now + self.rng.choice(expected), self._count, kind, place))

    def go_on(self, taken: list[tuple[Kind, Place, tuple[int, ...]]]) -> None:
        """Draw the ends of the tasks that started at time zero."""
        for kind, place, expected in taken:
            self._run(kind, place, expected, 0)

    def play(self, known: "Endings", times: list[int], order: list[int]) -> tuple[int, int]:
        """Simulate the ends of all tasks until the subject starts. Return its start time and cluster.

        ``times``: ends of the tasks of ``running``, rising; ``order``: the tasks that they belong to.
        """
        at = 0
        for _ in range(STEPS_MAX):
            first = times[at] if at < len(times) else NEVER
            if self.ends and self.ends[0][0] < first:
                now, _, kind, place = heappop(self.ends)
                self.on.pop((kind, place), None)
                self.change(place, kind.ask, 1)
            elif first < NEVER:
                now, place = first, known.places[order[at]]
                self.change(place, known.sizes[order[at]], 1)
                at += 1
            else:
                break
            started = self.freed(place, now)
            if started >= 0:
                return now, started
        return NEVER, -1


def futures(stage: Stage, running: list[Task], seed: int, draws: int) -> list[tuple[int, int]]:
    """Return start time and cluster of the subject in each of ``draws`` runs; ``NEVER`` and -1: no start."""
    rng = Random(seed)
    present = Future(stage, rng)
    started = present.begin()
    if started >= 0:
        return [(0, started)] * draws
    known = Endings(stage, running)
    columns = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        future = Future(stage, rng, present)
        future.go_on(present.taken)
        found.append(future.play(known, *known.draw(columns)))
    return found


class Endings:
    """Columns of the running tasks that have a known distribution of their ends."""

    def __init__(self, stage: Stage, running: list[Task]) -> None:
        self.places: list[Place] = []
        self.sizes: list[Room] = []
        starts: list[int] = []
        spans: list[int] = []
        elapsed: list[int] = []
        flat: list[int] = []
        known: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for name, node, size, ran, expected in running:
            cluster = stage.numbers.get(name)
            if cluster is None or not 0 <= node < len(stage.facts[cluster].nodes):
                continue
            if expected not in known:
                known[expected] = (len(flat), sorted(expected))
                flat += known[expected][1]
            base, times = known[expected]
            first = int(np.searchsorted(times, ran, side="right"))
            if first < len(times):
                self.places.append((cluster, node))
                self.sizes.append(stage.vector(size))
                starts.append(base + first)
                spans.append(len(times) - first)
                elapsed.append(ran)
        self._starts, self._spans = np.array(starts, dtype=np.int64), np.array(spans, dtype=np.int64)
        self._elapsed, self._flat = np.array(elapsed, dtype=np.int64), np.array(flat, dtype=np.int64)

    def draw(self, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """Draw the times to their ends, rising, with the task of each. Every measured run time above the
        elapsed time is equally likely."""
        if not self.places:
            return [], []
        picks = self._starts + (rng.random(len(self.places)) * self._spans).astype(np.int64)
        left = self._flat[picks] - self._elapsed
        order = np.argsort(left, kind="stable")
        return left[order].tolist(), order.tolist()
