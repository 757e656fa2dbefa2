"""Model of what neighbours cost a task, from additive sums: a slow-down of a form that nobody knows before.

A node that runs tasks has, for each kind of work (*label*), a share of its cores. The slow-down of a task of
a label ``k`` on a node class ``q`` is taken to be::

    1 + sensitivity[k] * bend(pressure),   pressure = sum(press[l] * share[l]) / strength[q]

``bend`` rises piecewise with slopes that add up at KNOTS; it is convex, as contention is until all is lost.
Slopes, sensitivities, pressures and strengths are all learned. Only tasks of one job are compared, by the
logarithm of their run times over what the table expects: a long job is not a crowded one.

The model is not linear, so a job adds its linearised normal equations at the present answer (Gauss-Newton),
and the answer is sought by a few sweeps over its parameters, each kept within bounds: bad data cannot blow it
up. Ridges pull slopes to 0 (no slow-down), the others to 1 (all kinds and classes alike). Old sums fade, as
they were linearised elsewhere. Sums of members add up; they name no user.

Operations stand in the order of ``crowding.c``, so both are equal to the bit.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from hanse.policy.finish_time.exact_math import exact_log, packed
from hanse.policy.kernels import KNOTS, Floats

LABELS_MAX: Final = 16
"""Kinds of work that are told apart; all others are the last one."""
SWEEPS: Final = 8
"""Sweeps over all parameters to seek an answer, each time from the one before."""
CLIP: Final = 1.5
"""Most by which a task may be off its job's mean, as a logarithm: one straggler does not decide."""
BEND: Final = len(KNOTS)
TASKS, JOBS = range(2)
"""Scalars of a row, after its matrix and its right side."""
_PRIORS: Final = ((0.0, 0.5, 0.0, 4.0), (1.0, 0.7, 0.0, 5.0), (1.0, 0.7, 0.0, 5.0), (1.0, 0.3, 0.4, 2.5))
"""Prior, spread, least and most of slopes, sensitivities, pressures, strengths."""


class CrowdingSizes(msgspec.Struct, frozen=True):
    """Numbers of labels and classes."""

    labels: int
    classes: int

    @property
    def parameters(self) -> int:
        """Parameters of an answer."""
        return BEND + 2 * self.labels + self.classes

    @property
    def row_words(self) -> int:
        """Size of a row of sums."""
        return packed(self.parameters, 0) + self.parameters + 2

    def group(self, parameter: int) -> int:
        """Return 0 for a slope, 1 for a sensitivity, 2 for a pressure, 3 for a strength."""
        bounds = (BEND, BEND + self.labels, BEND + 2 * self.labels)
        return sum(parameter >= bound for bound in bounds)


class CrowdedTask(msgspec.Struct, frozen=True):
    """Ended task and its neighbours."""

    node_class: int
    log_seconds: float
    """Logarithm of its run time over what the table expects."""
    shares: tuple[float, ...]
    """Shares of its node's cores by label, itself included, averaged over its run."""


def first_answer(sizes: CrowdingSizes) -> Floats:
    """Return the answer without any history: no slow-down."""
    return np.array([_PRIORS[sizes.group(i)][0] for i in range(sizes.parameters)])


def slow_down(
    answer: Sequence[float], sizes: CrowdingSizes, label: int, node_class: int, shares: Sequence[float]
) -> float:
    """Return the slow-down of a task, itself included in the shares: at least 1."""
    return _slow_down(answer, sizes, label, node_class, shares)[0]


def _slow_down(
    answer: Sequence[float], sizes: CrowdingSizes, label: int, node_class: int, shares: Sequence[float]
) -> tuple[float, float, float, float]:
    """Return the slow-down, the pressure, the bend and its slope there."""
    press = BEND + sizes.labels
    total = 0.0
    for at, share in enumerate(shares):
        total = total + answer[press + at] * share
    pressure = total / answer[press + sizes.labels + node_class]
    bent = rise = 0.0
    for at, knot in enumerate(KNOTS):
        if pressure > knot:
            bent = bent + answer[at] * (pressure - knot)
            rise = rise + answer[at]
    return 1.0 + answer[BEND + label] * bent, pressure, bent, rise


def _derive(
    answer: Sequence[float], sizes: CrowdingSizes, label: int, task: CrowdedTask
) -> tuple[list[tuple[int, float]], float, float]:
    """Return the derivatives of the logarithm of the slow-down, that logarithm, and their product with the
    answer."""
    slow, pressure, bent, rise = _slow_down(answer, sizes, label, task.node_class, task.shares)
    own, strength = BEND + label, BEND + 2 * sizes.labels + task.node_class
    by_pressure = answer[own] * rise / slow
    lines = []
    for at, knot in enumerate(KNOTS):
        beyond = pressure - knot
        lines.append((at, answer[own] * beyond / slow if beyond > 0.0 else 0.0))
    lines.append((own, bent / slow))
    for at, share in enumerate(task.shares):
        lines.append((BEND + sizes.labels + at, by_pressure * share / answer[strength]))
    lines.append((strength, -(by_pressure * pressure / answer[strength])))
    product = 0.0
    for at, value in lines:
        product = product + value * answer[at]
    return lines, exact_log(slow), product


def add_crowded_job(
    row: Floats, answer: Floats, sizes: CrowdingSizes, label: int, decay: float, tasks: Sequence[CrowdedTask]
) -> None:
    """Add an ended job, linearised at the answer; a job of one task has nothing to compare."""
    if len(tasks) < 2:
        return
    size = sizes.parameters
    believed = answer.tolist()
    words = [word * decay for word in row.tolist()]
    right, scalars = packed(size, 0), packed(size, 0) + size
    count = float(len(tasks))
    mean = 0.0
    for task in tasks:
        slow = slow_down(believed, sizes, label, task.node_class, task.shares)
        mean = mean + (task.log_seconds - exact_log(slow))
    mean = mean / count
    sums, total = [0.0] * size, 0.0
    for task in tasks:
        lines, logarithm, product = _derive(believed, sizes, label, task)
        off = task.log_seconds - logarithm - mean
        y = product + min(max(off, -CLIP), CLIP)
        total = total + y
        for at, (i, value) in enumerate(lines):
            sums[i] += value
            words[right + i] += value * y
            for j, other in lines[: at + 1]:
                words[packed(i, j)] += value * other
    for i in range(size):
        for j in range(i + 1):
            words[packed(i, j)] -= sums[i] * sums[j] / count
        words[right + i] -= sums[i] * total / count
    words[scalars + TASKS] += count
    words[scalars + JOBS] += 1.0
    row[:] = words


def solve_crowding(row: Floats, sizes: CrowdingSizes, variance: float, answer: Floats) -> Floats:
    """Return the answer of a row, sought from the present one on. ``variance``: of a task's logarithm."""
    words, found, size = row.tolist(), answer.tolist(), sizes.parameters
    right = packed(size, 0)
    for _ in range(SWEEPS):
        for i in range(size):
            prior, spread, least, most = _PRIORS[sizes.group(i)]
            ridge = variance / (spread * spread)
            total = words[right + i] + ridge * prior
            for j in range(size):
                if j != i:
                    total = total - words[packed(i, j) if j < i else packed(j, i)] * found[j]
            found[i] = min(max(total / (words[packed(i, i)] + ridge), least), most)
    return np.array(found)
