"""Speed of a task of each kind by CPUs and GPUs, and its duration without noise.

A task's progress runs from 0 to 1. One step adds ``rate * sqrt(1.2 - progress) + base`` (plus noise), where
``rate`` and ``base`` are those of the task's kind and size in the table. The square root makes sensitive
tasks slow down as they converge; tables read from measurements use ``base`` alone.
"""

import csv
import io
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import Flags, Floats, Ints

CONVERGENCE: Final = 1.2
"""Constant under the root: at progress 1 a sensitive task still advances at sqrt(0.2) of its rate."""

DURATION_MAX: Final = 1_000
"""Steps after which a noise-free task counts as never done."""


class SpeedTable(msgspec.Struct, frozen=True, eq=False):
    """Speeds of every kind at every size. Axes: kind, CPUs 0..C, GPUs 0..G."""

    names: tuple[str, ...]
    minimum: Ints
    """(K, 2) least CPUs and GPUs; below it a task makes no progress."""
    rate: Floats
    """(K, C+1, G+1) progress per step before the convergence factor."""
    base: Floats
    """(K, C+1, G+1) progress per step regardless of convergence."""
    noisy: Flags
    """(K,) True if the environment's noise applies."""

    @property
    def limit(self) -> tuple[int, int]:
        """Largest size of a single task: CPUs, GPUs."""
        return self.rate.shape[1] - 1, self.rate.shape[2] - 1


def below_minimum(minimum: Ints, cpus: int, gpus: int) -> Flags:
    """Return flags over (kind, CPUs, GPUs) of the sizes at which nothing runs."""
    c = np.arange(cpus + 1)[None, :, None]
    g = np.arange(gpus + 1)[None, None, :]
    return np.asarray((c < minimum[:, 0, None, None]) | (g < minimum[:, 1, None, None]))


def make_speed_table(
    names: tuple[str, ...], minimum: Ints, rate: Floats, base: Floats, noisy: Flags
) -> SpeedTable:
    """Return a speed table without progress at the sizes below the minimum."""
    dead = below_minimum(minimum, rate.shape[1] - 1, rate.shape[2] - 1)
    return SpeedTable(
        names=names,
        minimum=minimum,
        rate=np.where(dead, 0.0, rate),
        base=np.where(dead, 0.0, base),
        noisy=noisy,
    )


def synthetic_speeds() -> SpeedTable:
    """Return the two synthetic kinds of source 002: one ignores its size, one depends on GPUs."""
    shape = (2, 17, 17)
    rate, base = np.zeros(shape), np.zeros(shape)
    base[0] = 0.25
    rate[1] = np.tanh(np.arange(17) / 16.0)[None, :]
    return make_speed_table(
        ("insensitive", "sensitive"),
        np.array([[2, 1], [2, 1]], dtype=np.int64),
        rate,
        base,
        np.array([True, True]),
    )


def short_and_long_speeds() -> SpeedTable:
    """Return source 002's workload in which only order counts: 1 and 10 steps, (3, 3) each, no gain.

    Ten times 0.1 is a hair less than 1 in binary, so the long kind takes 11 steps where the environment
    equals the published one and 10 in the corrected mode, which allows for rounding.
    """
    shape = (2, 17, 17)
    base = np.zeros(shape)
    base[0], base[1] = 1.0, 0.1
    minimum = np.array([[3, 3], [3, 3]], dtype=np.int64)
    return make_speed_table(("short", "long"), minimum, np.zeros(shape), base, np.array([True, True]))


Shape = tuple[float, float, float, float, float]
"""Work, gain, sync, starve and feed of one kind of the test-bed's shape; see :func:`bench_speeds`."""

BENCH_SHAPES: Final[tuple[Shape, ...]] = (
    (68.5, 0.70, 3.1, 11.3, 0.88),
    (283.0, 0.62, 0.0, 4.6, 1.29),
    (19.2, 0.0, 0.0, 0.0, 1.0),
)
"""Hanse's fit to the test-bed: vision, language, speech."""


def bench_speeds(step_seconds: float = 10.0, shapes: tuple[Shape, ...] = BENCH_SHAPES) -> SpeedTable:
    """Return kinds of the shape of source 002's test-bed, 17 x 9 sizes: a smooth fit, not the authors' rows.

    Seconds at c CPUs and g GPUs are ``work / g**gain + sync * g + starve * lack * sqrt(g / c)`` with ``lack =
    softplus(2 (g - feed * c)) / 2``: too few CPUs for the GPUs make a task slower than it was with fewer
    GPUs.
    """
    c, g = np.meshgrid(np.arange(1.0, 17), np.arange(1.0, 9), indexing="ij")
    base = np.zeros((len(shapes), 17, 9))
    for kind, (work, gain, sync, starve, feed) in enumerate(shapes):
        lack = np.logaddexp(0.0, 2.0 * (g - feed * c)) / 2.0
        base[kind, 1:, 1:] = step_seconds / (work / g**gain + sync * g + starve * lack * np.sqrt(g / c))
    minimum = np.array([[2, 1]] * len(shapes), dtype=np.int64)
    names = ("vision", "language", "speech", *(f"kind {kind}" for kind in range(3, len(shapes))))
    # the third kind of the test-bed does not depend on its size, and has no noise there
    noisy = np.array([gain > 0 for _, gain, _, _, _ in shapes])
    return make_speed_table(names[: len(shapes)], minimum, np.zeros_like(base), base, noisy)


def durations(speeds: SpeedTable, tolerance: float = 0.0) -> Floats:
    """Return noise-free steps to completion, shape (K, C+1, G+1); ``inf`` where the task would not finish."""
    progress = np.zeros_like(speeds.rate)
    steps = np.full(speeds.rate.shape, np.inf)
    for step in range(1, DURATION_MAX + 1):
        gain = speeds.rate * np.sqrt(np.maximum(CONVERGENCE - progress, 0.0)) + speeds.base
        progress = progress + np.maximum(gain, 0.0)
        steps = np.where((progress >= 1.0 - tolerance) & np.isinf(steps), step, steps)
        if not (np.isinf(steps) & (gain > 0)).any():
            break
    return steps


def from_csv(text: str, *, step_seconds: float, minimum: tuple[int, int] = (1, 1)) -> SpeedTable | str:
    """Return a speed table from measured run times, or a sentence why the file cannot be used.

    Columns ``kind,cpus,gpus,seconds`` with a header line; repeated rows are averaged; sizes that were not
    measured take the speed of the nearest smaller measured size (what the task would get if it left the
    surplus idle).
    """
    sums: dict[tuple[str, int, int], tuple[float, int]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        try:
            key = (row["kind"].strip(), int(row["cpus"]), int(row["gpus"]))
            seconds = float(row["seconds"])
        except (KeyError, TypeError, ValueError):
            return f"line {number}: expected kind,cpus,gpus,seconds, got {list(row.values())}"
        if seconds <= 0 or min(key[1:]) < 0 or max(key[1:]) > SIZE_MAX:
            return f"line {number}: seconds must be positive and sizes within 0..{SIZE_MAX}"
        total, count = sums.get(key, (0.0, 0))
        sums[key] = (total + seconds, count + 1)
    if not sums:
        return "the table has no rows"
    names = tuple(sorted({kind for kind, _, _ in sums}))
    cpus, gpus = max(c for _, c, _ in sums), max(g for _, _, g in sums)
    base = np.zeros((len(names), cpus + 1, gpus + 1))
    for (kind, c, g), (total, count) in sorted(sums.items()):
        base[names.index(kind), c, g] = step_seconds * count / total
    _fill_from_smaller(base)
    if (base.max(axis=(1, 2)) <= 0).any():
        return "every kind needs at least one measured size"
    least = np.tile(np.array(minimum, dtype=np.int64), (len(names), 1))
    return make_speed_table(names, least, np.zeros_like(base), base, np.full(len(names), True))


SIZE_MAX: Final = 256
"""Largest CPUs or GPUs of one task in a user's table."""


def _fill_from_smaller(base: Floats) -> None:
    """Give each unmeasured size the better speed of its two smaller neighbours, in place."""
    _, cpus, gpus = base.shape
    for c in range(cpus):
        for g in range(gpus):
            left = base[:, c - 1, g] if c else 0.0
            below = base[:, c, g - 1] if g else 0.0
            base[:, c, g] = np.where(base[:, c, g] > 0, base[:, c, g], np.maximum(left, below))
