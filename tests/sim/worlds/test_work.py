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

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.worlds.columns import WorkColumns
from hanse.sim.worlds.drawing.stretches import cut_stretch
from hanse.sim.worlds.presets import make_preset
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.work_description import describe_work
from hanse.sim.worlds.world import (
    GIB,
    DataRules,
    DeadlineRules,
    GangRules,
    NodeClass,
    OutageRules,
    WorkKind,
    WorkRules,
    World,
    WorldError,
)
from tests.sim.worlds.toy_worlds import toy_chunk, toy_world, worlds

replace = msgspec.structs.replace


def work_of(
    world: World, chunk: JobChunk | None = None, load: float = 0.7, seed: int = 0, stretch: str = "test"
) -> WorkColumns:
    return make_work(world, [("toy.tr", toy_chunk() if chunk is None else chunk)], load, seed, stretch)


def check(work: WorkColumns, world: World) -> None:
    """What the physics relies on."""
    columns = world.columns()
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
        "from tests.sim.worlds.test_work import work_of, toy_world\n"
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


def test_durations_are_cut_and_jobs_thinned() -> None:
    world = toy_world(work=WorkRules(task_least=10 * SECOND, task_most=20 * SECOND, tasks_per_job=2))
    chunk = toy_chunk(tasks=5)
    work = work_of(world, chunk)
    assert set(np.diff(work.job_offset).tolist()) == {2}
    assert float(work.task_work.min()) == 10.0
    assert float(work.task_work.max()) == 20.0
    # the first and the third of five: evenly spaced
    found = cut_stretch("toy", chunk, "train", replace(world.work, task_least=1, task_most=10**9))
    assert found.duration[:2].tolist() == chunk.duration[[0, 2]].tolist()


def test_durations_of_named_traces_are_scaled_by_the_name_of_the_file() -> None:
    world, chunk = toy_world(), toy_chunk()
    usual = cut_stretch("toy.csv", chunk, "train", world.work)
    scaled = cut_stretch("philly_2017.csv", chunk, "train", world.work)
    assert scaled.duration == pytest.approx(np.maximum(usual.duration / 10, 3 * SECOND), abs=1)
    path = make_work(world, [("/philly/toy.tr", chunk)], 0.7, 0, "test")
    assert equal(path, work_of(world)), "the folder says nothing"
    assert path.name == work_of(world).name


def test_traces_without_durations_are_lognormal_by_kind() -> None:
    kinds = (
        WorkKind(name="fast", cores=(2,), seconds_median=5 * SECOND, seconds_deviation=0.1),
        WorkKind(name="slow", cores=(2,), seconds_median=80 * SECOND, seconds_deviation=0.5),
    )
    toy = toy_world()
    classes = tuple(replace(found, speed={}) for found in toy.node_classes)
    world = replace(toy, work_kinds=kinds, node_classes=classes)
    chunk = toy_chunk(duration=np.zeros(12_000, np.int64))
    work = work_of(world, chunk)
    kind = np.repeat(work.job_work_kind, np.diff(work.job_offset))
    for number, (median, deviation) in enumerate(((5, 0.1), (80, 0.5))):
        logs = np.log(work.task_work[kind == number])
        assert float(np.median(logs)) == pytest.approx(np.log(median), abs=0.1)
        assert float(logs.std()) == pytest.approx(deviation, rel=0.15)
    assert "durations of toy.tr lognormal by kind" in work.name
    assert describe_work(work, world)["load"] == pytest.approx(0.7, rel=0.02)


def test_requests_to_a_language_model_take_time_by_their_tokens() -> None:
    world, jobs = toy_world(), 4_000
    tokens = {"ctx_tokens": np.arange(jobs), "gen_tokens": np.full(jobs, 200)}
    chunk = toy_chunk(jobs, 1, duration=np.zeros(jobs, np.int64), extra=tokens)
    found = cut_stretch("azure.parquet", chunk, "train", world.work)
    assert found.duration[1_000] == round((0.1 + 0.0005 * 1_000 + 0.03 * 200) * SECOND)
    assert found.has_durations


def test_sizes_come_from_the_trace_where_it_states_them() -> None:
    jobs = 4_000
    stated = np.arange(jobs) % 2 == 0
    chunk = toy_chunk(
        cpu=np.where(stated, 1_500, 0), memory=np.where(stated, 3 * GIB, 0), gpu=np.full(jobs, 4_000)
    )
    world = toy_world(work=WorkRules(resources="trace"))
    work = work_of(world, chunk)
    check(work, world)
    own = work.job_cpu == 1_500
    assert 0.3 < float(own.mean()) < 0.7
    assert bool(np.all(work.job_memory[own] == 3 * GIB))
    assert bool(np.all(np.isin(work.job_cpu[~own], [2_000, 4_000])))
    assert bool(np.all(work.job_gpu == 0)), "no node has GPUs, so none is asked for"
    huge = toy_chunk(cpu=np.full(jobs, 64_000), memory=np.full(jobs, 1 << 45))
    work = work_of(world, huge)
    check(work, world)
    assert set(work.job_cpu.tolist()) == {32_000}, "what fits nowhere gets the largest node"


def test_constraints_name_the_classes() -> None:
    toy = toy_world()
    gpu_class = NodeClass(name="gpu", cores=16, memory=64 * GIB, gpus=4, gpu_kind="A100")
    kinds = (
        *toy.work_kinds,
        WorkKind(name="train", cores=(4,), gpus=2, requires='gpu_kind == "A100"'),
        WorkKind(name="picky", cores=(2,), requires='class in ("new", "gpu")'),
    )
    runs = (*toy.clusters[0].nodes, replace(toy.clusters[0].nodes[0], node_class="gpu", count=5))
    world = replace(
        toy,
        work_kinds=kinds,
        node_classes=(*toy.node_classes, gpu_class),
        clusters=(replace(toy.clusters[0], nodes=runs), toy.clusters[1]),
    )
    work = work_of(world)
    check(work, world)
    for number, bits in enumerate((0b111, 0b111, 0b100, 0b110)):
        mine = work.job_work_kind == number
        assert mine.any()
        assert set(work.job_classes[mine].tolist()) == {bits}
    assert set(work.job_gpu[work.job_work_kind == 2].tolist()) == {2}


def test_a_gang_counts_only_the_nodes_that_it_may_use() -> None:
    toy = toy_world(work=WorkRules(gangs=GangRules(share=1.0, topology="node")))
    world = replace(toy, work_kinds=(WorkKind(name="old", cores=(2,), requires='class == "old"'),))
    work = work_of(world, toy_chunk(tasks=40))
    assert set(np.diff(work.job_offset).tolist()) == {8}, "16 cores, and not the 32 of a new node"


def test_jobs_that_would_overshoot_give_way_to_smaller_ones() -> None:
    """One job of nine is a tenth of all the work, so no window of neighbours has the wanted load."""
    world = toy_world()
    jobs, tasks = 900, 40
    duration = np.full((jobs, tasks), 5 * SECOND)
    duration[::9] = 600 * SECOND
    chunk = toy_chunk(jobs, tasks, duration=duration.ravel())
    for seed in range(8):
        facts = describe_work(work_of(world, chunk, load=0.7, seed=seed), world)
        assert facts["load"] == pytest.approx(0.7, rel=0.02), seed


@pytest.mark.parametrize(("topology", "code"), [("cluster", 1), ("rack", 2), ("node", 3)])
def test_gangs_fit_their_place(topology: str, code: int) -> None:
    rules = WorkRules(gangs=GangRules(share=0.5, topology=topology, kinds=("compute",)))
    world = toy_world(work=rules)
    work = work_of(world, toy_chunk(tasks=40))
    check(work, world)
    gangs = work.job_gang == code
    assert gangs.any()
    assert bool(np.all(work.job_gang[~gangs] == 0))
    assert set(work.job_work_kind[gangs].tolist()) == {0}
    counts = np.diff(work.job_offset)
    if topology == "node":
        # 32 cores, or 16 on an old node
        assert bool(np.all(counts[gangs] * work.job_cpu[gangs] <= 32_000))
        assert int(counts[~gangs].min()) == 40


def test_deadlines_are_a_multiple_of_the_longest_task() -> None:
    world = toy_world(work=WorkRules(deadlines=DeadlineRules(share=0.4, slack_least=2.0, slack_most=3.0)))
    work = work_of(world)
    longest = np.maximum.reduceat(work.task_work, work.job_offset[:-1])
    due = work.job_deadline > 0
    assert float(due.mean()) == pytest.approx(0.4, abs=0.05)
    factor = work.job_deadline[due] / SECOND / longest[due]
    assert 1.999 < float(factor.min()) < 2.1
    assert 2.9 < float(factor.max()) < 3.001


def dag_chunk(jobs: int = 4_000) -> JobChunk:
    """DAGs of four jobs: the last needs the two in the middle, which need the first; stated backwards."""
    dag = np.arange(jobs) // 4
    first = np.arange(0, jobs, 4)
    later = np.concatenate([first, first, first + 1, first + 2])
    earlier = np.concatenate([first + 1, first + 2, first + 3, first + 3])
    return toy_chunk(jobs, parent=dag, needs=(later, earlier))


def test_dags_stay_whole_and_their_jobs_in_order() -> None:
    world, chunk = toy_world(), dag_chunk()
    work = work_of(world, chunk)
    check(work, world)
    assert work.job_count % 4 == 0
    assert len(work.needs) == work.job_count
    per_job = np.diff(work.needs_offset)
    assert sorted(set(per_job.tolist())) == [0, 1, 2]
    owner = np.repeat(np.arange(work.job_count), per_job)
    assert np.array_equal(work.job_home[owner], work.job_home[work.needs]), "a DAG has one home"
    assert bool(np.all(work.job_arrival[owner] >= work.job_arrival[work.needs]))


def test_edges_of_a_cycle_are_left_out() -> None:
    jobs = 4_000
    pairs = np.arange(0, jobs, 2)
    later, earlier = np.concatenate([pairs, pairs[5:] + 1]), np.concatenate([pairs + 1, pairs[5:]])
    chunk = toy_chunk(jobs, parent=np.arange(jobs) // 2, needs=(later, earlier))
    found = cut_stretch("toy", chunk, "train", toy_world().work)
    assert len(found.later) == 5
    check(work_of(toy_world(), chunk), toy_world())


def test_a_short_trace_is_passed_again_with_new_traits() -> None:
    world, chunk = toy_world(), toy_chunk(40)
    work = work_of(world, chunk)
    check(work, world)
    assert "stretches passed up to" in work.name
    assert describe_work(work, world)["load"] == pytest.approx(0.7, rel=0.02)


def test_jobs_of_trace_i_are_submitted_in_every_ith_cluster() -> None:
    toy = toy_world()
    three = tuple(replace(toy.clusters[0], name=name) for name in ("a", "b", "c"))
    world = replace(toy, clusters=three)
    even, odd = toy_chunk(), toy_chunk(tasks=7)
    work = make_work(world, [("even", even), ("odd", odd)], 0.5, 0, "train")
    counts = np.diff(work.job_offset)
    assert set(counts[work.job_home == 0].tolist()) == {3}
    assert set(counts[work.job_home == 1].tolist()) == {7}
    assert set(counts[work.job_home == 2].tolist()) == {3}


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
