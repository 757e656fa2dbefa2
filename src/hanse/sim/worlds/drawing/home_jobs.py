"""Jobs submitted in one cluster: a stretch of its trace, and the window of it that is the load.

Every job of the stretch gets its traits first; then a window of consecutive submissions is chosen whose work
is the wanted one, and its arrivals are scaled to the horizon. A submission that would overshoot at the
window's end gives way to smaller ones behind it, which arrive at moments of their own (``FILLERS_MAX``). A
stretch with too little work is passed several times; every pass draws traits anew.
"""

import math
from typing import Final

import msgspec
import numpy as np

from hanse.sim.worlds.columns import Floats, Ints
from hanse.sim.worlds.drawing.job_shapes import JobShapes, gang_sizes, shape_jobs
from hanse.sim.worlds.drawing.streams import DrawStream, generator_of
from hanse.sim.worlds.drawing.stretches import TraceStretch
from hanse.sim.worlds.drawing.templates import TemplatePool, TraitRows, draw_rows, join_rows, take_rows
from hanse.sim.worlds.world import GANG_TOPOLOGIES, SECOND, World, WorldError

TOLERANCE: Final = 0.005
"""Share of the wanted work by which a window may miss it."""
FILLERS_MAX: Final = 4_000
"""Submissions behind the window that are tried as fillers."""
CANDIDATES_MAX: Final = 4_000_000
"""Tasks of all passes over a stretch; a load that needs more is refused."""


class HomeJobs(msgspec.Struct, frozen=True, eq=False):
    """J jobs with T tasks that are submitted in one cluster, in order of submission."""

    arrival: Ints
    kind: Ints
    """[J] template's number, -1: without history."""
    traits: TraitRows
    """[J] one row each."""
    shapes: JobShapes
    gang: Ints
    counts: Ints
    """[J] number of tasks."""
    estimate: Ints
    work: Floats
    """[T] seconds."""
    later: Ints
    earlier: Ints
    passes: int
    """Times that the stretch was passed."""

    @property
    def core_seconds(self) -> float:
        """Work of all tasks, times their cores."""
        return float((np.repeat(self.shapes.cpu, self.counts) * self.work).sum()) / 1_000


class _Candidates(msgspec.Struct, frozen=True, eq=False):
    """Jobs of all passes over a stretch, with their traits."""

    source: Ints
    """[J] place in the stretch."""
    submission_offset: Ints
    arrival: Ints
    kind: Ints
    traits: TraitRows
    shapes: JobShapes
    gang: Ints
    counts: Ints
    work: Floats
    core_seconds: Floats
    """[U] work of each submission, times the cores."""
    passes: int


class HomeDraw(msgspec.Struct, frozen=True):
    """Settings of one cluster's drawing."""

    world: World
    pool: TemplatePool
    cluster: int
    seed: int
    stretch: int

    def generator(self, stream: DrawStream) -> np.random.Generator:
        """Return the generator of a concern of this cluster."""
        return generator_of(self.seed, stream, self.stretch, self.cluster)


def draw_home_jobs(draw: HomeDraw, trace: TraceStretch, wanted: float) -> HomeJobs:
    """Return jobs with about ``wanted`` core-seconds of work."""
    passes = 1
    while True:
        found = _draw_candidates(draw, trace, passes)
        total = float(found.core_seconds.sum())
        if total >= wanted * (1 + TOLERANCE) or wanted <= 0:
            break
        # a further pass, because the draws of the last one may hold less than those of the first
        passes = max(passes + 1, math.ceil(passes * wanted / max(total, 1e-9)))
        if passes * len(trace.duration) > CANDIDATES_MAX:
            raise WorldError(
                f"{trace.name} has too little work for this load: it would be passed {passes:,} times; take "
                "a longer trace, a smaller world or a smaller load"
            )
    return _choose_window(draw, trace, found, wanted)


def _draw_candidates(draw: HomeDraw, trace: TraceStretch, passes: int) -> _Candidates:
    world, jobs = draw.world, trace.job_count
    source = np.tile(np.arange(jobs), passes)
    starts = np.concatenate(
        [trace.submission_offset[:-1] + number * jobs for number in range(passes)]
        + [np.array([passes * jobs])]
    )
    shift = np.repeat(np.arange(passes) * trace.pass_span, jobs)
    work_kind = _draw_kinds(draw, len(source))
    kind, traits = _draw_templates(draw, work_kind)
    shapes = shape_jobs(world, traits, trace, source)
    counts = np.tile(np.diff(trace.offset), passes)
    gang, counts = _draw_gangs(draw, traits, shapes, counts)
    work = _draw_work(draw, trace, traits, counts, source)
    core_seconds = np.repeat(shapes.cpu, counts) * work / 1_000
    by_job = np.add.reduceat(core_seconds, np.cumsum(counts) - counts)
    return _Candidates(
        source=source,
        submission_offset=starts,
        arrival=trace.arrival[source] + shift,
        kind=kind,
        traits=traits,
        shapes=shapes,
        gang=gang,
        counts=counts,
        work=work,
        core_seconds=np.add.reduceat(by_job, starts[:-1]),
        passes=passes,
    )


def _draw_kinds(draw: HomeDraw, jobs: int) -> Ints:
    """Return the kind of work of each job, by the shares of the cluster or of the world."""
    world, cluster = draw.world, draw.world.clusters[draw.cluster]
    own = cluster.work_shares
    shares = [own.get(kind.name, 0.0) if own else kind.share for kind in world.work_kinds]
    bounds = np.cumsum(shares) / sum(shares)
    picks = np.searchsorted(bounds, draw.generator(DrawStream.KIND).random(jobs), side="right")
    return np.minimum(picks, len(shares) - 1).astype(np.int64)


def _draw_templates(draw: HomeDraw, work_kind: Ints) -> tuple[Ints, TraitRows]:
    """Return each job's template, -1 for none, and its traits."""
    rules, pool = draw.world.templates, draw.pool
    pick = draw.generator(DrawStream.TEMPLATE).random((len(work_kind), 3))
    kind = np.full(len(work_kind), -1, np.int64)
    for number in range(len(draw.world.work_kinds)):
        of_kind = (work_kind == number) & (pick[:, 0] >= rules.unknown_share)
        shared, local = pool.shared[number], pool.local[draw.cluster][number]
        is_local = pick[:, 1] < rules.local_share
        for rows, chosen in (
            (local if len(local) else shared, of_kind & is_local),
            (shared if len(shared) else local, of_kind & ~is_local),
        ):
            if len(rows):
                kind[chosen] = rows[(pick[chosen, 2] * len(rows)).astype(np.int64)]
    unknown = draw_rows(
        draw.world, work_kind, (draw.seed, DrawStream.UNKNOWN_ROWS, draw.stretch, draw.cluster)
    )
    row = np.where(kind >= 0, kind, pool.rows.count + np.arange(len(kind)))
    return kind, take_rows(join_rows(pool.rows, unknown), row)


def _draw_gangs(draw: HomeDraw, traits: TraitRows, shapes: JobShapes, counts: Ints) -> tuple[Ints, Ints]:
    """Return each job's place of a gang (0: none), and the numbers of tasks: a gang fits into its place."""
    rules = draw.world.work.gangs
    gang = np.zeros(len(counts), np.int64)
    if not rules.share:
        return gang, counts
    numbers = [
        at for at, kind in enumerate(draw.world.work_kinds) if not rules.kinds or kind.name in rules.kinds
    ]
    odds = draw.generator(DrawStream.GANGS).random(len(counts))
    chosen = (odds < rules.share) & (counts > 1) & np.isin(traits.kind, numbers)
    most = gang_sizes(draw.world, shapes.take(np.flatnonzero(chosen)), rules.topology)
    gang[chosen] = GANG_TOPOLOGIES.index(rules.topology) + 1
    counts = counts.copy()
    counts[chosen] = np.minimum(counts[chosen], most)
    return gang, counts


def _draw_work(draw: HomeDraw, trace: TraceStretch, traits: TraitRows, counts: Ints, source: Ints) -> Floats:
    """Return the seconds of every task that stays: of the trace, or lognormal by kind if it states none."""
    starts = np.cumsum(counts) - counts
    rank = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    if trace.has_durations:
        stated: Floats = trace.duration[np.repeat(trace.offset[:-1][source], counts) + rank] / SECOND
        return stated
    kinds = draw.world.work_kinds
    median = np.array([kind.seconds_median / SECOND for kind in kinds])[traits.kind]
    deviation = np.array([kind.seconds_deviation for kind in kinds])[traits.kind]
    normal = draw.generator(DrawStream.SECONDS).standard_normal(len(rank))
    rules = draw.world.work
    drawn = np.repeat(median, counts) * np.exp(np.repeat(deviation, counts) * normal)
    whole = np.rint(np.clip(drawn, rules.task_least / SECOND, rules.task_most / SECOND) * SECOND)
    seconds: Floats = whole / SECOND
    return seconds


def _choose_window(draw: HomeDraw, trace: TraceStretch, found: _Candidates, wanted: float) -> HomeJobs:
    """Return the jobs of a window with the wanted work, their arrivals scaled to the horizon."""
    horizon = draw.world.work.horizon
    begin, end = _window(draw, found.core_seconds, wanted)
    fillers = _fillers(found.core_seconds, begin, end, wanted)
    starts = found.submission_offset
    first = found.arrival[starts[:-1]]
    until = first[end] if end < len(first) else int(found.arrival.max()) + max(1, trace.pass_span // 100)
    origin = int(first[begin])
    scale = horizon / max(1, int(until) - origin)
    chosen = np.concatenate([np.arange(begin, end), fillers]).astype(np.int64)
    moments = np.sort(draw.generator(DrawStream.FILLERS).random(FILLERS_MAX)[: len(fillers)]) * horizon
    base = np.concatenate([(first[begin:end] - origin) * scale, moments])
    sizes = np.diff(starts)[chosen]
    jobs = np.repeat(starts[:-1][chosen] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
    inside = (found.arrival[jobs] - np.repeat(first[chosen], sizes)) * scale
    arrival = np.clip(np.floor(np.repeat(base, sizes) + inside), 0, horizon - 1).astype(np.int64)
    task_starts = np.cumsum(found.counts) - found.counts
    counts = found.counts[jobs]
    tasks = np.repeat(task_starts[jobs] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    later, earlier = _window_edges(trace, found, jobs)
    return HomeJobs(
        arrival=_after_needs(arrival, later, earlier),
        kind=found.kind[jobs],
        traits=take_rows(found.traits, jobs),
        shapes=found.shapes.take(jobs),
        gang=found.gang[jobs],
        counts=counts,
        estimate=trace.estimate[found.source[jobs]],
        work=found.work[tasks],
        later=later,
        earlier=earlier,
        passes=found.passes,
    )


def _window(draw: HomeDraw, core_seconds: Floats, wanted: float) -> tuple[int, int]:
    """Return the bounds of a window of submissions that does not overshoot; the seed draws its beginning."""
    before = np.concatenate([np.zeros(1), np.cumsum(core_seconds)])
    last = int(np.searchsorted(before, before[-1] - wanted, side="right")) - 1
    begin = int(draw.generator(DrawStream.WINDOW).random() * (max(0, last) + 1))
    end = int(np.searchsorted(before, before[begin] + wanted, side="right")) - 1
    return begin, max(begin, end)


def _fillers(core_seconds: Floats, begin: int, end: int, wanted: float) -> Ints:
    """Return submissions behind the window, around the end of the passes, that still fit into the work."""
    count = len(core_seconds)
    left = wanted - float(core_seconds[begin:end].sum())
    slack = wanted * TOLERANCE
    found: list[int] = []
    for step in range(min(FILLERS_MAX, count - (end - begin))):
        if left <= slack:
            break
        at = (end + step) % count
        if core_seconds[at] <= left + slack:
            found.append(at)
            left -= float(core_seconds[at])
    return np.array(found, np.int64)


def _window_edges(trace: TraceStretch, found: _Candidates, jobs: Ints) -> tuple[Ints, Ints]:
    """Return the edges between chosen jobs; a submission is chosen as a whole, so none is lost."""
    if not len(trace.later):
        return trace.later, trace.earlier
    place = np.full(len(found.source), -1, np.int64)
    place[jobs] = np.arange(len(jobs))
    shifts = np.arange(found.passes) * trace.job_count
    later = place[np.add.outer(shifts, trace.later).ravel()]
    earlier = place[np.add.outer(shifts, trace.earlier).ravel()]
    kept = (later >= 0) & (earlier >= 0)
    return later[kept], earlier[kept]


def _after_needs(arrival: Ints, later: Ints, earlier: Ints) -> Ints:
    """Return arrivals that are not before those of the jobs that a job needs."""
    while len(later):
        moved = arrival.copy()
        np.maximum.at(moved, later, arrival[earlier])
        if np.array_equal(moved, arrival):
            break
        arrival = moved
    return arrival
