"""Validators of messages between wardens and their runners.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from typing import Final

from hanse.live.rpc import field_validators
from hanse.live.rpc.field_validators import NUMBER_MAX, SHARDS_MAX, TASK_MAX, TASK_MIN, are_within
from hanse.live.rpc.layout_validators import layouts_problem
from hanse.live.rpc.validation_context import ValidationContext, Validator, echo_problem, is_known
from hanse.model import messages as m
from hanse.model.hardware.facts import facts_problem
from hanse.model.job import GRACE_MAX


def _runner_orders(body: m.RunnerOrders, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.clusters):
        return "an unknown warden"
    for stop in body.stops:
        if not (
            TASK_MIN <= stop.task <= TASK_MAX
            and 0 <= stop.attempt <= NUMBER_MAX
            and 0 <= stop.grace <= GRACE_MAX
        ):
            return "a stop order out of range"
    return (
        echo_problem(body.echo, context)
        or field_validators.starts_problem(body.starts, context.served_nodes)
        or field_validators.attempts_problem(body.forget, None)
        or layouts_problem(body.layouts, len(body.starts))
    )


def _runner_lease(body: m.RunnerLease, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.clusters) or not 0 <= body.session <= NUMBER_MAX:
        return "an invalid warden or session"
    if not field_validators.are_shard_names(body.lapsed, SHARDS_MAX):
        return "invalid shards"
    return echo_problem(body.echo, context)


def _rejoin(body: m.Rejoin, context: ValidationContext, source: str) -> str | None:
    known = is_known(source, context.clusters) and 0 <= body.session <= NUMBER_MAX
    return None if known else "an invalid warden or session"


def _runner_report(body: m.RunnerReport, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.runners):
        return "an unknown runner"
    return (
        field_validators.attempts_problem(body.started, None)
        or field_validators.ends_problem(body.ended, None)
        or field_validators.withheld_problem(body.withheld, context.nodes)
    )


def _open_session(body: m.OpenSession, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.runners):
        return "an unknown runner"
    if not are_within((body.session, body.sent_at), 0, NUMBER_MAX):
        return "a session or an instant out of range"
    if not are_within(body.nodes, 0, context.nodes - 1):
        return "nodes that the cluster does not have"
    return (
        field_validators.attempts_problem(body.running, None)
        or field_validators.ends_problem(body.ended, None)
        or field_validators.withheld_problem(body.withheld, context.nodes)
        or (None if body.hardware is None else facts_problem(body.hardware))
    )


def _runner_heartbeat(body: m.RunnerHeartbeat, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.runners):
        return "an unknown runner"
    inside = 0 <= body.session <= NUMBER_MAX and 0 <= body.sent_at <= NUMBER_MAX
    return None if inside else "a session or an instant out of range"


RUNNER_VALIDATORS: Final[dict[type, Validator]] = {
    m.RunnerOrders: _runner_orders,
    m.RunnerLease: _runner_lease,
    m.Rejoin: _rejoin,
    m.RunnerReport: _runner_report,
    m.OpenSession: _open_session,
    m.RunnerHeartbeat: _runner_heartbeat,
}
