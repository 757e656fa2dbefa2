"""Validators of messages about the teardown of a shard.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from typing import Final

from hanse.live.rpc.field_validators import NUMBER_MAX, is_shard_name
from hanse.live.rpc.validation_context import ValidationContext, Validator
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased


def _close_or_release(
    body: CloseShard | OwnershipReleased, context: ValidationContext, source: str
) -> str | None:
    return _unknown_name(source, context.brokers) or _term(body.shard, body.term)


def _close_shard_reply(body: CloseShardReply, context: ValidationContext, source: str) -> str | None:
    return _unknown_name(source, context.clusters) or _term(body.shard, body.term)


def _drop_replicas(body: DropReplicas, context: ValidationContext, source: str) -> str | None:
    return _unknown_name(source, context.brokers) or _term(body.shard, 0)


def _unknown_name(name: str, group: frozenset[str] | None) -> str | None:
    return None if group is None or name in group else "an unknown sender"


def _term(shard: str, term: int) -> str | None:
    return None if is_shard_name(shard) and 0 <= term <= NUMBER_MAX else "an invalid shard or term"


TEARDOWN_VALIDATORS: Final[dict[type, Validator]] = {
    CloseShard: _close_or_release,
    CloseShardReply: _close_shard_reply,
    OwnershipReleased: _close_or_release,
    DropReplicas: _drop_replicas,
}
