"""Runs of the compiled league beside the machines."""

import shutil
from importlib.resources import files
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import pytest

from hanse.sim.replay import compiled as compiled_module
from hanse.sim.replay.compiled.outcome_diff import describe_difference
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.run_records import (
    ReplayOutcome,
    ReplaySettings,
    ReplayWorkload,
)

HAS_COMPILER = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
needs_compiler = pytest.mark.skipif(
    bool(compiled_module.load_problem()) and not HAS_COMPILER, reason="the compiled league needs a C compiler"
)
SECOND = 1_000_000
FOLDER = Path(str(files(compiled_module.__name__)))


def made(arrival: list[int], tasks: list[list[int]], priority: list[int] | None = None) -> ReplayWorkload:
    """Jobs by arrival and durations, in microseconds; counted from the first."""
    offset = [0, *accumulate(len(durations) for durations in tasks)]
    duration = [each for durations in tasks for each in durations]
    estimate = [sum(duration[first:past]) // (past - first) for first, past in pairwise(offset)]
    return ReplayWorkload("made", arrival, offset, duration, estimate, priority or [0] * len(arrival))


def same(workload: ReplayWorkload, settings: ReplaySettings) -> ReplayOutcome:
    """The outcome, if it is the same by the machines and by the compiled league."""
    one, other = [
        run_hanse(workload, msgspec.structs.replace(settings, engine=name))
        for name in ("machines", "compiled")
    ]
    assert (one.engine, other.engine) == ("machines", "compiled")
    assert describe_difference(one, other) == "", settings
    return other
