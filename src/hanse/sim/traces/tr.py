"""``.tr`` format of Sparrow, Hawk, Eagle, Pigeon and Megha.

A line is a job: ``arrival_s tasks mean_s d1 ... dn``, separated by blanks, durations in seconds and often
fractional. The third field is the mean according to the trace's author; it is not used. A task is one slot,
so no resources are stated.
"""

from collections.abc import Iterator

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, TraceRow
from hanse.sim.traces.reader import FileHead, ParsedRow, RejectedRow, TraceFormat, TraceReader, build_chunks


def _is_tr_row(fields: list[str]) -> bool:
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        return False
    return len(numbers) >= 4 and numbers[1].is_integer() and len(numbers) == int(numbers[1]) + 3


def _recognise(head: FileHead) -> bool:
    rows = [line.split() for line in head.data_lines("#")[:20]]
    # a first line of many thousands of tasks may not fit the head: then only the name helps
    if head.name.endswith(".tr"):
        return True
    return bool(rows) and sum(_is_tr_row(row) for row in rows) * 2 > len(rows)


def _parse(job: int, fields: list[bytes], truncate: bool) -> ParsedRow:
    if len(fields) < 4:
        return RejectedRow("fewer than four fields", b" ".join(fields).decode("utf-8", "replace"))
    try:
        arrival = round(float(fields[0]) * SECOND)
        count = int(fields[1])
        float(fields[2])
        values = [float(field) for field in fields[3:]]
        durations = (
            [int(value) * SECOND for value in values]
            if truncate
            else [round(value * 1e6) for value in values]
        )
    except (ValueError, OverflowError) as error:
        return RejectedRow("not a number", str(error))
    if count != len(values):
        return RejectedRow(
            "the number of tasks is not the number of durations", f"says {count}, has {len(values)}"
        )
    if min(values) < 0:
        return RejectedRow("a negative duration", str(min(values)))
    return TraceRow(job=job, arrival=arrival, durations=durations, count=count)


def _rows(reader: TraceReader) -> Iterator[tuple[int, ParsedRow]]:
    truncate = reader.options.truncate_seconds
    job = 0
    for line, text in reader.source.lines(reader.report):
        fields = text.split()
        if fields and not fields[0].startswith(b"#"):
            yield line, _parse(job, fields, truncate)
            job += 1


def _chunks(reader: TraceReader) -> Iterator[JobChunk]:
    return build_chunks(reader, ChunkBuilder(reader.report), _rows(reader))


TR = TraceFormat(
    "tr",
    "'arrival_s tasks mean_s d1 ... dn' (Sparrow, Hawk, Eagle, Pigeon, Megha); by name .tr or such lines",
    _recognise,
    _chunks,
)
