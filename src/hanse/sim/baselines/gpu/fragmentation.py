"""Fragmentation of a node's idle GPU: the part that the usual jobs cannot use, as in FGD (Weng et al. 2023).

For a node and a typical pod the fragment is all idle GPU if the pod does not fit the node (or wants no GPU),
and otherwise the idle GPU on devices that are too full for it. The measure F is the mean over the typical
pods, weighted by their frequencies.

Written as F = idle - useful, the useful part is a sum of terms that depend on one device at a time: a device
with L idle is worth L x (weight of single-device pods that the node's CPU can carry and whose share is at
most L), and the n whole idle devices of a node are together worth 1000 n x (weight of multi-device pods of
at most n devices that the CPU can carry). Both weights are tables by model, CPU step and L or n, so F for
any number of nodes is a look-up.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.baselines.gpu.openb import ANY_MODEL, DEVICES_MAX, MILLI, Ints, OpenbPods

Floats = npt.NDArray[np.float64]
POPULARITY: Final = 0.95
"""Share of all pods that the typical pods, the most frequent shapes, make up."""


class TypicalPods(msgspec.Struct, frozen=True, eq=False):
    """Most frequent shapes (memory does not count) and their weights, which sum to 1."""

    cpu: Ints
    count: Ints
    milli: Ints
    models: Ints
    weight: Floats


def typical_pods(pods: OpenbPods, popularity: float = POPULARITY) -> TypicalPods:
    """Return the most frequent shapes; equal frequencies go to the larger (CPU, share, devices, models)."""
    types = pods.types
    shapes: dict[tuple[int, int, int, int], int] = {}
    for kind in pods.pod.tolist():
        shape = (
            int(types.cpu[kind]),
            int(types.milli[kind]),
            int(types.count[kind]),
            int(types.models[kind]),
        )
        shapes[shape] = shapes.get(shape, 0) + 1
    ranked = sorted(shapes.items(), key=lambda item: (item[1], item[0]), reverse=True)
    wanted, covered, kept = popularity * len(pods.pod), 0, 0
    while covered < wanted:
        covered += ranked[kept][1]
        kept += 1
    cpu, milli, count, models = (
        np.asarray(column, np.int64) for column in zip(*(s for s, _ in ranked[:kept]), strict=True)
    )
    weight = np.asarray([number for _, number in ranked[:kept]], np.float64) / covered
    return TypicalPods(cpu=cpu, count=count, milli=milli, models=models, weight=weight)


class FragmentTables:
    """Look-up tables of F, for nodes of the given number of models."""

    def __init__(self, typical: TypicalPods, models: int) -> None:
        self._steps = np.unique(typical.cpu)
        levels = len(self._steps) + 1
        self._single = np.zeros((models, levels, MILLI + 1))
        self._whole = np.zeros((models, levels, DEVICES_MAX + 1))
        for pod in range(len(typical.cpu)):
            count, milli, mask = int(typical.count[pod]), int(typical.milli[pod]), int(typical.models[pod])
            if not count:
                continue
            assert count == 1 or milli == MILLI, "a pod of several devices takes whole ones"
            level = int(np.searchsorted(self._steps, typical.cpu[pod], "right"))
            access = [model for model in range(1, models) if mask == ANY_MODEL or mask >> model & 1]
            table, least = (self._single, milli) if count == 1 else (self._whole, count)
            table[access, level:, least:] += typical.weight[pod]

    def cpu_step(self, cpu: Ints) -> npt.NDArray[np.intp]:
        """Return the CPU step of an amount of idle CPU: how many typical demands it can carry."""
        return np.searchsorted(self._steps, cpu, "right")

    def device_worth(self, model: Ints, level: npt.NDArray[np.intp], idle: Ints) -> Floats:
        """Return the worth of idle devices for single-device pods; the arguments are broadcast."""
        return idle * self._single[model, level, idle]

    def whole_devices_worth(self, model: Ints, level: npt.NDArray[np.intp], devices: Ints) -> Floats:
        """Return the worth of this many wholly idle devices for pods of several devices."""
        worth: Floats = MILLI * devices * self._whole[model, level, devices]
        return worth

    def node_fragment(self, model: Ints, cpu: Ints, idle: Ints) -> Floats:
        """Return F of nodes: ``idle`` is [nodes, DEVICES_MAX], 0 where there is no device."""
        level = self.cpu_step(cpu)
        useful = self.device_worth(model[:, None], level[:, None], idle).sum(axis=1)
        useful += self.whole_devices_worth(model, level, (idle == MILLI).sum(axis=1))
        fragment: Floats = idle.sum(axis=1) - useful
        return fragment
