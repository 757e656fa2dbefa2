"""Shapes of jobs, and places that could hold them: computed once per work."""

import numpy as np

from hanse.sim.worlds.columns import Ints, SmallInts, WorkColumns, WorldColumns


def job_shapes(work: WorkColumns, by_cluster: SmallInts | None) -> SmallInts:
    """Return the shape of each job: jobs of one shape fit on the same nodes.

    ``by_cluster``: cluster of each job, if the policy keeps jobs there.
    """
    counts = np.diff(work.job_offset)
    width = np.where(work.job_gang > 0, counts, 0)
    cluster = np.zeros(work.job_count, np.int64) if by_cluster is None else by_cluster
    rows = np.column_stack(
        [
            work.job_cpu,
            work.job_memory,
            work.job_gpu,
            work.job_classes.view(np.int64),
            work.job_gang,
            width,
            cluster,
        ]
    )
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)


def _slots(world: WorldColumns, work: WorkColumns, job: int) -> Ints:
    """Return how many tasks of a job each node could hold when empty."""
    slots = np.full(len(world.node_cpu), np.iinfo(np.int64).max)
    amounts = zip(
        (world.node_cpu, world.node_memory, world.node_gpu),
        (work.job_cpu[job], work.job_memory[job], work.job_gpu[job]),
        strict=True,
    )
    for whole, need in amounts:
        if need > 0:
            slots = np.minimum(slots, whole // need)
    allowed = (np.uint64(work.job_classes[job]) >> world.node_class.astype(np.uint64)) & np.uint64(1)
    return np.where(allowed > 0, np.minimum(slots, np.diff(work.job_offset)[job]), 0)


def _holding_clusters(world: WorldColumns, work: WorkColumns, job: int) -> list[int]:
    """Return the clusters that could hold a job when empty: each task, or the gang."""
    slots = _slots(world, work, job)
    clusters, gang = len(world.cluster_names), int(work.job_gang[job])
    need = int(np.diff(work.job_offset)[job]) if gang else 1
    if gang == 1:
        per_cluster = np.bincount(world.node_cluster, slots, clusters)
    else:
        if gang == 2:
            slots = np.bincount(world.node_rack, slots, len(world.rack_cluster)).astype(np.int64)
        place_cluster = world.rack_cluster if gang == 2 else world.node_cluster
        per_cluster = np.zeros(clusters, np.int64)
        np.maximum.at(per_cluster, place_cluster, slots)
    return np.nonzero(per_cluster >= need)[0].tolist()


def stay_clusters(world: WorldColumns, work: WorkColumns) -> tuple[SmallInts, str]:
    """Return the cluster in which each job stays if none may leave: its home, or the first cluster that could
    hold it if the home could not; and a sentence about a job that no cluster can hold, else an empty text."""
    shapes = job_shapes(work, None)
    _, examples = np.unique(shapes, return_index=True)
    cluster = work.job_home.astype(np.int32).copy()
    for example in examples.tolist():
        holding = _holding_clusters(world, work, example)
        if not holding:
            return cluster, (
                f"job {example} asks for {int(work.job_cpu[example])} milli-CPU,"
                f" {int(work.job_memory[example])} bytes and {int(work.job_gpu[example])} GPUs per task,"
                " which no allowed node of the world has together (for a gang: no place holds all tasks):"
                " give the world larger nodes, or leave the job out"
            )
        moved = (shapes == shapes[example]) & ~np.isin(work.job_home, holding)
        cluster[moved] = holding[0]
    return cluster, ""
