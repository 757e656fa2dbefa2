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
from hanse.live.rpc.failover_validators import ESTATE_VETTERS
from hanse.live.rpc.field_validators import (
    JOB_MAX,
    JOB_MIN,
    NUMBER_MAX,
    TASK_MAX,
    TASK_MIN,
    is_estate,
    is_name,
    within,
)
from hanse.live.rpc.validation_context import STALE, Layout, Limits, layout_of
from hanse.model import messages as m
from hanse.model.constraints import ATTRIBUTES_PER_NODE_MAX, Value, attributes_problem
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.ids import INDEX_MASK, TASKS_PER_JOB_MAX, Instant, TaskId
from hanse.model.job import GRACE_MAX, NAME_CHARACTERS_MAX
from hanse.model.job_validation import check_job
from hanse.model.resources import BASE_DIMENSIONS, CPU_MILLI_MAX, GPUS_MAX, Vector
from hanse.policy.node_columns import CAPACITY_MAX, DIMENSIONS_MAX, NODES_MAX

ESTATES_MAX: Final = 65_536
"""Shards named in one message."""
LOTS_MAX: Final = 4_096
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


def _claim(body: m.Claim, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    if not 0 <= body.number <= NUMBER_MAX or len(body.batches) > LOTS_MAX:
        return "a claim out of range"
    problem = _rounds(body.rounds) or _echo(body.echo, limits)
    if problem is not None:
        return problem
    for batch in body.batches:
        problem = field_validators.lot(batch)
        if problem is not None:
            return problem
    if not within(body.releases, 0, NUMBER_MAX):
        return "a lease out of range"
    problem = field_validators.pairs(body.acked_ends, None)
    if problem is not None:
        return problem
    return None if body.demand is None else field_validators.demand(body.demand, LINES_MAX)


def _demand(body: m.Demand, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    return field_validators.demand(body.lines, LINES_MAX)


def _columns(body: m.CancelAttempts | m.AckEnds, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    return field_validators.columns(body.tasks, body.attempts)


def _register(body: m.RegisterStandby, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    if body.standby and not is_name(body.standby):
        return "an invalid standby"
    return _tenure(body.shard, body.term, 0)


def _adopt(body: m.RequestTakeover, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    return (
        None
        if _tenure(body.shard, body.term, body.takeover_id) is None and is_name(body.owner)
        else "an invalid takeover request"
    )


def _return(body: m.AbortTakeover, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    return _tenure(body.shard, body.term, body.takeover_id)


def _beat_reply(body: m.HeartbeatReply, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    if not field_validators.are_estates(body.shards, ESTATES_MAX):
        return "invalid shards"
    return _echo(body.echo, limits)


def _sync(body: m.RequestSnapshot, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    return None if body.cluster == limits.name or not limits.name else "another cluster"


# --- warden to broker -------------------------------------------------------------------------------------


def _answer(body: m.ClaimReply, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.clusters):
        return "an unknown cluster"
    if not 0 <= body.number <= NUMBER_MAX:
        return "a claim out of range"
    for task, node in body.substituted:
        if not (TASK_MIN <= task <= TASK_MAX and 0 <= node < NODES_MAX):
            return "a task or a node out of range"
    for entry in body.refused:
        if not (TASK_MIN <= entry.task <= TASK_MAX and 0 <= entry.attempt <= NUMBER_MAX):
            return "a task or an attempt out of range"
    if limits.tasks is not None and body.refused:
        problem = field_validators.task_indices([entry.task for entry in body.refused], limits.tasks)
        if problem is not None:
            return problem
    return None if body.delta is None else _delta(body.delta, limits, source)


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
            and within(offer.nodes, 0, NODES_MAX - 1)
            and field_validators.is_key(offer.rival_key)
        ):
            return "an offer out of range"
    return None


def _news(body: m.TaskUpdates, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.clusters):
        return "an unknown cluster"
    for task, attempt, node in body.started:
        if not (TASK_MIN <= task <= TASK_MAX and 0 <= attempt <= NUMBER_MAX and 0 <= node < NODES_MAX):
            return "a task, an attempt or a node out of range"
    problem = field_validators.ends(body.ended, limits.tasks)
    if problem is None and limits.tasks is not None:
        problem = field_validators.task_indices([task for task, _, _ in body.started], limits.tasks)
    return problem or _offers(body.offers)


def _estate(body: m.OwnershipReply, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.clusters):
        return "an unknown cluster"
    if body.owner and not is_name(body.owner):
        return "an invalid owner"
    return (
        _tenure(body.shard, body.term, body.takeover_id)
        or field_validators.pairs(body.running, limits.tasks)
        or field_validators.ends(body.ended, limits.tasks)
    )


def _beat(body: m.WardenHeartbeat, limits: Limits, source: str) -> str | None:
    if body.cluster != source or not _known(source, limits.clusters):
        return "another cluster"
    if not within((body.epoch, body.version, body.sent_at), 0, NUMBER_MAX):
        return "an epoch, a version or an instant out of range"
    return _rounds(body.rounds) or drains_problem(body.drains)


def _change(body: m.ClusterDelta, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.clusters):
        return "an unknown cluster"
    return _delta(body.delta, limits, source)


def _delta(delta: m.Delta, limits: Limits, source: str) -> str | None:
    if delta.cluster != source:
        return "another cluster"
    nodes, free = delta.nodes, delta.free
    if len(nodes) != len(free):
        return "columns of different lengths"
    if not within((delta.epoch, delta.since, delta.version), 0, NUMBER_MAX):
        return "an epoch or a version out of range"
    if not within(nodes, 0, NODES_MAX - 1) or not _vectors(free):
        return "a node or its free capacity out of range"
    known = limits.layouts.get(source)
    if known is None or delta.epoch < known.epoch or not nodes:
        return None  # without a snapshot, or before it, the machine ignores the nodes
    width = len(known.dimensions)
    if max(nodes) >= known.nodes or any(len(vector) != width for vector in free):
        return STALE
    return None


def _snapshot(body: m.ClusterSnapshot, limits: Limits, source: str) -> str | None:
    if body.cluster != source or not _known(source, limits.clusters):
        return "another cluster"
    if not within((body.epoch, body.version), 0, NUMBER_MAX):
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
        if any(len(vector) != width for vector in vectors) or not _vectors(vectors):
            return "a node's amounts out of range"
    if not within(body.reserve, 0, nodes - 1) or not field_validators.are_names(body.partitions, MEMBERS_MAX):
        return "an invalid reserve or partitions"
    return _attributes(body.attributes) or _changed(layout_of(body), limits.layouts.get(source))


def _attributes(nodes: tuple[tuple[tuple[str, Value], ...], ...]) -> str | None:
    """Check each distinct set of attributes once, because nodes are much alike."""
    for attributes in dict.fromkeys(nodes):
        if len(attributes) > ATTRIBUTES_PER_NODE_MAX or attributes_problem(dict(attributes)) is not None:
            return "invalid attributes"
    return None


def _changed(layout: Layout, known: Layout | None) -> str | None:
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


def _replicate(body: m.ReplicateJobs, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers):
        return "an unknown broker"
    if len(body.jobs) > REPLICATE_JOBS_MAX:
        return "too many jobs"
    problem = _tenure(body.shard, body.term, 0)
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


def _progress(body: m.ReplicaUpdate, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers) or not is_estate(body.shard):
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
    if limits.tasks is not None and (body.ends or body.end_runs or body.columns):
        tasks = [task for task, _, _ in body.ends]
        tasks += [TaskId(task + count - 1) for task, _, _, count in body.end_runs]
        tasks += [TaskId(task + len(states) - 1) for task, states, _ in body.columns]
        problem = field_validators.task_indices(tasks, limits.tasks)
        if problem is not None:
            return problem
    return _jobs(body.cancelled, JOBS_MAX) or _jobs(body.forget, JOBS_MAX)


def _taken(body: m.OwnershipTransferred, limits: Limits, source: str) -> str | None:
    problem = _tenure(body.shard, body.term, 0)
    if not _known(source, limits.brokers) or problem is not None:
        return problem or "an unknown broker"
    return _jobs(body.jobs, JOBS_MAX)


def _watch(body: m.WatchJobs, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers) or not 0 <= body.round <= NUMBER_MAX:
        return "an invalid broker or round"
    return _jobs(body.jobs, WATCHED_MAX)


def _watched(body: m.JobEnded, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers) or not 0 <= body.round <= NUMBER_MAX:
        return "an invalid broker or round"
    if not (body.state == -1 or SUCCEEDED <= body.state <= CANCELLED):
        return "an invalid state"
    return _jobs((body.job,), 1)


def _gossip(body: m.Gossip, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers) or len(body.members) > MEMBERS_MAX:
        return "an unknown broker, or too many"
    for member in body.members:
        numbers = (member.epoch, member.beat, member.version)
        if not is_name(member.name) or min(numbers) < 0 or max(numbers) > NUMBER_MAX:
            return "an invalid member"
    return None


def _experience(body: DurationStatsUpdate, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.brokers) or len(body.kinds) > KINDS_PER_MESSAGE_MAX:
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


def _orders(body: m.RunnerOrders, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.clusters):
        return "an unknown warden"
    for stop in body.stops:
        if not (
            TASK_MIN <= stop.task <= TASK_MAX
            and 0 <= stop.attempt <= NUMBER_MAX
            and 0 <= stop.grace <= GRACE_MAX
        ):
            return "a stop order out of range"
    return (
        _echo(body.echo, limits)
        or field_validators.starts(body.starts, limits.served)
        or field_validators.pairs(body.forget, None)
    )


def _runner_lease(body: m.RunnerLease, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.clusters) or not 0 <= body.session <= NUMBER_MAX:
        return "an invalid warden or session"
    if not field_validators.are_estates(body.lapsed, ESTATES_MAX):
        return "invalid shards"
    return _echo(body.echo, limits)


def _rejoin(body: m.Rejoin, limits: Limits, source: str) -> str | None:
    known = _known(source, limits.clusters) and 0 <= body.session <= NUMBER_MAX
    return None if known else "an invalid warden or session"


def _report(body: m.RunnerReport, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.runners):
        return "an unknown runner"
    return (
        field_validators.pairs(body.started, None)
        or field_validators.ends(body.ended, None)
        or field_validators.withheld(body.withheld, limits.nodes)
    )


def _hello(body: m.OpenSession, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.runners):
        return "an unknown runner"
    if not within((body.session, body.sent_at), 0, NUMBER_MAX):
        return "a session or an instant out of range"
    if not within(body.nodes, 0, limits.nodes - 1):
        return "nodes that the cluster does not have"
    return (
        field_validators.pairs(body.running, None)
        or field_validators.ends(body.ended, None)
        or field_validators.withheld(body.withheld, limits.nodes)
    )


def _runner_beat(body: m.RunnerHeartbeat, limits: Limits, source: str) -> str | None:
    if not _known(source, limits.runners):
        return "an unknown runner"
    inside = 0 <= body.session <= NUMBER_MAX and 0 <= body.sent_at <= NUMBER_MAX
    return None if inside else "a session or an instant out of range"


def _ack(_body: m.Ack, limits: Limits, source: str) -> str | None:
    for group in (limits.brokers, limits.clusters, limits.runners):
        if group is None or source in group:
            return None
    return "an unknown sender"


# --- shared fields --------------------------------------------------------------------------------------


def _known(name: str, group: frozenset[str] | None) -> bool:
    return group is None or name in group


def _echo(echo: Instant, limits: Limits) -> str | None:
    """Check our own instant that a peer returns: it cannot be later than now."""
    if not 0 <= echo <= NUMBER_MAX:
        return "an instant out of range"
    return "an echo from the future" if limits.clock is not None and echo > limits.clock() else None


def _rounds(rounds: tuple[tuple[str, int], ...]) -> str | None:
    if len(rounds) > ESTATES_MAX:
        return "too many shards"
    for shard, number in rounds:
        if not is_estate(shard) or not 0 <= number <= NUMBER_MAX:
            return "an invalid shard or round"
    return None


def _tenure(shard: str, term: int, bid: int) -> str | None:
    inside = is_estate(shard) and 0 <= term <= NUMBER_MAX and 0 <= bid <= NUMBER_MAX
    return None if inside else "a shard, a term or a takeover id out of range"


def _jobs(jobs: tuple[int, ...], most: int) -> str | None:
    inside = len(jobs) <= most and within(jobs, JOB_MIN, JOB_MAX)
    return None if inside else "too many jobs, or one out of range"


def _vectors(vectors: tuple[Vector, ...]) -> bool:
    """True if each has an entry, none is negative, and none is above the maximum of a node."""
    return not vectors or (
        all(vectors) and min(map(min, vectors)) >= 0 and max(map(max, vectors)) <= CAPACITY_MAX
    )


VETTERS: Final[dict[type, Callable[[Any, Limits, str], str | None]]] = {
    m.Claim: _claim,
    m.Demand: _demand,
    m.CancelAttempts: _columns,
    m.AckEnds: _columns,
    m.RegisterStandby: _register,
    m.RequestTakeover: _adopt,
    m.AbortTakeover: _return,
    m.ClaimReply: _answer,
    m.TaskUpdates: _news,
    m.OwnershipReply: _estate,
    m.ReplicateJobs: _replicate,
    m.ReplicaUpdate: _progress,
    m.OwnershipTransferred: _taken,
    m.WatchJobs: _watch,
    m.JobEnded: _watched,
    m.RunnerOrders: _orders,
    m.RunnerReport: _report,
    m.OpenSession: _hello,
    m.RunnerHeartbeat: _runner_beat,
    m.RunnerLease: _runner_lease,
    m.Rejoin: _rejoin,
    m.WardenHeartbeat: _beat,
    m.HeartbeatReply: _beat_reply,
    m.RequestSnapshot: _sync,
    m.ClusterSnapshot: _snapshot,
    m.ClusterDelta: _change,
    m.Gossip: _gossip,
    DurationStatsUpdate: _experience,
    m.Ack: _ack,
    **ESTATE_VETTERS,
}
"""One for each type of message; a test checks that it is complete."""
