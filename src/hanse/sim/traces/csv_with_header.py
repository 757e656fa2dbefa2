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
from hanse.sim.traces.chunk_builder import Builder, Names, Row
from hanse.sim.traces.read_options import TimeUnit
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import Format, Head, Parsed, Refused, TraceReader, collect, finite, micros, whole

MEBIBYTE: Final = 1 << 20
MILLISECOND: Final = 1_000
Fields = dict[str, str]


class Table(msgspec.Struct, frozen=True):
    """Reader settings for one kind of CSV."""

    columns: tuple[str, ...]
    """Required columns, by which the kind is also recognised."""
    parse: Callable[[int, Fields, Names, int], Parsed]
    """Parser of a row: ``(running number, fields, names, unit of time in microseconds)``."""
    arrival: Callable[[Fields], int | None] | None = None
    """For kinds that are not in order of arrival: a row's arrival in the trace's own microseconds."""
    extra: dict[str, type] = {}
    named: tuple[str, ...] = ()


def split(text: str) -> list[str] | None:
    """Return the fields of a CSV line; None if its quotes do not match."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error:
        return None


def dict_rows(reader: TraceReader, report: ReadReport) -> Iterator[tuple[int, Fields | Refused]]:
    """Yield each data row as a dictionary by the names of the header line."""
    header: list[str] | None = None
    for line, raw in reader.source.lines(report):
        text = raw.decode("utf-8", "replace").rstrip("\r").lstrip("\ufeff")
        if not text.strip() or text.startswith("#"):
            continue
        fields = split(text)
        if header is None:
            header = [name.strip() for name in fields or []]
        elif fields is None:
            yield line, Refused("quotes that do not match", text)
        elif len(fields) != len(header):
            yield line, Refused("not as many fields as the header has", f"{len(fields)}, not {len(header)}")
        else:
            yield line, dict(zip(header, fields, strict=True))


def earliest(reader: TraceReader, arrival: Callable[[Fields], int | None]) -> int | None:
    """Return the earliest arrival of all rows, by a pass over the file."""
    if reader.source.is_stdin:
        raise TraceError(
            f"a trace of format {reader.format} is not in order of arrival and is read twice:"
            " save it to a file first"
        )
    times = (arrival(row) for _, row in dict_rows(reader, ReadReport()) if not isinstance(row, Refused))
    return min((time for time in times if time is not None), default=None)


def _table_chunks(reader: TraceReader, table: Table, unit: int) -> Iterator[JobChunk]:
    origin = earliest(reader, table.arrival) if table.arrival is not None else None
    builder = Builder(reader.report, table.extra, table.named, origin)

    def rows() -> Iterator[tuple[int, Parsed]]:
        for number, (line, fields) in enumerate(dict_rows(reader, reader.report)):
            yield (
                line,
                (fields if isinstance(fields, Refused) else table.parse(number, fields, builder.names, unit)),
            )

    yield from collect(reader, builder, rows())


def _format(name: str, about: str, table: Table, unit: int = SECOND) -> Format:
    def recognise(head: Head) -> bool:
        return not head.is_parquet and set(table.columns) <= set(head.header)

    def prepare(reader: TraceReader) -> None:
        if table is OPENB_TABLE:
            reader.has_durations = "creation_time" in reader.head.header
        if table is PHILLY_TABLE:
            reader.unix_start = 0

    def chunks(reader: TraceReader) -> Iterator[JobChunk]:
        found = _gaia_unit(reader) if table is GAIA_TABLE else unit
        return _table_chunks(reader, table, found)

    return Format(name, about, recognise, chunks, prepare, table.columns)


def _openb(number: int, fields: Fields, names: Names, unit: int) -> Parsed:
    digits = fields["name"].rpartition("-")[2]
    cpu, memory = whole(fields["cpu_milli"]), whole(fields["memory_mib"])
    gpus, share = whole(fields["num_gpu"]), whole(fields["gpu_milli"])
    if cpu is None or memory is None or gpus is None or share is None:
        return Refused("not a number in cpu_milli, memory_mib, num_gpu or gpu_milli")
    created, ended, started = 0, 0, None
    if "creation_time" in fields:
        times = (micros(fields["creation_time"], unit), micros(fields.get("deletion_time"), unit))
        if times[0] is None or times[1] is None:
            return Refused("no creation or deletion time")
        created, ended = times[0], times[1]
        started = micros(fields.get("scheduled_time"), unit)
    if ended < (created if started is None else started):
        return Refused("ends before it starts")
    return Row(
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


def _instant(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)


def _philly(number: int, fields: Fields, names: Names, unit: int) -> Parsed:
    arrival, duration = _instant(fields["timestamp"]), micros(fields["duration"], unit)
    gpus = whole(fields["num_gpus"])
    if arrival is None:
        return Refused("not a date and time", fields["timestamp"])
    if duration is None:
        return Refused("no duration", fields["duration"])
    if gpus is None or gpus < 0:
        return Refused("no number of GPUs", fields["num_gpus"])
    return Row(
        job=number,
        arrival=arrival,
        durations=(duration,),
        gpu=gpus * 1_000,
        site=names.number(fields["cluster"].strip()),
    )


def _muri(number: int, fields: Fields, names: Names, unit: int) -> Parsed:
    del number
    job, gpus = whole(fields["job_id"]), whole(fields["num_gpu"])
    arrival, duration = micros(fields["submit_time"], unit), micros(fields["duration"], unit)
    if job is None or gpus is None or arrival is None or duration is None:
        return Refused("not a number in job_id, num_gpu, submit_time or duration")
    rest = [finite(fields.get(key, "0")) for key in MURI_NUMBERS]
    if any(value is None for value in rest):
        return Refused("not a number in " + ", ".join(MURI_NUMBERS))
    return Row(
        job=job,
        arrival=arrival,
        durations=(duration,),
        gpu=gpus * 1_000,
        extra=(*(value or 0.0 for value in rest), names.number(fields["model_name"])),
    )


def _gaia(number: int, fields: Fields, names: Names, unit: int) -> Parsed:
    del names
    arrival, duration = micros(fields["arrival_time"], unit), micros(fields["length"], unit)
    cpus = finite(fields["cpus"])
    if arrival is None or duration is None or cpus is None:
        return Refused("not a number in arrival_time, length or cpus")
    return Row(job=number, arrival=arrival, durations=(duration,), cpu=round(cpus * 1_000))


def _gaia_unit(reader: TraceReader) -> int:
    """Return the unit of GAIA's times: seconds in the small sample, hours in the large ones, never stated."""
    rule = reader.rules.time_unit
    if rule is TimeUnit.AUTO:
        rows = [split(line) or [] for line in reader.head.lines[1:]]
        numbers = [finite(field) for row in rows for field in row[:2]]
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
OPENB_TABLE: Final = Table(
    columns=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    parse=_openb,
    arrival=lambda fields: micros(fields.get("creation_time", "0")),
    extra={"num_gpu": int, "wait": int, "gpu_spec": int, "qos": int, "status": int},
    named=("gpu_spec", "qos", "status"),
)
PHILLY_TABLE: Final = Table(
    columns=("timestamp", "duration", "num_gpus", "cluster"),
    parse=_philly,
    arrival=lambda fields: _instant(fields["timestamp"]),
)
MURI_TABLE: Final = Table(
    columns=("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"),
    parse=_muri,
    extra={**dict.fromkeys(MURI_NUMBERS, float), "model": int},
    named=("model",),
)
GAIA_TABLE: Final = Table(columns=("arrival_time", "length", "cpus"), parse=_gaia)

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
