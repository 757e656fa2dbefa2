"""Nodes on which equal tasks finish first: ctypes wrappers of ``finish_cost.c``.

The functions have the meaning of those in ``numpy_finish``. They share scratch memory between calls: call
them from one thread of a process only.
"""

from typing import Final

import numpy as np

from hanse.policy.kernels.c_kernels import open_function
from hanse.policy.kernels.finish_columns import FinishColumns, FinishJob, Floats, check_job

_ENTRY_WORDS: Final = 4
"""Size of ``finish_entry_t`` in words."""
_choose: Final = open_function("hanse_finish_choose", "aaaaa", "i")
_ideal: Final = open_function("hanse_finish_ideal", "aa", "d")
_costs: Final = open_function("hanse_finish_costs", "aaa")


class _FinishScratch:
    """Memory that the kernel uses during a call: it grows to the largest call and keeps its size."""

    __slots__ = ("chosen", "costs", "entries", "size")

    def __init__(self) -> None:
        self.grow(64)

    def grow(self, count: int) -> None:
        """Make room for ``count`` tasks."""
        self.size = 1 << (count - 1).bit_length()
        self.entries = np.empty(_ENTRY_WORDS * self.size, dtype=np.int64)
        self.chosen = np.empty(self.size, dtype=np.int64)
        self.costs = np.empty(self.size)


_scratch: Final = _FinishScratch()


def finish_choose(columns: FinishColumns, job: FinishJob) -> tuple[list[int], list[float]]:
    """Choose nodes for up to ``count`` tasks: see ``numpy_finish.finish_choose``. One thread only."""
    check_job(columns, job)
    if job.count > _scratch.size:
        _scratch.grow(job.count)
    done = _choose(
        columns.header_address,
        job.pack(),
        _scratch.entries.ctypes.data,
        _scratch.chosen.ctypes.data,
        _scratch.costs.ctypes.data,
    )
    return _scratch.chosen[:done].tolist(), _scratch.costs[:done].tolist()


def finish_ideal(columns: FinishColumns, job: FinishJob) -> float:
    """Return the least cost of one task alone: see ``numpy_finish.finish_ideal``."""
    check_job(columns, job)
    ideal: float = _ideal(columns.header_address, job.pack())
    return ideal


def finish_costs(columns: FinishColumns, job: FinishJob) -> Floats:
    """Return the cost of the next task on each node: see ``numpy_finish.finish_costs``."""
    check_job(columns, job)
    costs = np.empty(columns.nodes)
    _costs(columns.header_address, job.pack(), costs.ctypes.data)
    return costs
