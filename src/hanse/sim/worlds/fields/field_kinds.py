"""Kinds of fields of the world file: rows with the reader, the writer and the limits of each kind.

``world_fields`` lists the fields themselves.
"""

from collections.abc import Callable, Mapping
from re import ASCII
from re import compile as compile_pattern
from typing import Any, Final

import msgspec

from hanse.model.constraint_syntax import ConstraintSyntaxProblem, parse_constraint
from hanse.model.constraints import Value, name_problem, value_problem
from hanse.model.field_descriptions import FileField, write_plain
from hanse.model.field_reader import Convert, read_flag, read_text
from hanse.model.problem import Problem, describe_value
from hanse.model.quantities import parse_bytes, parse_duration
from hanse.sim.worlds.fields.units import (
    bounded,
    factor_reader,
    parse_rate,
    whole_reader,
    write_bytes,
    write_link,
    write_rate,
    write_time,
)

NAME_CHARACTERS_MAX: Final = 63
NODES_MAX: Final = 100_000
"""Nodes of a world."""
_NAME: Final = compile_pattern(rf"[A-Za-z0-9_.-]{{1,{NAME_CHARACTERS_MAX}}}", ASCII)
CORES_MAX: Final = 4_096
ENTRIES_MAX: Final = 1_000
"""Entries of a list of the file."""
FACTOR_MAX: Final = 1_000.0


class WorldField(FileField, frozen=True, kw_only=True):
    """Row of a table of the world file."""

    default: str = ""
    limits: str = ""
    attribute: str = ""
    """Field of the record; empty: the one of the same name."""
    read: Convert[Any] | None = None
    write: Callable[[Any], object] = write_plain
    record: type[msgspec.Struct] | None = None
    """Record of a mapping, or of each mapping of a list."""
    is_list: bool = False
    is_required: bool = False

    @property
    def target(self) -> str:
        """Field of the record that holds the value."""
        return self.attribute or self.name


def _name(value: object, field: str) -> str | Problem:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    rule = f"a name is 1 to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' or '.'"
    return Problem(field, f"{rule}, not {describe_value(value)}")


def factors_reader(least: float, most: float) -> Convert[dict[str, float]]:
    """Return a reader of a mapping of names to numbers."""
    read_one = factor_reader(least, most)

    def read(value: object, field: str) -> dict[str, float] | Problem:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return Problem(field, f"this is a mapping of names to numbers, not {describe_value(value)}")
        found: dict[str, float] = {}
        for key, item in value.items():
            factor = read_one(item, f"{field}.{key}")
            if isinstance(factor, Problem):
                return factor
            found[str(key)] = factor
        return found

    return read


def read_attributes(value: object, field: str) -> dict[str, Value] | Problem:
    """Read attributes of nodes, by name."""
    if not isinstance(value, Mapping):
        return Problem(field, f"this is a mapping of names to values, not {describe_value(value)}")
    for key, item in value.items():
        rule = (name_problem(key) if isinstance(key, str) else "a name is a text") or value_problem(item)
        if rule:
            return Problem(f"{field}.{key}", rule)
    return dict(value)


def read_constraint(value: object, field: str) -> str | Problem:
    """Read a constraint in its text form; empty: none."""
    text = read_text(value, field)
    if isinstance(text, Problem) or not text:
        return text
    parsed = parse_constraint(text)
    return (
        Problem(field, parsed.message.split("\n")[0]) if isinstance(parsed, ConstraintSyntaxProblem) else text
    )


def flag_field(name: str, meaning: str, example: str) -> WorldField:
    """Return a row of true or false."""
    return WorldField(name=name, kind="true or false", meaning=meaning, example=example, read=read_flag)


def choice_field(name: str, words: tuple[str, ...], meaning: str, example: str) -> WorldField:
    """Return a row of one of some words."""
    limits = "one of " + ", ".join(f"`{word}`" for word in words)
    return WorldField(
        name=name, kind="text", limits=limits, meaning=meaning, example=example, read=_one_of(words)
    )


def _one_of(words: tuple[str, ...]) -> Convert[str]:
    def read(value: object, field: str) -> str | Problem:
        if isinstance(value, str) and value in words:
            return value
        return Problem(field, f"this is one of {', '.join(words)}, not {describe_value(value)}")

    return read


def read_wholes(value: object, field: str) -> tuple[int, ...] | Problem:
    """Read a list of numbers of cores."""
    read_one = whole_reader(1, CORES_MAX)
    if not isinstance(value, list) or not 0 < len(value) <= ENTRIES_MAX:
        return Problem(field, f"this is a list of numbers such as [2, 4, 8], not {describe_value(value)}")
    found = [read_one(item, f"{field}[{at}]") for at, item in enumerate(value)]
    return next((item for item in found if isinstance(item, Problem)), None) or tuple(
        item for item in found if isinstance(item, int)
    )


def read_names(value: object, field: str) -> tuple[str, ...] | Problem:
    """Read a list of names."""
    if (
        not isinstance(value, list)
        or len(value) > ENTRIES_MAX
        or not all(isinstance(item, str) for item in value)
    ):
        return Problem(field, f"this is a list of names such as [a, b], not {describe_value(value)}")
    return tuple(value)


def read_milliseconds(value: object, field: str) -> tuple[tuple[int, ...], ...] | Problem:
    """Read a table of milliseconds as microseconds."""
    read_one = factor_reader(0.0, 60_000.0)
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return Problem(field, "this is a list of lists of milliseconds, one for each region")
    rows: list[tuple[int, ...]] = []
    for at, row in enumerate(value):
        found = [read_one(item, f"{field}[{at}][{to}]") for to, item in enumerate(row)]
        problem = next((item for item in found if isinstance(item, Problem)), None)
        if problem is not None:
            return problem
        rows.append(tuple(round(item * 1_000) for item in found if isinstance(item, float)))
    return tuple(rows)


def write_milliseconds(matrix: tuple[tuple[int, ...], ...]) -> list[list[float]]:
    """Return the milliseconds of a table of microseconds."""
    return [[us // 1_000 if us % 1_000 == 0 else us / 1_000 for us in row] for row in matrix]


def write_list(values: tuple[Any, ...]) -> list[Any]:
    """Return the values as a list."""
    return list(values)


def write_factor(value: float) -> float:
    """Return a number, without a fraction if it has none."""
    return int(value) if value == int(value) else value


def write_factors(values: dict[str, float]) -> dict[str, float]:
    """Return a mapping of names to numbers."""
    return {key: write_factor(value) for key, value in values.items()}


def share_field(name: str, meaning: str, example: str, attribute: str = "") -> WorldField:
    """Return a row of a share from 0 to 1."""
    return WorldField(
        name=name, kind="number", limits="0 to 1", meaning=meaning, example=example, attribute=attribute,
        read=factor_reader(0.0, 1.0), write=write_factor,
    )  # fmt: skip


def factor_field(
    name: str, meaning: str, example: str, least: float = 0.0, most: float = FACTOR_MAX
) -> WorldField:
    """Return a row of a number."""
    return WorldField(
        name=name, kind="number", limits=f"{least:g} to {most:g}", meaning=meaning, example=example,
        read=factor_reader(least, most), write=write_factor,
    )  # fmt: skip


def whole_field(
    name: str, meaning: str, example: str, least: int, most: int, is_required: bool = False
) -> WorldField:
    """Return a row of a whole number."""
    return WorldField(
        name=name, kind="whole number", limits=f"{least:,} to {most:,}", meaning=meaning, example=example,
        read=whole_reader(least, most), is_required=is_required,
    )  # fmt: skip


def bytes_field(
    name: str, meaning: str, example: str, least: int = 0, is_required: bool = False
) -> WorldField:
    """Return a row of a number of bytes."""
    rule = f"this is at least {least} bytes"
    return WorldField(
        name=name, kind="bytes", meaning=meaning, example=example, is_required=is_required,
        limits="above 0" if least else "", read=bounded(parse_bytes, least, rule), write=write_bytes,
    )  # fmt: skip


def rate_field(name: str, meaning: str, example: str, least: int = 1, is_link: bool = False) -> WorldField:
    """Return a row of bytes per second."""
    return WorldField(
        name=name, kind="rate", meaning=meaning, example=example, limits="above 0" if least else "",
        read=bounded(parse_rate, least, "this is a rate above 0"),
        write=write_link if is_link else write_rate,
    )  # fmt: skip


def time_field(name: str, meaning: str, example: str, least: int = 1, attribute: str = "") -> WorldField:
    """Return a row of a time in microseconds."""
    return WorldField(
        name=name, kind="time", meaning=meaning, example=example, limits="above 0" if least else "",
        read=bounded(parse_duration, least, "this is a time above 0"), write=write_time, attribute=attribute,
    )  # fmt: skip


def text_field(name: str, meaning: str, example: str) -> WorldField:
    """Return a row of a text."""
    return WorldField(name=name, kind="text", meaning=meaning, example=example, read=read_text)


def name_field(meaning: str, example: str, name: str = "name", attribute: str = "") -> WorldField:
    """Return a row of a required name."""
    return WorldField(
        name=name, kind="text",
        limits=f"required; 1 to {NAME_CHARACTERS_MAX} letters, digits, `-`, `_` or `.`",
        meaning=meaning, example=example, attribute=attribute, read=_name, is_required=True,
    )  # fmt: skip


def mapping_field(name: str, record: type[msgspec.Struct], meaning: str, example: str) -> WorldField:
    """Return a row of a mapping with fields of its own."""
    return WorldField(name=name, kind="mapping", meaning=meaning, example=example, record=record)


def entries_field(name: str, record: type[msgspec.Struct], meaning: str, example: str) -> WorldField:
    """Return a row of a required list of mappings."""
    return WorldField(
        name=name, kind="list of mappings", limits=f"required; 1 to {ENTRIES_MAX:,}", meaning=meaning,
        example=example, record=record, is_list=True, is_required=True,
    )  # fmt: skip
