"""Outlook of all tasks of a job that is not yet submitted: how many would start now and where, how many would
wait and for what.

Pure: the same input gives the same answer.
"""

from typing import Final

import msgspec

from hanse.live.readmodel.cluster_facts import FitStatus, ObservedCluster, assess_fit, join_words
from hanse.live.readmodel.task_phrases import tasks_text, waiting_clause, with_total
from hanse.model.ids import job_text
from hanse.model.job import JobSpec

GROUPS_SHOWN_MAX: Final = 20
"""Groups of a job that are described one by one; the others are counted."""
NEEDS_SHOWN_MAX: Final = 5
"""Jobs and groups that a sentence names as needed; the others are counted."""


class GroupOutlook(msgspec.Struct, frozen=True):
    """Outlook of one group."""

    group: str
    tasks: int
    clusters: dict[str, int]
    """Tasks that would start now, by cluster."""
    waiting: int
    blocked: int
    """Tasks that would wait for other jobs or groups first."""


class JobOutlook(msgspec.Struct, frozen=True):
    """Outlook of a job. ``starting``, ``waiting`` and ``blocked`` are all of its tasks."""

    starting: int
    waiting: int
    blocked: int
    groups: tuple[GroupOutlook, ...]
    """The first ``GROUPS_SHOWN_MAX`` groups."""
    sentences: tuple[str, ...]


def forecast_outlook(
    spec: JobSpec, started: dict[int, dict[str, int]], clusters: tuple[ObservedCluster, ...], ahead: int
) -> JobOutlook:
    """Return the outlook of a job.

    ``started``: by group, the tasks that would start now in each cluster. ``clusters``: with the room that
    is then left. ``ahead``: waiting tasks of other jobs that have their room first.
    """
    outlooks = []
    for number, group in enumerate(spec.groups):
        places = started.get(number, {})
        left = group.count - sum(places.values())
        is_blocked = bool(spec.after or group.needs)
        outlooks.append(
            GroupOutlook(
                group.name, group.count, places, 0 if is_blocked else left, left if is_blocked else 0
            )
        )
    sentences: list[str] = []
    for number, outlook in enumerate(outlooks[:GROUPS_SHOWN_MAX]):
        sentences += _group_sentences(spec, number, outlook, clusters)
    if len(outlooks) > GROUPS_SHOWN_MAX:
        sentences.append(_others_sentence(outlooks[GROUPS_SHOWN_MAX:]))
    if ahead and any(outlook.waiting for outlook in outlooks):
        sentences.append(
            f"{tasks_text(ahead)} of other jobs {'waits' if ahead == 1 else 'wait'} ahead of it."
        )
    return JobOutlook(*_totals(outlooks), tuple(outlooks[:GROUPS_SHOWN_MAX]), tuple(sentences))


def _totals(outlooks: list[GroupOutlook]) -> tuple[int, int, int]:
    """Return the numbers of tasks that would start, wait and be blocked."""
    return (
        sum(sum(outlook.clusters.values()) for outlook in outlooks),
        sum(outlook.waiting for outlook in outlooks),
        sum(outlook.blocked for outlook in outlooks),
    )


def _group_sentences(
    spec: JobSpec, number: int, outlook: GroupOutlook, clusters: tuple[ObservedCluster, ...]
) -> list[str]:
    """Describe one group. ``clusters`` have the room that is left after the tasks that would start."""
    parts, sentences = [], []
    if outlook.clusters:
        counts = [f"{cluster} ({count})" for cluster, count in outlook.clusters.items()]
        where = join_words(counts if len(counts) > 1 else list(outlook.clusters))
        parts.append(f"{sum(outlook.clusters.values())} would start now in {where}")
    if outlook.waiting:
        clause, change = _waiting_reason(spec, number, clusters)
        parts.append(f"{outlook.waiting} would wait{clause}")
        if change:
            sentences.append(change)
    if outlook.blocked:
        parts.append(f"{outlook.blocked} would be blocked until {_needs_text(spec, number)} succeeded")
    prefix = f"Group {outlook.group}: " if len(spec.groups) > 1 else ""
    return [f"{prefix}{'; '.join([with_total(parts[0], outlook.tasks), *parts[1:]])}.", *sentences]


def _waiting_reason(spec: JobSpec, number: int, clusters: tuple[ObservedCluster, ...]) -> tuple[str, str]:
    verdicts = [assess_fit(spec, number, cluster) for cluster in clusters]
    if any(verdict.status is FitStatus.ROOM for verdict in verdicts):
        return ", because a node or a cluster takes only one of its tasks at a time", ""
    return waiting_clause(spec, number, verdicts)


def _needs_text(spec: JobSpec, number: int) -> str:
    """Name what a group needs first, with the verb: ``job 1-3 and group link have``."""
    needs = [
        *(f"job {job_text(job)}" for job in spec.after),
        *(f"group {need}" for need in spec.groups[number].needs),
    ]
    more = len(needs) - NEEDS_SHOWN_MAX
    shown = [*needs[:NEEDS_SHOWN_MAX], f"{more} more"] if more > 0 else needs
    return f"{join_words(shown)} {'has' if len(shown) == 1 else 'have'}"


def _others_sentence(outlooks: list[GroupOutlook]) -> str:
    starting, waiting, blocked = _totals(outlooks)
    parts = [
        f"{tasks_text(count)} would {what}"
        for count, what in ((starting, "start now"), (waiting, "wait"), (blocked, "be blocked by others"))
        if count
    ]
    return f"{len(outlooks)} more groups: {'; '.join(parts)}."
