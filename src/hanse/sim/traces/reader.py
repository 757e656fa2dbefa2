"""Framework of readers: the definition of a format, the way from rows to chunks, and open traces.

A format is a record of functions: one recognises a file by its beginning, another yields its chunks.
``formats`` lists the formats.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Final

import msgspec

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, TraceRow
from hanse.sim.traces.line_source import HEAD_BYTES, TraceSource
from hanse.sim.traces.parquet import open_parquet
from hanse.sim.traces.read_options import ReadOptions
from hanse.sim.traces.read_report import ReadReport, TraceError

PARQUET_MAGIC: Final = b"PAR1"
HEAD_LINES_MAX: Final = 200


class RejectedRow(msgspec.Struct, frozen=True):
    """Bad row with its reason."""

    reason: str
    detail: str = ""


class SkippedRow(msgspec.Struct, frozen=True):
    """Good row that a rule leaves out."""

    rule: str


ParsedRow = TraceRow | RejectedRow | SkippedRow


class FileHead(msgspec.Struct, frozen=True):
    """Beginning of a file, by which its format is recognised."""

    name: str
    """File name without folders, in lower case, without ``.gz``."""
    lines: tuple[str, ...]
    """First complete lines, if the file is text."""
    columns: tuple[str, ...] = ()
    """Columns, if the file is Parquet."""
    marks: tuple[str, ...] = ()
    """Keys of the Parquet file's own metadata."""
    is_parquet: bool = False

    @property
    def header(self) -> tuple[str, ...]:
        """First line that is no comment, as the names of CSV columns; for Parquet the columns."""
        rows = [line for line in self.lines if line.strip() and not line.startswith("#")]
        first = rows[0].lstrip("\ufeff") if rows else ""
        return (
            self.columns if self.is_parquet else tuple(name.strip().strip('"') for name in first.split(","))
        )

    def data_lines(self, comment: str) -> list[str]:
        """Return the lines that are neither blank nor comments."""
        return [line for line in self.lines if line.strip() and not line.lstrip().startswith(comment)]


def read_head(source: TraceSource) -> FileHead:
    """Return the beginning of a trace."""
    name = PurePath(source.name).name.lower().removesuffix(".gz")
    if source.head.startswith(PARQUET_MAGIC):
        if source.is_stdin or source.is_gzip:
            raise TraceError(
                f"{source.name}: Parquet is read from a plain file only: save or unpack it first"
            )
        with open_parquet(source.path) as file:
            stored = file.schema_arrow.metadata or {}
            marks = tuple(sorted(key.decode("utf-8", "replace") for key in stored))
            return FileHead(name, (), tuple(file.schema_arrow.names), marks, is_parquet=True)
    lines = source.head.decode("utf-8", "replace").splitlines()
    is_cut = max(len(source.raw_head), len(source.head)) >= HEAD_BYTES and not source.head.endswith(b"\n")
    if is_cut and len(lines) > 1:
        lines = lines[:-1]
    return FileHead(name, tuple(lines[:HEAD_LINES_MAX]))


class TraceFormat(msgspec.Struct, frozen=True):
    """One trace format."""

    name: str
    description: str
    """One line for a person: the format and how it is recognised."""
    recognise: Callable[[FileHead], bool]
    chunks: "Callable[[TraceReader], Iterator[JobChunk]]"
    prepare: "Callable[[TraceReader], None] | None" = None
    """Function that sets what is known before the first row: hints, header, presence of durations."""
    columns: tuple[str, ...] = ()
    """Required columns: without them a file cannot be read in this format, even if the user names it."""


class OpenTrace:
    """Trace that is being read: iterate over it for its chunks, then read ``report``.

    A subclass supplies the chunks: from a file (``TraceReader``) or from another source of jobs.
    """

    def __init__(self, name: str, form: str) -> None:
        self.name = name
        """Name that the user gave."""
        self.format = form
        """Name of the format."""
        self.report = ReadReport()
        self.nodes_hint: int | None = None
        """Number of nodes (SWF: processors) of the traced system, as the trace states it."""
        self.unix_start: int | None = None
        """Seconds since 1970 of the trace's own time 0, if known."""
        self.origin: int | None = None
        """Time of the trace's own clock, in microseconds, that is 0 in ``arrival``; known after the first
        chunk."""
        self.has_durations = True
        """False if the trace has no run times; then every duration is 0."""
        self.rows_total: int | None = None
        """Total number of rows, if known beforehand."""

    @property
    def fraction(self) -> float | None:
        """Progress of the reading, from 0 to 1; None if unknown."""
        if self.rows_total is None:
            return None
        return min(1.0, self.report.rows / self.rows_total) if self.rows_total else 1.0

    def chunks(self) -> Iterator[JobChunk]:
        """Yield the chunks of one pass over the trace."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[JobChunk]:
        self.report.clear()
        return self.chunks()


class TraceReader(OpenTrace):
    """Trace in a file of a known format (or on standard input). A file may be iterated several times."""

    def __init__(self, source: TraceSource, form: TraceFormat, options: ReadOptions, head: FileHead) -> None:
        super().__init__(source.name, form.name)
        self.source = source
        self.form = form
        self.options = options
        self.head = head
        self.header: dict[str, str] = {}
        """Statements of the trace about itself (SWF's header comments)."""
        if form.prepare is not None:
            form.prepare(self)

    @property
    def fraction(self) -> float | None:
        """Progress of the reading: by rows if their number is known, else by bytes."""
        return self.source.fraction if self.rows_total is None else super().fraction

    def chunks(self) -> Iterator[JobChunk]:
        """Yield the chunks of one pass, by the format's function."""
        return self.form.chunks(self)


def build_chunks(
    reader: OpenTrace, builder: ChunkBuilder, rows: Iterable[tuple[int, ParsedRow]]
) -> Iterator[JobChunk]:
    """Yield chunks of parsed rows; rejected and skipped rows go into the report."""
    report = reader.report
    for line, row in rows:
        report.rows += 1
        if isinstance(row, RejectedRow):
            report.bad_row(line, row.reason, row.detail)
        elif isinstance(row, SkippedRow):
            report.skip(row.rule)
        else:
            if builder.is_flush_due(row):
                reader.origin = builder.origin
                yield builder.flush()
            builder.add(line, row)
    reader.origin = builder.origin
    if builder.entries:
        yield builder.flush()


def parse_finite(text: str | bytes | float | None) -> float | None:
    """Return a finite number, or None."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse_integer(text: str | bytes | float | None) -> int | None:
    """Return an integer ("12", "12.0"), or None. Digits are parsed exactly, so numbers beyond 2**53
    survive."""
    if isinstance(text, (str, bytes)):
        try:
            return int(text)
        except ValueError:
            pass
    value = parse_finite(text)
    return int(value) if value is not None and value.is_integer() else None


def parse_microseconds(text: str | bytes | float | None, unit: int = SECOND) -> int | None:
    """Return a time of at least 0 in microseconds, from a number of ``unit``, or None."""
    value = parse_finite(text)
    return round(value * unit) if value is not None and value >= 0 else None
