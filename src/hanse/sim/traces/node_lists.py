"""Lists of nodes that belong to traces: Alibaba GPU 2023 node lists (CSV) and Google 2019 machine shapes
(Parquet)."""

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from hanse.sim.traces.chunk import Ints, SmallInts
from hanse.sim.traces.chunk_builder import AMOUNT_MAX, NameTable
from hanse.sim.traces.csv_datasets import MEBIBYTE, split_fields
from hanse.sim.traces.line_source import TraceSource
from hanse.sim.traces.parquet import read_parquet_rows
from hanse.sim.traces.read_options import DEFAULT_READ_OPTIONS, ReadOptions
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import FileHead, RejectedRow, parse_finite, parse_integer, read_head

OPENB_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
GOOGLE_COLUMNS: Final = ("cpus", "ram", "machine_count", "site")
ROWS_MAX: Final = 1 << 22
"""Largest number of rows, because all are held at once; longer lists are refused."""


class NodeTable(msgspec.Struct, frozen=True, eq=False):
    """Nodes as columns; one row describes ``count`` equal nodes."""

    label: tuple[str, ...]
    """[M] the node's own name, empty if the row describes several."""
    count: Ints
    cpu: Ints
    """[M] milli-CPU."""
    memory: Ints
    """[M] bytes."""
    gpu: Ints
    """[M] milli-GPU, 1000 = a whole one."""
    model: SmallInts
    """[M] GPU model, index into ``names``, -1 = none."""
    site: SmallInts
    names: tuple[str, ...]
    report: ReadReport

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return int(self.count.sum())

    @property
    def gpu_count(self) -> int:
        """Number of whole GPUs."""
        return int((self.gpu * self.count).sum()) // 1_000


class _Node(msgspec.Struct):
    label: str
    count: int
    cpu: int
    memory: int
    gpu: int = 0
    model: int = -1
    site: int = -1


def is_node_list(head: FileHead) -> bool:
    """True if the file is a list of nodes rather than of jobs."""
    return set(OPENB_COLUMNS) <= set(head.header) or set(GOOGLE_COLUMNS) <= set(head.columns)


def read_nodes(path: str | Path, options: ReadOptions = DEFAULT_READ_OPTIONS) -> NodeTable:
    """Read a list of nodes; bad rows are in its ``report``."""
    source = TraceSource(path)
    head = read_head(source)
    if not is_node_list(head):
        raise TraceError(
            f"{path} is not a list of nodes: it needs the columns {', '.join(OPENB_COLUMNS)} (CSV)"
            f" or {', '.join(GOOGLE_COLUMNS)} (Parquet)"
        )
    report = ReadReport()
    names = NameTable(report)
    rows = (
        _read_google(source, report, names, options)
        if head.is_parquet
        else _read_openb(source, report, names)
    )
    columns: dict[str, Any] = {}
    for keys, kind in ((("count", "cpu", "memory", "gpu"), np.int64), (("model", "site"), np.int32)):
        columns |= {key: np.array([getattr(row, key) for row in rows], kind) for key in keys}
    return NodeTable(label=tuple(row.label for row in rows), **columns, names=names.table(), report=report)


def _read_openb(source: TraceSource, report: ReadReport, names: NameTable) -> list[_Node]:
    rows: list[_Node] = []
    header: list[str] = []
    for line, raw in source.lines(report):
        fields = split_fields(raw.decode("utf-8", "replace").strip().lstrip("\ufeff"))
        if not header:
            header = fields or []
            continue
        if fields == [""]:
            continue
        report.rows += 1
        if fields is None or len(fields) != len(header):
            report.bad_row(line, "not as many fields as the header has")
            continue
        parsed = _parse_openb_node(dict(zip(header, fields, strict=True)), names)
        _add_node(rows, line, parsed, report)
    return rows


def _parse_openb_node(values: dict[str, str], names: NameTable) -> _Node | RejectedRow:
    cpu, memory, gpu = (
        parse_integer(values["cpu_milli"]),
        parse_integer(values["memory_mib"]),
        parse_integer(values["gpu"]),
    )
    if cpu is None or memory is None or gpu is None:
        return RejectedRow("not a number in cpu_milli, memory_mib or gpu")
    return _Node(values["sn"], 1, cpu, memory * MEBIBYTE, gpu * 1_000, names.number(values["model"].strip()))


def _read_google(
    source: TraceSource, report: ReadReport, names: NameTable, options: ReadOptions
) -> list[_Node]:
    rows: list[_Node] = []
    for line, values in read_parquet_rows(source.path, list(GOOGLE_COLUMNS), report):
        report.rows += 1
        _add_node(rows, line, _parse_google_node(values, names, options), report)
    return rows


def _parse_google_node(values: dict[str, Any], names: NameTable, options: ReadOptions) -> _Node | RejectedRow:
    cpu, memory, count = (
        parse_finite(values["cpus"]),
        parse_finite(values["ram"]),
        parse_integer(values["machine_count"]),
    )
    if cpu is None or memory is None or count is None:
        return RejectedRow("not a number in cpus, ram or machine_count")
    site = names.number(str(values["site"] or ""))
    return _Node("", count, round(cpu * options.whole_cpu), round(memory * options.whole_memory), site=site)


def _add_node(rows: list[_Node], line: int, parsed: _Node | RejectedRow, report: ReadReport) -> None:
    if isinstance(parsed, RejectedRow):
        report.bad_row(line, parsed.reason, parsed.detail)
    elif min(parsed.cpu, parsed.memory, parsed.gpu) < 0 or parsed.count < 1:
        report.bad_row(line, "a negative amount, or no machines")
    elif max(parsed.cpu, parsed.memory, parsed.gpu, parsed.count) > AMOUNT_MAX or len(rows) >= ROWS_MAX:
        report.bad_row(line, "a number that is too large, or too many machines")
    else:
        rows.append(parsed)
