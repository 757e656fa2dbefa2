"""Work in a world from traces: ``make_work``.

``load`` is the work of all tasks times their cores, over cores times mean speed times horizon, without
transfers and neighbours. Jobs of trace i are submitted in the clusters c with c % traces == i.
"""

from pathlib import PurePath
from typing import Final

import numpy as np

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.worlds.columns import REPLICAS_MAX, Floats, Ints, SmallInts, WorkColumns, WorldColumns
from hanse.sim.worlds.drawing.home_jobs import HomeDraw, HomeJobs, draw_home_jobs
from hanse.sim.worlds.drawing.job_shapes import take_shapes
from hanse.sim.worlds.drawing.outages import draw_outages
from hanse.sim.worlds.drawing.streams import DrawStream, generator_of
from hanse.sim.worlds.drawing.stretches import STRETCHES, cut_stretch
from hanse.sim.worlds.drawing.templates import TemplatePool, join_rows, make_pool, take_rows
from hanse.sim.worlds.world import SECOND, World, WorldError
from hanse.sim.worlds.world_columns import columns_of

LOAD_MAX: Final = 10.0


def cluster_capacity(world: World, columns: WorldColumns) -> Floats:
    """Return [C] cores times mean speed of each cluster; the mean is over the kinds' shares and the cores."""
    shares = np.array([kind.share for kind in world.work_kinds])
    class_mean = shares @ columns.class_speed / shares.sum()
    power = columns.node_cpu / 1_000 * class_mean[columns.node_class]
    capacity: Floats = np.bincount(columns.node_cluster, power, minlength=len(world.clusters)).astype(float)
    return capacity


def make_work(
    world: World, chunks: list[tuple[str, JobChunk]], load: float, seed: int, stretch: str
) -> WorkColumns:
    """Return the work of a stretch (``train`` or ``test``) of some traces at a load.

    Each trace comes with its path, of which the file's name counts.
    """
    if not chunks:
        raise WorldError("work needs at least one trace")
    if not 0 < load <= LOAD_MAX:
        raise WorldError(f"the load is a number above 0 and at most {LOAD_MAX:g}, not {load:g}")
    if seed < 0:
        raise WorldError(f"the seed is a whole number from 0, not {seed}")
    columns, pool = columns_of(world), make_pool(world)
    # with fewer clusters than traces, the last traces are not used
    stretches = [
        cut_stretch(PurePath(name).name, chunk, stretch, world.work)
        for name, chunk in chunks[: len(world.clusters)]
    ]
    number = STRETCHES.index(stretch)
    wanted = _home_work(world, columns, load, seed, number)
    homes: dict[int, HomeJobs] = {}
    missing = 0.0
    # the smallest first: what a window misses is left to the next one, and the largest misses least
    for cluster in np.argsort(wanted, kind="stable").tolist():
        draw = HomeDraw(world, pool, cluster, seed, number)
        goal = float(wanted[cluster]) + missing
        homes[cluster] = draw_home_jobs(draw, stretches[cluster % len(stretches)], goal)
        missing = goal - homes[cluster].core_seconds
    if not any(len(home.arrival) for home in homes.values()):
        raise WorldError(
            f"no job is small enough for a load of {load:g}; take a larger world, load or horizon"
        )
    ordered = [homes[cluster] for cluster in range(len(world.clusters))]
    passes = max(home.passes for home in ordered)
    name = (
        f"world {world.name}, {stretch} of {', '.join(found.name for found in stretches)}, load {load:g}, "
        f"seed {seed}"
    )
    rules = [found.name for found in stretches if not found.has_durations]
    if rules:
        name += f", durations of {', '.join(rules)} lognormal by kind"
    if passes > 1:
        name += f", stretches passed up to {passes:,} times"
    return _assemble(world, columns, pool, ordered, name, (seed, number))


def _home_work(world: World, columns: WorldColumns, load: float, seed: int, number: int) -> Floats:
    """Return [C] wanted core-seconds of each cluster's jobs; together they are the load exactly."""
    capacity = cluster_capacity(world, columns)
    spread = world.work.load_spread
    draws = generator_of(seed, DrawStream.HOME_LOAD, number).random(len(capacity))
    weights = capacity * (1 - spread + 2 * spread * draws)
    total = load * float(capacity.sum()) * world.work.horizon / SECOND
    wanted: Floats = weights * (total / float(weights.sum()))
    return wanted


def _assemble(
    world: World,
    columns: WorldColumns,
    pool: TemplatePool,
    homes: list[HomeJobs],
    name: str,
    draw: tuple[int, int],
) -> WorkColumns:
    """Return the columns of all clusters' jobs in order of arrival; ties: cluster, then submission."""
    home_of = np.repeat(np.arange(len(homes)), [len(home.arrival) for home in homes])
    arrival = np.concatenate([home.arrival for home in homes])
    order = np.argsort(arrival, kind="stable")
    home = home_of[order]
    shapes = take_shapes([found.shapes for found in homes], order)
    traits = take_rows(join_rows(*(found.traits for found in homes)), order)
    kind = np.concatenate([found.kind for found in homes])[order]
    own = np.flatnonzero(kind < 0)
    template = kind.copy()
    template[own] = pool.rows.count + np.arange(len(own))
    offset, work = _tasks(homes, order)
    needs_offset, needs = _needs(homes, order)
    outage_node, outage_from, outage_until = draw_outages(world, columns, *draw)
    return WorkColumns(
        name=name,
        job_arrival=arrival[order],
        job_home=home.astype(np.int32),
        job_kind=kind.astype(np.int32),
        job_work_kind=traits.kind.astype(np.int32),
        job_template=template.astype(np.int32),
        job_offset=offset,
        job_cpu=shapes.cpu,
        job_memory=shapes.memory,
        job_gpu=shapes.gpu,
        job_classes=shapes.classes,
        job_gang=np.concatenate([found.gang for found in homes])[order].astype(np.int32),
        job_deadline=_deadlines(world, offset, work, draw),
        job_estimate=np.concatenate([found.estimate for found in homes])[order],
        needs_offset=needs_offset,
        needs=needs,
        replica_rack=_replicas(world, columns, home, traits.data_rate, draw),
        task_bytes=np.rint(work * np.repeat(traits.data_rate, np.diff(offset))),
        task_work=work,
        job_demand=traits.demand_per_core * shapes.cores,
        job_bandwidth_sensitivity=traits.bandwidth_sensitivity,
        job_cache_sensitivity=traits.cache_sensitivity,
        job_pollution=traits.pollution_per_core * shapes.cores,
        template_speed=np.concatenate([pool.rows.speed, traits.speed[own]]),
        outage_node=outage_node,
        outage_from=outage_from,
        outage_until=outage_until,
    )


def _tasks(homes: list[HomeJobs], order: Ints) -> tuple[Ints, Floats]:
    """Return the bounds of the ordered jobs' tasks, and the seconds of the tasks."""
    before = np.concatenate([home.counts for home in homes])
    counts = before[order]
    offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    starts = np.cumsum(before) - before
    tasks = np.repeat(starts[order] - offset[:-1], counts) + np.arange(int(offset[-1]))
    work: Floats = np.concatenate([home.work for home in homes])[tasks]
    return offset, work


def _needs(homes: list[HomeJobs], order: Ints) -> tuple[Ints, Ints]:
    """Return the bounds and the entries of ``needs``, those of a job in rising order."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    starts = np.cumsum([0, *(len(home.arrival) for home in homes)])
    later = np.concatenate([place[home.later + start] for home, start in zip(homes, starts, strict=False)])
    earlier = np.concatenate(
        [place[home.earlier + start] for home, start in zip(homes, starts, strict=False)]
    )
    pairs = np.unique(np.stack([later, earlier]), axis=1)
    assert bool(np.all(pairs[1] < pairs[0])), "a job needs only earlier ones"
    offset = np.searchsorted(pairs[0], np.arange(len(order) + 1))
    return offset.astype(np.int64), np.ascontiguousarray(pairs[1], np.int64)


def _deadlines(world: World, offset: Ints, work: Floats, draw: tuple[int, int]) -> Ints:
    rules = world.work.deadlines
    jobs = len(offset) - 1
    generator = generator_of(draw[0], DrawStream.DEADLINES, draw[1])
    odds, slack = generator.random(jobs), generator.random(jobs)
    factor = rules.slack_least + (rules.slack_most - rules.slack_least) * slack
    longest = np.maximum.reduceat(work, offset[:-1])
    deadline = np.rint(longest * factor * SECOND).astype(np.int64)
    return np.where(odds < rules.share, deadline, 0)


def _replicas(
    world: World, columns: WorldColumns, home: Ints, rate: Floats, draw: tuple[int, int]
) -> SmallInts:
    """Return the racks of each job's replicas: distinct ones, each with the odds of being at home.

    A replica on a rack that has one already is moved to the next free rack of that cluster, and left out
    if there is none. Without input there is no replica.
    """
    rules, jobs = world.data, len(home)
    racks = np.bincount(columns.rack_cluster, minlength=len(world.clusters))
    first = np.cumsum(racks) - racks
    generator = generator_of(draw[0], DrawStream.REPLICAS, draw[1])
    found = np.full((jobs, REPLICAS_MAX), -1, np.int32)
    for replica in range(rules.replicas):
        odds, spot = generator.random(jobs), generator.random(jobs)
        others = len(columns.rack_cluster) - racks[home]
        at_home = (odds < rules.home_share) | (others == 0)
        own_rack = first[home] + (spot * racks[home]).astype(np.int64)
        other = (spot * others).astype(np.int64)
        other += np.where(other >= first[home], racks[home], 0)
        rack = np.where(at_home, own_rack, np.minimum(other, len(columns.rack_cluster) - 1))
        cluster = columns.rack_cluster[rack]
        for _ in range(replica):
            taken = (found[:, :replica] == rack[:, None]).any(axis=1)
            moved = first[cluster] + (rack - first[cluster] + 1) % racks[cluster]
            rack = np.where(taken, moved, rack)
        taken = (found[:, :replica] == rack[:, None]).any(axis=1)
        found[:, replica] = np.where(taken | (rate <= 0), -1, rack)
    return found
