"""Worlds of the headroom study as presets: ``eight`` and ``eight-hard``.

Stated by the study, and kept: eight clusters of 50 to 500 nodes, 1,310 nodes in 66 racks of 20; four node
types with their cores, memory and bandwidths; six kinds of work with speeds of 0.5 to 1.6 relative to Cascade
Lake; tree 4:1 in four clusters and leaf-spine 1.5:1 in four; 400 and 200 MB/s per flow; WAN access of 10, 20
and 40 Gb/s, 20 GB/s together; min(125 MB/s, 4 MB / round trip) per flow; 0.25 to 10 MB of input per second of
work, two replicas, 70 % at home; knee and slope; deviations; 120 + 15 templates, 30 % of the jobs unknown;
cuts and horizon. ``eight-hard``: speed deviation of templates x 2.3 and bandwidth demand x 1.6.

Chosen here, because the study prints no magnitude: the table of speeds, the traits of each kind (cores,
memory, demand, sensitivities, pollution, input), the node types of each cluster, the memory of a node within
the printed range, the order of the WAN accesses, the deviation of inputs (0.5), the link of a node (10 Gb/s),
the share of local templates (0.1, about their number), and the regions, spread over the globe (the study's
own fell back to eight Asian ones).

Drawn from the seed, once per world: the kinds of work that each cluster submits (Dirichlet 0.8), the share of
each node type in a cluster and the racks where they stand, and the seed of the templates.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from hanse.sim.worlds.round_trips import round_trips_of
from hanse.sim.worlds.world import (
    GB,
    GIB,
    GIGABIT,
    MB,
    NodeClass,
    NodeRun,
    TemplateRules,
    WorkKind,
    World,
    WorldCluster,
    WorldError,
    WorldNetwork,
)

NODES_PER_RACK: Final = 20
MIX_CONCENTRATION: Final = 0.8
"""Concentration of the Dirichlet distribution of each cluster's kinds of work."""
TYPE_CONCENTRATION: Final = 6.0
"""Concentration of the Dirichlet distribution of each cluster's node types around equal shares."""
SHARE_DIGITS: Final = 4
HARD_SPEED: Final = 2.3
HARD_DEMAND: Final = 1.6
TREE: Final = ("tree", 4.0)
LEAF_SPINE: Final = ("leaf-spine", 1.5)

_SITES: Final = (
    # name, nodes, region, links, WAN access in Gb/s, node types
    ("porto", 50, "ES", TREE, 10, ("haswell", "cascade-lake")),
    ("osaka", 60, "JP-KN", LEAF_SPINE, 10, ("cascade-lake", "ice-lake")),
    ("pune", 80, "IN-MH", TREE, 10, ("haswell", "cascade-lake", "milan")),
    ("sydney", 100, "AUS-NSW", LEAF_SPINE, 10, ("cascade-lake", "milan")),
    ("santiago", 120, "CL-SEN", TREE, 20, ("haswell", "ice-lake", "milan")),
    ("singapore", 160, "SG", LEAF_SPINE, 20, ("cascade-lake", "ice-lake", "milan")),
    ("frankfurt", 240, "DE", TREE, 40, ("cascade-lake", "ice-lake", "milan")),
    ("oregon", 500, "US-NW-PACW", LEAF_SPINE, 40, ("haswell", "ice-lake", "milan")),
)
_KINDS: Final = ("compute", "memory", "etl", "vector", "short", "cache")
_SPEEDS: Final = {
    "haswell": (0.75, 0.55, 0.7, 0.5, 0.8, 0.6),
    "cascade-lake": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    "ice-lake": (1.1, 1.35, 1.15, 1.3, 1.05, 1.2),
    "milan": (1.3, 1.2, 1.25, 0.9, 1.15, 1.6),
}
"""Speeds of the node types for the kinds in the order of ``_KINDS``."""


def _work_kinds(demand: float) -> tuple[WorkKind, ...]:
    """Return the kinds of work; ``demand`` multiplies their bandwidth."""
    rows = (
        # name, cores, GiB per core, GB/s per core, sensitivity to bandwidth and cache, pollution, KB/s
        ("compute", (2, 4, 8), 1, 0.8, 0.2, 0.1, 0.1, 250),
        ("memory", (2, 4, 8), 4, 6.0, 1.0, 0.2, 0.8, 2_000),
        ("etl", (2, 4), 2, 2.5, 0.5, 0.1, 0.5, 10_000),
        ("vector", (4, 8, 16), 2, 3.5, 0.7, 0.1, 0.3, 1_000),
        ("short", (2, 4), 2, 1.0, 0.3, 0.1, 0.2, 3_000),
        ("cache", (2, 4, 8), 4, 2.0, 0.5, 0.6, 0.3, 500),
    )
    return tuple(
        WorkKind(
            name=name,
            cores=cores,
            memory_per_core=memory * GIB,
            bandwidth_per_core=round(bandwidth * demand * GB),
            bandwidth_sensitivity=sensitivity,
            cache_sensitivity=cache,
            pollution_per_core=pollution,
            data_rate=data * 1_000,
        )
        for name, cores, memory, bandwidth, sensitivity, cache, pollution, data in rows
    )


def _node_classes() -> tuple[NodeClass, ...]:
    rows = (
        ("haswell", 16, 64, 55),
        ("cascade-lake", 20, 160, 105),
        ("ice-lake", 32, 256, 165),
        ("milan", 48, 384, 165),
    )
    return tuple(
        NodeClass(
            name=name,
            cores=cores,
            memory=memory * GIB,
            memory_bandwidth=bandwidth * GB,
            disk=1_000 * GB,
            speed=dict(zip(_KINDS, _SPEEDS[name], strict=True)),
        )
        for name, cores, memory, bandwidth in rows
    )


def eight(seed: int, latencies: Path | None, demand: float = 1.0) -> World:
    """Return the study's world of eight unequal clusters."""
    generator = np.random.Generator(np.random.PCG64([seed, 0]))
    clusters = tuple(_cluster(site, generator) for site in _SITES)
    regions = tuple(cluster.region for cluster in clusters)
    return World(
        name="eight",
        about=f"hanse world generate --preset eight --seed {seed}",
        work_kinds=_work_kinds(demand),
        node_classes=_node_classes(),
        clusters=clusters,
        network=WorldNetwork(
            nic=10 * GIGABIT,
            rack_flow=400 * MB,
            lan_flow=200 * MB,
            wan_flow=125 * MB,
            wan_window=4 * MB,
            round_trips=round_trips_of(regions, latencies),
        ),
        templates=TemplateRules(seed=seed),
    )


def eight_hard(seed: int, latencies: Path | None) -> World:
    """Return the study's harder world: less is the same between equal labels, and memory is crowded."""
    world = eight(seed, latencies, HARD_DEMAND)
    usual = world.templates
    return msgspec.structs.replace(
        world,
        name="eight-hard",
        about=f"hanse world generate --preset eight-hard --seed {seed}",
        templates=msgspec.structs.replace(usual, speed_deviation=usual.speed_deviation * HARD_SPEED),
    )


PRESETS: Final[dict[str, Callable[[int, Path | None], World]]] = {"eight": eight, "eight-hard": eight_hard}


def make_preset(name: str, seed: int, latencies: Path | None = None) -> World:
    """Return a preset; ``latencies``: the file of round trips, None for distances."""
    if name not in PRESETS:
        raise WorldError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name](seed, latencies)


def _cluster(
    site: tuple[str, int, str, tuple[str, float], int, tuple[str, ...]], generator: np.random.Generator
) -> WorldCluster:
    """Return a cluster: kinds of work, counts of node types and their order in the racks are drawn."""
    name, nodes, region, (topology, over), gigabits, types = site
    shares = generator.dirichlet([MIX_CONCENTRATION] * len(_KINDS))
    parts = generator.dirichlet([TYPE_CONCENTRATION] * len(types))
    bounds = np.rint(np.cumsum(np.concatenate([[0.0], parts])) * nodes).astype(int)
    order = generator.permutation(len(types))
    runs = tuple(
        NodeRun(node_class=types[at], count=int(count))
        for at, count in zip(order, np.diff(bounds)[order], strict=True)
        if count
    )
    return WorldCluster(
        name=name,
        region=region,
        nodes=runs,
        nodes_per_rack=NODES_PER_RACK,
        topology=topology,
        oversubscription=over,
        wan=gigabits * GIGABIT,
        work_shares={
            kind: round(float(share), SHARE_DIGITS) for kind, share in zip(_KINDS, shares, strict=True)
        },
    )
