"""Writers: native CSV and Parquet, which keep everything, and ``.tr``, which keeps arrivals and durations
only.

A file is written under a temporary name and renamed when it is complete, so that an interrupted run leaves
no partial trace. The same chunks give the same bytes.
"""

import csv
import gzip
import io
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Protocol, Self

import numpy as np

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.traces.line_source import STDIN as STDOUT
from hanse.sim.traces.native_format import COLUMNS, EXTRA_PREFIX, FORMAT_MARK, NAMES, NUMBERS, VERSION
from hanse.sim.traces.parquet import import_arrow
from hanse.sim.traces.read_report import TraceError

WRITABLE_FORMS: Final = ("csv", "parquet", "tr")
GZIP_LEVEL: Final = 6
Marks = dict[str, str]
"""Statements of a trace about itself: ``nodes``, ``durations``, ``unix_start``."""


class _Output(Protocol):
    def write(self, chunk: JobChunk) -> None:
        """Write a chunk."""

    def finish(self) -> None:
        """Finish the output."""


def choose_form(path: str, form: str | None) -> str:
    """Return the form to write: the given one, else by the file's name."""
    if form is not None:
        if form not in WRITABLE_FORMS:
            raise TraceError(
                f"traces are not written as {form!r}; choose one of: {', '.join(WRITABLE_FORMS)}"
            )
        return form
    suffix = Path(path).name.lower().removesuffix(".gz").rpartition(".")[2]
    if path == STDOUT:
        return "csv"
    if suffix not in WRITABLE_FORMS:
        raise TraceError(
            f"{path}: the name does not say what to write; end it in .csv, .csv.gz, .parquet, .tr or .tr.gz,"
            " or name the form (--to)"
        )
    return suffix


class TraceWriter:
    """Trace that is being written; use it in a ``with`` statement. The file appears if everything
    succeeded."""

    def __init__(self, path: str | Path, form: str | None = None, marks: Marks | None = None) -> None:
        self.name = str(path)
        self.form = choose_form(self.name, form)
        self.jobs = 0
        self.tasks = 0
        self._marks = marks or {}
        self._part: Path | None = None
        self._files: list[IO[Any]] = []
        self._output: _Output | None = None

    def __enter__(self) -> Self:
        if self.name == STDOUT:
            if self.form == "parquet":
                raise TraceError("Parquet cannot be written to standard output: give a file's name")
            self._output = self._text(sys.stdout.buffer)
            return self
        target = Path(self.name)
        if not target.parent.is_dir():
            raise TraceError(f"{self.name}: the folder {target.parent} does not exist: make it first")
        self._part = target.with_name(target.name + ".part")
        try:
            raw = self._part.open("wb")
        except OSError as error:
            raise TraceError(f"{self.name} cannot be written: {error.strerror}") from error
        self._files.append(raw)
        if self.form == "parquet":
            self._output = _ParquetOutput(raw, self._marks)
            return self
        stream: Any = raw
        if target.name.lower().endswith(".gz"):
            # no name and no time in the gzip header: the same trace gives the same bytes
            stream = gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0)
            self._files.append(stream)
        self._output = self._text(stream)
        return self

    def _text(self, stream: IO[bytes]) -> _Output:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n", write_through=False)
        return _CsvOutput(text, self._marks) if self.form == "csv" else _TrOutput(text)

    def write(self, chunk: JobChunk) -> None:
        """Write a chunk."""
        assert self._output is not None, "a TraceWriter writes inside its with statement"
        self._output.write(chunk)
        self.jobs += chunk.job_count
        self.tasks += chunk.task_count

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._output is not None:
            self._output.finish()
        for file in reversed(self._files):
            file.close()
        if self._part is not None:
            if kind is None:
                self._part.replace(self.name)
            else:
                self._part.unlink(missing_ok=True)


def extra_columns(chunk: JobChunk) -> dict[str, str]:
    """Return the columns of a chunk's extras by their keys."""
    kinds = {
        key: "name"
        if key in chunk.name_keys
        else "float"
        if np.issubdtype(column.dtype, np.floating)
        else "int"
        for key, column in chunk.extra.items()
    }
    return {key: f"{EXTRA_PREFIX}{key}:{kind}" for key, kind in kinds.items()}


def _needed_jobs(chunk: JobChunk) -> list[list[int]]:
    """Return for each entry the numbers of the jobs it needs."""
    out: list[list[int]] = [[] for _ in range(chunk.job_count)]
    if chunk.needs is not None:
        for later, earlier in zip(chunk.needs[0].tolist(), chunk.job[chunk.needs[1]].tolist(), strict=True):
            out[later].append(earlier)
    return out


def _names(chunk: JobChunk, column: Any) -> list[str]:
    table = (*chunk.names, "")  # index -1 is then the empty name
    return [table[index] for index in column.tolist()]


def _durations(chunk: JobChunk) -> list[list[int]]:
    """Return each entry's durations; a single one if all of its tasks take equally long."""
    values, offset = chunk.duration.tolist(), chunk.offset.tolist()
    out = []
    for start, end in pairwise(offset):
        part = values[start:end]
        out.append(part[:1] if part.count(part[0]) == len(part) else part)
    return out


class _CsvOutput:
    def __init__(self, stream: io.TextIOWrapper, marks: Marks) -> None:
        self._stream = stream
        self._rows = csv.writer(stream, lineterminator="\n")
        self._extra: dict[str, str] | None = None
        words = "".join(f" {key}={value}" for key, value in sorted(marks.items()))
        stream.write(f"# {FORMAT_MARK} {VERSION}{words}\n")

    def write(self, chunk: JobChunk) -> None:
        if self._extra is None:
            self._extra = extra_columns(chunk)
            self._rows.writerow((*COLUMNS, *self._extra.values()))
        assert self._extra == extra_columns(chunk), "all chunks of a trace have the same extras"
        columns: list[Iterable[Any]] = [
            chunk.job.tolist(),
            chunk.arrival.tolist(),
            chunk.counts().tolist(),
            (" ".join(map(str, part)) for part in _durations(chunk)),
            *(getattr(chunk, field).tolist() for field in NUMBERS),
            *(_names(chunk, getattr(chunk, field)) for field in NAMES),
            chunk.parent.tolist(),
            (" ".join(map(str, part)) for part in _needed_jobs(chunk)),
        ]
        for key in self._extra:
            column = chunk.extra[key]
            is_float = np.issubdtype(column.dtype, np.floating)
            columns.append(
                _names(chunk, column)
                if key in chunk.name_keys
                else ("" if value != value else repr(value) for value in column.tolist())  # noqa: PLR0124 - NaN alone differs from itself
                if is_float
                else column.tolist()
            )
        self._rows.writerows(zip(*columns, strict=True))

    def finish(self) -> None:
        if self._extra is None:
            self._rows.writerow(COLUMNS)
        self._stream.flush()
        self._stream.detach()


def format_seconds(time: int) -> str:
    """Return microseconds as seconds, exact, without trailing zeros."""
    whole, rest = divmod(time, SECOND)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


class _TrOutput:
    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream

    def write(self, chunk: JobChunk) -> None:
        values, offset, arrival = chunk.duration.tolist(), chunk.offset.tolist(), chunk.arrival.tolist()
        for job, start in enumerate(offset[:-1]):
            part = values[start : offset[job + 1]]
            mean = format_seconds(round(sum(part) / len(part)))
            self._stream.write(
                f"{format_seconds(arrival[job])} {len(part)} {mean} {' '.join(map(format_seconds, part))}\n"
            )

    def finish(self) -> None:
        self._stream.flush()
        self._stream.detach()


class _ParquetOutput:
    def __init__(self, stream: IO[bytes], marks: Marks) -> None:
        self._stream = stream
        self._marks = {FORMAT_MARK: VERSION, **marks}
        self._base = import_arrow()
        self._parquet = import_arrow("pyarrow.parquet")
        self._writer: Any = None
        self._extra: dict[str, str] = {}

    def _open(self, extra: dict[str, str]) -> None:
        base = self._base
        kinds = {"int": base.int64(), "float": base.float64(), "name": base.string()}
        special = {"duration_us": base.list_(base.int64()), "needs": base.list_(base.int64())}
        fields = [
            (name, special.get(name, base.string() if name in NAMES else base.int64())) for name in COLUMNS
        ]
        fields += [(column, kinds[column.rpartition(":")[2]]) for column in extra.values()]
        self._extra = extra
        self._writer = self._parquet.ParquetWriter(
            self._stream, base.schema(fields, metadata=self._marks), compression="zstd"
        )

    def write(self, chunk: JobChunk) -> None:
        if self._writer is None:
            self._open(extra_columns(chunk))
        assert self._extra == extra_columns(chunk), "all chunks of a trace have the same extras"
        columns: list[Any] = [
            chunk.job,
            chunk.arrival,
            chunk.counts(),
            _durations(chunk),
            *(getattr(chunk, field) for field in NUMBERS),
            *(_names(chunk, getattr(chunk, field)) for field in NAMES),
            chunk.parent,
            _needed_jobs(chunk),
        ]
        columns += [
            _names(chunk, chunk.extra[key]) if key in chunk.name_keys else chunk.extra[key]
            for key in self._extra
        ]
        schema = self._writer.schema
        arrays = [self._base.array(column, schema.field(place).type) for place, column in enumerate(columns)]
        self._writer.write_table(self._base.Table.from_arrays(arrays, schema=schema))

    def finish(self) -> None:
        if self._writer is None:
            self._open({})
        self._writer.close()
