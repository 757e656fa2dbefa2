"""Estimate of the start of a job: time and cluster, from running tasks, waiting tasks and measured run times.

The estimate is a small Monte Carlo simulation: in each draw every running and waiting task gets one of the
measured run times of its kind (longer than its elapsed time), resources are freed in that order, waiting
tasks take what fits, and the job starts when and where it first fits. Nothing is invented: a task without
measured run times, or one that has run longer than all of them, never ends in the simulation. If the answer
depends on such a task, it is *unknown*.

Pure: the same input and seed give the same answer. ``Plan.caveats`` lists the simplifications.
"""

from typing import Final

import msgspec

from hanse.core.broker.job_table import shape_of
from hanse.live.readmodel.capacity_forecast import NEVER, ForecastRun, InitialState, simulate_starts
from hanse.live.readmodel.cluster_facts import NEVER_FITS as UNFIT
from hanse.live.readmodel.cluster_facts import ClusterFit, FitStatus, ObservedCluster, assess_fit, join_words
from hanse.live.readmodel.job_outlook import JobOutlook, forecast_outlook
from hanse.model.job import JobSpec
from hanse.model.resources import Resources
from hanse.policy.gang_topology import has_topology

DRAWS: Final = 200
"""Number of draws of one estimate."""
QUANTILES: Final = (10, 50, 90)
GROUPS_PLACED_MAX: Final = 100
"""Groups of a job that are placed: each costs a look at every node. A caveat says if there are more."""
CLOSED: Final = (FitStatus.UNREACHABLE, FitStatus.DRAINING)
"""Fits of clusters whose return cannot be predicted: an operator opens them, or they answer again."""


class RunningTaskFacts(msgspec.Struct, frozen=True):
    """Facts about a running task."""

    cluster: str
    node: int
    size: Resources
    elapsed: int
    """Microseconds since it started."""
    expected: tuple[int, ...] = ()
    """Measured run times of its kind, equally likely, in microseconds; empty: unknown."""


class QueuedTaskFacts(msgspec.Struct, frozen=True):
    """Facts about waiting tasks of one group that are served before the job."""

    spec: JobSpec
    group: int
    count: int
    expected: tuple[int, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """Cluster with its estimate for the job."""

    cluster: str
    slots: int
    """Number of tasks of the job's first group that fit now."""
    score: int
    """Draws, per thousand, in which the job's first task starts there."""
    reason: str
    chosen: bool


class Start(msgspec.Struct, frozen=True):
    """Quantiles of the delay until the first task (of a gang: every task) starts, in microseconds; None:
    unknown."""

    p10: int | None
    p50: int | None
    p90: int | None


class Plan(msgspec.Struct, frozen=True):
    """Estimate for a job that is not yet submitted."""

    starts_now: bool
    candidates: tuple[Candidate, ...]
    """Best first: higher score, then more slots, then by name."""
    start: Start
    unknown: str
    """Reason why some of ``start`` is unknown, as a sentence; empty if all is known."""
    caveats: tuple[str, ...]
    outlook: JobOutlook
    """Fate of all of its tasks, if it were submitted now."""


def estimate_start(
    spec: JobSpec,
    facts: tuple[ObservedCluster, ...],
    running: list[RunningTaskFacts],
    ahead: list[QueuedTaskFacts],
    durations: tuple[int, ...] = (),
    *,
    seed: int,
    draws: int = DRAWS,
) -> Plan:
    """Estimate the start of ``spec`` if it were submitted now. ``durations``: run times of its tasks."""
    groups = [number for number, group in enumerate(spec.groups) if not group.needs]
    verdicts = [assess_fit(spec, groups[0], cluster) for cluster in facts]
    caveats = _caveats(spec, ahead)
    if spec.after:
        unknown = "It waits for other jobs first; their ends are not estimated."
        starts: list[tuple[int, int]] = []
        outlook = forecast_outlook(spec, {}, (), 0)
    else:
        present, started, first = _place_now(spec, facts, groups, ahead, durations)
        waiting_ahead = sum(queued.count for queued in ahead)
        outlook = forecast_outlook(spec, started, present.remaining_clusters(), waiting_ahead)
        if first is not None:
            starts = [(0, first)] * draws
        else:
            tasks = [(task.cluster, task.node, task.size, task.elapsed, task.expected) for task in running]
            starts = simulate_starts(present, tasks, seed, draws)
        unknown = _unknown_reason(starts, running, ahead, verdicts)
    scores = [sum(place == at for _, place in starts) for at in range(len(facts))]
    total = max(1, len(starts))
    order = sorted(range(len(facts)), key=lambda at: (-scores[at], -verdicts[at].slots, facts[at].name))
    candidates = tuple(
        Candidate(
            facts[at].name, verdicts[at].slots, scores[at] * 1_000 // total, verdicts[at].text,
            bool(scores[at]) and at == order[0],
        )
        for at in order
    )  # fmt: skip
    start = Start(*(_quantile(sorted(when for when, _ in starts), percent) for percent in QUANTILES))
    now = bool(starts) and all(when == 0 for when, _ in starts)
    return Plan(now, candidates, start, unknown, caveats, outlook)


def _place_now(
    spec: JobSpec,
    facts: tuple[ObservedCluster, ...],
    groups: list[int],
    ahead: list[QueuedTaskFacts],
    durations: tuple[int, ...],
) -> tuple[ForecastRun, dict[int, dict[str, int]], int | None]:
    """Give the present room to the waiting tasks ahead, then to these groups of the job in their order.

    Return the run; by group, the tasks that would start now in each cluster; and the cluster in which the
    first would start, if any does.
    """
    initial = InitialState(facts)
    for queued in ahead:
        initial.enqueue(queued.spec, queued.group, queued.count, queued.expected)
    positions = {
        initial.enqueue(spec, number, spec.groups[number].count, durations, is_subject=True): number
        for number in groups[:GROUPS_PLACED_MAX]
    }
    run, first = ForecastRun(initial), None
    started: dict[int, dict[str, int]] = {}
    for entry, at, count in run.serve_queue():
        if entry.is_subject:
            started.setdefault(positions[entry.position], {})[facts[at].name] = count
            first = at if first is None else first
    return run, started, first


def _quantile(times: list[int], percent: int) -> int | None:
    """Return the least time by which ``percent`` of the draws have started; None: they do not."""
    if not times:
        return None
    found = times[-(-len(times) * percent // 100) - 1]
    return None if found == NEVER else found


def _unknown_reason(
    starts: list[tuple[int, int]],
    running: list[RunningTaskFacts],
    ahead: list[QueuedTaskFacts],
    verdicts: list[ClusterFit],
) -> str:
    if all(when < NEVER for when, _ in starts):
        return ""
    possible = [verdict for verdict in verdicts if verdict.status not in UNFIT]
    if possible and all(verdict.status in CLOSED for verdict in possible):
        return (
            f"In the current state it would not start: {join_words([verdict.text for verdict in possible])}."
        )
    unknown_running = sum(not any(time > task.elapsed for time in task.expected) for task in running)
    unknown_ahead = sum(queued.count for queued in ahead if not queued.expected)
    if not unknown_running and not unknown_ahead:
        return "In the current state it would not start: no cluster will have room for it."
    parts = []
    if unknown_running:
        parts.append(f"{unknown_running} running task{'s' * (unknown_running != 1)}")
    if unknown_ahead:
        parts.append(f"{unknown_ahead} task{'s' * (unknown_ahead != 1)} ahead of it")
    return f"It depends on ends that cannot be estimated: no usable run times of {' and '.join(parts)}."


def _caveats(spec: JobSpec, ahead: list[QueuedTaskFacts]) -> tuple[str, ...]:
    caveats = []
    wishes = [wish for group in spec.groups for wish in group.affinity]
    if any(not (wish.apart and wish.label in spec.labels) for wish in wishes):
        caveats.append("The places of other jobs' tasks, which its affinity refers to, are not considered.")
    if any(shape_of(spec, number, 0).is_single_per_cluster for number in range(len(spec.groups))):
        caveats.append("The limit of one of its tasks per cluster is not considered.")
    if any(part.ask_max is not None for part in spec.groups):
        caveats.append("It is elastic; the estimate uses its smallest size.")
    if sum(not group.needs for group in spec.groups) > GROUPS_PLACED_MAX:
        caveats.append(
            f"Only {GROUPS_PLACED_MAX} of its groups are placed; the others are counted as waiting."
        )
    if spec.priority > 0:
        caveats.append("Work that it might preempt is not counted as free.")
    if any(queued.spec.gang for queued in ahead):
        caveats.append("Nodes held for gangs ahead of it are not considered.")
    if any(
        has_topology(shape_of(one, 0, 1)) for one in (spec, *[queued.spec for queued in ahead]) if one.gang
    ):
        caveats.append("It is not considered that gangs stay together in a rack or on a node, or spread.")
    return tuple(caveats)
