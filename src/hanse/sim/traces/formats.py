"""All trace formats, the recognition of a file's format, and ``open_trace``, ``read``, ``load``."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from hanse.registry import Registry, RegistryError
from hanse.sim.traces.chunk import JobChunk, concatenate, sort_by_arrival, take
from hanse.sim.traces.line_source import TraceSource
from hanse.sim.traces.read_options import DEFAULT_READ_OPTIONS, ReadOptions
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import FileHead, OpenTrace, TraceFormat, TraceReader, read_head

_LOG = logging.getLogger(__name__)


FORMATS: Final = Registry[TraceFormat](
    "trace format",
    "hanse.trace_formats",
    (
        *("csv", "parquet", "openb", "philly", "muri", "gaia", "alibaba-dag", "azure-llm", "alibaba-2017"),
        *("jobs-parquet", "google-2019", "google-2011", "alibaba-batch", "alibaba-pai", "swf", "tr"),
    ),
    TraceFormat.__struct_fields__,
)
"""Formats. Ours are in the order of recognition, those with unmistakable marks first; formats of other
packages are tried after them."""


def usable_formats() -> list[TraceFormat]:
    """Return all formats in the order of recognition, without those that cannot be loaded."""
    formats = []
    for name in FORMATS.names():
        try:
            formats.append(FORMATS.get(name))
        except RegistryError as error:
            _LOG.warning("%s", error)
    return formats


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
        try:
            form = FORMATS.get(format)
        except RegistryError as error:
            raise TraceError(str(error)) from error
        _require_columns(form, head, source.name)
        return TraceReader(source, form, options, head)
    formats = usable_formats()
    for form in formats:
        if form.recognise(head):
            return TraceReader(source, form, options, head)
    known = "\n".join(f"  {form.name:<13} {form.description}" for form in formats)
    raise TraceError(
        f"{path}: not recognised as a trace. Looked at: {_describe_head(head)}.\n"
        f"Name the format (--format) if it is one of these, or convert it to native CSV "
        f"(docs/research/traces.md):\n{known}"
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
        jobs += chunk.job_count
        if limit is not None and jobs >= limit:
            break
    whole = concatenate(chunks)
    if limit is not None and whole.job_count > limit:
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
