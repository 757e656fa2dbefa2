"""Pieces of Markdown: tables, fences, and the section of one field of a file."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from hanse.model.field_descriptions import FileField

_CODE: Final = re.compile(r"`([^`]+)`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are made safe, and of one line."""
    lines = [_row(head), f"|{'---|' * len(head)}", *(_row(row) for row in rows)]
    return "\n".join(lines)


def fence(kind: str, text: str) -> str:
    """A block of code."""
    return f"```{kind}\n{text.rstrip()}\n```"


def paragraphs(*parts: str) -> str:
    """Parts with an empty line between them; empty ones are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part)


def field_section(field: FileField, option: str = "") -> str:
    """One field: type, default and limits in a line, then its meaning and an example."""
    facts = [f"*{field.kind}*"]
    if field.default:
        facts.append(f"default `{field.default}`")
    if field.limits:
        facts.append(field.limits)
    if option:
        facts.append(f"option `{option}`")
    return paragraphs(f"### `{field.name}`", " · ".join(facts), field.meaning, fence("yaml", field.example))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """One line. Code with a bar in it is written as HTML, which every renderer of tables reads the same."""
    line = _CODE.sub(
        lambda code: f"<code>{escape(code[1]).replace('|', '&#124;')}</code>" if "|" in code[1] else code[0],
        " ".join(text.split()),
    )
    return line.replace("|", "\\|")
