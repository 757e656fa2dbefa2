"""Ends of many tasks as columns of bytes: what costs the same whether neighbours ended alike or not.

A job's tasks are cut into stretches. One whose tasks all ended alike is a run of four numbers. Any other is a
column: a byte of state and a number of attempt for each task, copied by operations on the whole stretch. So a
million ends, no two neighbours alike, are a hundred and twenty-eight columns and not a million runs.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from hanse.core.broker.job_table import SUCCEEDED
from hanse.core.messaging.message_splitting import ENTRIES_MAX

STRETCH_TASKS: Final = ENTRIES_MAX
"""Tasks of a column at most: one message tells of one."""
WIDTHS: Final = (1, 4, 8)
"""Bytes that an attempt may take in a column, the same for all of them."""

EndRun = tuple[int, int, int, int]
"""First task, terminal state, attempt, and how many neighbours ended like it."""
EndColumn = tuple[int, bytes, bytes]
"""First task; each task's terminal state, 0 if it has not ended; each task's attempt, 0 if it never ran."""
Attempts = np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]
CutEnds = tuple[list[EndRun], list[EndColumn]]
"""All ends of a job."""

_LIVE: Final = bytes(range(SUCCEEDED))
_ENDED_ONLY: Final = bytes(value if value >= SUCCEEDED else 0 for value in range(256))


def has_ends(states: bytearray) -> bool:
    """Whether any of these tasks has ended."""
    return bool(states.translate(None, _LIVE))


def cut_ends(states: bytearray, attempts: list[int], ran: bytearray | None = None) -> CutEnds:
    """All ended tasks; ``ran``: of which the attempt counts (None: of all)."""
    runs: list[EndRun] = []
    columns: list[EndColumn] = []
    for at in range(0, len(states), STRETCH_TASKS):
        block = states[at : at + STRETCH_TASKS]
        if not has_ends(block):
            continue
        tries = attempts[at : at + STRETCH_TASKS]
        made = None if ran is None else ran[at : at + STRETCH_TASKS]
        alike = block.count(block[0]) == len(block) and tries.count(tries[0]) == len(tries)
        if alike and (made is None or made.count(made[0]) == len(made)):
            attempt = tries[0] if made is None or made[0] else 0
            _join(runs, (at, block[0], attempt, len(block)))
        else:
            columns.append((at, bytes(block.translate(_ENDED_ONLY)), _pack_attempts(block, tries, made)))
    return runs, columns


def _join(runs: list[EndRun], run: EndRun) -> None:
    """Add a run, to the last one if it continues that."""
    if runs:
        first, state, attempt, count = runs[-1]
        if (first + count, state, attempt) == run[:3]:
            runs[-1] = (first, state, attempt, count + run[3])
            return
    runs.append(run)


def _pack_attempts(states: bytearray, attempts: list[int], ran: bytearray | None) -> bytes:
    """The attempts of ended tasks, in as few bytes each as the highest takes."""
    values = np.array(attempts, dtype=np.int64)
    values[np.frombuffer(states, dtype=np.uint8) < SUCCEEDED] = 0
    if ran is not None:
        values[np.frombuffer(ran, dtype=np.uint8) == 0] = 0
    highest = int(values.max())
    width = next(width for width in WIDTHS if highest < 1 << (8 * width - 1))
    return values.astype(f"<u{width}").tobytes()


def attempts_of(column: EndColumn) -> list[int]:
    """The attempts that a column tells."""
    return _attempts(column).tolist()


def find_have_run(column: EndColumn) -> bytes:
    """Which tasks of a column have run: 1, else 0."""
    return (_attempts(column) > 0).tobytes()


def _attempts(column: EndColumn) -> Attempts:
    _, states, attempts = column
    return np.frombuffer(attempts, dtype=f"<u{len(attempts) // len(states)}")


def is_column(column: EndColumn) -> bool:
    """Whether bytes that somebody sent are a column: of lengths that belong together, with ends only."""
    _, states, attempts = column
    if not 0 < len(states) <= STRETCH_TASKS:
        return False
    if len(attempts) not in [width * len(states) for width in WIDTHS]:
        return False
    if len(attempts) == WIDTHS[-1] * len(states) and int(np.frombuffer(attempts, "<u8").max()) >= 1 << 62:
        return False
    return not states.translate(None, b"\0\5\6\7")


def ends_in(column: EndColumn) -> Iterator[tuple[int, int, int]]:
    """The ends that a column tells: task, state, attempt."""
    first, states, _ = column
    for at, (state, attempt) in enumerate(zip(states, attempts_of(column), strict=True)):
        if state:
            yield first + at, state, attempt
