"""Ends of many tasks as byte columns; the cost is the same when neighbours ended differently.

A job's tasks are cut into stretches. A stretch whose tasks all ended alike is a run of four numbers. Any
other stretch is a column: for each task a byte of state and an attempt number, copied by operations on the
whole stretch. A million ends without two equal neighbours are 128 columns instead of a million runs.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from hanse.core.broker.job_table import SUCCEEDED
from hanse.core.messaging.message_splitting import ENTRIES_MAX

STRETCH_TASKS: Final = ENTRIES_MAX
"""Maximum number of tasks in a column; one message carries one column."""
WIDTHS: Final = (1, 4, 8)
"""Bytes per attempt in a column, equal for all attempts of the column."""

EndRun = tuple[int, int, int, int]
"""First task, terminal state, attempt, and number of neighbours that ended alike."""
EndColumn = tuple[int, bytes, bytes]
"""First task; terminal state of each task, 0 if it has not ended; attempt of each task, 0 if it never ran."""
Attempts = np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]
CutEnds = tuple[list[EndRun], list[EndColumn]]
"""Ends of a job."""

_LIVE: Final = bytes(range(SUCCEEDED))
_ENDED_ONLY: Final = bytes(value if value >= SUCCEEDED else 0 for value in range(256))


def has_ends(states: bytearray) -> bool:
    """True if any of these tasks has ended."""
    return bool(states.translate(None, _LIVE))


def cut_ends(states: bytearray, attempts: list[int], ran: bytearray | None = None) -> CutEnds:
    """Return the ends of all ended tasks. ``ran``: flags of tasks with an attempt that counts (None: all)."""
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
    """Append a run, or extend the last run if this one continues it."""
    if runs:
        first, state, attempt, count = runs[-1]
        if (first + count, state, attempt) == run[:3]:
            runs[-1] = (first, state, attempt, count + run[3])
            return
    runs.append(run)


def _pack_attempts(states: bytearray, attempts: list[int], ran: bytearray | None) -> bytes:
    """Pack the attempts of ended tasks in as few bytes each as the highest one needs."""
    values = np.array(attempts, dtype=np.int64)
    values[np.frombuffer(states, dtype=np.uint8) < SUCCEEDED] = 0
    if ran is not None:
        values[np.frombuffer(ran, dtype=np.uint8) == 0] = 0
    highest = int(values.max())
    width = next(width for width in WIDTHS if highest < 1 << (8 * width - 1))
    return values.astype(f"<u{width}").tobytes()


def attempts_of(column: EndColumn) -> list[int]:
    """Return the attempts in a column."""
    return _attempts(column).tolist()


def ran_flags(column: EndColumn) -> bytes:
    """Return a byte per task of a column: 1 if it has run, else 0."""
    return (_attempts(column) > 0).tobytes()


def _attempts(column: EndColumn) -> Attempts:
    _, states, attempts = column
    return np.frombuffer(attempts, dtype=f"<u{len(attempts) // len(states)}")


def is_column(column: EndColumn) -> bool:
    """True if bytes from a peer are a column: lengths that match, and ends only."""
    _, states, attempts = column
    if not 0 < len(states) <= STRETCH_TASKS:
        return False
    if len(attempts) not in [width * len(states) for width in WIDTHS]:
        return False
    if len(attempts) == WIDTHS[-1] * len(states) and int(np.frombuffer(attempts, "<u8").max()) >= 1 << 62:
        return False
    return not states.translate(None, b"\0\5\6\7")


def ends_in(column: EndColumn) -> Iterator[tuple[int, int, int]]:
    """Yield the ends in a column: task, state, attempt."""
    first, states, _ = column
    for at, (state, attempt) in enumerate(zip(states, attempts_of(column), strict=True)):
        if state:
            yield first + at, state, attempt
