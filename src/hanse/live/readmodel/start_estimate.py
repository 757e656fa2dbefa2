"""Would a job start now, and where; and if not, when: from what runs, what waits ahead, and how long such
things take.

A small Monte Carlo: in each draw every running and waiting task gets a run time from those that were
measured of its kind (given that it has already run for so long), room frees in that order, what waits ahead
takes what it can, and the job starts where and when it first fits. Nothing is invented: a task of whose kind
nothing was measured, or that has outlived all that was, is never counted on to end. Where the answer would
depend on one, it is *unknown*.

Pure: the same question and seed give the same answer. What is left out is said in ``Plan.caveats``.
"""

from typing import Final

import msgspec

from hanse.core.broker.job_table import shape_of
from hanse.live.readmodel.capacity_forecast import NEVER, Stage, futures
from hanse.live.readmodel.cluster_facts import NEVER as UNFIT
from hanse.live.readmodel.cluster_facts import ClusterFacts, Standing, Verdict, judge, listed
from hanse.model.job import JobSpec
from hanse.model.resources import Resources

DRAWS: Final = 200
"""Draws of one estimate."""
QUANTILES: Final = (10, 50, 90)
SHUT: Final = (Standing.UNREACHABLE, Standing.DRAINING)
"""Clusters that nobody can foretell anything of: they open when somebody opens them or they answer again."""


class Occupant(msgspec.Struct, frozen=True):
    """A running task."""

    cluster: str
    node: int
    size: Resources
    elapsed: int
    """Microseconds since it started."""
    expected: tuple[int, ...] = ()
    """Run times of its kind, equally likely, in microseconds; empty: unknown."""


class Ahead(msgspec.Struct, frozen=True):
    """Tasks of one group that wait and will be served before the job."""

    spec: JobSpec
    group: int
    count: int
    expected: tuple[int, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """A cluster, and how it looks for the job."""

    cluster: str
    slots: int
    """How many tasks of the job's first group have room there now."""
    score: int
    """In how many draws of a thousand the job's first task starts there."""
    reason: str
    chosen: bool


class Start(msgspec.Struct, frozen=True):
    """Delay until the first task starts (of a gang: all of them), in microseconds; None: unknown."""

    p10: int | None
    p50: int | None
    p90: int | None


class Plan(msgspec.Struct, frozen=True):
    """What is to be expected of a job that is not yet submitted."""

    starts_now: bool
    candidates: tuple[Candidate, ...]
    """The best first: higher score, then more slots, then by name."""
    start: Start
    unknown: str
    """Why some of ``start`` is unknown, as a sentence; empty if nothing is."""
    caveats: tuple[str, ...]


def estimate(
    spec: JobSpec,
    facts: tuple[ClusterFacts, ...],
    running: list[Occupant],
    ahead: list[Ahead],
    durations: tuple[int, ...] = (),
    *,
    seed: int,
    draws: int = DRAWS,
) -> Plan:
    """What would become of ``spec`` if it were submitted now. ``durations``: run times of its own tasks."""
    groups = [number for number, group in enumerate(spec.groups) if not group.needs]
    verdicts = [judge(spec, groups[0], cluster) for cluster in facts]
    caveats = _caveats(spec, ahead)
    if spec.after:
        unknown = "It waits for other jobs first, and when they end is not estimated."
        starts: list[tuple[int, int]] = []
    else:
        stage = Stage(facts)
        for one in ahead:
            stage.wait(one.spec, one.group, one.count, one.expected)
        for number in groups:
            stage.wait(spec, number, spec.groups[number].count, durations, ours=True)
        tasks = [(task.cluster, task.node, task.size, task.elapsed, task.expected) for task in running]
        starts = futures(stage, tasks, seed, draws)
        unknown = _why_unknown(starts, running, ahead, verdicts)
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
    return Plan(now, candidates, start, unknown, caveats)


def _quantile(times: list[int], percent: int) -> int | None:
    """The least time that at least so many of the draws reach; None: they do not."""
    if not times:
        return None
    found = times[-(-len(times) * percent // 100) - 1]
    return None if found == NEVER else found


def _why_unknown(
    starts: list[tuple[int, int]], running: list[Occupant], ahead: list[Ahead], verdicts: list[Verdict]
) -> str:
    if all(when < NEVER for when, _ in starts):
        return ""
    able = [verdict for verdict in verdicts if verdict.standing not in UNFIT]
    if able and all(verdict.standing in SHUT for verdict in able):
        return f"As things are it would not start: {listed([verdict.text for verdict in able])}."
    mute = sum(not any(time > task.elapsed for time in task.expected) for task in running)
    silent = sum(one.count for one in ahead if not one.expected)
    if not mute and not silent:
        return "As things are it would not start: no cluster comes to have room for it."
    parts = []
    if mute:
        parts.append(f"of {mute} running task{'s' * (mute != 1)}")
    if silent:
        parts.append(f"of {silent} task{'s' * (silent != 1)} ahead of it")
    return f"It depends on ends that nobody can foretell: {' and '.join(parts)} no such run time is known."


def _caveats(spec: JobSpec, ahead: list[Ahead]) -> tuple[str, ...]:
    found = []
    wishes = [wish for group in spec.groups for wish in group.affinity]
    if any(not (wish.apart and wish.label in spec.labels) for wish in wishes):
        found.append("Where other jobs' tasks are, which its affinity asks about, is not looked at.")
    if any(shape_of(spec, number, 0).is_single_per_cluster for number in range(len(spec.groups))):
        found.append("That only one of its tasks may be in each cluster is not looked at.")
    if any(part.ask_max is not None for part in spec.groups):
        found.append("It is elastic and is counted with the least that it asks for.")
    if spec.priority > 0:
        found.append("Work that it might preempt is not counted as room.")
    if any(one.spec.gang for one in ahead):
        found.append("Room kept back for gangs ahead of it is not looked at.")
    return tuple(found)
