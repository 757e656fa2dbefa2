"""Validators of messages about shard teardown, duplicate submissions and history.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from collections.abc import Callable
from typing import Any, Final

from hanse.live.rpc.field_validators import JOB_MAX, JOB_MIN, NUMBER_MAX, is_estate, is_name
from hanse.live.rpc.validation_context import Limits
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased


def _owner_says(body: CloseShard | OwnershipReleased, limits: Limits, source: str) -> str | None:
    return _stranger(source, limits.brokers) or _term(body.shard, body.term)


def _closed(body: CloseShardReply, limits: Limits, source: str) -> str | None:
    return _stranger(source, limits.clusters) or _term(body.shard, body.term)


def _over(body: DropReplicas, limits: Limits, source: str) -> str | None:
    return _stranger(source, limits.brokers) or _term(body.shard, 0)


def _seek(body: DuplicateQuery, limits: Limits, source: str) -> str | None:
    fits = JOB_MIN <= body.job <= JOB_MAX and is_name(body.client_id)
    return _stranger(source, limits.brokers) or (None if fits else "an invalid job or client id")


def _sought(body: DuplicateReply, limits: Limits, source: str) -> str | None:
    fits = JOB_MIN <= body.job <= JOB_MAX and (body.known_job == 0 or JOB_MIN <= body.known_job <= JOB_MAX)
    return _stranger(source, limits.brokers) or (None if fits else "a job out of range")


def _recall(body: HistoryQuery, limits: Limits, source: str) -> str | None:
    return _no_member(source, limits) or (None if 0 <= body.number <= NUMBER_MAX else "a number out of range")


def _recalled(body: HistoryReply, limits: Limits, source: str) -> str | None:
    fits = min(body.number, body.received, body.acked) >= 0
    fits = fits and max(body.number, body.received, body.acked) <= NUMBER_MAX
    known = not _no_member(source, limits) or not _stranger(source, limits.runners)
    return None if known and fits else "an unknown sender, or a number out of range"


def _no_member(name: str, limits: Limits) -> str | None:
    """Return a problem unless a broker or warden sent it. Runners are asked, and do not ask: they forget."""
    return _stranger(name, limits.brokers) and _stranger(name, limits.clusters)


def _stranger(name: str, group: frozenset[str] | None) -> str | None:
    return None if group is None or name in group else "an unknown sender"


def _term(shard: str, term: int) -> str | None:
    return None if is_estate(shard) and 0 <= term <= NUMBER_MAX else "an invalid shard or term"


ESTATE_VETTERS: Final[dict[type, Callable[[Any, Limits, str], str | None]]] = {
    CloseShard: _owner_says,
    CloseShardReply: _closed,
    OwnershipReleased: _owner_says,
    DropReplicas: _over,
    DuplicateQuery: _seek,
    DuplicateReply: _sought,
    HistoryQuery: _recall,
    HistoryReply: _recalled,
}
