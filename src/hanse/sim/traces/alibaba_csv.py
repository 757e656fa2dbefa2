"""Alibaba's tables as published, CSV without a header: 2018 ``batch_task`` and GPU 2020 ``pai_task_table``.

2018: task name, instances, job, type, status, start (s), end (s), CPU (100 = one core), memory (per cent of
a node). The task's name gives its position in the DAG: ``J3_1_2`` is number 3 and needs 1 and 2. A DAG
arrives when its first task starts. GPU 2020: job, task, instances, status, start, end, CPU (100 = one core),
memory (GB), GPU (100 = one), GPU type; each task arrives when it starts. Rows of one job are adjacent.
Neither table is in order of time, so a separate first pass finds the earliest start. Tasks that had not
ended are left out and counted.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.chunk_builder import DAG_ENTRIES_MAX, ChunkBuilder, NameTable, TraceRow
from hanse.sim.traces.csv_datasets import split_fields
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import (
    FileHead,
    ParsedRow,
    RejectedRow,
    SkippedRow,
    TraceFormat,
    TraceReader,
    build_chunks,
    parse_finite,
    parse_integer,
    parse_microseconds,
)

GIGABYTE: Final = 10**9
NOT_ENDED: Final = "tasks that had not ended when the trace was taken"
NO_KEY: Final = -1
_NUMBERED: Final = re.compile(r"[A-Za-z]+(\d{1,9})$")


class _Columns(msgspec.Struct, frozen=True):
    """Positions of the columns of one table."""

    fields: int
    job: int
    task: int
    count: int
    status: int
    start: int
    end: int
    cpu: int
    memory: int
    gpu: int | None = None
    gpu_type: int | None = None

    @property
    def is_dag(self) -> bool:
        """True for the older table, which has DAGs."""
        return self.gpu is None


_BATCH_2018: Final = _Columns(fields=9, task=0, count=1, job=2, status=4, start=5, end=6, cpu=7, memory=8)
_PAI_2020: Final = _Columns(
    fields=10, job=0, task=1, count=2, status=3, start=4, end=5, cpu=6, memory=7, gpu=8, gpu_type=9
)


def parse_dag_position(task: str) -> tuple[int, tuple[int, ...]]:
    """Return a task's number and the numbers it needs, from its name; without a number it needs nothing."""
    first, *rest = task.split("_")
    found = _NUMBERED.match(first)
    if found is None:
        return NO_KEY, ()
    return int(found[1]), tuple(int(part) for part in rest if part.isdecimal() and len(part) <= 9)


class _Parser:
    def __init__(self, columns: _Columns, names: NameTable) -> None:
        self.columns = columns
        self.names = names
        self.job = ""
        self.jobs = 0
        self.number = -1

    def parse(self, fields: list[str]) -> ParsedRow:
        """Parse one row."""
        at = self.columns
        self.number += 1
        if fields[at.job] != self.job or not self.jobs:
            self.job, self.jobs = fields[at.job], self.jobs + 1
        start, end, count = (
            parse_microseconds(fields[at.start]),
            parse_microseconds(fields[at.end]),
            parse_integer(fields[at.count] or 1),
        )
        if not start or not end:
            return SkippedRow(NOT_ENDED)
        if end < start:
            return RejectedRow("ends before it starts", f"{fields[at.start]} {fields[at.end]}")
        if count is None or count < 1:
            return RejectedRow("no number of instances", fields[at.count])
        memory = parse_finite(fields[at.memory])
        key, needs = parse_dag_position(fields[at.task]) if at.is_dag else (NO_KEY, ())
        shares = [
            parse_finite(fields[at.cpu]) or 0.0,
            0.0 if at.gpu is None else parse_finite(fields[at.gpu]) or 0.0,
        ]
        named: tuple[int, ...] = (self.names.number(fields[at.status]),)
        if at.gpu_type is not None:
            named += (self.names.number(fields[at.gpu_type]), self.names.number(fields[at.task]))
        return TraceRow(
            job=self.number,
            arrival=start,
            durations=(end - start,),
            count=count,
            cpu=round(shares[0] * 10),
            memory=0 if at.is_dag else round((memory or 0.0) * GIGABYTE),
            gpu=round(shares[1] * 10),
            parent=self.jobs - 1,
            key=key,
            needs=needs,
            extra=(float("nan") if memory is None else memory, *named) if at.is_dag else named,
        )


def _split_rows(
    reader: TraceReader, columns: _Columns, report: ReadReport
) -> Iterator[tuple[int, list[str] | RejectedRow]]:
    for line, raw in reader.source.lines(report):
        text = raw.decode("utf-8", "replace").strip()
        if not text:
            continue
        fields = split_fields(text)
        if fields is None or len(fields) != columns.fields:
            yield line, RejectedRow(f"not {columns.fields} fields", text)
        else:
            yield line, fields


def _find_earliest(reader: TraceReader, columns: _Columns) -> int | None:
    if reader.source.is_stdin:
        raise TraceError(f"a trace of format {reader.format} is read twice: save it to a file first")
    rows = (
        fields
        for _, fields in _split_rows(reader, columns, ReadReport())
        if not isinstance(fields, RejectedRow)
    )
    starts = (
        parse_microseconds(fields[columns.start])
        for fields in rows
        if parse_microseconds(fields[columns.end])
    )
    return min((start for start in starts if start), default=None)


def _with_dag_arrivals(rows: Iterator[tuple[int, ParsedRow]]) -> Iterator[tuple[int, ParsedRow]]:
    """Yield the rows with the arrival of each DAG's first task; holds one DAG at a time."""
    dag_rows: list[tuple[int, TraceRow]] = []
    for line, row in rows:
        if not isinstance(row, TraceRow):
            yield line, row
            continue
        if dag_rows and (dag_rows[-1][1].parent != row.parent or len(dag_rows) >= DAG_ENTRIES_MAX):
            yield from _with_first_arrival(dag_rows)
            dag_rows = []
        dag_rows.append((line, row))
    yield from _with_first_arrival(dag_rows)


def _with_first_arrival(dag_rows: list[tuple[int, TraceRow]]) -> Iterator[tuple[int, TraceRow]]:
    first = min((row.arrival for _, row in dag_rows), default=0)
    for line, row in dag_rows:
        row.arrival = first
        yield line, row


def _chunk_reader(columns: _Columns) -> Callable[[TraceReader], Iterator[JobChunk]]:
    extra: dict[str, type] = {"status": int, "gpu_spec": int, "task": int}
    named = tuple(extra)
    if columns.is_dag:
        extra, named = {"mem_norm": float, "status": int}, ("status",)

    def chunks(reader: TraceReader) -> Iterator[JobChunk]:
        builder = ChunkBuilder(reader.report, extra, named, _find_earliest(reader, columns))
        parser = _Parser(columns, builder.names)
        rows: Iterator[tuple[int, ParsedRow]] = (
            (line, fields if isinstance(fields, RejectedRow) else parser.parse(fields))
            for line, fields in _split_rows(reader, columns, reader.report)
        )
        yield from build_chunks(reader, builder, _with_dag_arrivals(rows) if columns.is_dag else rows)

    return chunks


def _recogniser(columns: _Columns) -> Callable[[FileHead], bool]:
    numbers = (columns.count, columns.start, columns.end, columns.cpu, columns.memory)

    def fits(line: str) -> bool:
        fields = split_fields(line) or []
        if len(fields) != columns.fields or fields[columns.status].isdecimal():
            return False
        return all(not fields[place] or parse_finite(fields[place]) is not None for place in numbers)

    def recognise(head: FileHead) -> bool:
        rows = [line for line in head.lines[:20] if line.strip()]
        return bool(rows) and all(fits(row) for row in rows)

    return recognise


BATCH_TASK = TraceFormat(
    "alibaba-batch",
    "Alibaba 2018 batch_task, 9 columns without a header (CSV); by such rows",
    _recogniser(_BATCH_2018),
    _chunk_reader(_BATCH_2018),
)
PAI_TASK = TraceFormat(
    "alibaba-pai",
    "Alibaba GPU 2020 pai_task_table, 10 columns without a header (CSV); by such rows",
    _recogniser(_PAI_2020),
    _chunk_reader(_PAI_2020),
)
