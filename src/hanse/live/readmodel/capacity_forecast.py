"""Possible futures of the clusters: room frees as tasks end, and what waits takes it in turn.

What waits is sorted into *kinds* that fit alike. Room only shrinks while one node is being served, so a kind
that found none there is not asked again; that and a node-wise view keep a future cheap. Of ends at the same
time what was running at the beginning comes first, in the order given; then what started first.
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
"""Ends that one future follows; a job that has not started by then has no start in it."""
NEVER: Final = 1 << 62

Room = list[int]
Place = tuple[int, int]
"""Cluster and node."""
Task = tuple[str, int, Resources, int, tuple[int, ...]]
"""A running task: cluster, node, size, elapsed time, and run times of its kind."""


class Kind:
    """Tasks that fit alike and look in the same order."""

    def __init__(self, shape: Shape, ask: Room, fits: list[list[bool]], order: tuple[int, ...]) -> None:
        self.ask = ask
        self.gang, self.apart = shape.gang, shape.max_per_node
        self.open = fits
        """By cluster and node: whether it may ever take one."""
        self.order = order
        """Clusters, the first to be looked in first."""

    def slots(self, room: Room) -> int:
        """How many of these fit into some room."""
        most = NEVER
        for have, need in zip(room, self.ask, strict=True):
            if need:
                most = min(most, have // need)
        return min(most, 1) if self.apart else most


class Waiting(msgspec.Struct):
    """Tasks of one group that wait."""

    turn: int
    """Its place in the queue."""
    count: int
    expected: tuple[int, ...]
    ours: bool


class Stage:
    """The clusters and the queue as they are now."""

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
        """An amount in the order of the columns; more than anybody has, if it needs what nobody has."""
        found = size.vector(self.dimensions)
        return list(found) if found is not None else [NEVER] * len(self.dimensions)

    def wait(
        self, spec: JobSpec, group: int, count: int, expected: tuple[int, ...], ours: bool = False
    ) -> None:
        """Tasks join the end of the queue. They look first where their data is, then in the clusters'
        order."""
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
    """One course of things, from a copy of a stage or of another future."""

    def __init__(self, stage: Stage, rng: Random, before: "Future | None" = None) -> None:
        self.stage = stage
        self.rng = rng
        source = stage.queue if before is None else before.queue
        self.queue: dict[Kind, deque[Waiting]] = {
            kind: deque(msgspec.structs.replace(one) for one in waiting) for kind, waiting in source.items()
        }
        self.rooms: dict[Place, Room] = {}
        """Nodes whose room is no longer what it was."""
        self.on: dict[tuple[Kind, Place], None] = {}
        """Nodes that hold one of a kind that keeps apart."""
        self.taken: list[tuple[Kind, Place, tuple[int, ...]]] = []
        """What started at the very beginning, and its run times."""
        self.ends: list[tuple[int, int, Kind, Place]] = []
        self._count = 0
        if before is not None:
            self.rooms = {place: list(room) for place, room in before.rooms.items()}
            self.on = dict(before.on)

    def room(self, place: Place) -> Room:
        """What is free on a node."""
        return self.rooms.get(place) or self.stage.free[place[0]][place[1]]

    def change(self, place: Place, size: Room, sign: int) -> None:
        """Room is taken (-1) or given back."""
        self.rooms[place] = [have + sign * part for have, part in zip(self.room(place), size, strict=True)]

    def begin(self) -> int:
        """Let everything that waits look everywhere, in turn; the cluster where our job starts, or -1."""
        entries = sorted(
            ((one.turn, kind) for kind, waiting in self.queue.items() for one in waiting),
            key=lambda entry: entry[0],
        )
        for turn, kind in entries:
            waiting = self.queue[kind]
            if not waiting or waiting[0].turn < turn:
                continue  # its kind has found no room any more
            for cluster in kind.order:
                found = self._fill(kind, waiting[0], cluster, None)
                if found and waiting[0].ours:
                    return cluster
                if not waiting[0].count:
                    waiting.popleft()
                    break
        return -1

    def freed(self, place: Place, now: int) -> int:
        """Room has come free on a node; the cluster where our job starts because of that, or -1."""
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
                if waiting:  # the next of its kind waits for its own turn
                    heads.append((waiting[0].turn, kind))
                    heads.sort(key=lambda entry: entry[0])
        return -1

    def _fill(self, kind: Kind, entry: Waiting, cluster: int, node: int | None, now: int = 0) -> bool:
        """Start as many tasks of an entry as one node, or the whole cluster, has room for."""
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
        """A task starts; one of which no run time is known never ends."""
        if expected:
            self._count += 1
            heappush(self.ends, (now + self.rng.choice(expected), self._count, kind, place))

    def go_on(self, taken: list[tuple[Kind, Place, tuple[int, ...]]]) -> None:
        """What started at the beginning gets its run times."""
        for kind, place, expected in taken:
            self._run(kind, place, expected, 0)

    def play(self, known: "Endings", times: list[int], order: list[int]) -> tuple[int, int]:
        """Follow the ends of what runs and of what starts: when and where our job starts.

        ``times`` are those of the running tasks of ``known`` in ``order``, rising.
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
    """When and in which cluster the job starts in each of so many futures; ``NEVER`` and -1: it does not."""
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
    """The running tasks that are known to end, as columns."""

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
        """When they end, rising, and which: every run time above the elapsed one is equally likely."""
        if not self.places:
            return [], []
        picks = self._starts + (rng.random(len(self.places)) * self._spans).astype(np.int64)
        left = self._flat[picks] - self._elapsed
        order = np.argsort(left, kind="stable")
        return left[order].tolist(), order.tolist()
