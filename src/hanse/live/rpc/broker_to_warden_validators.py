"""Validators of messages from brokers to wardens.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from typing import Final

from hanse.core.warden.demand_table import LINES_MAX
from hanse.live.rpc import field_validators
from hanse.live.rpc.field_validators import NUMBER_MAX, SHARDS_MAX, are_within, is_name
from hanse.live.rpc.validation_context import ValidationContext, Validator, echo_problem, is_known
from hanse.model import messages as m

BATCHES_MAX: Final = 4_096
"""Task batches in one claim."""


def _claim(body: m.Claim, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    if not 0 <= body.number <= NUMBER_MAX or len(body.batches) > BATCHES_MAX:
        return "a claim out of range"
    problem = field_validators.rounds_problem(body.rounds) or echo_problem(body.echo, context)
    if problem is not None:
        return problem
    for batch in body.batches:
        problem = field_validators.task_batch_problem(batch)
        if problem is not None:
            return problem
    if not are_within(body.releases, 0, NUMBER_MAX):
        return "a lease out of range"
    problem = field_validators.attempts_problem(body.acked_ends, None)
    if problem is not None:
        return problem
    return None if body.demand is None else field_validators.demand_problem(body.demand, LINES_MAX)


def _demand(body: m.Demand, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    return field_validators.demand_problem(body.lines, LINES_MAX)


def _task_columns(body: m.CancelAttempts | m.AckEnds, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    return field_validators.columns_problem(body.tasks, body.attempts)


def _register_standby(body: m.RegisterStandby, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    if body.standby and not is_name(body.standby):
        return "an invalid standby"
    return field_validators.shard_term_problem(body.shard, body.term, 0)


def _request_takeover(body: m.RequestTakeover, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    return (
        None
        if field_validators.shard_term_problem(body.shard, body.term, body.takeover_id) is None
        and is_name(body.owner)
        else "an invalid takeover request"
    )


def _abort_takeover(body: m.AbortTakeover, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    return field_validators.shard_term_problem(body.shard, body.term, body.takeover_id)


def _heartbeat_reply(body: m.HeartbeatReply, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    if not field_validators.are_shard_names(body.shards, SHARDS_MAX):
        return "invalid shards"
    return echo_problem(body.echo, context)


def _request_snapshot(body: m.RequestSnapshot, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    return None if body.cluster == context.name or not context.name else "another cluster"


BROKER_TO_WARDEN_VALIDATORS: Final[dict[type, Validator]] = {
    m.Claim: _claim,
    m.Demand: _demand,
    m.CancelAttempts: _task_columns,
    m.AckEnds: _task_columns,
    m.RegisterStandby: _register_standby,
    m.RequestTakeover: _request_takeover,
    m.AbortTakeover: _abort_takeover,
    m.HeartbeatReply: _heartbeat_reply,
    m.RequestSnapshot: _request_snapshot,
}
