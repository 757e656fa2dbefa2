"""Native trace format, as CSV and as Parquet: reads back exactly what was written. Described in
docs/research/traces.md.

One row is one job (or one node of a DAG). ``arrival_us`` and ``duration_us`` are required; every other
column may be absent. ``duration_us`` holds one number per task, or a single one for all ``tasks``. ``needs``
names jobs of the same ``parent``. Columns ``extra.NAME:KIND`` hold the additions of a dataset; KIND is int,
float or name.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, NameTable, TraceRow
from hanse.sim.traces.csv_datasets import read_rows
from hanse.sim.traces.parquet import open_parquet, read_parquet_rows
from hanse.sim.traces.reader import (
    ParsedRow,
    RejectedRow,
    TraceFormat,
    TraceReader,
    build_chunks,
    parse_finite,
    parse_integer,
)

FORMAT_MARK: Final = "hanse-trace"
VERSION: Final = "1"
EXTRA_PREFIX: Final = "extra."
KINDS: Final[dict[str, type]] = {"int": int, "float": float, "name": int}
REQUIRED: Final = ("arrival_us", "duration_us")
NUMBERS: Final = {"cpu": "cpu_milli", "memory": "memory_bytes", "gpu": "gpu_milli", "estimate": "estimate_us"}
"""Fields of a row and their columns."""
NAMES: Final = ("user", "group", "site")
COLUMNS: Final = ("job", "arrival_us", "tasks", "duration_us", *NUMBERS.values(), *NAMES, "parent", "needs")


class _ExtraColumns(msgspec.Struct, frozen=True):
    """Extra columns of a file."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def types(self) -> dict[str, type]:
        """Types of the extra values, for the builder."""
        return {key: KINDS[kind] for key, kind in zip(self.keys, self.kinds, strict=True)}

    @property
    def name_keys(self) -> tuple[str, ...]:
        """Keys whose values are names."""
        return tuple(key for key, kind in zip(self.keys, self.kinds, strict=True) if kind == "name")


def _find_extra_columns(columns: Sequence[str]) -> _ExtraColumns:
    found = []
    for column in columns:
        key, _, kind = column.removeprefix(EXTRA_PREFIX).rpartition(":")
        if column.startswith(EXTRA_PREFIX) and key and kind in KINDS:
            found.append((column, key, kind))
    return _ExtraColumns(
        tuple(row[0] for row in found), tuple(row[1] for row in found), tuple(row[2] for row in found)
    )


def _parse_integers(value: Any) -> list[int] | None:
    """Return the integers of a list or of text separated by blanks; None if one is not an integer."""
    parts = value if isinstance(value, list) else ("" if value is None else str(value)).split()
    numbers = [parse_integer(part) for part in parts]
    return (
        None
        if any(number is None for number in numbers)
        else [number for number in numbers if number is not None]
    )


class _Parser:
    def __init__(self, layout: _ExtraColumns, names: NameTable) -> None:
        self.layout = layout
        self.names = names

    def parse(self, number: int, values: dict[str, Any]) -> ParsedRow:
        """Parse one row; ``number`` counts from 0."""
        arrival, durations = parse_integer(values["arrival_us"]), _parse_integers(values["duration_us"])
        if arrival is None:
            return RejectedRow("no whole number in arrival_us", str(values["arrival_us"]))
        if not durations:
            return RejectedRow("no whole numbers in duration_us", str(values["duration_us"]))
        given: dict[str, int | None] = {
            "job": number,
            "tasks": len(durations),
            "parent": None,
            **dict.fromkeys(NUMBERS.values(), 0),
        }
        for column in tuple(given):
            value = values.get(column)
            if value not in (None, ""):
                given[column] = parse_integer(value)
                if given[column] is None:
                    return RejectedRow(f"no whole number in {column}", str(value))
        count, needs = given["tasks"], _parse_integers(values.get("needs"))
        if count != len(durations) and len(durations) != 1:
            return RejectedRow(
                "the number of tasks is not the number of durations", f"{count} and {len(durations)}"
            )
        if needs is None:
            return RejectedRow("no whole numbers in needs", str(values.get("needs")))
        extra = self._extra(values)
        if isinstance(extra, RejectedRow):
            return extra
        return TraceRow(
            job=given["job"] or 0,
            arrival=arrival,
            durations=durations,
            count=count or 0,
            parent=given["parent"],
            needs=tuple(needs),
            extra=extra,
            **{field: given[column] or 0 for field, column in NUMBERS.items()},
            **{field: self.names.number(str(values.get(field) or "")) for field in NAMES},
        )

    def _extra(self, values: dict[str, Any]) -> tuple[float, ...] | RejectedRow:
        out: list[float] = []
        for column, kind in zip(self.layout.columns, self.layout.kinds, strict=True):
            value = values.get(column)
            if kind == "name":
                out.append(self.names.number(str(value or "")))
                continue
            if value in (None, "") or (isinstance(value, float) and math.isnan(value)):
                out.append(-1 if kind == "int" else float("nan"))
                continue
            number = parse_integer(value) if kind == "int" else parse_finite(value)
            if number is None:
                return RejectedRow(f"no number in {column}", str(value))
            out.append(number)
        return tuple(out)


def _apply_marks(reader: TraceReader, marks: dict[str, str]) -> None:
    reader.nodes_hint = parse_integer(marks.get("nodes") or None)
    reader.has_durations = marks.get("durations", "yes") != "no"
    reader.unix_start = parse_integer(marks.get("unix_start") or None)


def _csv_prepare(reader: TraceReader) -> None:
    first = reader.head.lines[0].lstrip("\ufeff") if reader.head.lines else ""
    words = first.lstrip("# ").split() if first.startswith("#") else []
    _apply_marks(reader, dict(word.split("=", 1) for word in words if "=" in word))


def _csv_chunks(reader: TraceReader) -> Iterator[JobChunk]:
    layout = _find_extra_columns(reader.head.header)
    builder = ChunkBuilder(reader.report, layout.types, layout.name_keys, origin=0)
    parser = _Parser(layout, builder.names)

    def rows() -> Iterator[tuple[int, ParsedRow]]:
        for number, (line, fields) in enumerate(read_rows(reader, reader.report)):
            yield line, (fields if isinstance(fields, RejectedRow) else parser.parse(number, fields))

    return build_chunks(reader, builder, rows())


def _parquet_prepare(reader: TraceReader) -> None:
    with open_parquet(reader.source.path) as file:
        reader.rows_total = file.metadata.num_rows
        stored = file.schema_arrow.metadata or {}
        _apply_marks(
            reader,
            {key.decode(): value.decode() for key, value in stored.items() if not key.startswith(b"ARROW")},
        )


def _parquet_chunks(reader: TraceReader) -> Iterator[JobChunk]:
    layout = _find_extra_columns(reader.head.columns)
    builder = ChunkBuilder(reader.report, layout.types, layout.name_keys, origin=0)
    parser = _Parser(layout, builder.names)
    rows = read_parquet_rows(reader.source.path, [*COLUMNS, *layout.columns], reader.report)
    return build_chunks(reader, builder, ((line, parser.parse(line - 1, values)) for line, values in rows))


NATIVE_CSV = TraceFormat(
    "csv",
    f"native CSV; by its columns {', '.join(REQUIRED)}",
    lambda head: not head.is_parquet and set(REQUIRED) <= set(head.header),
    _csv_chunks,
    _csv_prepare,
    REQUIRED,
)
NATIVE_PARQUET = TraceFormat(
    "parquet",
    f"native Parquet; by its columns {', '.join(REQUIRED)}",
    lambda head: set(REQUIRED) <= set(head.columns),
    _parquet_chunks,
    _parquet_prepare,
    REQUIRED,
)
