"""Standard Workload Format of the Parallel Workloads Archive: rigid parallel jobs, 17 or 18 fields a line.

A job of p processors is one task of p x 1000 milli-CPU. Options (``ReadOptions``) choose between the two
numbers of processors, the estimate, and the treatment of cancelled jobs. Lines of status 2, 3 and 4 are
parts of a job that was swapped out and in, and the whole job has a line of its own: they are left out and
counted. A row without processors, or without a run time (unless it was cancelled), is a bad row.
"""

from collections.abc import Iterator
from typing import Final

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, NameTable, TraceRow
from hanse.sim.traces.read_options import CancelledRule, EstimateRule, ProcessorRule, ReadOptions
from hanse.sim.traces.reader import (
    FileHead,
    ParsedRow,
    RejectedRow,
    SkippedRow,
    TraceFormat,
    TraceReader,
    build_chunks,
    parse_integer,
)

COMMENT: Final = b";"
FIELDS_MIN: Final = 17
KIBIBYTE: Final = 1_024
STATUS_CANCELLED: Final = 5
STATUS_PARTS: Final = (2, 3, 4)
EXTRA: Final[dict[str, type]] = {
    "status": int,
    "wait": int,
    "allocated": int,
    "requested": int,
    "queue": int,
    "application": int,
    "after": int,
}
"""SWF status; wait in the real system (microseconds, -1 = unknown); both numbers of processors; fields 15,
14, 17."""


def _recognise(head: FileHead) -> bool:
    if head.name.endswith(".swf"):
        return True
    rows = head.data_lines(";")[:20]
    return bool(rows) and all(
        len(row.split()) in (17, 18) and parse_integer(row.split()[0]) is not None for row in rows
    )


def _prepare(reader: TraceReader) -> None:
    for line in reader.head.lines:
        text = line.strip()
        if text.startswith(";") and ":" in text:
            key, value = text[1:].split(":", 1)
            key = key.strip()
            if key == "Partition":
                number, _, name = value.strip().partition(" ")
                reader.header[f"Partition {number}"] = name.strip()
            elif key:
                reader.header.setdefault(key, value.strip())
    for key in ("MaxProcs", "MaxNodes"):
        stated = parse_integer(reader.header.get(key, "").partition(" ")[0])
        if stated is not None and stated > 0 and reader.nodes_hint is None:
            reader.nodes_hint = stated
    reader.unix_start = parse_integer(reader.header.get("UnixStartTime"))


class _Parser:
    """Parser of one pass."""

    def __init__(self, options: ReadOptions, names: NameTable, header: dict[str, str]) -> None:
        self.options = options
        self.names = names
        self.sites = {
            key.partition(" ")[2]: name for key, name in header.items() if key.startswith("Partition ")
        }

    def parse(self, fields: list[bytes]) -> ParsedRow:
        """Parse one line."""
        if len(fields) < FIELDS_MIN:
            return RejectedRow(f"fewer than {FIELDS_MIN} fields", f"has {len(fields)}")
        try:
            values = [float(field) for field in fields[:17]]
            job, arrival = int(fields[0]), round(values[1] * SECOND)
            whole_values = [int(value) for value in values]
        except (ValueError, OverflowError) as error:
            return RejectedRow("not a number", str(error))
        status, run = whole_values[10], values[3]
        refusal = self._find_exclusion(status, run)
        if refusal is not None:
            return refusal
        processors = self._processors(whole_values[4], whole_values[7])
        if processors <= 0:
            return RejectedRow("no processors, neither allocated nor requested")
        if arrival < 0:
            return RejectedRow("no submit time", fields[1].decode("utf-8", "replace"))
        requested = max(0.0, values[8])
        real = max(0.0, run)
        if self.options.kill_at_estimate and requested > 0:
            real = min(real, requested)
        if self.options.estimates is EstimateRule.AT_LEAST_REAL:
            requested = max(requested, real)
        return TraceRow(
            job=job,
            arrival=arrival,
            durations=(round(real * SECOND),),
            cpu=processors * 1_000,
            memory=max(0, whole_values[9]) * KIBIBYTE * processors,
            estimate=round(requested * SECOND),
            user=self._name(whole_values[11]),
            group=self._name(whole_values[12]),
            site=self._site(whole_values[15]),
            extra=(
                status,
                round(values[2] * SECOND) if values[2] >= 0 else -1,
                *(whole_values[place] for place in (4, 7, 14, 13, 16)),
            ),
        )

    def _find_exclusion(self, status: int, run: float) -> RejectedRow | SkippedRow | None:
        if status in STATUS_PARTS:
            return SkippedRow("SWF lines of status 2, 3, 4: parts of a job that has its own line")
        if status == STATUS_CANCELLED:
            if self.options.cancelled is CancelledRule.SKIP:
                return SkippedRow("cancelled jobs (status 5)")
            if self.options.cancelled is CancelledRule.RAN and run <= 0:
                return SkippedRow("jobs cancelled before they ran (status 5)")
        elif run < 0:
            return RejectedRow("no run time")
        if self.options.skip_zero_runtime and run == 0:
            return SkippedRow("jobs of run time 0")
        return None

    def _processors(self, allocated: int, requested: int) -> int:
        first, second = (
            (requested, allocated)
            if self.options.processors is ProcessorRule.REQUESTED
            else (allocated, requested)
        )
        return first if first > 0 else second

    def _name(self, number: int) -> int:
        return self.names.number(str(number)) if number >= 0 else -1

    def _site(self, number: int) -> int:
        return self.names.number(self.sites.get(str(number), str(number))) if number >= 0 else -1


def _chunks(reader: TraceReader) -> Iterator[JobChunk]:
    builder = ChunkBuilder(reader.report, EXTRA)
    parser = _Parser(reader.options, builder.names, reader.header)

    def rows() -> Iterator[tuple[int, ParsedRow]]:
        for line, text in reader.source.lines(reader.report):
            fields = text.split()
            if fields and not fields[0].startswith(COMMENT):
                yield line, parser.parse(fields)

    return build_chunks(reader, builder, rows())


SWF = TraceFormat(
    "swf",
    "Standard Workload Format, 17 or 18 fields a line, ';' comments; by name .swf or such lines",
    _recognise,
    _chunks,
    _prepare,
)
