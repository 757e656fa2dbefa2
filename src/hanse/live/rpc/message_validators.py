"""Table of the validators of messages, one for each type.

``validation`` gives their purpose and the rule by which bounds are chosen. The validators stand in modules by
sender and receiver; here are those of messages that any member sends.
"""

from typing import Final

from hanse.live.rpc.broker_to_broker_validators import BROKER_TO_BROKER_VALIDATORS
from hanse.live.rpc.broker_to_warden_validators import BROKER_TO_WARDEN_VALIDATORS
from hanse.live.rpc.field_validators import NUMBER_MAX
from hanse.live.rpc.runner_validators import RUNNER_VALIDATORS
from hanse.live.rpc.teardown_validators import TEARDOWN_VALIDATORS
from hanse.live.rpc.validation_context import ValidationContext, Validator, is_known
from hanse.live.rpc.warden_to_broker_validators import WARDEN_TO_BROKER_VALIDATORS
from hanse.model import messages as m
from hanse.model.messages.history_check import HistoryQuery, HistoryReply


def _ack(_body: m.Ack, context: ValidationContext, source: str) -> str | None:
    for group in (context.brokers, context.clusters, context.runners):
        if group is None or source in group:
            return None
    return "an unknown sender"


def _history_query(body: HistoryQuery, context: ValidationContext, source: str) -> str | None:
    if not _is_member(source, context):
        return "an unknown sender"
    return None if 0 <= body.number <= NUMBER_MAX else "a number out of range"


def _history_reply(body: HistoryReply, context: ValidationContext, source: str) -> str | None:
    numbers = (body.number, body.received, body.acked)
    fits = min(numbers) >= 0 and max(numbers) <= NUMBER_MAX
    known = _is_member(source, context) or is_known(source, context.runners)
    return None if known and fits else "an unknown sender, or a number out of range"


def _is_member(name: str, context: ValidationContext) -> bool:
    """True if a broker or warden sent it. Runners are asked, and do not ask: they forget."""
    return is_known(name, context.brokers) or is_known(name, context.clusters)


VALIDATORS: Final[dict[type, Validator]] = {
    **BROKER_TO_WARDEN_VALIDATORS,
    **WARDEN_TO_BROKER_VALIDATORS,
    **BROKER_TO_BROKER_VALIDATORS,
    **RUNNER_VALIDATORS,
    **TEARDOWN_VALIDATORS,
    m.Ack: _ack,
    HistoryQuery: _history_query,
    HistoryReply: _history_reply,
}
"""One for each type of message; a test checks that it is complete."""
