"""Figures of a world and of the work in it, for tables and for JSON."""

from typing import Any

import numpy as np

from hanse.sim.worlds.columns import Floats, Ints, SmallInts, WorkColumns, WorldColumns
from hanse.sim.worlds.work import cluster_capacity
from hanse.sim.worlds.world import SECOND, World


def describe_world(world: World) -> dict[str, Any]:
    """Return the figures of clusters, node classes, kinds of work and links; rates in bytes per second."""
    columns = world.columns()
    capacity = cluster_capacity(world, columns)
    cores = np.bincount(columns.node_cluster, columns.node_cpu / 1_000)
    clusters = [
        {
            "name": cluster.name,
            "region": cluster.region_code,
            "nodes": cluster.node_count,
            "racks": int(np.count_nonzero(columns.rack_cluster == at)),
            "cores": int(cores[at]),
            "memory_bytes": int(columns.node_memory[columns.node_cluster == at].sum()),
            "gpus": int(columns.node_gpu[columns.node_cluster == at].sum()),
            "mean_speed": float(capacity[at] / cores[at]),
            "topology": cluster.topology,
            "oversubscription": cluster.oversubscription,
            "wan_bytes_per_second": cluster.wan,
        }
        for at, cluster in enumerate(world.clusters)
    ]
    return {
        "world": world.name,
        "about": world.about,
        "nodes": world.node_count,
        "cores": int(cores.sum()),
        "racks": len(columns.rack_cluster),
        "mean_speed": float(capacity.sum() / cores.sum()),
        "round_trips": world.network.round_trips.origin,
        "clusters": clusters,
        "node_classes": _describe_classes(world, columns),
        "links": _describe_links(columns),
    }


def _describe_classes(world: World, columns: WorldColumns) -> list[dict[str, Any]]:
    return [
        {
            "name": found.name,
            "nodes": int(np.count_nonzero(columns.node_class == at)),
            "cores": found.cores,
            "memory_bytes": found.memory,
            "memory_bandwidth": found.memory_bandwidth,
            "gpus": found.gpus,
            "gpu_kind": found.gpu_kind,
            "speed": {kind.name: found.speed_of(kind.name) for kind in world.work_kinds},
        }
        for at, found in enumerate(world.node_classes)
    ]


def _describe_links(columns: WorldColumns) -> list[dict[str, Any]]:
    names = columns.cluster_names
    return [
        {
            "from": name,
            "to": other,
            "round_trip_seconds": int(columns.round_trip[here, there]) / SECOND,
            "flow_bytes_per_second": float(columns.wan_flow_max[here, there]),
        }
        for here, name in enumerate(names)
        for there, other in enumerate(names)
        if here != there
    ]


def describe_work(work: WorkColumns, world: World) -> dict[str, Any]:
    """Return jobs, tasks, core-seconds, load and input, in total, by home cluster and by kind of work.

    The load is work over capacity, as in ``work``; that of a cluster is its jobs' over its own capacity.
    """
    capacity = cluster_capacity(world, world.columns()) * world.work.horizon / SECOND
    counts = np.diff(work.job_offset)
    core_seconds = np.add.reduceat(work.task_work, work.job_offset[:-1]) * work.job_cpu / 1_000
    task_seconds = np.add.reduceat(work.task_work, work.job_offset[:-1])
    input_bytes = np.add.reduceat(work.task_bytes, work.job_offset[:-1])

    def group(keys: SmallInts, size: int) -> list[dict[str, Any]]:
        def total(values: Floats | Ints) -> list[float]:
            found: list[float] = np.bincount(keys, values, minlength=size).tolist()
            return found

        jobs, tasks, seconds = total(np.ones(len(keys))), total(counts), total(task_seconds)
        columns = (jobs, tasks, seconds, total(core_seconds), total(input_bytes))
        return [
            {
                "jobs": int(in_jobs),
                "tasks": int(in_tasks),
                "mean_task_seconds": in_seconds / in_tasks if in_tasks else 0.0,
                "core_seconds": in_cores,
                "input_bytes": in_bytes,
            }
            for in_jobs, in_tasks, in_seconds, in_cores, in_bytes in zip(*columns, strict=True)
        ]

    homes = group(work.job_home, len(world.clusters))
    kinds = group(work.job_work_kind, len(world.work_kinds))
    horizon = world.work.horizon / SECOND
    return {
        "work": work.name,
        "jobs": work.job_count,
        "tasks": work.task_count,
        "core_seconds": float(core_seconds.sum()),
        "load": float(core_seconds.sum() / capacity.sum()),
        "input_bytes": float(input_bytes.sum()),
        "input_bytes_per_second": float(input_bytes.sum() / horizon),
        "jobs_without_history": int(np.count_nonzero(work.job_kind < 0)),
        "gangs": int(np.count_nonzero(work.job_gang)),
        "deadlines": int(np.count_nonzero(work.job_deadline)),
        "needs": len(work.needs),
        "outages": len(work.outage_node),
        "task_seconds": {
            f"p{share}": float(np.percentile(work.task_work, share)) for share in (10, 50, 90, 99)
        },
        "clusters": [
            {"name": cluster.name, **found, "load": found["core_seconds"] / float(capacity[at])}
            for at, (cluster, found) in enumerate(zip(world.clusters, homes, strict=True))
        ],
        "work_kinds": [
            {"name": kind.name, **found} for kind, found in zip(world.work_kinds, kinds, strict=True)
        ],
    }
