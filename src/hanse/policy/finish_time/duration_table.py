"""Learned run times by kind and node class: rows of sums for kinds, kinds of work, and all work together.

``duration_rows`` explains the model. An answer of a kind is shrunk towards that of its kind of work, which is
shrunk towards that of all work, so little history never does worse than the level above. Where constants of
the hardware are declared, the kinds of work start from them instead of from all work.

A job is counted at its end, once, with all its tasks: the tasks that end first are the short ones, and would
tell the wrong story (the fast class gets them, or the slow one is left with the long ones).

Sums name no user: a kind is a number or a keyed hash. Tables of several members are added up.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from hanse.policy.finish_time import c_rows, duration_rows
from hanse.policy.finish_time.duration_rows import CLASSES, JOB_TO_TASK_VARIANCE, VARIANCE
from hanse.policy.finish_time.exact_math import exact_log
from hanse.policy.kernels import BACKEND, Floats

_kernels: Final = c_rows if BACKEND == "native" else duration_rows

KINDS_MAX: Final = 1_000
"""Kinds kept. The kind that was longest without an end of a job is dropped first."""
WORKS_MAX: Final = 250
"""Kinds of work kept, in the same way: whoever names jobs could invent any number of them."""
CLASSES_MAX: Final = 64
"""Node classes of a table: 18 KB of sums a kind."""
NO_KIND: Final = -1
"""Kind of a job without history: its kind of work stands for it."""
HALF_LIFE_JOBS: Final = 2_000
"""Jobs of a row after which an older one counts half: machines and programs change."""
FIRST_SECONDS: Final = 60.0
"""Expected run time before anything has ended."""
FIRST_VARIANCE: Final = 0.1
"""Variance of a task's logarithm before anything has ended."""
SECONDS_MIN: Final = 1e-3
"""Shorter run times count as this."""
SIZE_UNIT: Final = 1 << 20
"""Bytes of input from which on size matters."""
OFF_MAX: Final = 20.0
"""Most by which a job's mean may exceed the prediction, so that one job does not set the scale."""

ALL, WORK, KIND = range(3)
"""Levels of rows."""
SPREADS: Final = (0.5, 0.4, 0.2)
"""Standard deviation of contrasts between rows, by level."""

RowKey = tuple[int, int]
"""Level, and number on it: 0, the kind of work, the kind."""


class EndedTask(msgspec.Struct, frozen=True):
    """Task of an ended job."""

    node_class: int
    seconds: float
    """Run time without the transfer."""
    slow_down: float = 1.0
    """Estimated slow-down by neighbours, averaged over the run."""
    input_bytes: float = 0.0


def size_of(input_bytes: float) -> float:
    """Return the size of an input as the model takes it: a logarithm, 0 for none."""
    return exact_log(1.0 + max(input_bytes, 0.0) / SIZE_UNIT)


def decay_of(half_life: float) -> float:
    """Return the factor of one job for this half-life in jobs; 0: nothing fades."""
    return float(2.0 ** (-1.0 / half_life)) if half_life else 1.0


class DurationTable:
    """Table of one member."""

    def __init__(
        self,
        classes: int,
        constants: Mapping[int, Sequence[float]] | None = None,
        half_life: float = HALF_LIFE_JOBS,
        kinds_max: int = KINDS_MAX,
        spreads: tuple[float, float, float] = SPREADS,
    ) -> None:
        """``constants``: by kind of work, declared speed of each class, greater than 0; ``spreads``: standard
        deviations of contrasts between the rows of each level."""
        assert 0 < classes <= CLASSES_MAX, f"{classes} node classes"
        self.classes = classes
        self.rows: dict[RowKey, Floats] = {}
        """Sums, the latest changed last."""
        self._decay = decay_of(half_life)
        self._kinds_max, self._spreads = kinds_max, spreads
        self._constants = {
            work: [-exact_log(speed) for speed in speeds] for work, speeds in (constants or {}).items()
        }
        self._no_row = np.zeros(duration_rows.row_words(classes))
        self._answers: dict[tuple[int, int], list[Floats]] = {}
        """Cache of answers by kind of work and kind, from the general one on; dropped with every change."""

    def add_job(self, work: int, kind: int, tasks: Sequence[EndedTask]) -> None:
        """Count a job that has ended, by its tasks that succeeded."""
        if not tasks:
            return
        lines = [
            (
                task.node_class,
                exact_log(max(task.seconds, SECONDS_MIN)) - exact_log(task.slow_down),
                size_of(task.input_bytes),
            )
            for task in tasks
        ]
        actual = 0.0
        for task in tasks:
            actual = actual + max(task.seconds, SECONDS_MIN) / task.slow_down
        actual = actual / len(tasks)
        predicted = [self._predict(answer, lines) for answer in self._solve_chain(work, kind)]
        for key, seconds in zip(_chain(work, kind), predicted, strict=True):
            row = self.rows.pop(key, None)
            if row is None:
                row = np.zeros(duration_rows.row_words(self.classes))
            _kernels.add_job(row, self.classes, self._decay, lines, min(actual, OFF_MAX * seconds), seconds)
            self.rows[key] = row
        self._answers.clear()
        self._forget()

    def answer(self, work: int, kind: int) -> Floats:
        """Return the answer for a kind; ``NO_KIND``: for its kind of work. Read only."""
        return self._solve_chain(work, kind)[-1]

    def _solve_chain(self, work: int, kind: int) -> list[Floats]:
        """Return the answers of a kind's rows, from the general one on."""
        answers = self._answers.get((work, kind))
        if answers is None:
            answers, above = [], self._first_answer()
            for key in _chain(work, kind):
                if key[0] == WORK and work in self._constants:
                    above[CLASSES : CLASSES + self.classes] = self._constants[work]
                row = self.rows.get(key)
                if row is None:
                    row = self._no_row
                found = _kernels.solve_row(row, self.classes, self._spreads[key[0]], above)
                answers.append(found)
                above = found.copy()
            self._answers[work, kind] = answers
        return answers

    def find_seconds(self, work: int, kind: int, input_bytes: float = 0.0, estimate: float = 0.0) -> Floats:
        """Return the expected seconds of a task alone on each class: its arithmetic mean.

        ``estimate``: the submitter's, in seconds; 0: none.
        """
        answer = self.answer(work, kind)
        seconds: Floats = _kernels.find_seconds(answer, self.classes, size_of(input_bytes), estimate)
        return seconds

    def find_contrasts(self, work: int, kind: int) -> list[float]:
        """Return the logarithm of the run time on each class, up to a constant."""
        contrasts: list[float] = self.answer(work, kind)[CLASSES : CLASSES + self.classes].tolist()
        return contrasts

    def find_spread(self, work: int, kind: int) -> float:
        """Return the standard deviation of the logarithm of a task's run time about its expectation."""
        variance = float(self.answer(work, kind)[CLASSES + self.classes + VARIANCE])
        return float((variance * (1.0 + JOB_TO_TASK_VARIANCE)) ** 0.5)

    def merge(self, others: Iterable["DurationTable"]) -> "DurationTable":
        """Return a table with the sums of this one and others added up; the most used kinds stay."""
        merged = DurationTable(self.classes, None, 0, self._kinds_max, self._spreads)
        merged._constants, merged._decay = self._constants, self._decay
        for table in (self, *others):
            assert table.classes == self.classes, "tables of other classes"
            for key, row in table.rows.items():
                known = merged.rows.pop(key, None)
                merged.rows[key] = row.copy() if known is None else known + row
        merged._forget()
        return merged

    def _predict(self, answer: Floats, lines: Sequence[tuple[int, float, float]]) -> float:
        """Return the mean of the tasks' seconds as an answer without its ratio predicts them."""
        bare = answer.copy()
        bare[CLASSES + self.classes + duration_rows.RATIO] = 1.0
        total = 0.0
        for at, _, size in lines:
            total = total + float(_kernels.find_seconds(bare, self.classes, size)[at])
        return total / len(lines)

    def _first_answer(self) -> Floats:
        """Return the answer before anything has ended."""
        none = [0.0] * self.classes
        return np.array([exact_log(FIRST_SECONDS), 0.0, *none, FIRST_VARIANCE, 1.0, 0.0])

    def _forget(self) -> None:
        """Drop the kinds, and the kinds of work, that were longest without an end."""
        if len(self.rows) <= min(self._kinds_max, WORKS_MAX):
            return
        for level, most in ((KIND, self._kinds_max), (WORK, WORKS_MAX)):
            kinds = [key for key in self.rows if key[0] == level]
            for key in kinds[: max(0, len(kinds) - most)]:
                del self.rows[key]


def _chain(work: int, kind: int) -> list[RowKey]:
    """Return the rows of a job, from the general one to its own."""
    return [(ALL, 0), (WORK, work), *([(KIND, kind)] if kind != NO_KIND else [])]
