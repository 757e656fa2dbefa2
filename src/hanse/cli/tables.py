"""Tables and coloured states for terminals. Imports ``rich``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape, render
from rich.segment import Segment
from rich.style import Style
from rich.table import Table

PIPE_WIDTH: Final = 140
"""Columns where there is no terminal: nothing is cut for a program that reads tables."""
ROWS_LAID_OUT_MAX: Final = 500
"""Rows that ``rich`` lays out, wrapped to the terminal's width; it takes over a millisecond per row."""
COLOURS: Final = {
    "blocked": "dim", "queued": "yellow", "placed": "cyan", "running": "blue", "succeeded": "green",
    "failed": "red", "cancelled": "magenta",
}  # fmt: skip


def console() -> Console:
    """Return the console for tables."""
    out = Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = max(out.width, PIPE_WIDTH)
    return out


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), note: str = ""
) -> RenderableType:
    """Return a table; columns named in ``right`` hold numbers, and empty columns are left out."""
    cells = [tuple(row) for row in rows]
    used = [at for at, name in enumerate(columns) if not cells or any(row[at] for row in cells)]
    if len(cells) > ROWS_LAID_OUT_MAX:
        chosen = [[row[at] for at in used] for row in cells]
        return LongTable([columns[at] for at in used], chosen, right, note)
    result = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=note or None, caption_justify="left")
    for at in used:
        name = columns[at]
        result.add_column(name, justify="right" if name in right else "left", no_wrap=name in right)
    for row in cells:
        result.add_row(*(row[at] for at in used))
    return result


class _Cell(NamedTuple):
    """Cell as drawn."""

    text: str
    width: int
    style: Style | None


class LongTable:
    """Table drawn like the others, but line by line: nothing is wrapped."""

    def __init__(
        self, columns: Sequence[str], rows: list[list[str]], right: Sequence[str], note: str
    ) -> None:
        self._columns, self._rows, self._note = columns, rows, note
        self._right = [name in right for name in columns]
        self._cells: dict[str, _Cell] = {}
        """Drawn cells by text; the same texts repeat."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield every line, in a few pieces."""
        rows = [[self._cell(console, text) for text in row] for row in self._rows]
        heads = [self._cell(console, f"[bold]{escape(name)}[/]") for name in self._columns]
        widths = [max(cell.width for cell in column) for column in zip(heads, *rows, strict=True)]
        yield Segment("\n")
        yield from self._line(heads, widths)
        yield Segment(" " + "─" * (sum(widths) + 2 * len(widths) - 1) + "\n")
        for row in rows:
            yield from self._line(row, widths)
        yield Segment(f"\n{self._note}\n" if self._note else "\n")

    def _line(self, cells: list[_Cell], widths: list[int]) -> Iterator[Segment]:
        plain = " "
        for cell, width, right in zip(cells, widths, self._right, strict=True):
            space = " " * (width - cell.width)
            if right:
                plain += space
            if cell.style is None:
                plain += cell.text
            else:
                yield Segment(plain)
                yield Segment(cell.text, cell.style)
                plain = ""
            plain += "  " if right else space + "  "
        yield Segment(plain.rstrip(" ") + "\n")

    def _cell(self, console: Console, text: str) -> _Cell:
        found = self._cells.get(text)
        if found is None:
            shown, style = text, None
            if "[" in text or "\\" in text:
                drawn = render(text)
                shown = drawn.plain
                style = drawn.get_style_at_offset(console, 0) if drawn.spans else None
            found = self._cells[text] = _Cell(shown, cell_len(shown), style)
        return found


def state_markup(word: str) -> str:
    """Return the markup of a state in its colour."""
    return f"[{COLOURS.get(word, 'default')}]{escape(word)}[/]"
