"""Advice of the network on a broker's waiting groups: conversion to the columns of the training, and back.

The network chooses for clusters of 16 or so CPUs and GPUs, in whole units, in steps of which a task takes a
few; a broker has milli-CPU, microseconds, and groups of many tasks. So amounts are counted in units of the
least ask, times in thirds of the usual best duration, and a chosen size is the next smaller one of the
group's sizes. The network sizes GPUs and leaves CPUs to the rule: for work without GPUs, CPUs take the place
of GPUs.

A broker asks while its groups wait, so often nothing is free. The network is then asked about later moments:
after each end that is believed to be next, and from then on about empty clusters. A group keeps its first
answer. A chosen task holds its room in the later moments. Ties: the likelier choice, then the first cluster.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NO_DEADLINE, NONE, EdgeView, Floats, Ints
from hanse.learning.edge.network.network import EdgeNetwork, choose_by_network
from hanse.learning.edge.policies.feature_table import SIZES_MAX
from hanse.learning.edge.policies.priced import PricedRule, Prices, compile_rule, shared_room
from hanse.model.advice import Advice, AdviceRequest, Amount, HeldResources, SizeEstimate, WaitingGroup

SLOTS_MAX: Final = 10
"""Tasks encoded at once: the pending window of the training."""
CAPACITY_UNITS_MAX: Final = 32
"""Greatest capacity of a cluster in units: the largest of the training."""
BEST_STEPS: Final = 3.0
"""Usual steps of a task at its best: the training's kinds take 2 and 4."""
STEPS_MAX: Final = 1_000
"""Longest duration or wait, in steps."""
CALLS_MAX: Final = 48
"""Calls of the network for one answer: about a millisecond each."""


class UnitScale(msgspec.Struct, frozen=True):
    """Units in which amounts and times of one kind of work are counted."""

    gpus: bool
    """True if the work has GPUs; else its CPUs take their place."""
    unit: int
    """Milli-CPU."""
    step: float
    """Microseconds."""

    def amount(self, held: Amount) -> tuple[int, int]:
        """Return the CPUs and GPUs that a task holds, in units: at least one of each."""
        cpus = max(1, round(held[0] / self.unit))
        return (cpus, max(1, held[1])) if self.gpus else (1, cpus)

    def room(self, room: Amount) -> tuple[int, int]:
        """Return a room in units, rounded down; CPUs that take the place of GPUs do not also bound the
        work."""
        cpus = min(room[0] // self.unit, CAPACITY_UNITS_MAX)
        return (cpus, min(room[1], CAPACITY_UNITS_MAX)) if self.gpus else (CAPACITY_UNITS_MAX, cpus)

    def steps(self, microseconds: float) -> float:
        """Return a time in steps."""
        return min(microseconds / self.step, STEPS_MAX)


def advise(network: EdgeNetwork, request: AdviceRequest) -> tuple[Advice, ...]:
    """Return the size that the network advises for each waiting group; groups that it passes over are left
    out."""
    advice: list[Advice] = []
    for gpus in (True, False):
        groups = [group for group in request.waiting if _has_gpus(group) is gpus and group.eligible_clusters]
        held = [one for one in request.held if (one.gpu > 0) is gpus]
        if groups:
            advice += _AdviceRound(network, request, groups, held, gpus).answer_groups()
    return tuple(advice)


def _has_gpus(group: WaitingGroup) -> bool:
    return any(size.gpu for size in group.sizes)


def _scale(groups: Sequence[WaitingGroup], gpus: bool) -> UnitScale:
    least = min(size.cpu for group in groups for size in group.sizes)
    most = max(size.cpu for group in groups for size in group.sizes)
    best = sorted(min(size.duration for size in group.sizes) for group in groups)
    unit = max(1, least, -(-most // SIZES_MAX))
    return UnitScale(gpus, unit, max(1.0, best[len(best) // 2] / BEST_STEPS))


class _AdviceRound:
    """Computation of one answer: columns that are played forward until every group has its answer."""

    def __init__(
        self,
        network: EdgeNetwork,
        request: AdviceRequest,
        groups: list[WaitingGroup],
        held: list[HeldResources],
        gpus: bool,
    ) -> None:
        self.network = network
        self.request = request
        self.groups = groups
        self.scale = scale = _scale(groups, gpus)
        self.held = sorted(
            held, key=lambda one: (one.duration - one.elapsed, one.cluster_index, one.cpu, one.gpu)
        )
        """Running tasks, in the order of their believed ends."""
        self.rule = _compile_rule(groups, self.held, scale)
        self.capacity = np.array([scale.room(room.capacity) for room in request.clusters], dtype=np.int64)
        self.free = np.array([scale.room(room.free) for room in request.clusters], dtype=np.int64)
        self.slots = _waiting_slots(groups)
        """Group of each slot; ``NONE`` when it was taken."""
        self.advice: dict[int, Advice] = {}
        self.elapsed = 0.0
        """Steps since now."""

    def answer_groups(self) -> list[Advice]:
        """Play all moments until every group has its answer."""
        calls = 0
        emptied = False
        while calls < CALLS_MAX:
            taken = self._choose_once()
            calls += 1
            if len(self.advice) == len(self.groups) or max(self.slots) == NONE:
                break
            if taken:
                emptied = False
                continue
            if self.held:
                self._release_next()
            elif emptied:
                break
            else:
                emptied = True
                self.free = self.capacity.copy()
        return [self.advice[group] for group in sorted(self.advice)]

    def _choose_once(self) -> bool:
        """Make one decision of all clusters; True if any of them took a task."""
        view = self._view()
        choice = choose_by_network(self.network, self.rule, view, shared_room(view))
        slots, preference = choice.slot[0].tolist(), choice.preference[0].tolist()
        order = sorted(range(len(slots)), key=lambda cluster: (-preference[cluster], cluster))
        taken = False
        for cluster in order:
            slot = slots[cluster]
            if slot == NONE or self.slots[slot] == NONE:
                continue
            self._take_task(cluster, slot, int(choice.cpus[0, cluster]), int(choice.gpus[0, cluster]))
            taken = True
        return taken

    def _take_task(self, cluster: int, slot: int, cpus: int, gpus: int) -> None:
        number, self.slots[slot] = self.slots[slot], NONE
        group, room = self.groups[number], self.request.clusters[cluster]
        size = _ladder_size(group.sizes, room.largest_node, self.scale, (cpus, gpus))
        self.free[cluster] = np.maximum(self.free[cluster] - self.scale.amount((size.cpu, size.gpu)), 0)
        if number not in self.advice:
            self.advice[number] = Advice(group.job, group.group, size.cpu, size.gpu, room.cluster)

    def _release_next(self) -> None:
        """Move to the moment at which the broker's next own task is believed to end."""
        ended = self.held.pop(0)
        self.elapsed = max(self.elapsed, self.scale.steps(max(0, ended.duration - ended.elapsed)))
        room = self.free[ended.cluster_index] + self.scale.amount((ended.cpu, ended.gpu))
        self.free[ended.cluster_index] = np.minimum(room, self.capacity[ended.cluster_index])

    def _view(self) -> EdgeView:
        n, p = len(self.request.clusters), len(self.slots)
        columns = {name: np.zeros((1, n, p), dtype=np.int64) for name in ("kind", "waited", "reach")}
        task = np.full((1, n, p), NONE, dtype=np.int64)
        for slot, number in enumerate(self.slots):
            if number == NONE:
                continue
            group = self.groups[number]
            bits = sum(1 << cluster for cluster in group.eligible_clusters)
            for cluster in group.eligible_clusters:
                task[0, cluster, slot] = slot
                columns["kind"][0, cluster, slot] = number
                columns["waited"][0, cluster, slot] = int(self.scale.steps(group.waited) + self.elapsed)
                columns["reach"][0, cluster, slot] = bits
        behind = max(0, sum(group.count for group in self.groups) - p)
        return EdgeView(
            time=np.zeros(1, dtype=np.int64),
            free=self.free[None],
            capacity=self.capacity,
            queued=np.full((1, n), behind, dtype=np.int64),
            can_act=(self.capacity.sum(axis=1) > 0)[None],
            task=task,
            due=np.full((1, n, p), NO_DEADLINE, dtype=np.int64),
            **columns,
            **self._running(n),
        )

    def _running(self, clusters: int) -> dict[str, Ints]:
        """Return the columns of running tasks, cluster by cluster."""
        rows: list[list[int]] = [[] for _ in range(clusters)]
        for position, one in enumerate(self.held):
            rows[one.cluster_index].append(position)
        names = ("run_task", "run_kind", "run_cpus", "run_gpus", "run_elapsed")
        shape = (1, clusters, max(1, *map(len, rows)))
        columns = {name: np.zeros(shape, dtype=np.int64) for name in names}
        columns["run_task"].fill(NONE)
        first = len(self.rule.minimum) - len(self.held)
        for cluster, row in enumerate(rows):
            for place, position in enumerate(row):
                one = self.held[position]
                cpus, gpus = self.scale.amount((one.cpu, one.gpu))
                elapsed = int(self.scale.steps(one.elapsed) + self.elapsed)
                values = (position, first + position, cpus, gpus, elapsed)
                for name, value in zip(names, values, strict=True):
                    columns[name][0, cluster, place] = value
        return columns


def _waiting_slots(groups: Sequence[WaitingGroup]) -> list[int]:
    """Return the groups of the pending slots: tasks of all groups in turn, up to ``SLOTS_MAX``."""
    slots: list[int] = []
    for turn in range(SLOTS_MAX):
        slots += [number for number, group in enumerate(groups) if group.count > turn]
    return slots[:SLOTS_MAX]


def _compile_rule(
    groups: Sequence[WaitingGroup], held: Sequence[HeldResources], scale: UnitScale
) -> PricedRule:
    """Compile the rule for believed durations: a row for each group, then one for each running task."""
    rows = [_durations(group.sizes, scale) for group in groups]
    rows += [np.full((SIZES_MAX + 1, SIZES_MAX + 1), scale.steps(one.duration)) for one in held]
    least = [scale.amount((group.sizes[0].cpu, group.sizes[0].gpu)) for group in groups]
    minimum = np.array([*least, *[(1, 1)] * len(held)], dtype=np.int64)
    return compile_rule(np.stack(rows), minimum, Prices())


def _durations(sizes: Sequence[SizeEstimate], scale: UnitScale) -> Floats:
    """Return steps by CPUs and GPUs: those of the group's largest size within; ``inf`` below the least."""
    table = np.full((SIZES_MAX + 1, SIZES_MAX + 1), np.inf)
    for size in sorted(sizes, key=lambda size: (size.gpu, size.cpu)):
        cpus, gpus = scale.amount((size.cpu, size.gpu))
        if cpus <= SIZES_MAX and gpus <= SIZES_MAX:
            table[cpus:, gpus:] = max(scale.steps(size.duration), 1e-3)
    return table


def _ladder_size(
    sizes: Sequence[SizeEstimate], node: Amount, scale: UnitScale, chosen: tuple[int, int]
) -> SizeEstimate:
    """Return the group's largest size within the chosen one that fits a node; the least if none does."""
    within = [
        size
        for size in sizes
        if size.cpu <= node[0]
        and size.gpu <= node[1]
        and all(unit <= most for unit, most in zip(scale.amount((size.cpu, size.gpu)), chosen, strict=True))
    ]
    return max(within, key=lambda size: (size.gpu, size.cpu), default=sizes[0])
