"""The place of a job in its submitter's trace (W3C Trace Context, version 00).

A job has a ``traceparent`` from its own field ``trace``, or from the header of the request that submits it.
The field is checked strictly, because the submitter wrote it; an invalid header is ignored, as the standard
demands, because programs on the way may have written it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from hanse.model.field_reader import read_trace
from hanse.model.problem import Problem

HEADER = "traceparent"
_SAMPLED = 0x01


class TraceParent(msgspec.Struct, frozen=True):
    """A parsed ``traceparent``."""

    trace: bytes
    """Sixteen bytes."""
    span: bytes
    """Eight bytes."""
    sampled: bool
    """True if the submitter records this trace: if not, nobody else should."""


def parse_traceparent(text: str) -> TraceParent | None:
    """Return the parts of a ``traceparent``; None if it is invalid."""
    if isinstance(read_trace(text, ""), Problem):
        return None
    _, trace_id, span_id, flags = text.split("-")
    return TraceParent(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & _SAMPLED))


def add_trace(headers: Mapping[str, str], jobs: list[Any]) -> list[Any]:
    """Return the jobs of a request; those without a trace get the request's, if it has a valid one."""
    parent = headers.get(HEADER, "")
    if not parent or parse_traceparent(parent) is None:
        return jobs
    return [
        {**data, "trace": parent} if isinstance(data, dict) and data.get("trace") is None else data
        for data in jobs
    ]
