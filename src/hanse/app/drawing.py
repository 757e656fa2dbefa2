"""How commands draw for people: tables without lines, states in colours. Imports ``rich``."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

PIPE_WIDTH: Final = 140
"""Columns of what is no terminal: nothing is cut for a program that reads tables."""
COLOURS: Final = {
    "blocked": "dim", "queued": "yellow", "placed": "cyan", "running": "blue", "succeeded": "green",
    "failed": "red", "cancelled": "magenta",
}  # fmt: skip


def console() -> Console:
    """Where tables go."""
    out = Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = max(out.width, PIPE_WIDTH)
    return out


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), note: str = ""
) -> Table:
    """A table of these rows; the columns named in ``right`` hold numbers, and empty columns are left out."""
    cells = [tuple(row) for row in rows]
    used = [at for at, name in enumerate(columns) if not cells or any(row[at] for row in cells)]
    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=note or None, caption_justify="left")
    for at in used:
        name = columns[at]
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    for row in cells:
        made.add_row(*(row[at] for at in used))
    return made


def state(word: str) -> str:
    """A state in its colour."""
    return f"[{COLOURS.get(word, 'default')}]{escape(word)}[/]"
