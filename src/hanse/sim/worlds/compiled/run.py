"""One run of a compiled central policy."""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from hanse.sim.worlds.central import ORDERS
from hanse.sim.worlds.columns import SmallInts, WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.compiled.compiled_physics import CompiledPhysics

JOBS_PER_REPORT = 1_000
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


def run_compiled_policy(
    world: WorldColumns,
    work: WorkColumns,
    name: str,
    order: str,
    seed: int,
    shape: SmallInts,
    numbers: Sequence[float] = (),
    arrays: Sequence[npt.NDArray[np.generic]] = (),
    progress: Callable[[int], bool] | None = None,
) -> WorldOutcome:
    """Run the policy that table.c knows by this name; stop early if ``progress``, which is told the jobs that
    have ended, returns False.

    ``numbers``, ``arrays``: the policy's own settings and columns; ``arrays`` it may also write to.
    """
    assert loader.LIBRARY is not None, loader.LOAD_PROBLEM
    library, jobs = loader.LIBRARY, work.job_count
    choice = np.array([loader.POLICY_NUMBERS[name], ORDERS.index(order), seed], np.int64)
    own_numbers = np.array([*numbers, 0.0])
    own_arrays = np.array([*(array.ctypes.data for array in arrays), 0], np.uint64)
    settings = _Settings(seed, own_numbers.ctypes.data, len(numbers), own_arrays.ctypes.data, len(arrays))
    with CompiledPhysics(world, work, shape) as physics:
        run = library.hanse_world_run(physics.handle, choice.ctypes.data, ctypes.addressof(settings))
        if not run:
            raise MemoryError(f"no memory for a run of {name}, or settings that it does not take")
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
