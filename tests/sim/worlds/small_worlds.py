"""Small worlds and work in them: by hand, and drawn by a seed."""

from typing import Any

import msgspec
import numpy as np

from hanse.sim.worlds.columns import REPLICAS_MAX, WorkColumns, WorldColumns

SECOND = 1_000_000
GIB = 1 << 30


def world_of(
    racks: list[list[int]],
    rack_cluster: list[int],
    *,
    cpu: list[int],
    memory: list[int] | None = None,
    gpu: list[int] | None = None,
    **changes: Any,
) -> WorldColumns:
    """A world of racks with nodes of the named classes; ``cpu``, ``memory`` (GiB), ``gpu`` by class."""
    node_class = np.array([each for rack in racks for each in rack], np.int32)
    node_rack = np.repeat(np.arange(len(racks), dtype=np.int32), [len(rack) for rack in racks])
    clusters, classes = max(rack_cluster) + 1, len(cpu)
    fields: dict[str, Any] = {
        "cluster_names": tuple(f"c{each}" for each in range(clusters)),
        "class_names": tuple(f"q{each}" for each in range(classes)),
        "work_kind_names": ("work",),
        "node_cluster": np.array(rack_cluster, np.int32)[node_rack],
        "node_rack": node_rack,
        "node_class": node_class,
        "node_cpu": np.array(cpu, np.int64)[node_class],
        "node_memory": np.array(memory or [64] * classes, np.int64)[node_class] * GIB,
        "node_gpu": np.array(gpu or [0] * classes, np.int64)[node_class],
        "node_bandwidth": np.full(len(node_class), 100.0),
        "rack_cluster": np.array(rack_cluster, np.int32),
        "rack_uplink": np.full(len(racks), 1_000.0),
        "cluster_wan": np.full(clusters, 500.0),
        "wan_flow_max": np.full((clusters, clusters), 100.0),
        "round_trip": np.full((clusters, clusters), 10_000, np.int64),
        "rack_flow_max": 400.0,
        "lan_flow_max": 200.0,
        "class_speed": np.ones((1, classes)),
        "knee": 0.3,
        "slope": 0.95,
        "holds_cores": True,
        **changes,
    }
    return WorldColumns(**fields)


def work_of(counts: list[int], classes: int = 1, **changes: Any) -> WorkColumns:
    """Jobs of so many tasks; by default one core and ten seconds each, alone, without data, at time 0."""
    jobs, tasks = len(counts), sum(counts)
    fields: dict[str, Any] = {
        "name": "made",
        "job_arrival": np.zeros(jobs, np.int64),
        "job_home": np.zeros(jobs, np.int32),
        "job_kind": np.full(jobs, -1, np.int32),
        "job_work_kind": np.zeros(jobs, np.int32),
        "job_template": np.zeros(jobs, np.int32),
        "job_offset": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "job_cpu": np.full(jobs, 1_000, np.int64),
        "job_memory": np.full(jobs, GIB, np.int64),
        "job_gpu": np.zeros(jobs, np.int64),
        "job_classes": np.full(jobs, (1 << classes) - 1, np.uint64),
        "job_gang": np.zeros(jobs, np.int32),
        "job_deadline": np.zeros(jobs, np.int64),
        "job_estimate": np.zeros(jobs, np.int64),
        "needs_offset": np.zeros(jobs + 1, np.int64),
        "needs": np.zeros(0, np.int64),
        "replica_rack": np.full((jobs, REPLICAS_MAX), -1, np.int32),
        "task_bytes": np.zeros(tasks),
        "task_work": np.full(tasks, 10.0),
        "job_demand": np.zeros(jobs),
        "job_bandwidth_sensitivity": np.zeros(jobs),
        "job_cache_sensitivity": np.zeros(jobs),
        "job_pollution": np.zeros(jobs),
        "template_speed": np.ones((1, classes)),
        "outage_node": np.zeros(0, np.int32),
        "outage_from": np.zeros(0, np.int64),
        "outage_until": np.zeros(0, np.int64),
        **changes,
    }
    return WorkColumns(**fields)


def random_world(seed: int) -> WorldColumns:
    """A small world with everything: classes, GPUs, thin links."""
    draw = np.random.default_rng([seed, 1])
    clusters = int(draw.integers(1, 4))
    rack_cluster = np.sort(np.concatenate([np.arange(clusters), draw.integers(0, clusters, 2)])).tolist()
    racks = [draw.integers(0, 3, int(draw.integers(1, 4))).tolist() for _ in rack_cluster]
    racks[0] = [0, 1, 2]
    return world_of(
        racks,
        rack_cluster,
        cpu=[4_000, 8_000, 16_000],
        memory=[8, 16, 64],
        gpu=[0, 2, 4],
        rack_uplink=draw.uniform(150.0, 900.0, len(racks)),
        cluster_wan=draw.uniform(60.0, 300.0, clusters),
        wan_flow_max=draw.uniform(20.0, 120.0, (clusters, clusters)),
        node_bandwidth=draw.uniform(5.0, 40.0, sum(map(len, racks))),
        class_speed=draw.uniform(0.5, 1.6, (1, 3)),
        holds_cores=bool(draw.random() < 0.6),
    )


def random_work(seed: int, world: WorldColumns, jobs: int = 40, outages: bool = True) -> WorkColumns:
    """Work for ``random_world``: gangs, needs, data, neighbours, outages; every job fits somewhere."""
    draw = np.random.default_rng([seed, 2])
    counts = draw.integers(1, 7, jobs)
    gang = np.where(draw.random(jobs) < 0.2, draw.integers(1, 4, jobs), 0).astype(np.int32)
    counts = np.where(gang > 0, np.minimum(counts, 3), counts)
    tasks, racks = int(counts.sum()), len(world.rack_cluster)
    gpu = np.where((draw.random(jobs) < 0.2) & (gang == 0), draw.integers(1, 3, jobs), 0)
    classes = np.where(draw.random(jobs) < 0.3, 4, 7).astype(np.uint64)  # class 2 is in every world
    replicas = draw.integers(-1, racks, (jobs, REPLICAS_MAX)).astype(np.int32)
    needs: list[list[int]] = [
        draw.integers(0, job, int(draw.random() < 0.2)).tolist() if job else [] for job in range(jobs)
    ]
    nodes = len(world.node_cpu)
    fails = int(draw.integers(0, 6)) if outages else 0
    begins = np.sort(draw.integers(0, 60 * SECOND, fails))
    return work_of(
        counts.tolist(),
        3,
        job_arrival=np.sort(draw.integers(0, 30, jobs)) * SECOND,
        job_home=draw.integers(0, len(world.cluster_names), jobs).astype(np.int32),
        job_template=draw.integers(0, 5, jobs).astype(np.int32),
        job_cpu=draw.choice([1_000, 2_000, 3_000], jobs),
        job_memory=draw.choice([1, 3, 5], jobs) * GIB,
        job_gpu=gpu.astype(np.int64),
        job_classes=classes,
        job_gang=gang,
        job_estimate=draw.integers(0, 30, jobs) * SECOND,
        needs_offset=np.cumsum([0, *map(len, needs)]),
        needs=np.array([each for some in needs for each in some], np.int64),
        replica_rack=replicas,
        task_bytes=np.where(draw.random(tasks) < 0.7, draw.uniform(0, 3_000, tasks), 0.0),
        task_work=draw.choice([1.0, 3.0, 7.5], tasks) * draw.choice([1.0, 1.0, 1.37], tasks),
        job_demand=draw.uniform(0.0, 8.0, jobs),
        job_bandwidth_sensitivity=draw.uniform(0.0, 1.0, jobs),
        job_cache_sensitivity=draw.uniform(0.0, 0.5, jobs),
        job_pollution=draw.uniform(0.0, 2.0, jobs),
        template_speed=draw.uniform(0.4, 1.8, (5, 3)),
        outage_node=draw.integers(0, nodes, fails).astype(np.int32),
        outage_from=begins,
        outage_until=begins + draw.integers(1, 20 * SECOND, fails),
    )


def renamed(work: WorkColumns, **changes: Any) -> WorkColumns:
    """The same work with some columns changed."""
    return msgspec.structs.replace(work, **changes)
