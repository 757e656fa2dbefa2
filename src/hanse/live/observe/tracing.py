"""Where a job belongs in its submitter's trace (W3C Trace Context, version 00).

A job carries a ``traceparent``: from its own field ``trace``, or from the header of the request that submits
it. The field is checked strictly, because somebody wrote it; a header that makes no sense is ignored, as the
standard asks, because programs on the way may have written it.
"""

from collections.abc import Mapping

import msgspec

from hanse.model.fields import trace
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
    if isinstance(trace(text, ""), Problem):
        return None
    _, trace_id, span_id, flags = text.split("-")
    return Parent(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & _SAMPLED))


def trace_of(headers: Mapping[str, str], data: object) -> object:
    """A job's data with the trace of the request that brought it, if it names none of its own."""
    parent = headers.get(HEADER, "")
    if not isinstance(data, dict) or data.get("trace") is not None or parent_of(parent) is None:
        return data
    return {**data, "trace": parent}
