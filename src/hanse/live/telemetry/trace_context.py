"""Where a job belongs in its submitter's trace (W3C Trace Context, version 00).

A job carries a ``traceparent``: from its own field ``read_trace``, or from the header of the request that
submits
it. The field is checked strictly, because somebody wrote it; a header that makes no sense is ignored, as the
standard asks, because programs on the way may have written it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from hanse.model.field_reader import read_trace
from hanse.model.problem import Problem

HEADER = "traceparent"
_SAMPLED = 0x01


class Parent(msgspec.Struct, frozen=True):
    """A ``traceparent`` taken apart."""

    trace: bytes
    """Sixteen bytes."""
    span: bytes
    """Eight bytes."""
    sampled: bool
    """Whether the submitter records this trace: if not, nobody else should."""


def parent_of(text: str) -> Parent | None:
    """The parts of a ``traceparent``; None if it is none."""
    if isinstance(read_trace(text, ""), Problem):
        return None
    _, trace_id, span_id, flags = text.split("-")
    return Parent(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & _SAMPLED))


def traced(headers: Mapping[str, str], jobs: list[Any]) -> list[Any]:
    """The data of a request's jobs; each with the request's trace, if it has one and the job names none."""
    parent = headers.get(HEADER, "")
    if not parent or parent_of(parent) is None:
        return jobs
    return [
        {**data, "trace": parent} if isinstance(data, dict) and data.get("trace") is None else data
        for data in jobs
    ]
