"""Runs of earliest-finish, compiled or not, with a history that they extend."""

from collections.abc import Callable
from typing import Final

import numpy as np

from hanse.policy.finish_time.exact_math import exact_log
from hanse.policy.kernels import BACKEND, Floats
from hanse.policy.kernels.c_kernels import find_address
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled.run import run_compiled_policy
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory
from hanse.sim.worlds.earliest_finish.finish_settings import FinishSettings
from hanse.sim.worlds.job_shapes import job_shapes

_KERNELS: Final = (
    "hanse_finish_choose",
    "hanse_finish_ideal",
    "hanse_duration_add",
    "hanse_duration_solve",
    "hanse_duration_seconds",
    "hanse_crowding_add",
    "hanse_crowding_solve",
    "hanse_crowding_slow_down",
)
"""In the order of ``finish_kernels_t``."""


def make_history(world: WorldColumns, work: WorkColumns) -> FinishHistory:
    """Return an empty history for a world and the kinds of a work."""
    kinds = int(work.job_kind.max(initial=-1)) + 1
    return FinishHistory(len(world.work_kind_names), kinds, len(world.class_names))


def declared_constants(world: WorldColumns) -> Floats:
    """Return the contrasts of the published speeds: [kinds of work, classes]."""
    return np.array([[-exact_log(speed) for speed in row] for row in world.class_speed.tolist()])


def run_earliest_finish(
    world: WorldColumns,
    work: WorkColumns,
    settings: FinishSettings,
    history: FinishHistory,
    seed: int = 0,
    progress: Callable[[int], bool] | None = None,
) -> WorldOutcome:
    """Run the policy; the history learns from it."""
    assert BACKEND == "native"
    kernels = np.array([find_address(name) for name in _KERNELS], np.uint64)
    constants = declared_constants(world) if settings.constants else np.zeros(0)
    return run_compiled_policy(
        world, work, "earliest-finish", "fifo", seed, job_shapes(work, None),
        numbers=settings.numbers(history.works),
        arrays=[kernels, constants, history.first_answer, history.rows, history.crowding_row,
                history.crowding_answer],
        progress=progress,
    )  # fmt: skip
