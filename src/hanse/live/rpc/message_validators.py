"""Validators of messages, one function for each type: return the problem in a few words, or None.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from collections.abc import Callable
from typing import Any, Final

from hanse.core.broker.elastic.duration_stats import KINDS_PER_MESSAGE_MAX, SIZES_MAX, TOTAL_MAX
from hanse.core.broker.failover.replica_updates import REPLICATE_JOBS_MAX
from hanse.core.broker.job_table import CANCELLED, SUCCEEDED
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.core.warden.demand_table import LINES_MAX
from hanse.live.rpc import field_validators
from hanse.live.rpc.drain_validators import drains_problem
from hanse.live.rpc.failover_validators import FAILOVER_VALIDATORS
from hanse.live.rpc.field_validators import (
    JOB_MAX,
    JOB_MIN,
    NUMBER_MAX,
    TASK_MAX,
    TASK_MIN,
    are_within,
    is_name,
    is_shard_name,
)
from hanse.live.rpc.validation_context import STALE, Layout, ValidationContext, layout_of
from hanse.model import messages as m
from hanse.model.constraints import ATTRIBUTES_PER_NODE_MAX, Value, attributes_problem
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.ids import INDEX_MASK, TASKS_PER_JOB_MAX, Instant, TaskId
from hanse.model.job import GRACE_MAX, NAME_CHARACTERS_MAX
from hanse.model.job_validation import check_job
from hanse.model.resources import BASE_DIMENSIONS, CPU_MILLI_MAX, GPUS_MAX, Vector
from hanse.policy.node_columns import CAPACITY_MAX, DIMENSIONS_MAX, NODES_MAX

SHARDS_MAX: Final = 65_536
"""Shards named in one message."""
BATCHES_MAX: Final = 4_096
"""Task batches in one claim."""
JOBS_MAX: Final = 1 << 20
"""Jobs listed in one message."""
MEMBERS_MAX: Final = 1_023
"""Brokers of a league: as many as there are numbers for."""
KIND_CHARACTERS_MAX: Final = 3 * NAME_CHARACTERS_MAX + 2
"""A tenant, a job's name and a group's, with a slash between them."""
OFFERS_MAX: Final = 1 << 17
"""Grants in one message."""
WATCHED_MAX: Final = 64
"""Jobs in one query. Each may be answered by a message, so this must stay far below a link's window."""


# --- broker to warden -------------------------------------------------------------------------------------


def _claim(body: m.Claim, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    if not 0 <= body.number <= NUMBER_MAX or len(body.batches) > BATCHES_MAX:
        return "a claim out of range"
    problem = _rounds(body.rounds) or _echo(body.echo, context)
    if problem is not None:
        return problem
    for batch in body.batches:
        problem = field_validators.task_batch(batch)
        if problem is not None:
            return problem
    if not are_within(body.releases, 0, NUMBER_MAX):
        return "a lease out of range"
    problem = field_validators.attempts(body.acked_ends, None)
    if problem is not None:
        return problem
    return None if body.demand is None else field_validators.demand(body.demand, LINES_MAX)


def _demand(body: m.Demand, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    return field_validators.demand(body.lines, LINES_MAX)


def _task_columns(body: m.CancelAttempts | m.AckEnds, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    return field_validators.columns(body.tasks, body.attempts)


def _register_standby(body: m.RegisterStandby, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    if body.standby and not is_name(body.standby):
        return "an invalid standby"
    return _shard_term(body.shard, body.term, 0)


def _request_takeover(body: m.RequestTakeover, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    return (
        None
        if _shard_term(body.shard, body.term, body.takeover_id) is None and is_name(body.owner)
        else "an invalid takeover request"
    )


def _abort_takeover(body: m.AbortTakeover, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    return _shard_term(body.shard, body.term, body.takeover_id)


def _heartbeat_reply(body: m.HeartbeatReply, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    if not field_validators.are_shard_names(body.shards, SHARDS_MAX):
        return "invalid shards"
    return _echo(body.echo, context)


def _request_snapshot(body: m.RequestSnapshot, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    return None if body.cluster == context.name or not context.name else "another cluster"


# --- warden to broker -------------------------------------------------------------------------------------


def _claim_reply(body: m.ClaimReply, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.clusters):
        return "an unknown cluster"
    if not 0 <= body.number <= NUMBER_MAX:
        return "a claim out of range"
    for task, node in body.substituted:
        if not (TASK_MIN <= task <= TASK_MAX and 0 <= node < NODES_MAX):
            return "a task or a node out of range"
    for entry in body.refused:
        if not (TASK_MIN <= entry.task <= TASK_MAX and 0 <= entry.attempt <= NUMBER_MAX):
            return "a task or an attempt out of range"
    if context.count_tasks is not None and body.refused:
        problem = field_validators.task_indices([entry.task for entry in body.refused], context.count_tasks)
        if problem is not None:
            return problem
    return None if body.delta is None else _delta(body.delta, context, source)


def _offers(offers: tuple[m.Offer, ...]) -> str | None:
    if len(offers) > OFFERS_MAX:
        return "offers out of range"
    for offer in offers:
        if not (
            1 <= offer.lease <= NUMBER_MAX
            and 0 <= offer.line <= field_validators.COUNT_MAX
            and 0 <= offer.score <= field_validators.COUNT_MAX
            and 0 <= offer.prior <= field_validators.COUNT_MAX
            and offer.nodes
            and are_within(offer.nodes, 0, NODES_MAX - 1)
            and field_validators.is_key(offer.rival_key)
        ):
            return "an offer out of range"
    return None


def _task_updates(body: m.TaskUpdates, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.clusters):
        return "an unknown cluster"
    for task, attempt, node in body.started:
        if not (TASK_MIN <= task <= TASK_MAX and 0 <= attempt <= NUMBER_MAX and 0 <= node < NODES_MAX):
            return "a task, an attempt or a node out of range"
    problem = field_validators.ends(body.ended, context.count_tasks)
    if problem is None and context.count_tasks is not None:
        problem = field_validators.task_indices([task for task, _, _ in body.started], context.count_tasks)
    return problem or _offers(body.offers)


def _ownership_reply(body: m.OwnershipReply, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.clusters):
        return "an unknown cluster"
    if body.owner and not is_name(body.owner):
        return "an invalid owner"
    return (
        _shard_term(body.shard, body.term, body.takeover_id)
        or field_validators.attempts(body.running, context.count_tasks)
        or field_validators.ends(body.ended, context.count_tasks)
    )


def _warden_heartbeat(body: m.WardenHeartbeat, context: ValidationContext, source: str) -> str | None:
    if body.cluster != source or not _is_known(source, context.clusters):
        return "another cluster"
    if not are_within((body.epoch, body.version, body.sent_at), 0, NUMBER_MAX):
        return "an epoch, a version or an instant out of range"
    return _rounds(body.rounds) or drains_problem(body.drains)


def _cluster_delta(body: m.ClusterDelta, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.clusters):
        return "an unknown cluster"
    return _delta(body.delta, context, source)


def _delta(delta: m.Delta, context: ValidationContext, source: str) -> str | None:
    if delta.cluster != source:
        return "another cluster"
    nodes, free = delta.nodes, delta.free
    if len(nodes) != len(free):
        return "columns of different lengths"
    if not are_within((delta.epoch, delta.since, delta.version), 0, NUMBER_MAX):
        return "an epoch or a version out of range"
    if not are_within(nodes, 0, NODES_MAX - 1) or not _are_vectors(free):
        return "a node or its free capacity out of range"
    known = context.layouts.get(source)
    if known is None or delta.epoch < known.epoch or not nodes:
        return None  # without a snapshot, or before it, the machine ignores the nodes
    width = len(known.dimensions)
    if max(nodes) >= known.nodes or any(len(vector) != width for vector in free):
        return STALE
    return None


def _cluster_snapshot(body: m.ClusterSnapshot, context: ValidationContext, source: str) -> str | None:
    if body.cluster != source or not _is_known(source, context.clusters):
        return "another cluster"
    if not are_within((body.epoch, body.version), 0, NUMBER_MAX):
        return "an epoch or a version out of range"
    nodes, width = len(body.capacity), len(body.dimensions)
    if not 1 <= nodes <= NODES_MAX or nodes != len(body.attributes) or nodes != len(body.free):
        return "columns of different lengths"
    custom = body.dimensions[3:]
    if (
        body.dimensions[:3] != BASE_DIMENSIONS
        or width > DIMENSIONS_MAX
        or list(custom) != sorted(frozenset(custom))
        or not field_validators.are_names(custom, DIMENSIONS_MAX)
    ):
        return "invalid resources"
    for vectors in (body.capacity, body.free):
        if any(len(vector) != width for vector in vectors) or not _are_vectors(vectors):
            return "a node's amounts out of range"
    if not are_within(body.reserve, 0, nodes - 1) or not field_validators.are_names(
        body.partitions, MEMBERS_MAX
    ):
        return "an invalid reserve or partitions"
    return _attributes(body.attributes) or _layout_change(layout_of(body), context.layouts.get(source))


def _attributes(nodes: tuple[tuple[tuple[str, Value], ...], ...]) -> str | None:
    """Check each distinct set of attributes once, because nodes are much alike."""
    for attributes in dict.fromkeys(nodes):
        if len(attributes) > ATTRIBUTES_PER_NODE_MAX or attributes_problem(dict(attributes)) is not None:
            return "invalid attributes"
    return None


def _layout_change(layout: Layout, known: Layout | None) -> str | None:
    """Compare a layout with the known one. A cluster keeps its layout for an epoch, and may only grow from
    one to the next: claims under way name nodes and resources of the old layout."""
    if known is None or layout.epoch < known.epoch:
        return None
    if layout.epoch == known.epoch:
        same = layout == known
        return None if same else "another layout within an epoch"
    grown = layout.nodes >= known.nodes and all(name in layout.dimensions for name in known.dimensions)
    return None if grown else STALE


# --- broker to broker -------------------------------------------------------------------------------------


def _replicate_jobs(body: m.ReplicateJobs, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers):
        return "an unknown broker"
    if len(body.jobs) > REPLICATE_JOBS_MAX:
        return "too many jobs"
    problem = _shard_term(body.shard, body.term, 0)
    for replica in body.jobs if problem is None else ():
        if not (JOB_MIN <= replica.job <= JOB_MAX and 0 <= replica.age <= NUMBER_MAX):
            return "a job or its age out of range"
        if check_job(replica.spec):
            return "a job that validation refuses"
        count = replica.spec.tasks
        if not 0 <= replica.ends_to_follow <= count:
            return "more ends than a job has tasks"
        for index, state, attempt in replica.ends:
            if not (0 <= index < count and SUCCEEDED <= state <= CANCELLED and 0 <= attempt <= NUMBER_MAX):
                return "a task with an impossible end"
    return problem


def _replica_update(body: m.ReplicaUpdate, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers) or not is_shard_name(body.shard):
        return "an invalid broker or shard"
    for task, state, attempt in body.ends:
        if not (
            TASK_MIN <= task <= TASK_MAX and SUCCEEDED <= state <= CANCELLED and 0 <= attempt <= NUMBER_MAX
        ):
            return "a task with an impossible end"
    if len(body.end_runs) > ENTRIES_MAX:
        return "more ends than fit in one message"
    for task, state, attempt, count in body.end_runs:
        if not (
            TASK_MIN <= task <= TASK_MAX and SUCCEEDED <= state <= CANCELLED and 0 <= attempt <= NUMBER_MAX
        ):
            return "a task with an impossible end"
        if not 0 < count <= TASKS_PER_JOB_MAX - (task & INDEX_MASK):
            return "more tasks than a job has"
    if len(body.columns) > 1 or not all(map(field_validators.is_ends_column, body.columns)):
        return "invalid columns of ends"
    if context.count_tasks is not None and (body.ends or body.end_runs or body.columns):
        tasks = [task for task, _, _ in body.ends]
        tasks += [TaskId(task + count - 1) for task, _, _, count in body.end_runs]
        tasks += [TaskId(task + len(states) - 1) for task, states, _ in body.columns]
        problem = field_validators.task_indices(tasks, context.count_tasks)
        if problem is not None:
            return problem
    return _jobs(body.cancelled, JOBS_MAX) or _jobs(body.forget, JOBS_MAX)


def _ownership_transferred(
    body: m.OwnershipTransferred, context: ValidationContext, source: str
) -> str | None:
    problem = _shard_term(body.shard, body.term, 0)
    if not _is_known(source, context.brokers) or problem is not None:
        return problem or "an unknown broker"
    return _jobs(body.jobs, JOBS_MAX)


def _watch_jobs(body: m.WatchJobs, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers) or not 0 <= body.round <= NUMBER_MAX:
        return "an invalid broker or round"
    return _jobs(body.jobs, WATCHED_MAX)


def _job_ended(body: m.JobEnded, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers) or not 0 <= body.round <= NUMBER_MAX:
        return "an invalid broker or round"
    if not (body.state == -1 or SUCCEEDED <= body.state <= CANCELLED):
        return "an invalid state"
    return _jobs((body.job,), 1)


def _gossip(body: m.Gossip, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers) or len(body.members) > MEMBERS_MAX:
        return "an unknown broker, or too many"
    for member in body.members:
        numbers = (member.epoch, member.beat, member.version)
        if not is_name(member.name) or min(numbers) < 0 or max(numbers) > NUMBER_MAX:
            return "an invalid member"
    return None


def _duration_stats(body: DurationStatsUpdate, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.brokers) or len(body.kinds) > KINDS_PER_MESSAGE_MAX:
        return "an unknown broker, or too many kinds"
    if not (0 <= body.since <= body.until <= NUMBER_MAX and 0 <= body.acked_version <= NUMBER_MAX):
        return "invalid versions"
    for learned in body.kinds:
        if not 0 < learned.version <= body.until or not 0 < len(learned.sizes) <= SIZES_MAX:
            return "an invalid version or number of sizes"
        if not 0 < len(learned.kind) <= KIND_CHARACTERS_MAX or not learned.kind.isprintable():
            return "an invalid kind"
        for seen in learned.sizes:
            if not (0 <= seen.cpu <= CPU_MILLI_MAX and 0 <= seen.gpu <= GPUS_MAX):
                return "an invalid size"
            if not (0 < seen.total <= TOTAL_MAX and 0 < seen.count <= field_validators.COUNT_MAX):
                return "invalid sums"
    return None


# --- warden and runner ------------------------------------------------------------------------------------


def _runner_orders(body: m.RunnerOrders, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.clusters):
        return "an unknown warden"
    for stop in body.stops:
        if not (
            TASK_MIN <= stop.task <= TASK_MAX
            and 0 <= stop.attempt <= NUMBER_MAX
            and 0 <= stop.grace <= GRACE_MAX
        ):
            return "a stop order out of range"
    return (
        _echo(body.echo, context)
        or field_validators.starts(body.starts, context.served_nodes)
        or field_validators.attempts(body.forget, None)
    )


def _runner_lease(body: m.RunnerLease, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.clusters) or not 0 <= body.session <= NUMBER_MAX:
        return "an invalid warden or session"
    if not field_validators.are_shard_names(body.lapsed, SHARDS_MAX):
        return "invalid shards"
    return _echo(body.echo, context)


def _rejoin(body: m.Rejoin, context: ValidationContext, source: str) -> str | None:
    known = _is_known(source, context.clusters) and 0 <= body.session <= NUMBER_MAX
    return None if known else "an invalid warden or session"


def _runner_report(body: m.RunnerReport, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.runners):
        return "an unknown runner"
    return (
        field_validators.attempts(body.started, None)
        or field_validators.ends(body.ended, None)
        or field_validators.withheld(body.withheld, context.nodes)
    )


def _open_session(body: m.OpenSession, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.runners):
        return "an unknown runner"
    if not are_within((body.session, body.sent_at), 0, NUMBER_MAX):
        return "a session or an instant out of range"
    if not are_within(body.nodes, 0, context.nodes - 1):
        return "nodes that the cluster does not have"
    return (
        field_validators.attempts(body.running, None)
        or field_validators.ends(body.ended, None)
        or field_validators.withheld(body.withheld, context.nodes)
    )


def _runner_heartbeat(body: m.RunnerHeartbeat, context: ValidationContext, source: str) -> str | None:
    if not _is_known(source, context.runners):
        return "an unknown runner"
    inside = 0 <= body.session <= NUMBER_MAX and 0 <= body.sent_at <= NUMBER_MAX
    return None if inside else "a session or an instant out of range"


def _ack(_body: m.Ack, context: ValidationContext, source: str) -> str | None:
    for group in (context.brokers, context.clusters, context.runners):
        if group is None or source in group:
            return None
    return "an unknown sender"


# --- shared fields --------------------------------------------------------------------------------------


def _is_known(name: str, group: frozenset[str] | None) -> bool:
    return group is None or name in group


def _echo(echo: Instant, context: ValidationContext) -> str | None:
    """Check our own instant that a peer returns: it cannot be later than now."""
    if not 0 <= echo <= NUMBER_MAX:
        return "an instant out of range"
    return "an echo from the future" if context.clock is not None and echo > context.clock() else None


def _rounds(rounds: tuple[tuple[str, int], ...]) -> str | None:
    if len(rounds) > SHARDS_MAX:
        return "too many shards"
    for shard, number in rounds:
        if not is_shard_name(shard) or not 0 <= number <= NUMBER_MAX:
            return "an invalid shard or round"
    return None


def _shard_term(shard: str, term: int, takeover_id: int) -> str | None:
    inside = is_shard_name(shard) and 0 <= term <= NUMBER_MAX and 0 <= takeover_id <= NUMBER_MAX
    return None if inside else "a shard, a term or a takeover id out of range"


def _jobs(jobs: tuple[int, ...], most: int) -> str | None:
    inside = len(jobs) <= most and are_within(jobs, JOB_MIN, JOB_MAX)
    return None if inside else "too many jobs, or one out of range"


def _are_vectors(vectors: tuple[Vector, ...]) -> bool:
    """True if each has an entry, none is negative, and none is above the maximum of a node."""
    return not vectors or (
        all(vectors) and min(map(min, vectors)) >= 0 and max(map(max, vectors)) <= CAPACITY_MAX
    )


VALIDATORS: Final[dict[type, Callable[[Any, ValidationContext, str], str | None]]] = {
    m.Claim: _claim,
    m.Demand: _demand,
    m.CancelAttempts: _task_columns,
    m.AckEnds: _task_columns,
    m.RegisterStandby: _register_standby,
    m.RequestTakeover: _request_takeover,
    m.AbortTakeover: _abort_takeover,
    m.ClaimReply: _claim_reply,
    m.TaskUpdates: _task_updates,
    m.OwnershipReply: _ownership_reply,
    m.ReplicateJobs: _replicate_jobs,
    m.ReplicaUpdate: _replica_update,
    m.OwnershipTransferred: _ownership_transferred,
    m.WatchJobs: _watch_jobs,
    m.JobEnded: _job_ended,
    m.RunnerOrders: _runner_orders,
    m.RunnerReport: _runner_report,
    m.OpenSession: _open_session,
    m.RunnerHeartbeat: _runner_heartbeat,
    m.RunnerLease: _runner_lease,
    m.Rejoin: _rejoin,
    m.WardenHeartbeat: _warden_heartbeat,
    m.HeartbeatReply: _heartbeat_reply,
    m.RequestSnapshot: _request_snapshot,
    m.ClusterSnapshot: _cluster_snapshot,
    m.ClusterDelta: _cluster_delta,
    m.Gossip: _gossip,
    DurationStatsUpdate: _duration_stats,
    m.Ack: _ack,
    **FAILOVER_VALIDATORS,
}
"""One for each type of message; a test checks that it is complete."""
