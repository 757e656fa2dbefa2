"""Validators of messages about shard teardown, duplicate submissions and history.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from typing import Final

from hanse.live.rpc.field_validators import JOB_MAX, JOB_MIN, NUMBER_MAX, is_name, is_shard_name
from hanse.live.rpc.validation_context import ValidationContext, Validator
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased


def _close_or_release(
    body: CloseShard | OwnershipReleased, context: ValidationContext, source: str
) -> str | None:
    return _unknown_name(source, context.brokers) or _term(body.shard, body.term)


def _close_shard_reply(body: CloseShardReply, context: ValidationContext, source: str) -> str | None:
    return _unknown_name(source, context.clusters) or _term(body.shard, body.term)


def _drop_replicas(body: DropReplicas, context: ValidationContext, source: str) -> str | None:
    return _unknown_name(source, context.brokers) or _term(body.shard, 0)


def _duplicate_query(body: DuplicateQuery, context: ValidationContext, source: str) -> str | None:
    fits = JOB_MIN <= body.job <= JOB_MAX and is_name(body.client_id)
    return _unknown_name(source, context.brokers) or (None if fits else "an invalid job or client id")


def _duplicate_reply(body: DuplicateReply, context: ValidationContext, source: str) -> str | None:
    fits = JOB_MIN <= body.job <= JOB_MAX and (body.known_job == 0 or JOB_MIN <= body.known_job <= JOB_MAX)
    return _unknown_name(source, context.brokers) or (None if fits else "a job out of range")


def _history_query(body: HistoryQuery, context: ValidationContext, source: str) -> str | None:
    return _unknown_member(source, context) or (
        None if 0 <= body.number <= NUMBER_MAX else "a number out of range"
    )


def _history_reply(body: HistoryReply, context: ValidationContext, source: str) -> str | None:
    fits = min(body.number, body.received, body.acked) >= 0
    fits = fits and max(body.number, body.received, body.acked) <= NUMBER_MAX
    known = not _unknown_member(source, context) or not _unknown_name(source, context.runners)
    return None if known and fits else "an unknown sender, or a number out of range"


def _unknown_member(name: str, context: ValidationContext) -> str | None:
    """Return a problem unless a broker or warden sent it. Runners are asked, and do not ask: they forget."""
    return _unknown_name(name, context.brokers) and _unknown_name(name, context.clusters)


def _unknown_name(name: str, group: frozenset[str] | None) -> str | None:
    return None if group is None or name in group else "an unknown sender"


def _term(shard: str, term: int) -> str | None:
    return None if is_shard_name(shard) and 0 <= term <= NUMBER_MAX else "an invalid shard or term"


FAILOVER_VALIDATORS: Final[dict[type, Validator]] = {
    CloseShard: _close_or_release,
    CloseShardReply: _close_shard_reply,
    OwnershipReleased: _close_or_release,
    DropReplicas: _drop_replicas,
    DuplicateQuery: _duplicate_query,
    DuplicateReply: _duplicate_reply,
    HistoryQuery: _history_query,
    HistoryReply: _history_reply,
}
