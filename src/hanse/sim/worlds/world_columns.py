"""Columns of a world: racks, links and flows from its clusters and its network."""

from typing import Final

import numpy as np

from hanse.sim.worlds.columns import Floats, Ints, SmallInts, WorldColumns
from hanse.sim.worlds.round_trips import distance_round_trips
from hanse.sim.worlds.world import RoundTrips, World, WorldCluster

LAN_ROUND_TRIP_US: Final = 200
"""Round trip within a cluster."""


def columns_of(world: World) -> WorldColumns:
    """Return the columns of a world without problems."""
    cluster_of, class_of = _node_columns(world)
    rack_of, rack_cluster = _racks(world)
    wan_flow_max, round_trip = _wide_area(world)
    classes = world.node_classes

    def by_class(attribute: str, factor: int = 1) -> Ints:
        values: Ints = np.array([factor * getattr(found, attribute) for found in classes], np.int64)[class_of]
        return values

    rack_nodes = np.bincount(rack_of, minlength=len(rack_cluster))
    over = np.array([world.clusters[at].oversubscription for at in rack_cluster])
    return WorldColumns(
        cluster_names=tuple(cluster.name for cluster in world.clusters),
        class_names=tuple(found.name for found in classes),
        work_kind_names=tuple(kind.name for kind in world.work_kinds),
        node_cluster=cluster_of,
        node_rack=rack_of,
        node_class=class_of,
        node_cpu=by_class("cores", 1_000),
        node_memory=by_class("memory"),
        node_gpu=by_class("gpus"),
        node_bandwidth=by_class("memory_bandwidth").astype(np.float64),
        rack_cluster=rack_cluster,
        rack_uplink=rack_nodes * float(world.network.nic) / over,
        cluster_wan=np.array([cluster.wan for cluster in world.clusters], np.float64),
        wan_flow_max=wan_flow_max,
        round_trip=round_trip,
        rack_flow_max=float(world.network.rack_flow),
        lan_flow_max=float(world.network.lan_flow),
        class_speed=np.array(
            [[found.speed_of(kind.name) for found in classes] for kind in world.work_kinds], np.float64
        ),
        knee=world.interference.knee,
        slope=world.interference.slope,
        holds_cores=world.data.holds_cores,
    )


def _node_columns(world: World) -> tuple[SmallInts, SmallInts]:
    """Return cluster and class of every node."""
    numbers = {found.name: at for at, found in enumerate(world.node_classes)}
    runs = [
        (at, numbers[run.node_class], run.count)
        for at, cluster in enumerate(world.clusters)
        for run in cluster.nodes
    ]
    counts = [count for _, _, count in runs]
    clusters = np.repeat(np.array([at for at, _, _ in runs], np.int32), counts)
    classes = np.repeat(np.array([number for _, number, _ in runs], np.int32), counts)
    return clusters, classes


def _racks(world: World) -> tuple[SmallInts, SmallInts]:
    """Return the rack of every node and the cluster of every rack."""
    racks: list[Ints] = []
    owners: list[int] = []
    for at, cluster in enumerate(world.clusters):
        racks.append(len(owners) + np.arange(cluster.node_count) // cluster.nodes_per_rack)
        owners += [at] * rack_count(cluster)
    return np.concatenate(racks).astype(np.int32), np.array(owners, np.int32)


def rack_count(cluster: WorldCluster) -> int:
    """Return the number of racks of a cluster; the last one may be smaller."""
    return -(-cluster.node_count // cluster.nodes_per_rack)


def resolved_round_trips(world: World) -> RoundTrips:
    """Return the written round trips, or those by distance if none are written."""
    written = world.network.round_trips
    if written.regions or len(world.clusters) == 1:
        return written
    return distance_round_trips(tuple(dict.fromkeys(cluster.region_code for cluster in world.clusters)))


def _wide_area(world: World) -> tuple[Floats, Ints]:
    """Return the most that one flow has between two clusters, and their round trip."""
    trips = resolved_round_trips(world)
    count = len(world.clusters)
    trip = np.full((count, count), LAN_ROUND_TRIP_US, np.int64)
    for here, cluster in enumerate(world.clusters):
        for there, other in enumerate(world.clusters):
            if here != there:
                at, to = trips.regions.index(cluster.region_code), trips.regions.index(other.region_code)
                trip[here, there] = trips.matrix[at][to]
    network = world.network
    flows = np.minimum(float(network.wan_flow), network.wan_window / (trip / 1e6))
    return flows, trip
