"""Public datasets in Parquet: Alibaba 2017 tasks, Alibaba 2018 DAGs, Azure LLM requests, Google 2019
requests.

The first three share one table: ``job_id, submit_s, duration_s, n_tasks, cpu, mem_gb, gpu, user, group,
site, constraint, qos, req_time_s, orig_wait_s, status`` and the additions of the dataset. Their
``duration_s`` holds for each of the ``n_tasks`` tasks. Memory given as a share of a node (``mem_norm``) is
kept unchanged under ``extra``.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, NameTable, TraceRow
from hanse.sim.traces.parquet import find_smallest, open_parquet, read_parquet_rows
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

GIGABYTE: Final = 10**9
BASE: Final = [
    "job_id",
    "submit_s",
    "duration_s",
    "n_tasks",
    "cpu",
    "mem_gb",
    "gpu",
    "user",
    "group",
    "site",
    "constraint",
    "qos",
    "req_time_s",
    "orig_wait_s",
    "status",
]
NEEDED: Final = ("job_id", "submit_s", "duration_s", "n_tasks")
NO_KEY: Final = -1
"""Key of a DAG's node without a number of its own, so that nothing can need it."""
Values = dict[str, Any]


class _DatasetKind(msgspec.Struct, frozen=True):
    """Differences of one dataset from the shared table."""

    numbers: dict[str, type] = {}
    """Additional columns, kept under ``extra``."""
    is_dag: bool = False
    has_durations: bool = True


def _trailing_number(text: str) -> int | None:
    found = text.rpartition("_")[2]
    return int(found) if found.isdecimal() and len(found) <= 18 else None


class _Parser:
    def __init__(self, kind: _DatasetKind, names: NameTable) -> None:
        self.kind = kind
        self.names = names
        self.dags = 0
        self.dag_name = ""

    def parse(self, number: int, values: Values) -> ParsedRow:
        """Parse one row; ``number`` counts from 0."""
        arrival, count = parse_microseconds(values["submit_s"]), parse_integer(values["n_tasks"])
        duration = parse_microseconds(values["duration_s"])
        if duration is None and not self.kind.has_durations:
            duration = 0
        if arrival is None:
            return RejectedRow("no submit time", str(values["submit_s"]))
        if duration is None:
            return RejectedRow("no duration", str(values["duration_s"]))
        if count is None or count < 1:
            return RejectedRow("no number of tasks", str(values["n_tasks"]))
        job, parent = self._numbers(number, str(values["job_id"] or ""))
        return TraceRow(
            job=job,
            arrival=arrival,
            durations=(duration,),
            count=count,
            cpu=round((parse_finite(values["cpu"]) or 0.0) * 1_000),
            memory=round((parse_finite(values["mem_gb"]) or 0.0) * GIGABYTE),
            gpu=round((parse_finite(values["gpu"]) or 0.0) * 1_000),
            estimate=parse_microseconds(values["req_time_s"]) or 0,
            user=self.names.number(str(values["user"] or "")),
            group=self.names.number(str(values["group"] or "")),
            site=self.names.number(str(values["site"] or "")),
            parent=parent,
            extra=self._extra(values),
            **self._dag(values),
        )

    def _numbers(self, number: int, text: str) -> tuple[int, int | None]:
        """Return the numbers of an entry and its parent; a DAG without a number gets a negative one."""
        if self.kind.is_dag:
            if text != self.dag_name:
                self.dag_name, self.dags = text, self.dags + 1
            known = _trailing_number(text)
            return number, (-self.dags if known is None else known)
        whole_part, _, own = text.rpartition("/")
        job, parent = _trailing_number(own), _trailing_number(whole_part)
        return (number if job is None else job), parent

    def _dag(self, values: Values) -> dict[str, Any]:
        if not self.kind.is_dag:
            return {}
        key = parse_integer(values["task_no"] or None)
        needs = [parse_integer(part) for part in str(values["deps"] or "").split(",") if part.strip()]
        return {
            "key": NO_KEY if key is None else key,
            "needs": tuple(NO_KEY - 1 if need is None else need for need in needs),
        }

    def _extra(self, values: Values) -> tuple[float, ...]:
        wait = parse_microseconds(values["orig_wait_s"])
        named = (self.names.number(str(values[key] or "")) for key in ("status", "qos", "constraint"))
        added = (
            parse_finite(values[key]) if kind is float else parse_integer(values[key])
            for key, kind in self.kind.numbers.items()
        )
        missing = (float("nan") if kind is float else -1 for kind in self.kind.numbers.values())
        return (
            -1 if wait is None else wait,
            *named,
            *(none if value is None else value for value, none in zip(added, missing, strict=True)),
        )


def _set_format(
    name: str, description: str, kind: _DatasetKind, recognise: Callable[[set[str]], bool]
) -> TraceFormat:
    extra: dict[str, type] = {"wait": int, "status": int, "qos": int, "constraint": int, **kind.numbers}

    def prepare(reader: TraceReader) -> None:
        reader.has_durations = kind.has_durations
        with open_parquet(reader.source.path) as file:
            reader.rows_total = file.metadata.num_rows

    def chunks(reader: TraceReader) -> Iterator[JobChunk]:
        builder = ChunkBuilder(reader.report, extra, ("status", "qos", "constraint"))
        parser = _Parser(kind, builder.names)
        columns = [*BASE, *kind.numbers, *(("task_no", "deps") if kind.is_dag else ())]
        rows = read_parquet_rows(reader.source.path, columns, reader.report)
        return build_chunks(
            reader, builder, ((line, parser.parse(line - 1, values)) for line, values in rows)
        )

    def recognise_set(head: FileHead) -> bool:
        columns = set(head.columns)
        return set(NEEDED) <= columns and recognise(columns)

    return TraceFormat(name, description, recognise_set, chunks, prepare, NEEDED)


ALIBABA_DAG = _set_format(
    "alibaba-dag",
    "Alibaba 2018 batch DAGs (Parquet); by its columns task_no, deps",
    _DatasetKind(numbers={"mem_norm": float}, is_dag=True),
    lambda columns: {"task_no", "deps"} <= columns,
)
AZURE_LLM = _set_format(
    "azure-llm",
    "Azure LLM inference requests, no durations (Parquet); by its columns ctx_tokens, gen_tokens",
    _DatasetKind(numbers={"ctx_tokens": int, "gen_tokens": int}, has_durations=False),
    lambda columns: {"ctx_tokens", "gen_tokens"} <= columns,
)
ALIBABA_2017 = _set_format(
    "alibaba-2017",
    "Alibaba 2017 batch tasks with instance counts (Parquet); by its column mem_norm and no deps",
    _DatasetKind(numbers={"mem_norm": float}),
    lambda columns: "mem_norm" in columns and "deps" not in columns,
)
JOBS_PARQUET = _set_format(
    "jobs-parquet",
    "any Parquet with the columns job_id, submit_s, duration_s, n_tasks, cpu, mem_gb, gpu, ...",
    _DatasetKind(),
    lambda columns: True,  # noqa: ARG005 - the base columns, checked for all sets, are enough
)

GOOGLE_2019_COLUMNS: Final = [
    "time",
    "user",
    "collection_id",
    "instance_index",
    "cpus",
    "ram",
    "collection_type",
    "site",
]

GOOGLE_2019_NEEDED: Final = ("time", "collection_id", "instance_index", "cpus", "ram")


def _google_2019_chunks(reader: TraceReader) -> Iterator[JobChunk]:
    path, options = reader.source.path, reader.options
    extra: dict[str, type] = {
        "instance_index": int,
        "collection_type": int,
        "cpu_norm": float,
        "memory_norm": float,
    }
    builder = ChunkBuilder(reader.report, extra, origin=find_smallest(path, "time"))

    def parse_row(number: int, values: Values) -> ParsedRow:
        at, collection = parse_integer(values["time"]), parse_integer(values["collection_id"])
        cpu, memory = parse_finite(values["cpus"]), parse_finite(values["ram"])
        if at is None or collection is None:
            return RejectedRow("no time or collection_id")
        if cpu is None or memory is None:
            return RejectedRow("no request for cpus or ram")
        index, kind = parse_integer(values["instance_index"]), parse_integer(values["collection_type"])
        return TraceRow(
            job=number,
            arrival=at,
            durations=(0,),
            cpu=round(cpu * options.whole_cpu),
            memory=round(memory * options.whole_memory),
            user=builder.names.number(str(values["user"] or "")),
            site=builder.names.number(str(values["site"] or "")),
            parent=collection,
            extra=(-1 if index is None else index, -1 if kind is None else kind, cpu, memory),
        )

    rows = read_parquet_rows(path, GOOGLE_2019_COLUMNS, reader.report)
    return build_chunks(reader, builder, ((line, parse_row(line - 1, values)) for line, values in rows))


def _google_2019_prepare(reader: TraceReader) -> None:
    reader.has_durations = False
    with open_parquet(reader.source.path) as file:
        reader.rows_total = file.metadata.num_rows


GOOGLE_2019 = TraceFormat(
    "google-2019",
    "Google 2019 instance requests, no durations (Parquet); by its columns collection_id, instance_index",
    lambda head: set(GOOGLE_2019_NEEDED) <= set(head.columns),
    _google_2019_chunks,
    _google_2019_prepare,
    GOOGLE_2019_NEEDED,
)
