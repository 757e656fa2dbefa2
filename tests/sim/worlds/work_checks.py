"""Work of toy traces, and the checks of what the physics relies on."""

import msgspec
import numpy as np

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.worlds.columns import WorkColumns
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.world import World
from tests.sim.worlds.toy_worlds import toy_chunk


def work_of(
    world: World, chunk: JobChunk | None = None, load: float = 0.7, seed: int = 0, stretch: str = "test"
) -> WorkColumns:
    return make_work(world, [("toy.tr", toy_chunk() if chunk is None else chunk)], load, seed, stretch)


def check(work: WorkColumns, world: World) -> None:
    """What the physics relies on."""
    jobs, tasks, templates = work.job_count, work.task_count, len(work.template_speed)
    for name in ("arrival", "cpu", "memory", "gpu", "deadline", "estimate"):
        column = getattr(work, f"job_{name}")
        assert (column.dtype, len(column)) == (np.int64, jobs), name
        assert int(column.min()) >= 0, name
    for name in ("home", "kind", "work_kind", "template", "gang"):
        column = getattr(work, f"job_{name}")
        assert (column.dtype, len(column)) == (np.int32, jobs), name
    for name in ("demand", "bandwidth_sensitivity", "cache_sensitivity", "pollution"):
        column = getattr(work, f"job_{name}")
        assert (column.dtype, len(column)) == (np.float64, jobs), name
        assert float(column.min()) >= 0, name
    assert all(
        value.flags.c_contiguous for value in msgspec.structs.asdict(work).values() if hasattr(value, "flags")
    )
    assert bool(np.all(np.diff(work.job_arrival) >= 0))
    assert int(work.job_arrival[-1]) < world.work.horizon
    counts = np.diff(work.job_offset)
    assert work.job_offset[0] == 0
    assert work.job_offset[-1] == tasks == len(work.task_bytes)
    assert 1 <= int(counts.min()) <= int(counts.max()) <= world.work.tasks_per_job
    rules = world.work
    assert rules.task_least / SECOND <= float(work.task_work.min())
    assert float(work.task_work.max()) <= rules.task_most / SECOND
    assert work.template_speed.shape == (templates, len(world.node_classes))
    assert bool(np.all(work.template_speed > 0))
    assert bool(np.all((work.job_template >= 0) & (work.job_template < templates)))
    known = work.job_kind >= 0
    assert np.array_equal(work.job_template[known], work.job_kind[known])
    own = work.job_template[~known]
    assert len(np.unique(own)) == len(own), "a job without history has a row of its own"
    assert len(own) + world.templates.shared + world.templates.local * len(world.clusters) == templates
    check_places(work, world)


def check_places(work: WorkColumns, world: World) -> None:
    """Classes, replicas, needs and outages."""
    columns, jobs = world.columns(), work.job_count
    # every job fits the classes that it names, and names one that has nodes
    assert bool(np.all(work.job_classes > 0))
    for at, node in enumerate(world.node_classes):
        named = (work.job_classes >> np.uint64(at) & np.uint64(1)).astype(bool)
        assert int(work.job_cpu[named].max(initial=0)) <= node.cores * 1_000
        assert int(work.job_memory[named].max(initial=0)) <= node.memory
        assert int(work.job_gpu[named].max(initial=0)) <= node.gpus
    # replicas are distinct racks
    racks = work.replica_rack
    assert racks.shape == (jobs, 4)
    assert racks.dtype == np.int32
    assert int(racks.max()) < len(columns.rack_cluster)
    assert int(racks.min()) >= -1
    for left in range(4):
        for right in range(left):
            assert not bool(np.any((racks[:, left] >= 0) & (racks[:, left] == racks[:, right])))
    assert int((racks >= 0).sum(axis=1).max()) <= world.data.replicas
    # a job needs only earlier ones
    owner = np.repeat(np.arange(jobs), np.diff(work.needs_offset))
    assert work.needs_offset[-1] == len(work.needs)
    assert bool(np.all((work.needs >= 0) & (work.needs < owner)))
    # outages of a node follow each other
    assert bool(np.all(np.diff(work.outage_from) >= 0))
    assert bool(np.all(work.outage_until > work.outage_from))
    for node in np.unique(work.outage_node):
        mine = work.outage_node == node
        assert bool(np.all(work.outage_until[mine][:-1] < work.outage_from[mine][1:]))


def equal(left: WorkColumns, right: WorkColumns, *names: str) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in names or left.__struct_fields__
        if name != "name"
    )
