"""Tables: a long one looks like a short one, and is drawn line by line."""

import io
import time
from collections.abc import Sequence

import pytest
from rich.console import Console

from hanse.cli import tables
from hanse.cli.tables import LongTable, state_markup, table

COLUMNS = ("job", "name", "none", "state", "took")
ROWS = [
    (f"1-{number}", name, "", state_markup(word), f"{number} ms")
    for number, (name, word) in enumerate(
        [
            ("a", "succeeded"),
            ("größer", "failed"),
            ("日本", "running"),
            (r"\[x]", "queued"),
            ("", "cancelled"),
        ]
    )
]
JOBS = 20_500
CPU_SECONDS_MAX = 8.0
"""It takes a quarter of a second; laid out by rich it took 26."""


def drawn(rows: Sequence[tuple[str, ...]], coloured: bool) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out,
        width=140,
        soft_wrap=True,
        highlight=False,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
    )
    console.print(table(COLUMNS, rows, right=("took",), note="that is all"))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("coloured", [False, True])
def test_a_long_table_looks_like_a_short_one(monkeypatch: pytest.MonkeyPatch, coloured: bool) -> None:
    short = drawn(ROWS, coloured)
    monkeypatch.setattr(tables, "ROWS_LAID_OUT_MAX", 0)
    assert isinstance(table(COLUMNS, ROWS), LongTable)
    long = drawn(ROWS, coloured)
    if not coloured:
        assert long == short
    else:
        assert "\x1b[32msucceeded\x1b[0m" in long[3]
        assert "none" not in long[1]


def test_many_rows_are_drawn_in_little_time() -> None:
    begun = time.process_time()
    assert len(drawn(ROWS * (JOBS // len(ROWS)), coloured=True)) > JOBS
    assert time.process_time() - begun < CPU_SECONDS_MAX
