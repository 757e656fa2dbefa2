"""Columns of worlds, and the presets of the headroom study."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from hanse.sim.worlds.presets import PRESETS, make_preset
from hanse.sim.worlds.round_trips import PLACES, distance_round_trips, read_latencies
from hanse.sim.worlds.world import EFFECTS, GB, MB, World, WorldError
from tests.sim.worlds.toy_worlds import toy_world, worlds


@settings(deadline=None, max_examples=60)
@given(worlds())
def test_columns_say_what_the_file_says(world: World) -> None:
    columns = world.columns()
    nodes, racks, clusters = world.node_count, len(columns.rack_cluster), len(world.clusters)
    assert len(columns.node_cluster) == len(columns.node_rack) == len(columns.node_class) == nodes
    for column, kind in (
        (columns.node_cluster, np.int32), (columns.node_rack, np.int32), (columns.node_class, np.int32),
        (columns.node_cpu, np.int64), (columns.node_memory, np.int64), (columns.node_gpu, np.int64),
        (columns.node_bandwidth, np.float64), (columns.rack_cluster, np.int32),
        (columns.rack_uplink, np.float64), (columns.cluster_wan, np.float64),
        (columns.wan_flow_max, np.float64), (columns.round_trip, np.int64), (columns.class_speed, np.float64),
    ):  # fmt: skip
        assert column.dtype == kind
        assert column.flags.c_contiguous
    assert columns.wan_flow_max.shape == columns.round_trip.shape == (clusters, clusters)
    assert columns.class_speed.shape == (len(world.work_kinds), len(world.node_classes))
    # nodes of a cluster are neighbours, and so are those of a rack, which is within one cluster
    assert bool(np.all(np.diff(columns.node_cluster) >= 0))
    assert bool(np.all(np.diff(columns.node_rack) >= 0))
    assert np.array_equal(np.unique(columns.node_rack), np.arange(racks))
    assert np.array_equal(columns.rack_cluster[columns.node_rack], columns.node_cluster)
    at = 0
    for number, cluster in enumerate(world.clusters):
        for run in cluster.nodes:
            node_class = world.class_named(run.node_class)
            chosen = slice(at, at + run.count)
            assert bool(np.all(columns.node_cluster[chosen] == number))
            assert bool(np.all(columns.node_cpu[chosen] == node_class.cores * 1_000))
            assert bool(np.all(columns.node_memory[chosen] == node_class.memory))
            assert bool(np.all(columns.node_gpu[chosen] == node_class.gpus))
            assert bool(np.all(columns.node_bandwidth[chosen] == node_class.memory_bandwidth))
            at += run.count
        sizes = np.bincount(columns.node_rack)[columns.rack_cluster == number]
        assert int(sizes.max()) <= cluster.nodes_per_rack
        assert bool(np.all(sizes[:-1] == cluster.nodes_per_rack)), "only the last rack may be smaller"
        uplinks = columns.rack_uplink[columns.rack_cluster == number]
        assert uplinks == pytest.approx(sizes * world.network.nic / cluster.oversubscription)


def test_flows_are_bounded_by_the_window_per_round_trip() -> None:
    columns = make_preset("eight", 0).columns()
    off = ~np.eye(8, dtype=bool)
    expected = np.minimum(125 * MB, 4 * MB / (columns.round_trip / 1e6))
    assert columns.wan_flow_max[off] == pytest.approx(expected[off])
    assert float(columns.wan_flow_max[off].min()) < 125 * MB


def test_a_world_of_one_cluster_needs_no_region() -> None:
    toy = toy_world()
    one = msgspec.structs.replace(toy, clusters=(msgspec.structs.replace(toy.clusters[0], region=""),))
    assert one.columns().round_trip.shape == (1, 1)


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_presets_keep_the_figures_of_the_study(name: str, seed: int) -> None:
    world = make_preset(name, seed)
    columns = world.columns()
    assert [cluster.node_count for cluster in world.clusters] == [50, 60, 80, 100, 120, 160, 240, 500]
    assert len(columns.rack_cluster) == 66
    assert sorted(cluster.oversubscription for cluster in world.clusters) == [1.5] * 4 + [4.0] * 4
    assert float(columns.cluster_wan.sum()) == 20 * GB
    assert len(world.node_classes) == 4
    assert len(world.work_kinds) == 6
    assert float(columns.class_speed.min()) == 0.5
    assert float(columns.class_speed.max()) == 1.6
    cores = int(columns.node_cpu.sum()) // 1_000
    assert 36_000 < cores < 44_000, "the study has 40,084"
    types = [len({run.node_class for run in cluster.nodes}) for cluster in world.clusters]
    assert min(types) >= 2
    assert max(types) <= 3
    assert all(cluster.region in PLACES for cluster in world.clusters)


def test_eight_hard_differs_in_deviation_and_demand_only() -> None:
    usual, hard = make_preset("eight", 3), make_preset("eight-hard", 3)
    assert hard.templates.speed_deviation == pytest.approx(2.3 * usual.templates.speed_deviation)
    for easy, crowded in zip(usual.work_kinds, hard.work_kinds, strict=True):
        assert crowded.bandwidth_per_core == pytest.approx(1.6 * easy.bandwidth_per_core)
    assert hard.clusters == usual.clusters
    assert hard.node_classes == usual.node_classes
    assert hard.data == usual.data


def test_the_seed_draws_mix_and_racks() -> None:
    first, second = make_preset("eight", 0), make_preset("eight", 1)
    assert first == make_preset("eight", 0)
    assert first.clusters[0].work_shares != second.clusters[0].work_shares
    assert first.clusters[7].nodes != second.clusters[7].nodes
    assert first.templates.seed != second.templates.seed


def test_an_unknown_preset_names_those_that_there_are() -> None:
    with pytest.raises(WorldError, match="there is no preset 'nine'; there are eight, eight-hard"):
        make_preset("nine", 0)


def test_effects_can_be_taken_away() -> None:
    world = make_preset("eight", 0).without(EFFECTS)
    assert bool(np.all(world.columns().class_speed == 1.0))
    assert world.templates.speed_deviation == 0.0
    assert all(kind.data_rate == 0 for kind in world.work_kinds)
    assert all(kind.bandwidth_sensitivity == kind.cache_sensitivity == 0.0 for kind in world.work_kinds)
    assert world.clusters == make_preset("eight", 0).clusters


def test_distances_are_near_the_measured_round_trips(tmp_path: Path) -> None:
    """Frankfurt, Oregon and Singapore of the public table, in ms."""
    found = distance_round_trips(("DE", "US-NW-PACW", "SG"))
    measured = ((5, 141, 192), (141, 5, 159), (193, 159, 5))
    for row, known in zip(found.matrix, measured, strict=True):
        assert np.array(row) / 1_000 == pytest.approx(known, rel=0.4)
    path = tmp_path / "short.csv"
    path.write_text("origin,DE\nDE,5\n", encoding="utf-8")
    with pytest.raises(WorldError, match="has no region 'SG'; its regions are DE"):
        read_latencies(path, ("DE", "SG"))
    path.write_text("origin,DE,SG\nDE,5,x\nSG,1,1\n", encoding="utf-8")
    with pytest.raises(WorldError, match="is not a number of milliseconds"):
        read_latencies(path, ("DE", "SG"))
    with pytest.raises(WorldError, match="the place of the region 'XX' is unknown"):
        distance_round_trips(("DE", "XX"))
