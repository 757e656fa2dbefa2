"""Would a job start now, and where; and if not, when: from what runs, what waits ahead, and how long such
things take.

A small Monte Carlo: in each draw every running and waiting task gets a run time from those that were
measured of its kind (given that it has already run for so long), room frees in that order, what waits ahead
takes what it can, and the job starts where and when it first fits. Nothing is invented: a task of whose kind
nothing was measured, or that has outlived all that was, is never counted on to end. Where the answer would
depend on one, it is *unknown*.

Pure: the same question and seed give the same answer. What is left out is said in ``Plan.caveats``.
"""

from heapq import heapify, heappop, heappush
from random import Random
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanse.core.jobs import shape_of
from hanse.live.reads.facts import ClusterFacts, judge, suits
from hanse.model.job import JobSpec
from hanse.model.messages import Shape
from hanse.model.resources import Dimensions, Resources, dimensions_of

DRAWS: Final = 200
"""Draws of one estimate."""
STEPS_MAX: Final = 20_000
"""Ends that one draw follows; a job that has not started by then has no start in that draw."""
QUANTILES: Final = (10, 50, 90)
_NEVER: Final = 1 << 62


class Occupant(msgspec.Struct, frozen=True):
    """A running task."""

    cluster: str
    node: int
    size: Resources
    elapsed: int
    """Microseconds since it started."""
    expected: tuple[int, ...] = ()
    """Run times of its kind, equally likely, in microseconds; empty: unknown."""


class Ahead(msgspec.Struct, frozen=True):
    """Tasks of one group that wait and will be served before the job."""

    spec: JobSpec
    group: int
    count: int
    expected: tuple[int, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """A cluster, and how it looks for the job."""

    cluster: str
    slots: int
    """How many tasks of the job's first group have room there now."""
    score: int
    """In how many draws of a thousand the job's first task starts there."""
    reason: str
    chosen: bool


class Start(msgspec.Struct, frozen=True):
    """Delay until the first task starts (of a gang: all of them), in microseconds; None: unknown."""

    p10: int | None
    p50: int | None
    p90: int | None


class Plan(msgspec.Struct, frozen=True):
    """What is to be expected of a job that is not yet submitted."""

    starts_now: bool
    candidates: tuple[Candidate, ...]
    """The best first: higher score, then more slots, then by name."""
    start: Start
    unknown: str
    """Why some of ``start`` is unknown, as a sentence; empty if nothing is."""
    caveats: tuple[str, ...]


class _Entry(msgspec.Struct):
    """Tasks that wait, in a draw."""

    shape: Shape
    count: int
    expected: tuple[int, ...]
    ask: NDArray[np.int64]
    open: list[NDArray[np.bool_]]
    """By cluster: the nodes that may take it."""
    order: list[int]
    """Clusters in the order in which it looks."""
    ours: bool = False
    on: dict[tuple[int, int], None] = {}
    """Nodes that hold one already, where they keep apart."""


def estimate(
    spec: JobSpec,
    facts: tuple[ClusterFacts, ...],
    running: list[Occupant],
    ahead: list[Ahead],
    durations: tuple[int, ...] = (),
    *,
    seed: int,
    draws: int = DRAWS,
) -> Plan:
    """What would become of ``spec`` if it were submitted now. ``durations``: run times of its own tasks."""
    groups = [number for number, group in enumerate(spec.groups) if not group.needs]
    verdicts = [judge(spec, groups[0], cluster) for cluster in facts]
    caveats = _caveats(spec, ahead)
    if spec.after:
        unknown = "It waits for other jobs first, and when they end is not estimated."
        starts: list[tuple[int, int]] = []
    else:
        stage = _Stage(facts, running)
        entries = [stage.entry(one.spec, one.group, one.count, one.expected) for one in ahead]
        entries += [
            stage.entry(spec, number, spec.groups[number].count, durations, True) for number in groups
        ]
        rng = Random(seed)
        starts = [stage.draw(rng, entries) for _ in range(draws)]
        unknown = _why_unknown(starts, running, ahead)
    scores = [sum(place == at for _, place in starts) for at in range(len(facts))]
    total = max(1, len(starts))
    order = sorted(range(len(facts)), key=lambda at: (-scores[at], -verdicts[at].slots, facts[at].name))
    candidates = tuple(
        Candidate(
            facts[at].name, verdicts[at].slots, scores[at] * 1_000 // total, verdicts[at].text,
            bool(scores[at]) and at == order[0],
        )
        for at in order
    )  # fmt: skip
    start = Start(*(_quantile(sorted(when for when, _ in starts), percent) for percent in QUANTILES))
    now = bool(starts) and all(when == 0 for when, _ in starts)
    return Plan(now, candidates, start, unknown, caveats)


def _quantile(times: list[int], percent: int) -> int | None:
    """The least time that at least so many of the draws reach; None: they do not."""
    if not times:
        return None
    found = times[-(-len(times) * percent // 100) - 1]
    return None if found == _NEVER else found


def _why_unknown(starts: list[tuple[int, int]], running: list[Occupant], ahead: list[Ahead]) -> str:
    if all(when < _NEVER for when, _ in starts):
        return ""
    mute = sum(not any(time > task.elapsed for time in task.expected) for task in running)
    silent = sum(one.count for one in ahead if not one.expected)
    if not mute and not silent:
        return "As things are it would not start: no cluster comes to have room for it."
    parts = []
    if mute:
        parts.append(f"of {mute} running task{'s' * (mute != 1)}")
    if silent:
        parts.append(f"of {silent} task{'s' * (silent != 1)} ahead of it")
    return f"It depends on ends that nobody can foretell: {' and '.join(parts)} no such run time is known."


def _caveats(spec: JobSpec, ahead: list[Ahead]) -> tuple[str, ...]:
    found = []
    wishes = [wish for group in spec.groups for wish in group.affinity]
    if any(not (wish.apart and wish.label in spec.labels) for wish in wishes):
        found.append("Where other jobs' tasks are, which its affinity asks about, is not looked at.")
    if any(shape_of(spec, number, 0).alone_in_cluster for number in range(len(spec.groups))):
        found.append("That only one of its tasks may be in each cluster is not looked at.")
    if any(part.ask_max is not None for part in spec.groups):
        found.append("It is elastic and is counted with the least that it asks for.")
    if spec.priority > 0:
        found.append("Work that it might preempt is not counted as room.")
    if any(one.spec.gang for one in ahead):
        found.append("Room kept back for gangs ahead of it is not looked at.")
    return tuple(found)


class _Stage:
    """The clusters as columns, and one draw after another played on them."""

    def __init__(self, facts: tuple[ClusterFacts, ...], running: list[Occupant]) -> None:
        self.facts = facts
        self.dimensions: Dimensions = dimensions_of(
            tuple(node.capacity for cluster in facts for node in cluster.nodes)
        )
        self.free = [
            np.array([self._vector(node.free) for node in cluster.nodes], dtype=np.int64).reshape(
                len(cluster.nodes), len(self.dimensions)
            )
            for cluster in facts
        ]
        numbers = {cluster.name: at for at, cluster in enumerate(facts)}
        self._count = 0
        """Ends that a draw has seen begin: of equal times, what began first ends first."""
        self.running: list[tuple[int, int, NDArray[np.int64], tuple[int, ...]]] = []
        """Cluster, node, size, and what may be left of its run time: only tasks that are known to end."""
        for task in running:
            left = tuple([time - task.elapsed for time in task.expected if time > task.elapsed])
            at = numbers.get(task.cluster)
            if left and at is not None and 0 <= task.node < len(facts[at].nodes):
                size = np.array(self._vector(task.size), dtype=np.int64)
                self.running.append((at, task.node, size, left))

    def _vector(self, size: Resources) -> tuple[int, ...]:
        return size.vector(self.dimensions) or (_NEVER,) * len(self.dimensions)

    def entry(
        self, spec: JobSpec, group: int, count: int, expected: tuple[int, ...], ours: bool = False
    ) -> _Entry:
        """Tasks that wait. They look first where their data is, then in the clusters' order."""
        shape = shape_of(spec, group, count if spec.gang else 0)
        masks = []
        for cluster in self.facts:
            closed = not cluster.reachable or cluster.fenced or cluster.draining
            shut = closed or not shape.may_use(cluster.name)
            fit = [not shut and not node.draining and suits(shape, node) for node in cluster.nodes]
            masks.append(np.array(fit, dtype=np.bool_))
        near = {name: at for at, name in enumerate(spec.data)}
        order = sorted(range(len(self.facts)), key=lambda at: (near.get(self.facts[at].name, len(near)), at))
        ask = np.array(self._vector(shape.ask), dtype=np.int64)
        return _Entry(shape, count, expected, ask, masks, order, ours)

    def draw(self, rng: Random, entries: list[_Entry]) -> tuple[int, int]:
        """When and in which cluster the job starts, in one possible future; cluster -1: it does not."""
        free = [room.copy() for room in self.free]
        queue = [msgspec.structs.replace(entry, on={}) for entry in entries]
        ends: list[tuple[int, int, int, int, NDArray[np.int64]]] = [
            (rng.choice(left), number, at, node, size)
            for number, (at, node, size, left) in enumerate(self.running)
        ]
        heapify(ends)
        self._count = len(ends)
        started = self._serve(rng, queue, free, ends, 0, None)
        steps = 0
        while started < 0 and ends and steps < STEPS_MAX:
            steps += 1
            now, _, at, node, size = heappop(ends)
            free[at][node] += size
            started = self._serve(rng, queue, free, ends, now, (at, node))
            if started >= 0:
                return now, started
        return (0, started) if started >= 0 else (_NEVER, -1)

    def _serve(
        self, rng: Random, queue: list[_Entry], free: list[NDArray[np.int64]],
        ends: list[tuple[int, int, int, int, NDArray[np.int64]]], now: int, freed: tuple[int, int] | None,
    ) -> int:  # fmt: skip
        """Let what waits take room, in turn; the cluster in which the job starts, or -1."""
        for entry in queue:
            for at in entry.order:
                if entry.count == 0:
                    break
                if freed is not None and at != freed[0]:
                    continue
                nodes = self._fitting(entry, free[at], at, None if freed is None else freed[1])
                for node in nodes:
                    free[at][node] -= entry.ask
                    entry.count -= 1
                    if entry.expected:
                        self._count += 1
                        heappush(ends, (now + rng.choice(entry.expected), self._count, at, node, entry.ask))
                if nodes and entry.ours:
                    return at
        return -1

    @staticmethod
    def _fitting(entry: _Entry, room: NDArray[np.int64], at: int, only: int | None) -> list[int]:
        """Nodes for as many tasks as have room, each named once a task; all of a gang or none."""
        gang = entry.shape.gang
        if not room.shape[0] or (only is not None and not gang and not entry.open[at][only]):
            return []
        span = slice(None) if only is None or gang else slice(only, only + 1)
        fits = entry.open[at][span] & np.all(room[span] >= entry.ask, axis=1)
        first = span.start or 0
        apart, found = entry.shape.alone, list[int]()
        for node in (np.flatnonzero(fits) + first).tolist():
            if len(found) >= entry.count:
                break
            if apart and (at, node) in entry.on:
                continue
            needs = entry.ask > 0
            most = int(np.min(room[node][needs] // entry.ask[needs])) if needs.any() else entry.count
            found += [node] * min(1 if apart else most, entry.count - len(found))
        if gang and len(found) < entry.count:
            return []
        if apart:
            entry.on.update(dict.fromkeys((at, node) for node in found))
        return found
