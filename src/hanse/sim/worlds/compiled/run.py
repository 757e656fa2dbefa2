"""One run of a compiled central policy."""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.worlds.central import ORDERS
from hanse.sim.worlds.columns import SmallInts, WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.compiled.compiled_physics import CompiledPhysics

JOBS_PER_REPORT: Final = 1_000
"""Jobs that end between two calls of the progress function."""


class _Settings(ctypes.Structure):
    """``settings_t`` of world.h."""

    _fields_ = (
        ("seed", ctypes.c_int64),
        ("numbers", ctypes.c_void_p),
        ("number_count", ctypes.c_int64),
        ("arrays", ctypes.c_void_p),
        ("array_count", ctypes.c_int64),
    )


class CompiledChoice(msgspec.Struct, frozen=True, eq=False):
    """A compiled policy and its settings."""

    name: str
    """Name in table.c."""
    order: str
    """One of ``ORDERS``."""
    seed: int
    shape: SmallInts
    """[J] shapes of the jobs, from ``job_shapes``."""
    numbers: tuple[float, ...] = ()
    """The policy's own settings."""
    arrays: tuple[npt.NDArray[Any], ...] = ()
    """The policy's own columns, to which it may also write."""


def run_compiled_policy(
    world: WorldColumns,
    work: WorkColumns,
    policy: CompiledChoice,
    progress: Callable[[int], bool] | None = None,
) -> WorldOutcome:
    """Run a compiled policy; stop early if ``progress``, which is told the ended jobs, returns False."""
    assert loader.LIBRARY is not None, loader.LOAD_PROBLEM
    library, jobs = loader.LIBRARY, work.job_count
    choice = np.array([loader.POLICY_NUMBERS[policy.name], ORDERS.index(policy.order), policy.seed], np.int64)
    own_numbers = np.array([*policy.numbers, 0.0])
    own_arrays = np.array([*(array.ctypes.data for array in policy.arrays), 0], np.uint64)
    settings = _Settings(
        policy.seed,
        own_numbers.ctypes.data,
        len(policy.numbers),
        own_arrays.ctypes.data,
        len(policy.arrays),
    )
    with CompiledPhysics(world, work, policy.shape) as physics:
        run = library.hanse_world_run(physics.handle, choice.ctypes.data, ctypes.addressof(settings))
        if not run:
            raise MemoryError(f"no memory for a run of {policy.name}, or settings that it does not take")
        try:
            ended = 0
            while ended < jobs:
                ended = library.hanse_world_play(run, min(jobs, ended + JOBS_PER_REPORT))
                physics.check()
                if progress is not None and not progress(ended):
                    break
        finally:
            library.hanse_world_close(run)
        return physics.outcome(complete=ended == jobs)
