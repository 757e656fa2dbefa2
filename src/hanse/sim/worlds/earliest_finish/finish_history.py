"""History of earliest-finish: rows of the table of durations and of crowding, kept from run to run."""

import numpy as np

from hanse.policy.finish_time import duration_rows
from hanse.policy.finish_time.crowding import Crowding
from hanse.policy.finish_time.crowding_sums import CrowdingSizes, first_answer
from hanse.policy.finish_time.duration_table import (
    ALL,
    FIRST_SECONDS,
    FIRST_VARIANCE,
    KIND,
    WORK,
    DurationTable,
    RowKey,
)
from hanse.policy.finish_time.exact_math import exact_log
from hanse.policy.kernels import Floats
from hanse.sim.worlds.earliest_finish.finish_settings import CROWDING_VARIANCE, FinishSettings


class FinishHistory:
    """Sums and answers as columns: one row for all work, one for each kind of work, one for each kind."""

    def __init__(self, works: int, kinds: int, classes: int) -> None:
        self.works, self.kinds, self.classes = works, kinds, classes
        self.rows: Floats = np.zeros((1 + works + kinds, duration_rows.row_words(classes)))
        none = [0.0] * classes
        self.first_answer = np.array([exact_log(FIRST_SECONDS), 0.0, *none, FIRST_VARIANCE, 1.0, 0.0])
        sizes = CrowdingSizes(works, classes)
        self.crowding_row: Floats = np.zeros(sizes.row_words)
        self.crowding_answer = first_answer(sizes)

    def copy(self, kinds: int = 0) -> "FinishHistory":
        """Return an independent copy with room for at least so many kinds."""
        twin = FinishHistory(self.works, max(self.kinds, kinds), self.classes)
        twin.rows[: len(self.rows)], twin.crowding_row[:] = self.rows, self.crowding_row
        twin.crowding_answer[:] = self.crowding_answer
        return twin

    def make_table(self, settings: FinishSettings, speeds: list[list[float]]) -> DurationTable:
        """Return a table that works on the rows. ``speeds``: published ones, by kind of work and class."""
        constants = dict(enumerate(speeds)) if settings.constants else None
        table = DurationTable(
            self.classes, constants, kinds_max=1 + self.works + self.kinds, spreads=settings.spreads
        )
        for at, row in enumerate(self.rows):
            table.rows[self._key_of(at)] = row
        return table

    def _key_of(self, row: int) -> RowKey:
        """Return what the table calls a row."""
        if row == 0:
            return (ALL, 0)
        return (WORK, row - 1) if row <= self.works else (KIND, row - 1 - self.works)

    def make_crowding(self) -> Crowding:
        """Return a model of crowding that works on the row."""
        crowding = Crowding(self.works, self.classes, CROWDING_VARIANCE)
        crowding.row, crowding.answer = self.crowding_row, self.crowding_answer.copy()
        return crowding
