"""Request for advice: waiting groups, believed capacity of the clusters, and tasks that hold room.

Every list is bounded, and its order does not depend on the history of the state.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final

import msgspec

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import CLAIMED, RUNNING, JobRecord, shape_of
from hanse.model.advice import AdviceRequest, ClusterCapacity, HeldResources, SizeEstimate, WaitingGroup
from hanse.model.ids import JobId
from hanse.model.messages import QueueKey, Shape
from hanse.policy.interface import ElasticFacts
from hanse.policy.node_columns import Column
from hanse.policy.priced_sizer import rank_by_cost

GROUPS_SHOWN_MAX: Final = 32
"""Waiting groups in one request: the first of the queue."""
HELD_SHOWN_MAX: Final = 64
"""Running tasks in one request: those that were placed first."""
HELD_LOOKED_AT_MAX: Final = 1_000
"""Running tasks that are examined to choose them, by job and index."""
CLUSTERS_SHOWN_MAX: Final = 62
"""Clusters in one request: models keep sets of clusters as bits of a signed 64-bit integer."""
_CPU: Final = 0
_GPU: Final = 2
"""Rows of the columns of capacity."""

FactsOf = Callable[[JobRecord, int], ElasticFacts]
Group = tuple[JobId, int]


def build_advice_request(
    context: BrokerContext, groups: Iterable[Group], holding: Iterable[JobId], facts_of: FactsOf
) -> AdviceRequest:
    """Build a request. ``holding``: jobs that may have sized tasks on nodes."""
    waiting = [(context.jobs[job], group) for job, group in groups]
    first = nsmallest(
        GROUPS_SHOWN_MAX, [entry for entry in waiting if entry[0].waiting[entry[1]]], key=_queue_position
    )
    views = context.views[:CLUSTERS_SHOWN_MAX]
    return AdviceRequest(
        clusters=tuple([_cluster_capacity(view) for view in views]),
        waiting=tuple(
            [_waiting_group(context, record, group, facts_of(record, group)) for record, group in first]
        ),
        held=_held_resources(context, holding, len(views), facts_of),
    )


def _queue_position(entry: tuple[JobRecord, int]) -> tuple[QueueKey, JobId, int]:
    record, group = entry
    return record.keys[group], record.id, group


def _waiting_group(
    context: BrokerContext, record: JobRecord, group: int, facts: ElasticFacts
) -> WaitingGroup:
    ladder = sorted(rank_by_cost(facts), key=lambda one: (one.size.gpu, one.size.cpu))
    least = least_shape(record, group)
    return WaitingGroup(
        job=record.id,
        group=group,
        count=len(record.waiting[group]),
        waited=max(0, context.now - record.accepted_at),
        sizes=tuple([SizeEstimate(one.size.cpu, one.size.gpu, max(1, int(one.duration))) for one in ladder]),
        eligible_clusters=tuple(
            [view.index for view in context.views[:CLUSTERS_SHOWN_MAX] if view.can_ever_hold(least)],
        ),
    )


def least_shape(record: JobRecord, group: int) -> Shape:
    """Return a group's shape at its minimum size, which decides the clusters that it can use."""
    return msgspec.structs.replace(shape_of(record.spec, group, 0), ask_max=None)


def _cluster_capacity(view: ClusterView) -> ClusterCapacity:
    usable = view.usable
    if not usable.nodes:
        return ClusterCapacity(view.name, (0, 0), (0, 0), (0, 0))
    capacity, free = usable.capacity, usable.free
    return ClusterCapacity(
        view.name,
        (int(capacity[_CPU].sum()), int(capacity[_GPU].sum())),
        (_at_least_zero(free[_CPU]), _at_least_zero(free[_GPU])),
        (int(capacity[_CPU].max()), int(capacity[_GPU].max())),
    )


def _at_least_zero(row: Column) -> int:
    """Sum a row without negative entries: believed free capacity may be negative for a moment."""
    return int(row.clip(min=0).sum())


def _held_resources(
    context: BrokerContext, holding: Iterable[JobId], clusters: int, facts_of: FactsOf
) -> tuple[HeldResources, ...]:
    """Return the sized tasks that run or are on their way, the earliest placed first."""
    found: list[tuple[int, JobId, int]] = []
    left = HELD_LOOKED_AT_MAX
    for job in sorted(holding):
        record = context.jobs.get(job)
        if record is None:
            continue
        entries = nsmallest(left, record.placed.items())
        left -= len(entries)
        for index, (at, _) in entries:
            if CLAIMED <= record.state[index] <= RUNNING and record.place[index] < clusters:
                found.append((at, job, index))
        if not left:
            break
    return tuple([_held_by_task(context, *entry, facts_of) for entry in nsmallest(HELD_SHOWN_MAX, found)])


def _held_by_task(
    context: BrokerContext, at: int, job: JobId, index: int, facts_of: FactsOf
) -> HeldResources:
    record = context.jobs[job]
    size = record.sizes[index]
    believed = {one.size: one.duration for one in rank_by_cost(facts_of(record, record.group_of(index)))}
    duration = max(1, int(believed.get(size, 1.0)))
    return HeldResources(record.place[index], size.cpu, size.gpu, max(0, context.now - at), duration)
