"""Vetting of what is said about the end of estates, about submissions that may be elsewhere, and of a past.

``validation`` says what this is for and by which rule bounds are chosen.
"""

from collections.abc import Callable
from typing import Any, Final

from hanse.live.rpc.field_validators import JOB_MAX, JOB_MIN, NUMBER_MAX, is_estate, is_name
from hanse.live.rpc.validation_context import Limits
from hanse.model.messages.duplicate_check import Seek, Sought
from hanse.model.messages.history_check import Recall, Recalled
from hanse.model.messages.shard_teardown import Close, Closed, Handed, Over


def _owner_says(body: Close | Handed, limits: Limits, source: str) -> str | None:
    return _stranger(source, limits.brokers) or _term(body.estate, body.term)


def _closed(body: Closed, limits: Limits, source: str) -> str | None:
    return _stranger(source, limits.clusters) or _term(body.estate, body.term)


def _over(body: Over, limits: Limits, source: str) -> str | None:
    return _stranger(source, limits.brokers) or _term(body.estate, 0)


def _seek(body: Seek, limits: Limits, source: str) -> str | None:
    fits = JOB_MIN <= body.job <= JOB_MAX and is_name(body.client_id)
    return _stranger(source, limits.brokers) or (None if fits else "a job or a client id that cannot be")


def _sought(body: Sought, limits: Limits, source: str) -> str | None:
    fits = JOB_MIN <= body.job <= JOB_MAX and (body.known == 0 or JOB_MIN <= body.known <= JOB_MAX)
    return _stranger(source, limits.brokers) or (None if fits else "a job out of range")


def _recall(body: Recall, limits: Limits, source: str) -> str | None:
    return _no_member(source, limits) or (None if 0 <= body.number <= NUMBER_MAX else "a number out of range")


def _recalled(body: Recalled, limits: Limits, source: str) -> str | None:
    fits = min(body.number, body.taken, body.acked) >= 0
    fits = fits and max(body.number, body.taken, body.acked) <= NUMBER_MAX
    known = not _no_member(source, limits) or not _stranger(source, limits.runners)
    return None if known and fits else "somebody who is not known, or a number out of range"


def _no_member(name: str, limits: Limits) -> str | None:
    """Runners are asked, and do not ask: they forget."""
    return _stranger(name, limits.brokers) and _stranger(name, limits.clusters)


def _stranger(name: str, group: frozenset[str] | None) -> str | None:
    return None if group is None or name in group else "somebody who is not known"


def _term(estate: str, term: int) -> str | None:
    return None if is_estate(estate) and 0 <= term <= NUMBER_MAX else "an estate or a term that cannot be"


ESTATE_VETTERS: Final[dict[type, Callable[[Any, Limits, str], str | None]]] = {
    Close: _owner_says,
    Closed: _closed,
    Handed: _owner_says,
    Over: _over,
    Seek: _seek,
    Sought: _sought,
    Recall: _recall,
    Recalled: _recalled,
}
