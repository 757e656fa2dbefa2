"""Learned slow-down by neighbours: one table of sums for a member, its answer, and the price of a neighbour.

``crowding_sums`` explains the model. What a league can know goes in: the kinds of work on a node, their
cores, and the node's class. A job is counted at its end. Sums of members add up.

What a task costs its neighbours is charged to it: each of them, with ``sensitivity * seconds`` to lose, is
slowed down by as much more as the bend rises under the new pressure. The kernels of finish time do that sum.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from hanse.policy.finish_time import c_rows, crowding_sums
from hanse.policy.finish_time.crowding_sums import BEND, CrowdedTask, CrowdingSizes, first_answer
from hanse.policy.finish_time.duration_table import decay_of
from hanse.policy.kernels import BACKEND, Floats

_kernels: Final = c_rows if BACKEND == "native" else crowding_sums

CROWDING_HALF_LIFE_JOBS: Final = 3_000
"""Jobs after which an older one counts half: it was linearised at an older answer."""
SOLVE_JOBS: Final = 16
"""Ended jobs between two answers."""


class Crowding:
    """Learned slow-down of one member."""

    def __init__(
        self, labels: int, classes: int, variance: float = 0.1, half_life: float = CROWDING_HALF_LIFE_JOBS
    ) -> None:
        """``labels``: kinds of work, the last of which stands for all that are not told apart; ``variance``:
        of the logarithm of a task's run time within its job."""
        assert 0 < labels <= crowding_sums.LABELS_MAX, f"{labels} kinds of work"
        self.sizes = CrowdingSizes(labels, classes)
        self.variance = variance
        self.row = np.zeros(self.sizes.row_words)
        """Sums."""
        self.answer = first_answer(self.sizes)
        self._decay = decay_of(half_life)
        self._new = 0

    def add_job(self, work: int, tasks: Sequence[CrowdedTask]) -> bool:
        """Count an ended job; return True if the answer changed."""
        label = self.label_of(work)
        _kernels.add_crowded_job(self.row, self.answer, self.sizes, label, self._decay, tasks)
        self._new += 1
        if self._new < SOLVE_JOBS:
            return False
        self.solve()
        return True

    def solve(self, others: Iterable[Floats] = ()) -> None:
        """Seek the answer anew, from the own sums and those of other members."""
        row = self.row
        for other in others:
            row = row + other
        self.answer = _kernels.solve_crowding(row, self.sizes, self.variance, self.answer)
        self._new = 0

    def label_of(self, work: int) -> int:
        """Return the label that stands for a kind of work."""
        return min(work, self.sizes.labels - 1)

    def slow_down(self, work: int, node_class: int, shares: Sequence[float]) -> float:
        """Return the slow-down of a task beside these shares of cores, itself included."""
        label = self.label_of(work)
        return crowding_sums.slow_down(self.answer.tolist(), self.sizes, label, node_class, shares)

    @property
    def slopes(self) -> Floats:
        """Amounts by which the slope rises at each knot."""
        return self.answer[:BEND]

    def sensitivity(self, work: int) -> float:
        """Return the sensitivity of a kind of work to pressure."""
        return float(self.answer[BEND + self.label_of(work)])

    def press(self, work: int) -> float:
        """Return the pressure of a kind of work for each core that it has."""
        return float(self.answer[BEND + self.sizes.labels + self.label_of(work)])

    def strength(self, node_class: int) -> float:
        """Return the strength of a node class against pressure, for each core."""
        return float(self.answer[BEND + 2 * self.sizes.labels + node_class])
