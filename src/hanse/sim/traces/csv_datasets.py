"""CSV traces with a header line: Alibaba GPU 2023 pods (openb), Microsoft Philly, Muri, GAIA's samples of
Alibaba PAI.

All four have one row per job of one task. The rows of Philly and openb are not in order of arrival, so a
separate first pass finds the earliest arrival.
"""

import csv
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from hanse.sim.traces.chunk import HOUR, SECOND, JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, NameTable, TraceRow
from hanse.sim.traces.read_options import TimeUnit
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import (
    FileHead,
    ParsedRow,
    RejectedRow,
    TraceFormat,
    TraceReader,
    build_chunks,
    parse_finite,
    parse_integer,
    parse_microseconds,
)

MEBIBYTE: Final = 1 << 20
MILLISECOND: Final = 1_000
Fields = dict[str, str]


class CsvTable(msgspec.Struct, frozen=True):
    """Reader settings for one kind of CSV."""

    columns: tuple[str, ...]
    """Required columns, by which the kind is also recognised."""
    parse: Callable[[int, Fields, NameTable, int], ParsedRow]
    """Parser of a row: ``(running number, fields, names, unit of time in microseconds)``."""
    arrival: Callable[[Fields], int | None] | None = None
    """For kinds that are not in order of arrival: a row's arrival in the trace's own microseconds."""
    extra: dict[str, type] = {}
    name_keys: tuple[str, ...] = ()


def split_fields(text: str) -> list[str] | None:
    """Return the fields of a CSV line; None if its quotes do not match."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error:
        return None


def read_rows(reader: TraceReader, report: ReadReport) -> Iterator[tuple[int, Fields | RejectedRow]]:
    """Yield each data row as a dictionary by the names of the header line."""
    header: list[str] | None = None
    for line, raw in reader.source.lines(report):
        text = raw.decode("utf-8", "replace").rstrip("\r").lstrip("\ufeff")
        if not text.strip() or text.startswith("#"):
            continue
        fields = split_fields(text)
        if header is None:
            header = [name.strip() for name in fields or []]
        elif fields is None:
            yield line, RejectedRow("quotes that do not match", text)
        elif len(fields) != len(header):
            yield (
                line,
                RejectedRow("not as many fields as the header has", f"{len(fields)}, not {len(header)}"),
            )
        else:
            yield line, dict(zip(header, fields, strict=True))


def find_earliest(reader: TraceReader, arrival: Callable[[Fields], int | None]) -> int | None:
    """Return the earliest arrival of all rows, by a pass over the file."""
    if reader.source.is_stdin:
        raise TraceError(
            f"a trace of format {reader.format} is not in order of arrival and is read twice:"
            " save it to a file first"
        )
    times = (arrival(row) for _, row in read_rows(reader, ReadReport()) if not isinstance(row, RejectedRow))
    return min((time for time in times if time is not None), default=None)


def _table_chunks(reader: TraceReader, table: CsvTable, unit: int) -> Iterator[JobChunk]:
    origin = find_earliest(reader, table.arrival) if table.arrival is not None else None
    builder = ChunkBuilder(reader.report, table.extra, table.name_keys, origin)

    def rows() -> Iterator[tuple[int, ParsedRow]]:
        for number, (line, fields) in enumerate(read_rows(reader, reader.report)):
            yield (
                line,
                (
                    fields
                    if isinstance(fields, RejectedRow)
                    else table.parse(number, fields, builder.names, unit)
                ),
            )

    yield from build_chunks(reader, builder, rows())


def _format(name: str, description: str, table: CsvTable, unit: int = SECOND) -> TraceFormat:
    def recognise(head: FileHead) -> bool:
        return not head.is_parquet and set(table.columns) <= set(head.header)

    def prepare(reader: TraceReader) -> None:
        if table is OPENB_TABLE:
            reader.has_durations = "creation_time" in reader.head.header
        if table is PHILLY_TABLE:
            reader.unix_start = 0

    def chunks(reader: TraceReader) -> Iterator[JobChunk]:
        found = _guess_gaia_unit(reader) if table is GAIA_TABLE else unit
        return _table_chunks(reader, table, found)

    return TraceFormat(name, description, recognise, chunks, prepare, table.columns)


def _openb(number: int, fields: Fields, names: NameTable, unit: int) -> ParsedRow:
    digits = fields["name"].rpartition("-")[2]
    cpu, memory = parse_integer(fields["cpu_milli"]), parse_integer(fields["memory_mib"])
    gpus, share = parse_integer(fields["num_gpu"]), parse_integer(fields["gpu_milli"])
    if cpu is None or memory is None or gpus is None or share is None:
        return RejectedRow("not a number in cpu_milli, memory_mib, num_gpu or gpu_milli")
    created, ended, started = 0, 0, None
    if "creation_time" in fields:
        times = (
            parse_microseconds(fields["creation_time"], unit),
            parse_microseconds(fields.get("deletion_time"), unit),
        )
        if times[0] is None or times[1] is None:
            return RejectedRow("no creation or deletion time")
        created, ended = times[0], times[1]
        started = parse_microseconds(fields.get("scheduled_time"), unit)
    if ended < (created if started is None else started):
        return RejectedRow("ends before it starts")
    return TraceRow(
        job=int(digits) if digits.isdecimal() else number,
        arrival=created,
        durations=(ended - (created if started is None else started),),
        cpu=cpu,
        memory=memory * MEBIBYTE,
        gpu=gpus * share,
        extra=(
            gpus,
            -1 if started is None else started - created,
            names.number(fields.get("gpu_spec", "")),
            names.number(fields.get("qos", "")),
            names.number(fields.get("pod_phase", "")),
        ),
    )


def _parse_instant(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)


def _philly(number: int, fields: Fields, names: NameTable, unit: int) -> ParsedRow:
    arrival, duration = _parse_instant(fields["timestamp"]), parse_microseconds(fields["duration"], unit)
    gpus = parse_integer(fields["num_gpus"])
    if arrival is None:
        return RejectedRow("not a date and time", fields["timestamp"])
    if duration is None:
        return RejectedRow("no duration", fields["duration"])
    if gpus is None or gpus < 0:
        return RejectedRow("no number of GPUs", fields["num_gpus"])
    return TraceRow(
        job=number,
        arrival=arrival,
        durations=(duration,),
        gpu=gpus * 1_000,
        site=names.number(fields["cluster"].strip()),
    )


def _muri(number: int, fields: Fields, names: NameTable, unit: int) -> ParsedRow:
    del number
    job, gpus = parse_integer(fields["job_id"]), parse_integer(fields["num_gpu"])
    arrival, duration = (
        parse_microseconds(fields["submit_time"], unit),
        parse_microseconds(fields["duration"], unit),
    )
    if job is None or gpus is None or arrival is None or duration is None:
        return RejectedRow("not a number in job_id, num_gpu, submit_time or duration")
    rest = [parse_finite(fields.get(key, "0")) for key in MURI_NUMBERS]
    if any(value is None for value in rest):
        return RejectedRow("not a number in " + ", ".join(MURI_NUMBERS))
    return TraceRow(
        job=job,
        arrival=arrival,
        durations=(duration,),
        gpu=gpus * 1_000,
        extra=(*(value or 0.0 for value in rest), names.number(fields["model_name"])),
    )


def _gaia(number: int, fields: Fields, names: NameTable, unit: int) -> ParsedRow:
    del names
    arrival, duration = (
        parse_microseconds(fields["arrival_time"], unit),
        parse_microseconds(fields["length"], unit),
    )
    cpus = parse_finite(fields["cpus"])
    if arrival is None or duration is None or cpus is None:
        return RejectedRow("not a number in arrival_time, length or cpus")
    return TraceRow(job=number, arrival=arrival, durations=(duration,), cpu=round(cpus * 1_000))


def _guess_gaia_unit(reader: TraceReader) -> int:
    """Return the unit of GAIA's times: seconds in the small sample, hours in the large ones, never stated."""
    rule = reader.options.time_unit
    if rule is TimeUnit.AUTO:
        rows = [split_fields(line) or [] for line in reader.head.lines[1:]]
        numbers = [parse_finite(field) for row in rows for field in row[:2]]
        fractions = any(value is not None and not value.is_integer() for value in numbers)
        rule = TimeUnit.HOURS if fractions else TimeUnit.SECONDS
        why = "there are fractions" if fractions else "the first rows have whole numbers only"
        reader.report.note(f"times are taken as {rule} because {why}; the rule time_unit says otherwise")
    return HOUR if rule is TimeUnit.HOURS else SECOND


MURI_NUMBERS: Final = (
    "iterations",
    "batch_size",
    "iteration_time",
    "resource_time_0",
    "resource_time_1",
    "resource_time_2",
    "priority",
)
OPENB_TABLE: Final = CsvTable(
    columns=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    parse=_openb,
    arrival=lambda fields: parse_microseconds(fields.get("creation_time", "0")),
    extra={"num_gpu": int, "wait": int, "gpu_spec": int, "qos": int, "status": int},
    name_keys=("gpu_spec", "qos", "status"),
)
PHILLY_TABLE: Final = CsvTable(
    columns=("timestamp", "duration", "num_gpus", "cluster"),
    parse=_philly,
    arrival=lambda fields: _parse_instant(fields["timestamp"]),
)
MURI_TABLE: Final = CsvTable(
    columns=("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"),
    parse=_muri,
    extra={**dict.fromkeys(MURI_NUMBERS, float), "model": int},
    name_keys=("model",),
)
GAIA_TABLE: Final = CsvTable(columns=("arrival_time", "length", "cpus"), parse=_gaia)

OPENB = _format(
    "openb", "Alibaba GPU 2023 pod list (CSV); by its columns cpu_milli, num_gpu, gpu_milli", OPENB_TABLE
)
PHILLY = _format(
    "philly", "Microsoft Philly jobs (CSV); by its columns timestamp, num_gpus, cluster", PHILLY_TABLE
)
MURI = _format(
    "muri",
    "Muri's Philly-derived jobs, times in ms (CSV); by its columns model_name, iterations",
    MURI_TABLE,
    MILLISECOND,
)
GAIA = _format(
    "gaia", "GAIA's samples of Alibaba PAI (CSV); by its columns arrival_time, length, cpus", GAIA_TABLE
)
