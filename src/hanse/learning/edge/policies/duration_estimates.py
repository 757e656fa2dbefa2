"""Durations learned from completed tasks: sums and counts, nothing else.

A cluster adds each completed task to the cell of its kind and size; two clusters merge their estimates by
adding the arrays. Nothing else is exchanged, people can audit it, and noise for privacy goes onto the sums.
The estimate of a cell is the mean of its tasks, mixed with a little of a curve ``a + b / GPUs`` fitted to all
tasks of its kind; before any task, a prior.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import Floats, Ints

OBSERVED_MIN: Final = 3
"""Completed tasks of a kind from which its curve is fitted."""

CURVE_WEIGHT: Final = 0.5
"""Weight of the curve in a cell, in completed tasks."""

PRIOR_BASE: Final = 1.0
PRIOR_WORK: Final = 10.0
"""Prior of every kind: 1 + 10 / GPUs steps."""

DURATION_LEAST: Final = 1.0
"""Least estimate of a duration, in steps."""


class DurationEstimates(msgspec.Struct, frozen=True, eq=False):
    """Observed durations. Axes: kind, CPUs, GPUs."""

    total: Floats
    """Summed steps of the completed tasks of each cell."""
    count: Ints
    """Completed tasks of each cell."""


def no_observations(kinds: int, limit: tuple[int, int]) -> DurationEstimates:
    """Return estimates without any observation."""
    shape = (kinds, limit[0] + 1, limit[1] + 1)
    return DurationEstimates(total=np.zeros(shape), count=np.zeros(shape, dtype=np.int64))


def with_completed(
    estimates: DurationEstimates, kind: Ints, cpus: Ints, gpus: Ints, steps: Ints
) -> DurationEstimates:
    """Return the estimates with these completed tasks added (columns of equal length)."""
    total, count = estimates.total.copy(), estimates.count.copy()
    np.add.at(total, (kind, cpus, gpus), steps)
    np.add.at(count, (kind, cpus, gpus), 1)
    return DurationEstimates(total=total, count=count)


def merge(one: DurationEstimates, other: DurationEstimates) -> DurationEstimates:
    """Return the estimates of two clusters together, if neither has those of the other yet."""
    return DurationEstimates(total=one.total + other.total, count=one.count + other.count)


def estimate_durations(estimates: DurationEstimates, minimum: Ints) -> Floats:
    """Estimate the steps of every kind and size; ``inf`` below the minimum."""
    kinds, wide, high = estimates.total.shape
    gpus = np.arange(high)
    inverse = 1.0 / np.maximum(gpus, 1)
    curve = np.tile(PRIOR_BASE + PRIOR_WORK * inverse, (kinds, 1))
    for kind in range(kinds):
        fitted = _fit_curve(estimates.total[kind].sum(axis=0), estimates.count[kind].sum(axis=0), inverse)
        if fitted is not None:
            curve[kind] = fitted
    curve = np.maximum(curve, DURATION_LEAST)[:, None, :]
    steps = (estimates.total + CURVE_WEIGHT * curve) / (estimates.count + CURVE_WEIGHT)
    c = np.arange(wide)[None, :, None]
    dead = (c < minimum[:, 0, None, None]) | (gpus < minimum[:, 1, None, None])
    return np.where(dead, np.inf, steps)


def _fit_curve(total: Floats, count: Ints, inverse: Floats) -> Floats | None:
    """Fit ``a + b / GPUs`` to the completed tasks of a kind; None before there are two sizes."""
    if np.count_nonzero(count) < 2 or count.sum() < OBSERVED_MIN:
        return None
    weight = count.astype(np.float64)
    mean = total / np.maximum(count, 1)
    mean_x = float((weight * inverse).sum() / weight.sum())
    mean_y = float((weight * mean).sum() / weight.sum())
    spread = float((weight * (inverse - mean_x) ** 2).sum())
    slope = max(float((weight * (inverse - mean_x) * (mean - mean_y)).sum()) / spread, 0.0)
    return np.asarray(mean_y + slope * (inverse - mean_x))
