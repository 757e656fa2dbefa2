"""Sums of ended jobs, and what they say about run times: a mixed model with additive sums.

A task ``i`` of a job runs, without slow-down by its neighbours, for ``exp(y_i)`` seconds::

    y_i = level + slope * size_i + contrast[class_i] + u + e_i

``u`` is the same for all tasks of the job (its amount of work), ``e_i`` is the task's own; the variance of
``u`` is JOB_TO_TASK_VARIANCE times that of ``e``. So classes are compared above all within jobs: a fast class
does not look slow because long jobs went there, nor a slow one fast because only short jobs have ended there.

With ``X`` one line per task (1, size, a 1 at its class), and ``V = I + phi * 1 1'``, a job adds
``X' V^-1 X`` and ``X' V^-1 y`` to a row. Rows of several members are added up; they name no user. An *answer*
solves a row with ridges around the answer of the level above (kind -> kind of work -> all work): a class
without a comparison keeps the contrast of the level above. The level itself is shrunk by the number of jobs.

A row: the lower triangle of the matrix, the right side, and six scalars. An answer: level, slope, contrasts,
then variance of ``e``, ratio of seconds to predicted seconds, and the number of jobs. Operations stand in the
order of ``duration_table.c``, so both are equal to the bit.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hanse.policy.finish_time.exact_math import exact_exp, exact_log, packed, solve_packed
from hanse.policy.kernels import Floats

JOB_TO_TASK_VARIANCE: Final = 4.0
"""Variance of the logarithm of run time between jobs of a kind, over that between tasks of a job."""
SLOPE_SPREAD: Final = 0.3
"""Standard deviation of slopes (by the logarithm of the size) between rows of a level."""
LEVEL_SPREAD: Final = 1.0
"""Standard deviation of levels between rows of a level: a factor of 2.7."""
VARIANCE_TASKS: Final = 20.0
"""Tasks that the variance of the level above counts as."""
RATIO_JOBS: Final = 5.0
"""Jobs that the ratio of the level above counts as."""
ESTIMATE_JOBS: Final = 3.0
"""Jobs of its kind that a submitter's estimate counts as."""
FLAT: Final = 1e-9
"""Ridge of a level before it is shrunk: none to speak of."""

LEVEL: Final = 0
SLOPE: Final = 1
CLASSES: Final = 2
"""Places of an answer: the contrasts from here on."""
TASKS, JOBS, LEVEL_INFORMATION, SQUARES, ACTUAL, PREDICTED = range(6)
"""Scalars of a row."""
VARIANCE, RATIO, EVIDENCE = range(3)
"""Scalars of an answer, after its contrasts."""


def row_words(classes: int) -> int:
    """Return the size of a row of sums."""
    size = classes + CLASSES
    return packed(size, 0) + size + 6


def answer_words(classes: int) -> int:
    """Return the size of an answer."""
    return classes + CLASSES + 3


def add_job(
    row: Floats, classes: int, decay: float, tasks: Sequence[tuple[int, float, float]], actual: float,
    predicted: float,
) -> None:  # fmt: skip
    """Add an ended job: class, log seconds and size of each task, and the means of its seconds as they were
    and as the answer without its ratio predicted them. All earlier sums are multiplied by ``decay`` first."""
    size = classes + CLASSES
    words = [word * decay for word in row.tolist()]
    matrix, right, scalars = words, packed(size, 0), packed(size, 0) + size
    sums = [0.0] * size
    total = squares = 0.0
    for at, y, x in tasks:
        own = CLASSES + at
        sums[LEVEL] += 1.0
        sums[SLOPE] += x
        sums[own] += 1.0
        total += y
        squares += y * y
        matrix[packed(SLOPE, SLOPE)] += x * x
        matrix[packed(own, SLOPE)] += x
        words[right + SLOPE] += x * y
        words[right + own] += y
    weight = JOB_TO_TASK_VARIANCE / (1.0 + sums[LEVEL] * JOB_TO_TASK_VARIANCE)
    words[right + LEVEL] += total
    for i in range(size):
        line = packed(i, 0)
        matrix[line + LEVEL] += sums[i]
        if i >= CLASSES:
            matrix[line + i] += sums[i]
        for j in range(i + 1):
            matrix[line + j] -= weight * sums[i] * sums[j]
        words[right + i] -= weight * sums[i] * total
    words[scalars + TASKS] += sums[LEVEL]
    words[scalars + JOBS] += 1.0
    words[scalars + LEVEL_INFORMATION] += sums[LEVEL] / (1.0 + sums[LEVEL] * JOB_TO_TASK_VARIANCE)
    words[scalars + SQUARES] += squares - weight * total * total
    words[scalars + ACTUAL] += actual
    words[scalars + PREDICTED] += predicted
    row[:] = words


def solve_row(row: Floats, classes: int, spread: float, above: Floats) -> Floats:
    """Return the answer of a row. ``spread``: standard deviation of contrasts between rows of this level."""
    size = classes + CLASSES
    words, prior = row.tolist(), above.tolist()
    matrix, right, scalars = words[: packed(size, 0)], words[packed(size, 0) :][:size], words[-6:]
    if not scalars[JOBS] > 0.0:
        return np.array([*prior[:-1], 0.0])
    variance = prior[size + VARIANCE]
    system, wanted = list(matrix), list(right)
    for i in range(size):
        width = SLOPE_SPREAD if i == SLOPE else spread
        ridge = FLAT if i == LEVEL else variance / (width * width)
        system[packed(i, i)] += ridge
        wanted[i] = right[i] + ridge * prior[i]
    answer = solve_packed(system, wanted)
    rest = _find_rest(matrix, right, answer, scalars[SQUARES])
    left = (VARIANCE_TASKS * variance + rest) / (VARIANCE_TASKS + scalars[TASKS])
    middle = matrix[packed(SLOPE, LEVEL)] / matrix[packed(LEVEL, LEVEL)]
    level = answer[LEVEL] + answer[SLOPE] * middle
    expected = prior[LEVEL] + prior[SLOPE] * middle
    weight = variance / (LEVEL_SPREAD * LEVEL_SPREAD)
    information = scalars[LEVEL_INFORMATION]
    answer[LEVEL] = (information * level + weight * expected) / (information + weight) - answer[
        SLOPE
    ] * middle
    mass = RATIO_JOBS * (scalars[PREDICTED] / scalars[JOBS])
    ratio = (scalars[ACTUAL] + mass * prior[size + RATIO]) / (scalars[PREDICTED] + mass)
    return np.array([*answer, left, ratio, scalars[JOBS]])


def _find_rest(matrix: list[float], right: list[float], answer: list[float], squares: float) -> float:
    """Return the weighted sum of squares that an answer leaves unexplained."""
    rest = squares
    for i, value in enumerate(answer):
        total = 0.0
        for j, other in enumerate(answer):
            total = total + matrix[packed(i, j) if i >= j else packed(j, i)] * other
        rest = rest + value * (total - 2.0 * right[i])
    return max(rest, 0.0)


def find_seconds(answer: Floats, classes: int, size: float, estimate: float = 0.0) -> Floats:
    """Return the expected seconds of a task alone on each class. ``size``: see ``size_of``; ``estimate``: the
    submitter's, in seconds; 0: none."""
    words = answer.tolist()
    contrast = words[CLASSES:][:classes]
    jobs, ratio = words[CLASSES + classes + EVIDENCE], words[CLASSES + classes + RATIO]
    level = words[LEVEL] + words[SLOPE] * size
    if estimate > 0.0:
        mean = 0.0
        for each in contrast:
            mean = mean + each
        stated = exact_log(estimate) - exact_log(ratio) - mean / classes
        level = (ESTIMATE_JOBS * stated + jobs * level) / (ESTIMATE_JOBS + jobs)
    return np.array([ratio * exact_exp(level + each) for each in contrast])
