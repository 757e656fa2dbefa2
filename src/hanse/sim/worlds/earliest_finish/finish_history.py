"""What earliest-finish has learned: rows of the table of durations and of crowding, kept from run to run."""

import numpy as np

from hanse.policy.finish_time import duration_rows
from hanse.policy.finish_time.crowding_sums import CrowdingSizes, first_answer
from hanse.policy.finish_time.duration_table import FIRST_SECONDS, FIRST_VARIANCE
from hanse.policy.finish_time.exact_math import exact_log
from hanse.policy.kernels import Floats


class FinishHistory:
    """Sums and answers as columns: one row for all work, one for each kind of work, one for each kind."""

    def __init__(self, works: int, kinds: int, classes: int) -> None:
        self.works, self.kinds, self.classes = works, kinds, classes
        self.sizes = CrowdingSizes(works, classes)
        self.rows: Floats = np.zeros((1 + works + kinds, duration_rows.row_words(classes)))
        none = [0.0] * classes
        self.first_answer = np.array([exact_log(FIRST_SECONDS), 0.0, *none, FIRST_VARIANCE, 1.0, 0.0])
        self.crowding_row: Floats = np.zeros(self.sizes.row_words)
        self.crowding_answer = first_answer(self.sizes)

    def copy(self) -> "FinishHistory":
        """Return an independent copy."""
        twin = FinishHistory(self.works, self.kinds, self.classes)
        twin.rows[:], twin.crowding_row[:] = self.rows, self.crowding_row
        twin.crowding_answer[:] = self.crowding_answer
        return twin
