"""Durations, sizes, gangs, deadlines and DAGs of the work that traces bring."""

import msgspec
import numpy as np
import pytest

from hanse.sim.traces.chunk import SECOND, JobChunk
from hanse.sim.worlds.drawing.stretches import cut_stretch
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.work_description import describe_work
from hanse.sim.worlds.world import (
    GIB,
    DeadlineRules,
    GangRules,
    NodeClass,
    WorkKind,
    WorkRules,
)
from tests.sim.worlds.toy_worlds import toy_chunk, toy_world
from tests.sim.worlds.work_checks import check, equal, work_of

replace = msgspec.structs.replace


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
