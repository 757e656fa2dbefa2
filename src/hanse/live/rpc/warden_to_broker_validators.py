"""Validators of messages from wardens to brokers.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from typing import Final

from hanse.live.rpc import field_validators
from hanse.live.rpc.drain_validators import drains_problem
from hanse.live.rpc.field_validators import MEMBERS_MAX, NUMBER_MAX, TASK_MAX, TASK_MIN, are_within, is_name
from hanse.live.rpc.validation_context import STALE, Layout, ValidationContext, Validator, is_known, layout_of
from hanse.model import messages as m
from hanse.model.constraints import ATTRIBUTES_PER_NODE_MAX, Value, attributes_problem
from hanse.model.resources import BASE_DIMENSIONS, Vector
from hanse.policy.node_columns import CAPACITY_MAX, DIMENSIONS_MAX, NODES_MAX

OFFERS_MAX: Final = 1 << 17
"""Grants in one message."""


def _claim_reply(body: m.ClaimReply, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.clusters):
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
        problem = field_validators.task_indices_problem(
            [entry.task for entry in body.refused], context.count_tasks
        )
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
    if not is_known(source, context.clusters):
        return "an unknown cluster"
    for task, attempt, node in body.started:
        if not (TASK_MIN <= task <= TASK_MAX and 0 <= attempt <= NUMBER_MAX and 0 <= node < NODES_MAX):
            return "a task, an attempt or a node out of range"
    problem = field_validators.ends_problem(body.ended, context.count_tasks)
    if problem is None and context.count_tasks is not None:
        problem = field_validators.task_indices_problem(
            [task for task, _, _ in body.started], context.count_tasks
        )
    return problem or _offers(body.offers)


def _ownership_reply(body: m.OwnershipReply, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.clusters):
        return "an unknown cluster"
    if body.owner and not is_name(body.owner):
        return "an invalid owner"
    return (
        field_validators.shard_term_problem(body.shard, body.term, body.takeover_id)
        or field_validators.attempts_problem(body.running, context.count_tasks)
        or field_validators.ends_problem(body.ended, context.count_tasks)
    )


def _warden_heartbeat(body: m.WardenHeartbeat, context: ValidationContext, source: str) -> str | None:
    if body.cluster != source or not is_known(source, context.clusters):
        return "another cluster"
    if not are_within((body.epoch, body.version, body.sent_at), 0, NUMBER_MAX):
        return "an epoch, a version or an instant out of range"
    return field_validators.rounds_problem(body.rounds) or drains_problem(body.drains)


def _cluster_delta(body: m.ClusterDelta, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.clusters):
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
    if body.cluster != source or not is_known(source, context.clusters):
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


def _are_vectors(vectors: tuple[Vector, ...]) -> bool:
    """True if each has an entry, none is negative, and none is above the maximum of a node."""
    return not vectors or (
        all(vectors) and min(map(min, vectors)) >= 0 and max(map(max, vectors)) <= CAPACITY_MAX
    )


WARDEN_TO_BROKER_VALIDATORS: Final[dict[type, Validator]] = {
    m.ClaimReply: _claim_reply,
    m.TaskUpdates: _task_updates,
    m.OwnershipReply: _ownership_reply,
    m.WardenHeartbeat: _warden_heartbeat,
    m.ClusterDelta: _cluster_delta,
    m.ClusterSnapshot: _cluster_snapshot,
}
