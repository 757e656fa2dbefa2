"""Work from traces: load, stretches, shapes, draws that do not reshuffle each other, determinism."""

import os
import re
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.traces.chunk import SECOND
from hanse.sim.worlds.drawing.stretches import cut_stretch
from hanse.sim.worlds.presets import make_preset
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.work_description import describe_work
from hanse.sim.worlds.world import (
    DataRules,
    DeadlineRules,
    GangRules,
    OutageRules,
    WorkRules,
    World,
    WorldError,
)
from tests.sim.worlds.toy_worlds import toy_chunk, toy_world, worlds
from tests.sim.worlds.work_checks import check, equal, work_of

replace = msgspec.structs.replace


@settings(deadline=None, max_examples=40)
@given(
    world=worlds(),
    load=st.floats(0.2, 1.5),
    seed=st.integers(0, 99),
    stretch=st.sampled_from(["train", "test"]),
)
def test_columns_of_any_world_are_consistent(world: World, load: float, seed: int, stretch: str) -> None:
    if world.work.task_most < SECOND:
        world = replace(world, work=replace(world.work, task_least=SECOND, task_most=60 * SECOND))
    world = replace(
        world, work=replace(world.work, horizon=100 * SECOND), failures=OutageRules(between=10**8)
    )
    try:
        work = work_of(world, load=load, seed=seed, stretch=stretch)
    except WorldError as error:
        # some worlds are too large for this trace, some are too small for its jobs
        assert re.search("too little work|no job is small enough", str(error))  # noqa: PT017
        return
    check(work, world)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("stretch", ["train", "test"])
def test_the_load_is_the_wanted_one(load: float, stretch: str) -> None:
    world = toy_world()
    for seed in range(5):
        work = work_of(world, load=load, seed=seed, stretch=stretch)
        facts = describe_work(work, world)
        assert facts["load"] == pytest.approx(load, rel=0.02)
        check(work, world)
        cores = np.repeat(work.job_cpu, np.diff(work.job_offset)) / 1_000
        speed = (0.7 + 1.0) / 2  # of the old class; of the new one (1.2 + 1.1) / 2
        capacity = (25 * 16 + 20 * 16) * speed + 20 * 32 * 1.15
        assert float((work.task_work * cores).sum()) / (capacity * 1_200) == pytest.approx(load, rel=0.02)
        homes = [found["load"] for found in facts["clusters"]]
        assert max(homes) / min(homes) < 1.25 / 0.75 * 1.05


def test_home_loads_differ_and_the_spread_can_be_nothing() -> None:
    world = toy_world()
    spread = [describe_work(work_of(world, seed=seed), world)["clusters"] for seed in range(5)]
    assert max(abs(found[0]["load"] - found[1]["load"]) for found in spread) > 0.05
    ratios = [found[0]["load"] / found[1]["load"] for found in spread]
    assert max(ratios) / min(ratios) > 1.1, "every seed draws its own"
    flat = replace(world, work=WorkRules(load_spread=0.0))
    facts = describe_work(work_of(flat), flat)
    assert [found["load"] for found in facts["clusters"]] == pytest.approx([0.7, 0.7], rel=0.02)


def test_no_task_is_in_both_stretches() -> None:
    """Durations of the toy trace occur in one job only."""
    world = toy_world()
    train = np.concatenate(
        [work_of(world, load=0.9, seed=seed, stretch="train").task_work for seed in range(9)]
    )
    test = np.concatenate(
        [work_of(world, load=0.9, seed=seed, stretch="test").task_work for seed in range(9)]
    )
    assert len(np.intersect1d(train, test)) == 0
    assert len(np.unique(train)) > 2_000
    rules = world.work
    sizes = [cut_stretch("toy", toy_chunk(), name, rules).job_count for name in ("train", "test")]
    assert sizes == [2_400, 1_600]


def test_clusters_with_the_same_trace_draw_for_themselves() -> None:
    toy = toy_world()
    twins = tuple(replace(toy.clusters[0], name=name) for name in ("a", "b"))
    work = work_of(replace(toy, clusters=twins, work=WorkRules(load_spread=0.0)))
    kinds = [work.job_work_kind[work.job_home == home] for home in (0, 1)]
    shorter = min(len(found) for found in kinds)
    assert 0.4 < float((kinds[0][:shorter] == kinds[1][:shorter]).mean()) < 0.6


def test_windows_move_with_the_seed() -> None:
    world = toy_world()
    first, second = (work_of(world, load=0.3, seed=seed).task_work for seed in (0, 1))
    assert not np.array_equal(first[: len(second)], second[: len(first)])


def test_equal_settings_give_equal_work() -> None:
    assert equal(work_of(toy_world(), seed=3), work_of(toy_world(), seed=3))
    assert not equal(work_of(toy_world(), seed=3), work_of(toy_world(), seed=4))


def test_the_result_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib\n"
        "from tests.sim.worlds.work_checks import work_of\n"
        "from tests.sim.worlds.toy_worlds import toy_world\n"
        "from hanse.sim.worlds.world_file import world_to_text\n"
        "from hanse.sim.worlds.presets import make_preset\n"
        "work = work_of(toy_world(), seed=3)\n"
        "digest = hashlib.sha256(world_to_text(make_preset('eight', 0)).encode())\n"
        "[digest.update(repr(getattr(work, name)).encode() if isinstance(getattr(work, name), str)"
        " else getattr(work, name).tobytes()) for name in work.__struct_fields__]\n"
        "print(digest.hexdigest())\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    ]
    assert found[0] == found[1] != ""


KEPT = ("job_arrival", "task_work", "job_work_kind", "job_kind", "job_cpu", "template_speed")
"""Columns that no other concern may reshuffle."""


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"data": DataRules(home_share=0.1)}, "replica_rack"),
        ({"work": WorkRules(deadlines=DeadlineRules(share=0.5))}, "job_deadline"),
        ({"work": WorkRules(gangs=GangRules(share=0.5))}, "job_gang"),
        ({"failures": OutageRules(between=600 * SECOND)}, "outage_node"),
    ],
)
def test_a_setting_changes_its_own_column_only(changes: dict[str, Any], changed: str) -> None:
    usual, other = work_of(toy_world()), work_of(toy_world(**changes))
    assert equal(usual, other, *KEPT)
    assert not equal(usual, other, changed)
    check(other, toy_world(**changes))


def test_templates_are_the_same_at_every_load_seed_and_stretch() -> None:
    """Else nothing that was learned in training would be true in the test."""
    world = toy_world()
    train, test = work_of(world, stretch="train", load=0.3), work_of(world, stretch="test", load=0.9, seed=5)
    count = world.templates.shared + 2 * world.templates.local
    assert np.array_equal(train.template_speed[:count], test.template_speed[:count])
    for work in (train, test):
        for template in np.unique(work.job_kind[work.job_kind >= 0]):
            mine = work.job_kind == template
            assert len(np.unique(work.job_cpu[mine])) == 1, "a program has one size"
            assert len(np.unique(work.job_demand[mine])) == 1
            assert len(np.unique(work.job_work_kind[mine])) == 1
    one, two = (
        {
            int(kind): float(work.job_demand[work.job_kind == kind][0])
            for kind in np.unique(work.job_kind[work.job_kind >= 0])
        }
        for work in (train, test)
    )
    assert all(one[kind] == two[kind] for kind in one if kind in two)


def test_local_templates_stay_at_home() -> None:
    world = toy_world(templates=replace(toy_world().templates, local_share=0.5))
    work = work_of(world)
    first = world.templates.shared
    for cluster in range(2):
        low = first + cluster * world.templates.local
        mine = (work.job_kind >= low) & (work.job_kind < low + world.templates.local)
        assert mine.any()
        assert bool(np.all(work.job_home[mine] == cluster))
    unknown = float((work.job_kind < 0).mean())
    assert unknown == pytest.approx(0.3, abs=0.05)


def test_speeds_deviate_around_the_mean_of_the_kind() -> None:
    world = make_preset("eight", 0)
    work = make_work(world, [("toy.tr", toy_chunk(20_000, tasks=2))], 0.2, 0, "test")
    means = world.columns().class_speed[work.job_work_kind]
    own = work.job_kind < 0
    logs = np.log(work.template_speed[work.job_template[own]] / means[own])
    assert float(logs.std()) == pytest.approx(0.15, rel=0.05)
    assert float(np.median(logs)) == pytest.approx(0.0, abs=0.02)
    still = world.without(("speed",))
    calm = make_work(still, [("toy.tr", toy_chunk(20_000, tasks=2))], 0.2, 0, "test")
    assert bool(np.all(calm.template_speed == 1.0))


def test_input_is_proportional_to_work_and_lies_mostly_at_home() -> None:
    world = toy_world()
    work = work_of(world)
    rack_cluster = world.columns().rack_cluster
    home = rack_cluster[work.replica_rack[:, 0]] == work.job_home
    assert float(home.mean()) == pytest.approx(0.7, abs=0.05)
    assert bool(np.all(work.replica_rack[:, 1] >= 0))
    assert bool(np.all(work.replica_rack[:, 2:] == -1))
    rate = work.task_bytes / work.task_work
    of_job = np.repeat(np.arange(work.job_count), np.diff(work.job_offset))
    first = rate[work.job_offset[:-1]]
    assert rate == pytest.approx(first[of_job], rel=1e-6)
    etl = work.job_work_kind == 1
    assert float(np.median(first[etl])) == pytest.approx(1e7, rel=0.25)
    without = work_of(world.without(("data",)))
    assert float(without.task_bytes.sum()) == 0.0
    assert bool(np.all(without.replica_rack == -1))
    assert equal(work, without, *KEPT)


def test_few_racks_hold_few_replicas() -> None:
    toy = toy_world(data=DataRules(replicas=4, home_share=1.0))
    world = replace(toy, clusters=(replace(toy.clusters[0], nodes_per_rack=13),))  # two racks
    work = work_of(world)
    check(work, world)
    assert bool(np.all((work.replica_rack >= 0).sum(axis=1) == 2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([], 0.7, 0, "test"), "work needs at least one trace"),
        (([("toy", toy_chunk(10))], 0.0, 0, "test"), "the load is a number above 0"),
        (([("toy", toy_chunk(10))], 0.7, -1, "test"), "the seed is a whole number from 0"),
        (([("toy", toy_chunk(10))], 0.7, 0, "all"), "there is no stretch 'all'; there are train, test"),
        (([("toy", toy_chunk(1))], 0.7, 0, "train"), "the train stretch is empty"),
    ],
)
def test_refusals(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(WorldError, match=sentence):
        make_work(toy_world(), *arguments)


def test_too_little_work_is_refused_before_memory_is_full() -> None:
    world = make_preset("eight", 0)
    chunk = toy_chunk(400, tasks=40, duration=np.full(16_000, 1))
    with pytest.raises(WorldError, match="toy has too little work for this load"):
        make_work(world, [("toy", chunk)], 10.0, 0, "train")
