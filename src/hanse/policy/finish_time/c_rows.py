"""Sums of run times and of crowding, compiled: ctypes wrappers of ``duration_table.c`` and ``crowding.c``.

The functions have the meaning of those of the same name in ``duration_rows`` and ``crowding_sums``.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np

from hanse.policy.finish_time.crowding_sums import CrowdedTask, CrowdingSizes
from hanse.policy.finish_time.duration_rows import answer_words, row_words
from hanse.policy.kernels import Floats
from hanse.policy.kernels.c_kernels import open_function

_add: Final = open_function("hanse_duration_add", "aidiaaadd")
_solve: Final = open_function("hanse_duration_solve", "aidaa")
_seconds: Final = open_function("hanse_duration_seconds", "aidda")
_add_crowded: Final = open_function("hanse_crowding_add", "aaadiaaa")
_solve_crowded: Final = open_function("hanse_crowding_solve", "aada")


def _address(values: "array[int] | array[float]") -> int:
    return values.buffer_info()[0]


def _check(values: Floats, words: int) -> None:
    assert values.dtype == np.float64, f"sums of {values.dtype}"
    assert values.shape == (words,), f"shape {values.shape} in place of {words} words"
    assert values.flags.c_contiguous, "sums are read in order"


def add_job(
    row: Floats, classes: int, decay: float, tasks: Sequence[tuple[int, float, float]], actual: float,
    predicted: float,
) -> None:  # fmt: skip
    """Add an ended job: see ``duration_rows.add_job``."""
    _check(row, row_words(classes))
    assert all(0 <= task[0] < classes for task in tasks), "a class that is not there"
    at, log_seconds, sizes = (array(kind, (task[i] for task in tasks)) for i, kind in enumerate("qdd"))
    _add(row.ctypes.data, classes, decay, len(tasks), _address(at), _address(log_seconds), _address(sizes),
         actual, predicted)  # fmt: skip


def solve_row(row: Floats, classes: int, spread: float, above: Floats) -> Floats:
    """Return the answer of a row: see ``duration_rows.solve_row``."""
    _check(row, row_words(classes))
    _check(above, answer_words(classes))
    answer = np.empty(answer_words(classes))
    _solve(row.ctypes.data, classes, spread, above.ctypes.data, answer.ctypes.data)
    return answer


def find_seconds(answer: Floats, classes: int, size: float, estimate: float = 0.0) -> Floats:
    """Return the expected seconds of a task on each class: see ``duration_rows.find_seconds``."""
    _check(answer, answer_words(classes))
    seconds = np.empty(classes)
    _seconds(answer.ctypes.data, classes, size, estimate, seconds.ctypes.data)
    return seconds


def add_crowded_job(
    row: Floats, answer: Floats, sizes: CrowdingSizes, label: int, decay: float, tasks: Sequence[CrowdedTask]
) -> None:
    """Add an ended job: see ``crowding_sums.add_crowded_job``."""
    _check(row, sizes.row_words)
    _check(answer, sizes.parameters)
    assert all(0 <= task.node_class < sizes.classes for task in tasks), "a class that is not there"
    assert all(len(task.shares) == sizes.labels for task in tasks), "shares of other labels"
    call = array("q", (sizes.labels, sizes.classes, label))
    at = array("q", (task.node_class for task in tasks))
    log_seconds = array("d", (task.log_seconds for task in tasks))
    shares = array("d", (share for task in tasks for share in task.shares))
    _add_crowded(row.ctypes.data, answer.ctypes.data, _address(call), decay, len(tasks), _address(at),
                 _address(log_seconds), _address(shares))  # fmt: skip


def solve_crowding(row: Floats, sizes: CrowdingSizes, variance: float, answer: Floats) -> Floats:
    """Return the answer of a row: see ``crowding_sums.solve_crowding``."""
    _check(row, sizes.row_words)
    _check(answer, sizes.parameters)
    found = answer.copy()
    call = array("q", (sizes.labels, sizes.classes, 0))
    _solve_crowded(row.ctypes.data, _address(call), variance, found.ctypes.data)
    return found
