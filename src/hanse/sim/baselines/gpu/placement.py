"""Placement of pods that never leave: six rules for a node, and the GPU that each can allocate.

The rules follow the scheduler plug-ins that the FGD study compares (integer scores from 0 to 100, the
highest wins, ties go to the first node in one fixed random naming of the nodes). The study's own naming is
not published, and it shifts the two policies that do not rank nodes for CPU-only pods by up to a point; so
every seed here has a naming of its own, and means over seeds are means over namings too. Memory is a filter
only. A pod that no node can take is dropped. If a policy does not choose the device of the node, a share
goes to the device it fills most, and whole devices are taken from the first.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from hanse.sim.baselines.gpu.fragmentation import Floats, FragmentTables, typical_pods
from hanse.sim.baselines.gpu.openb import (
    ANY_MODEL,
    DEVICES_MAX,
    MILLI,
    Ints,
    OpenbNodes,
    OpenbPods,
    PodTypes,
    inflate,
)

CPU_MAX: Final = 128_000
GPU_MAX: Final = 8_000
"""Size of the largest node, by which two of the policies scale."""
DEMAND: Final = 1.3
"""GPU demand over GPU capacity."""
NAMING_STREAM: Final = 1
"""Second word of the seed for a run's naming of the nodes, separate from its other draws."""


class IdleCluster:
    """Idle amounts, in the order of the nodes' names."""

    def __init__(self, nodes: OpenbNodes, types: PodTypes, order: Ints) -> None:
        self.cpu = nodes.cpu[order]
        self.memory = nodes.memory[order]
        self.model = nodes.model[order]
        self.devices = nodes.devices[order]
        self.idle = np.where(np.arange(DEVICES_MAX) < self.devices[:, None], MILLI, 0).astype(np.int64)
        self.gpu = self.idle.sum(axis=1)
        self.whole = self.devices.copy()
        """Wholly idle devices."""
        self.fullest = self.idle.max(axis=1)
        """Idle amount of each node's idlest device."""
        self.kinds = np.zeros((len(order), DEVICES_MAX + 1), bool)
        """True if a node holds a pod of so many whole devices; column 0 is for shares."""
        self._access = [
            np.ones(len(order), bool) if mask == ANY_MODEL else (mask >> self.model & 1).astype(bool)
            for mask in types.models.tolist()
        ]
        self._types = types

    def feasible_nodes(self, kind: int) -> Ints:
        """Return the nodes that can take a pod of this shape, in the order of their names."""
        types = self._types
        fits = (self.cpu >= types.cpu[kind]) & (self.memory >= types.memory[kind])
        count, milli = int(types.count[kind]), int(types.milli[kind])
        if count:
            fits &= self.fullest >= milli if count == 1 else self.whole >= count
            fits &= self._access[kind]
        return np.flatnonzero(fits)

    def take(self, kind: int, node: int, device: int) -> None:
        """Place a pod; ``device`` is for pods that take a share of one."""
        types = self._types
        count, milli = int(types.count[kind]), int(types.milli[kind])
        self.cpu[node] -= types.cpu[kind]
        self.memory[node] -= types.memory[kind]
        assert self.cpu[node] >= 0, "CPU is not over-committed"
        assert self.memory[node] >= 0, "memory is not over-committed"
        if not count:
            return
        idle = self.idle[node]
        if milli < MILLI:
            idle[device] -= milli
        else:
            idle[np.flatnonzero(idle == MILLI)[:count]] -= milli
        assert int(idle.min()) >= 0, "no device is over-committed"
        self.gpu[node] -= count * milli
        self.whole[node] = int((idle == MILLI).sum())
        self.fullest[node] = int(idle.max())
        self.kinds[node, count if milli == MILLI else 0] = True

    def tightest_device(self, node: int, milli: int) -> int:
        """Return the device that a share fills most; the first of equals."""
        idle = self.idle[node]
        return int(np.argmin(np.where(idle >= milli, idle, MILLI + 1)))


Choice = tuple[int, int]
"""Node and, for a share, device."""
Chooser = Callable[[IdleCluster, PodTypes, int, Ints], Choice]
"""Function that chooses among the feasible nodes, of which there is at least one."""


def _pick(cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints, score: Ints) -> Choice:
    node = int(nodes[int(np.argmax(score))])
    return node, cluster.tightest_device(node, int(types.milli[kind])) if types.count[kind] == 1 else -1


def random_chooser(rng: np.random.Generator) -> Chooser:
    """Return a chooser of any feasible node and any device with room."""

    def choose(cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints) -> Choice:
        node = int(nodes[rng.integers(len(nodes))])
        room = np.flatnonzero(cluster.idle[node] >= types.milli[kind])
        return node, int(room[rng.integers(len(room))]) if types.count[kind] == 1 else -1

    return choose


def dot_product(cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints) -> Choice:
    """Choose the smallest inner product of demand and idle (CPU and GPU, scaled by the largest node)."""
    cpu = cluster.cpu[nodes] / CPU_MAX * (types.cpu[kind] / CPU_MAX)
    gpu = cluster.gpu[nodes] / GPU_MAX * (types.gpu[kind] / GPU_MAX)
    return _pick(cluster, types, kind, nodes, (100 * (1 - (cpu + gpu) / 2)).astype(np.int64))


def best_fit(cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints) -> Choice:
    """Choose the node with least left over, with equal weights for CPU and GPU."""
    left = (cluster.cpu[nodes] - types.cpu[kind]) / CPU_MAX * 0.5
    left += (cluster.gpu[nodes] - types.gpu[kind]) / GPU_MAX * 0.5
    return _pick(cluster, types, kind, nodes, ((1 - left) * 100).astype(np.int64))


def gpu_clustering(cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints) -> Choice:
    """Choose nodes with only pods of this size, then with this size among others, then empty ones, then the
    rest."""
    count = int(types.count[kind])
    if not count:
        return _pick(cluster, types, kind, nodes, np.zeros(len(nodes), np.int64))
    same = cluster.kinds[nodes, count if types.milli[kind] == MILLI else 0]
    sizes = cluster.kinds[nodes].sum(axis=1)
    group = np.where(same, np.where(sizes == 1, 75, 50), np.where(sizes == 0, 25, 0))
    return _pick(cluster, types, kind, nodes, 25 * (GPU_MAX - cluster.gpu[nodes]) // GPU_MAX + group)


def gpu_packing(cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints) -> Choice:
    """Choose devices in use first, then idle devices of nodes in use, then idle nodes."""
    count, milli = int(types.count[kind]), int(types.milli[kind])
    if not count:
        return _pick(cluster, types, kind, nodes, np.zeros(len(nodes), np.int64))
    whole = cluster.whole[nodes]
    score = np.maximum(50 - count, 33)
    if count == 1 and milli < MILLI:
        idle = cluster.idle[nodes]
        tight = np.where(idle >= milli, idle, MILLI + 1).min(axis=1)
        score = np.where(tight < MILLI, np.maximum(100 - tight * 100 // MILLI // 10, 50), score)
    return _pick(
        cluster,
        types,
        kind,
        nodes,
        np.where(whole == cluster.devices[nodes], np.maximum(33 - whole, whole), score),
    )


class FgdChooser:
    """Chooser of the least growth of fragmentation; for a share every device of every node is a candidate."""

    def __init__(self, tables: FragmentTables) -> None:
        self._tables = tables

    def __call__(self, cluster: IdleCluster, types: PodTypes, kind: int, nodes: Ints) -> Choice:
        """Choose by floor(100 x sigmoid((F before - F after) / 1000)); ties to first node, then device."""
        model, idle = cluster.model[nodes], cluster.idle[nodes]
        cpu = cluster.cpu[nodes]
        before = self._tables.node_fragment(model, cpu, idle)
        cpu = cpu - types.cpu[kind]
        count, milli = int(types.count[kind]), int(types.milli[kind])
        if count == 1 and milli < MILLI:
            return self._share(milli, nodes, before, model, cpu, idle)
        after = idle.copy()
        if count:
            taken = (idle == MILLI).cumsum(axis=1)
            after[(idle == MILLI) & (taken <= count)] = 0
        score = _score(before - self._tables.node_fragment(model, cpu, after))
        return int(nodes[int(np.argmax(score))]), 0

    def _share(self, milli: int, nodes: Ints, before: Floats, model: Ints, cpu: Ints, idle: Ints) -> Choice:
        """Score all devices of all nodes at once: only the term of the chosen device changes."""
        tables = self._tables
        level = tables.cpu_step(cpu)
        worth = tables.device_worth(model[:, None], level[:, None], idle)
        room = idle >= milli
        after = np.where(room, idle - milli, 0)
        whole = (idle == MILLI).sum(axis=1)
        fewer = np.where(idle == MILLI, whole[:, None] - 1, whole[:, None])
        useful = worth.sum(axis=1)[:, None] - worth
        useful += tables.device_worth(model[:, None], level[:, None], after)
        useful += tables.whole_devices_worth(model[:, None], level[:, None], np.maximum(fewer, 0))
        fragment = idle.sum(axis=1)[:, None] - milli - useful
        score = np.where(room, _score(before[:, None] - fragment), -1)
        best = int(np.argmax(score))
        return int(nodes[best // DEVICES_MAX]), best % DEVICES_MAX


def _score(gain: Floats) -> Ints:
    # the small term keeps the last digits of a sum from deciding between 49 and 50 without a change
    return (100.0 / (1.0 + np.exp(-gain / 1000.0)) + 1e-9).astype(np.int64)


PLACERS: Final = ("random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
_PLAIN: Final[dict[str, Chooser]] = {
    "dot-product": dot_product,
    "gpu-clustering": gpu_clustering,
    "gpu-packing": gpu_packing,
    "best-fit": best_fit,
}


class PlacementOutcome(msgspec.Struct, frozen=True, eq=False):
    """Outcome of one run."""

    kind: Ints
    """Shape of every arrival."""
    node: Ints
    """Node of every arrival (index into the node list); -1 = none."""
    device: Ints
    """The device of a share, -1 = none or whole ones."""
    allocated: float
    """GPU allocated over GPU capacity."""
    cpu_seconds: float

    @property
    def pods_per_cpu_second(self) -> float:
        """Speed of the run."""
        return len(self.kind) / self.cpu_seconds if self.cpu_seconds else 0.0


def place_pods(
    pods: OpenbPods, nodes: OpenbNodes, policy: str, seed: int, demand: float = DEMAND
) -> PlacementOutcome:
    """Run the arrivals of a seed through one policy."""
    rng = np.random.default_rng(seed)
    arrivals = inflate(pods, demand * nodes.gpu_capacity, rng)
    types = pods.types
    naming = np.random.default_rng([seed, NAMING_STREAM]).permutation(len(nodes.cpu))
    cluster = IdleCluster(nodes, types, naming)
    if policy == "fgd":
        choose: Chooser = FgdChooser(FragmentTables(typical_pods(pods), len(nodes.models)))
    elif policy == "random":
        choose = random_chooser(rng)
    else:
        choose = _PLAIN[policy]
    began = time.process_time()
    where, which = np.full(len(arrivals), -1, np.int64), np.full(len(arrivals), -1, np.int64)
    unplaceable: set[int] = set()
    for index, kind in enumerate(arrivals.tolist()):
        if kind in unplaceable:
            continue
        room = cluster.feasible_nodes(kind)
        if not len(room):
            # pods never leave, so a shape that does not fit now never fits
            unplaceable.add(kind)
            continue
        node, device = choose(cluster, types, kind, room)
        cluster.take(kind, node, device)
        where[index], which[index] = node, device
    used = int(types.gpu[arrivals[where >= 0]].sum())
    where[where >= 0] = naming[where[where >= 0]]
    return PlacementOutcome(arrivals, where, which, used / nodes.gpu_capacity, time.process_time() - began)
