"""Pods and nodes of the Alibaba GPU 2023 set ("openb"), as columns for the placement study.

CPU in milli-CPU, memory in bytes, GPU in thousandths of one device. A pod wants ``count`` devices of
``milli`` each; shares below 1000 exist for a single device only.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.node_lists import NodeTable

Ints = npt.NDArray[np.int64]
MILLI: Final = 1_000
DEVICES_MAX: Final = 8
"""Largest number of devices of a node of the set."""
ANY_MODEL: Final = 0
"""Bit mask of a pod that takes any model of GPU."""


class PodTypes(msgspec.Struct, frozen=True, eq=False):
    """Distinct shapes among the pods; a shape is CPU, memory, devices, share and models accepted."""

    cpu: Ints
    memory: Ints
    count: Ints
    milli: Ints
    models: Ints
    """Bit mask over ``OpenbNodes.models``; ANY_MODEL = any."""

    @property
    def gpu(self) -> Ints:
        """Thousandths of a device in total."""
        return self.count * self.milli


class OpenbPods(msgspec.Struct, frozen=True, eq=False):
    """Pods of one list: the shape of each."""

    types: PodTypes
    pod: Ints
    """Index into ``types``, in the order of the list."""


class OpenbNodes(msgspec.Struct, frozen=True, eq=False):
    """Nodes of one list."""

    cpu: Ints
    memory: Ints
    devices: Ints
    model: Ints
    """Index into ``models``; nodes without a GPU have model 0, the empty name."""
    models: tuple[str, ...]

    @property
    def gpu_capacity(self) -> int:
        """Thousandths of a device in the whole cluster."""
        return int(self.devices.sum()) * MILLI


def openb_nodes(table: NodeTable) -> OpenbNodes:
    """Return the nodes of a list; a row with a count becomes several nodes."""
    row = np.repeat(np.arange(len(table.count)), table.count)
    named = sorted({table.names[model] for model in table.model.tolist() if model >= 0})
    models = ("", *named)
    model = [models.index(table.names[index]) if index >= 0 else 0 for index in table.model[row].tolist()]
    return OpenbNodes(
        cpu=table.cpu[row],
        memory=table.memory[row],
        devices=table.gpu[row] // MILLI,
        model=np.asarray(model, np.int64),
        models=models,
    )


def openb_pods(chunk: JobChunk, nodes: OpenbNodes) -> OpenbPods:
    """Return the pods of a list; a wish for models that no node has sets a bit that no node matches."""
    count = chunk.extra["num_gpu"].astype(np.int64)
    milli = np.where(count > 0, chunk.gpu // np.maximum(count, 1), 0)
    masks: dict[int, int] = {}
    for model_list in sorted(set(chunk.extra["gpu_spec"].tolist())):
        mask = ANY_MODEL
        for name in filter(None, chunk.name(model_list).split("|")):
            mask |= 1 << (nodes.models.index(name) if name in nodes.models else len(nodes.models))
        masks[model_list] = mask
    mask_of = np.asarray([masks[model_list] for model_list in chunk.extra["gpu_spec"].tolist()], np.int64)
    shapes, pod = np.unique(
        np.column_stack([chunk.cpu, chunk.memory, count, milli, mask_of]), axis=0, return_inverse=True
    )
    columns = (np.ascontiguousarray(column) for column in shapes.T)
    return OpenbPods(PodTypes(*columns), pod.reshape(-1).astype(np.int64))


def inflate(pods: OpenbPods, target: float, rng: np.random.Generator) -> Ints:
    """Return the arrivals of one run: all pods shuffled, then random copies up to ``target`` GPU.

    Copying stops, as in the authors' tool, at the first draw whose share of *one* device would pass the
    target.
    """
    arrivals = [int(shape) for shape in rng.permutation(pods.pod)]
    gpu, milli = pods.types.gpu.tolist(), pods.types.milli.tolist()
    total = sum(gpu[shape] for shape in arrivals)
    while True:
        shape = int(pods.pod[rng.integers(len(pods.pod))])
        if total + milli[shape] > target:
            return np.asarray(arrivals, np.int64)
        total += gpu[shape]
        arrivals.append(shape)
