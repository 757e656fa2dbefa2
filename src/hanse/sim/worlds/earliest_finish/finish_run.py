"""Runs of earliest-finish, compiled or not, with a history that they extend."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from hanse.policy.finish_time.exact_math import exact_log
from hanse.policy.kernels import BACKEND, Floats
from hanse.policy.kernels.c_kernels import find_address
from hanse.sim.worlds.central import CentralRun
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.compiled.run import CompiledChoice, run_compiled_policy
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory
from hanse.sim.worlds.earliest_finish.finish_policy import EarliestFinish
from hanse.sim.worlds.earliest_finish.finish_settings import FinishSettings
from hanse.sim.worlds.job_shapes import job_shapes

EXPLORED_SHARE: Final = 0.1
"""Share of the jobs of a warm-up that are placed at random."""
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


def make_history(world: WorldColumns) -> FinishHistory:
    """Return an empty history for a world."""
    return FinishHistory(len(world.work_kind_names), 0, len(world.class_names))


def declared_constants(world: WorldColumns) -> Floats:
    """Return the contrasts of the published speeds: [kinds of work, classes]."""
    return np.array([[-exact_log(speed) for speed in row] for row in world.class_speed.tolist()])


def run_earliest_finish(
    world: WorldColumns,
    work: WorkColumns,
    settings: FinishSettings,
    history: FinishHistory,
    seed: int = 0,
    compiled: bool = True,
    progress: Callable[[int], bool] | None = None,
) -> tuple[WorldOutcome, FinishHistory]:
    """Run the policy from a history; return the outcome, and the history with what was learned."""
    learned = history.copy(int(work.job_kind.max(initial=-1)) + 1)
    shape = job_shapes(work, None)
    if compiled and not loader.LOAD_PROBLEM and BACKEND == "native":
        kernels = np.array([find_address(name) for name in _KERNELS], np.uint64)
        constants = declared_constants(world)
        choice = CompiledChoice(
            "earliest-finish", "fifo", seed, shape,
            numbers=tuple(settings.numbers(learned.works)),
            arrays=(kernels, constants, learned.first_answer, learned.rows, learned.crowding_row,
                    learned.crowding_answer),
        )  # fmt: skip
        return run_compiled_policy(world, work, choice, progress), learned
    run = CentralRun(
        world, work, lambda view: EarliestFinish(view, settings, learned, seed), shape.tolist(), "fifo"
    )
    run.play()
    return run.outcome(), learned


def warm_up(
    world: WorldColumns, works: Sequence[WorkColumns], settings: FinishSettings, compiled: bool = True
) -> FinishHistory:
    """Return the history of runs of these works, one after the other, with some jobs placed at random."""
    history = make_history(world)
    curious = msgspec.structs.replace(settings, explores=EXPLORED_SHARE)
    for seed, work in enumerate(works):
        _, history = run_earliest_finish(world, work, curious, history, seed, compiled)
    return history
