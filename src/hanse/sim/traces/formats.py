"""All trace formats, the recognition of a file's format, and ``open_trace``, ``read``, ``load``."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from hanse.sim.traces.alibaba_csv import BATCH_TASK, PAI_TASK
from hanse.sim.traces.chunk import JobChunk, concatenate, sort_by_arrival, take
from hanse.sim.traces.csv_with_header import GAIA, MURI, OPENB, PHILLY
from hanse.sim.traces.google2011 import GOOGLE_2011
from hanse.sim.traces.line_source import TraceSource
from hanse.sim.traces.native_format import NATIVE_CSV, NATIVE_PARQUET
from hanse.sim.traces.parquet_sets import ALIBABA_2017, ALIBABA_DAG, AZURE_LLM, GOOGLE_2019, JOBS_PARQUET
from hanse.sim.traces.read_options import DEFAULT_READ_OPTIONS, ReadOptions
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import FileHead, OpenTrace, TraceFormat, TraceReader, read_head
from hanse.sim.traces.swf import SWF
from hanse.sim.traces.tr import TR

_LOG = logging.getLogger(__name__)


FORMATS: Final[tuple[TraceFormat, ...]] = (
    NATIVE_CSV,
    NATIVE_PARQUET,
    OPENB,
    PHILLY,
    MURI,
    GAIA,
    ALIBABA_DAG,
    AZURE_LLM,
    ALIBABA_2017,
    JOBS_PARQUET,
    GOOGLE_2019,
    GOOGLE_2011,
    BATCH_TASK,
    PAI_TASK,
    SWF,
    TR,
)
"""Formats in the order of recognition: those with unmistakable marks first."""


def _describe_head(head: FileHead) -> str:
    if head.is_parquet:
        return f"Parquet with the columns {', '.join(head.columns)}"
    if not head.lines:
        return "the file is empty"
    return f"the name {head.name!r} and text that begins {head.lines[0][:100]!r}"


def _require_columns(form: TraceFormat, head: FileHead, name: str) -> None:
    missing = [column for column in form.columns if column not in head.header]
    if missing:
        raise TraceError(
            f"{name} cannot be of format {form.name}: it lacks the columns {', '.join(missing)}."
            f" Looked at: {_describe_head(head)}"
        )


def open_trace(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - as in the command
    options: ReadOptions = DEFAULT_READ_OPTIONS,
) -> TraceReader:
    """Open a trace for reading in chunks; recognise its format unless it is given."""
    source = TraceSource(path)
    head = read_head(source)
    if format is not None:
        for form in FORMATS:
            if form.name == format:
                _require_columns(form, head, source.name)
                return TraceReader(source, form, options, head)
        raise TraceError(
            f"there is no format {format!r}; choose one of: {', '.join(form.name for form in FORMATS)}"
        )
    for form in FORMATS:
        if form.recognise(head):
            return TraceReader(source, form, options, head)
    known = "\n".join(f"  {form.name:<13} {form.description}" for form in FORMATS)
    raise TraceError(
        f"{path}: not recognised as a trace. Looked at: {_describe_head(head)}.\n"
        f"Name the format (--format) if it is one of these, or convert it to native CSV (docs/traces.md):"
        f"\n{known}"
    )


def read(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - as in the command
    options: ReadOptions = DEFAULT_READ_OPTIONS,
) -> Iterator[JobChunk]:
    """Return the chunks of a trace; ``open_trace`` also gives the report of bad rows."""
    return iter(open_trace(path, format, options))


def load_with_report(
    path: str | Path,
    limit: int | None = None,
    format: str | None = None,  # noqa: A002 - as in the command
    options: ReadOptions = DEFAULT_READ_OPTIONS,
) -> tuple[JobChunk, ReadReport]:
    """Return a trace as one chunk in order of arrival, and the report. ``limit``: only the first entries."""
    reader = open_trace(path, format, options)
    return load_from_reader(reader, limit), reader.report


def load_from_reader(reader: OpenTrace, limit: int | None = None) -> JobChunk:
    """Return an open trace as one chunk in order of arrival; ``limit``: only the first entries."""
    chunks: list[JobChunk] = []
    jobs = 0
    for chunk in reader:
        chunks.append(chunk)
        jobs += chunk.jobs
        if limit is not None and jobs >= limit:
            break
    whole = concatenate(chunks)
    if limit is not None and whole.jobs > limit:
        whole = take(whole, np.arange(limit))
    return sort_by_arrival(whole)


def load(
    path: str | Path,
    limit: int | None = None,
    format: str | None = None,  # noqa: A002 - as in the command
    options: ReadOptions = DEFAULT_READ_OPTIONS,
) -> JobChunk:
    """Return a trace as one chunk in order of arrival; bad rows go to the log."""
    whole, report = load_with_report(path, limit, format, options)
    if report.bad:
        _LOG.warning("%s: %s", path, "; ".join(report.lines()))
    return whole
