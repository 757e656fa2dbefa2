"""Columns of nodes and of equal tasks from which the kernels of finish time choose.

The twin of the records of ``finish_time.h``. A *stretch* is a run of neighbouring nodes of one rack and one
class: run time alone and transfer are the same there, so a kernel looks at them once. Pressure and exposure
say how crowded a node is, and what its tasks have to lose; ``policy/finish_time`` explains both.
"""

from array import array
from collections.abc import Sequence
from math import inf
from struct import Struct
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanse.policy.node_columns import Column

Floats = NDArray[np.float64]

KNOTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Pressures at which the slope of the slow-down may rise; 1 is a full node of tasks of average pressure."""
_JOB_PACKER: Final = Struct("=8q5dq")
"""Layout of ``finish_job_t``."""


class FinishJob(msgspec.Struct, frozen=True, eq=False):
    """Equal tasks of one job. Seconds are estimates."""

    count: int
    """Tasks."""
    cpu: int
    """Milli-CPU of one task; ``memory`` bytes and ``gpu`` GPUs likewise."""
    memory: int
    gpu: int
    class_seconds: Floats
    """[classes] run time alone on a node of the class; negative: not allowed there."""
    rack_seconds: Floats
    """[racks] transfer; negative: not allowed there."""
    slopes: Floats
    """[knots] amounts, at least 0, by which the slope of the slow-down rises at each knot."""
    sensitivity: float = 0.0
    """Sensitivity of a task to pressure."""
    own_pressure: float = 0.0
    """Pressure per core times cores of a task."""
    own_exposure: float = 0.0
    """Sensitivity times expected seconds of a task."""
    charge: float = 1.0
    """Weight of the neighbours' loss in the cost: 1 at the margin, 0 not at all."""
    finish_max: float = inf
    """Seconds of transfer and run beyond which a node is not taken, whatever the neighbours lose."""
    each_max: int = 0
    """Most tasks on one node; 0: no bound."""
    is_debited: bool = True
    """True if the nodes' columns are to change as if the tasks ran there."""

    def pack(self) -> bytes:
        """Return the job as ``finish_job_t``."""
        return _JOB_PACKER.pack(
            self.count,
            self.each_max,
            self.cpu,
            self.memory,
            self.gpu,
            self.class_seconds.ctypes.data,
            self.rack_seconds.ctypes.data,
            self.slopes.ctypes.data,
            self.sensitivity,
            self.own_pressure,
            self.own_exposure,
            self.charge,
            self.finish_max,
            self.is_debited,
        )


class FinishColumns:
    """Nodes: class, rack, free room, pressure, exposure. Arrays are changed in place and never replaced."""

    __slots__ = ("classes", "exposure", "free", "header", "header_address", "nodes", "pressure", "racks",
                 "room", "stretch_class", "stretch_from", "stretch_rack")  # fmt: skip

    def __init__(self, node_class: Sequence[int], node_rack: Sequence[int], free: Column) -> None:
        """``free``: [3, nodes] milli-CPU, memory and GPUs, which the caller may share and change."""
        self.nodes = len(node_class)
        assert free.shape == (3, self.nodes), f"room of shape {free.shape} for {self.nodes} nodes"
        assert free.dtype == np.int64, f"room of {free.dtype}"
        assert free.flags.c_contiguous, "room is read row after row"
        classes, racks = np.array(node_class, dtype=np.int64), np.array(node_rack, dtype=np.int64)
        starts = np.flatnonzero((np.diff(classes) != 0) | (np.diff(racks) != 0)) + 1
        first = np.concatenate([np.zeros(min(self.nodes, 1), dtype=np.int64), starts])
        self.stretch_from = np.append(first, self.nodes).astype(np.int64)
        self.stretch_class, self.stretch_rack = classes[first], racks[first]
        self.classes = int(classes.max()) + 1 if self.nodes else 0
        self.racks = int(racks.max()) + 1 if self.nodes else 0
        self.free = free
        self.pressure = np.zeros(self.nodes)
        self.room = np.ones(self.nodes)
        self.exposure = np.zeros(self.nodes)
        self.header = array("q", (
            self.nodes, len(first), self.stretch_from.ctypes.data, self.stretch_class.ctypes.data,
            self.stretch_rack.ctypes.data, *(row.ctypes.data for row in free), self.pressure.ctypes.data,
            self.room.ctypes.data, self.exposure.ctypes.data,
        ))  # fmt: skip
        self.header_address = self.header.buffer_info()[0]


def check_job(columns: FinishColumns, job: FinishJob) -> None:
    """Assert what keeps C from reading foreign memory, and the signs on which both kernels rely."""
    assert 0 <= job.count <= 1 << 20, f"{job.count} tasks in one call"
    assert job.cpu >= 0 <= job.memory, "an ask for less than nothing"
    assert job.gpu >= 0 <= job.each_max, "an ask for less than nothing"
    for values, size in (
        (job.class_seconds, columns.classes),
        (job.rack_seconds, columns.racks),
        (job.slopes, len(KNOTS)),
    ):
        assert values.dtype == np.float64, f"{values.dtype} in place of float64"
        assert values.flags.c_contiguous, "arrays are read row after row"
        assert len(values) >= size, f"{len(values)} values for {size}"
