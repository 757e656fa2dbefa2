"""What a broker shows when it asks for advice: who waits, what room it believes in, and what it holds itself.

Everything is bounded and in an order that does not depend on how the state came about.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final

import msgspec

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import Desk
from hanse.core.broker.job_table import CLAIMED, RUNNING, JobRecord, shape_of
from hanse.model.advice import ClusterRoom, HeldRoom, Observation, SizeBelief, WaitingGroup
from hanse.model.ids import JobId
from hanse.model.messages import Key, Shape
from hanse.policy.interface import ElasticFacts
from hanse.policy.node_columns import Column
from hanse.policy.priced_sizer import costs

GROUPS_SHOWN_MAX: Final = 32
"""Waiting groups in one question: the first of the queue."""
HELD_SHOWN_MAX: Final = 64
"""Running tasks in one question: those that were placed first."""
HELD_LOOKED_AT_MAX: Final = 1_000
"""Running tasks that are looked at for these, by job and number."""
CLUSTERS_SHOWN_MAX: Final = 62
"""Clusters in one question: as many as a network can tell apart (``policy.edge.view.CLUSTERS_MAX``)."""
_CPU: Final = 0
_GPU: Final = 2
"""Rows of a room's columns."""

FactsOf = Callable[[JobRecord, int], ElasticFacts]
Group = tuple[JobId, int]


def observe(desk: Desk, groups: Iterable[Group], holding: Iterable[JobId], facts_of: FactsOf) -> Observation:
    """All that is shown. ``holding``: jobs that may have sized tasks on nodes."""
    waiting = [(desk.jobs[job], group) for job, group in groups]
    first = nsmallest(GROUPS_SHOWN_MAX, [entry for entry in waiting if entry[0].waiting[entry[1]]], key=_turn)
    views = desk.views[:CLUSTERS_SHOWN_MAX]
    return Observation(
        rooms=tuple([_room(view) for view in views]),
        waiting=tuple([_waiting(desk, record, group, facts_of(record, group)) for record, group in first]),
        held=_held(desk, holding, len(views), facts_of),
    )


def _turn(entry: tuple[JobRecord, int]) -> tuple[Key, JobId, int]:
    record, group = entry
    return record.keys[group], record.id, group


def _waiting(desk: Desk, record: JobRecord, group: int, facts: ElasticFacts) -> WaitingGroup:
    ladder = sorted(costs(facts), key=lambda one: (one.size.gpu, one.size.cpu))
    least = least_shape(record, group)
    return WaitingGroup(
        job=record.id,
        group=group,
        count=len(record.waiting[group]),
        waited=max(0, desk.now - record.accepted_at),
        sizes=tuple([SizeBelief(one.size.cpu, one.size.gpu, max(1, int(one.duration))) for one in ladder]),
        reach=tuple(
            [view.index for view in desk.views[:CLUSTERS_SHOWN_MAX] if view.takes(least)],
        ),
    )


def least_shape(record: JobRecord, group: int) -> Shape:
    """A group's shape at its least: what decides which clusters it reaches."""
    return msgspec.structs.replace(shape_of(record.spec, group, 0), ask_max=None)


def _room(view: ClusterView) -> ClusterRoom:
    usable = view.usable
    if not usable.nodes:
        return ClusterRoom(view.name, (0, 0), (0, 0), (0, 0))
    capacity, free = usable.capacity, usable.free
    return ClusterRoom(
        view.name,
        (int(capacity[_CPU].sum()), int(capacity[_GPU].sum())),
        (_positive(free[_CPU]), _positive(free[_GPU])),
        (int(capacity[_CPU].max()), int(capacity[_GPU].max())),
    )


def _positive(row: Column) -> int:
    """A belief may be below nothing for a moment."""
    return int(row.clip(min=0).sum())


def _held(desk: Desk, holding: Iterable[JobId], clusters: int, facts_of: FactsOf) -> tuple[HeldRoom, ...]:
    """Sized tasks that run or are on their way, the first placed first."""
    found: list[tuple[int, JobId, int]] = []
    left = HELD_LOOKED_AT_MAX
    for job in sorted(holding):
        record = desk.jobs.get(job)
        if record is None:
            continue
        entries = nsmallest(left, record.placed.items())
        left -= len(entries)
        for index, (at, _) in entries:
            if CLAIMED <= record.state[index] <= RUNNING and record.place[index] < clusters:
                found.append((at, job, index))
        if not left:
            break
    return tuple([_holds(desk, *entry, facts_of) for entry in nsmallest(HELD_SHOWN_MAX, found)])


def _holds(desk: Desk, at: int, job: JobId, index: int, facts_of: FactsOf) -> HeldRoom:
    record = desk.jobs[job]
    size = record.sizes[index]
    believed = {one.size: one.duration for one in costs(facts_of(record, record.group_of(index)))}
    duration = max(1, int(believed.get(size, 1.0)))
    return HeldRoom(record.place[index], size.cpu, size.gpu, max(0, desk.now - at), duration)
