"""Measures of outcomes in worlds, by hand."""

import numpy as np
import pytest

from hanse.sim.worlds.attempt_table import alone_seconds
from hanse.sim.worlds.columns import WorkColumns, WorldColumns
from hanse.sim.worlds.measures import RunNames, WorldResult, measure_world, summarise_worlds
from hanse.sim.worlds.policy_records import WorldRunSettings
from hanse.sim.worlds.policy_registry import world_policies
from tests.sim.worlds.small_worlds import GIB, SECOND, work_of, world_of


def measured(world: WorldColumns, work: WorkColumns, seed: int = 0, name: str = "best-fit") -> WorldResult:
    outcome = world_policies()[name].run(world, work, WorldRunSettings("fifo", seed), None)
    return measure_world(world, work, outcome, RunNames(name, "fifo", seed, 0.5), 0.5)


def test_figures_of_a_small_run() -> None:
    """One node of two cores. Job 0 (not counted) holds both cores for 10 s from 0; job 1 arrives at 5 and
    runs from 10 to 20 on one core; job 2 arrives at 20."""
    world = world_of([[0]], [0], cpu=[2_000])
    work = work_of(
        [2, 1, 1], job_arrival=np.array([0, 5, 20]) * SECOND, job_deadline=np.array([1, 14, 10]) * SECOND
    )
    result = measured(world, work)
    assert (result.jobs, result.tasks, result.counted_jobs) == (3, 4, 2)
    assert result.completion_mean == 12.5
    assert result.completion_p50 == 12.5
    assert result.completion_p9999 == pytest.approx(15.0, abs=0.01)
    assert result.delay_mean == 2.5
    assert result.slowdown == 1.25
    assert result.waiting_mean == 2.5
    assert (result.transfer_mean, result.run_mean) == (0.0, 10.0)
    # from 3 s to 20 s: two cores for 7 s and one for 10 s, of two cores for 17 s
    assert result.allocated == pytest.approx(24 / 34)
    assert result.useful == pytest.approx(24 / 34)
    assert (result.deadlines, result.deadlines_met) == (2, 0.5)
    assert (result.starts_per_task, result.wasted_share, result.messages_per_task) == (1.0, 0.0, 0.0)
    assert result.starts_per_cpu_second == 8.0


def test_slow_nodes_are_allocated_and_not_useful() -> None:
    world = world_of([[0]], [0], cpu=[1_000])
    work = work_of([1, 1], job_arrival=np.array([0, 40]) * SECOND, template_speed=np.full((1, 1), 0.25))
    result = measured(world, work)
    assert result.allocated == pytest.approx(1.0)
    assert result.useful == pytest.approx(0.25)


def test_an_outage_wastes_what_was_done() -> None:
    world = world_of([[0]], [0], cpu=[1_000])
    work = work_of(
        [1],
        outage_node=np.array([0], np.int32),
        outage_from=np.array([5 * SECOND]),
        outage_until=np.array([6 * SECOND]),
    )
    result = measured(world, work)
    assert result.completion_mean == 16.0
    assert result.wasted_share == pytest.approx(5 / 15)
    assert result.starts_per_task == 2.0


def test_free_cores_without_memory_are_stranded() -> None:
    """A task with one of four cores and all memory but 1 GiB, where no job asks for less than 2 GiB."""
    world = world_of([[0]], [0], cpu=[4_000], memory=[64])
    work = work_of([1, 1], job_arrival=np.array([0, 10]) * SECOND, job_memory=np.array([63, 2]) * GIB)
    assert measured(world, work).stranded == pytest.approx(0.75)
    whole = work_of([1, 1], job_arrival=np.array([0, 10]) * SECOND, job_memory=np.array([60, 2]) * GIB)
    assert measured(world, whole).stranded == 0.0


def test_the_time_alone_is_that_on_the_best_class_that_holds_the_job() -> None:
    world = world_of([[0, 1]], [0], cpu=[1_000, 8_000])
    work = work_of(
        [2, 1],
        2,
        job_cpu=np.array([2_000, 1_000]),
        template_speed=np.array([[4.0, 2.0]]),
        task_bytes=np.array([800.0, 0.0, 400.0]),
        replica_rack=np.array([[0, -1, -1, -1], [-1] * 4], np.int32),
        job_demand=np.array([100.0, 0.0]),
        job_bandwidth_sensitivity=np.array([1.0, 0.0]),
    )
    assert alone_seconds(world, work).tolist() == pytest.approx([10.0 / (2.0 / 1.3) + 2.0, 2.5])


def test_remote_tasks_and_bytes_are_counted() -> None:
    world = world_of([[0], [0]], [0, 1], cpu=[1_000])
    work = work_of(
        [2], task_bytes=np.array([100.0, 100.0]), replica_rack=np.array([[0, -1, -1, -1]], np.int32)
    )
    result = measured(world, work)
    assert result.remote == 0.5
    assert (result.bytes_rack, result.bytes_lan, result.bytes_wan) == (100.0, 0.0, 100.0)


def test_differences_are_paired_by_seed() -> None:
    """Completion of one policy is 10 % above the other in each seed, whatever the seed."""
    world, results = world_of([[0]], [0], cpu=[8_000]), []
    for seed, seconds in enumerate((10.0, 50.0, 200.0)):
        work = work_of([1], task_work=np.array([seconds]))
        slow = work_of([1], task_work=np.array([seconds * 1.1]))
        results += [measured(world, work, seed), measured(world, slow, seed, "least-loaded")]
    base, other = summarise_worlds(results, "best-fit")
    assert (base["policy"], other["policy"]) == ("best-fit", "least-loaded")
    assert base["completion_mean"] == pytest.approx(260 / 3)
    assert base["completion_mean_ci95"] > 100
    assert other["completion_mean_vs_best-fit"] == pytest.approx(10.0)
    assert other["completion_mean_vs_best-fit_ci95"] < 1e-3
    assert other["repeat"] == 3
    assert len(other["runs"]) == 3
