"""The simple central policies: what they choose, in which order, and that both twins agree bit for bit."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.worlds.central import ORDERS, CentralRun
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.invariants import find_outcome_problems
from hanse.sim.worlds.policies import LeastLoadedCentral
from hanse.sim.worlds.policy_records import WorldRefusalError, WorldRunSettings
from hanse.sim.worlds.policy_registry import register_world_policy, select_world_policies, world_policies
from hanse.sim.worlds.policy_view import WAIT, PolicyView
from tests.sim.worlds.small_worlds import GIB, SECOND, random_work, random_world, work_of, world_of
from tests.sim.worlds.twins import needs_compiled_world

SIMPLE = ("independent", "greedy", "best-fit", "least-loaded", "power-of-two")


def play(
    name: str, world: WorldColumns, work: WorkColumns, order: str = "fifo", compiled: bool = False
) -> WorldOutcome:
    return world_policies()[name].run(world, work, WorldRunSettings(order, 7, compiled), None)


def assert_same(one: WorldOutcome, other: WorldOutcome) -> None:
    """Equal in everything but the time that the decisions took."""
    for field in one.__struct_fields__:
        if field != "decision_ns":
            assert np.array_equal(getattr(one, field), getattr(other, field)), field


@needs_compiled_world
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(SIMPLE), st.sampled_from(ORDERS))
def test_both_twins_give_the_same_outcome_without_a_problem(seed: int, name: str, order: str) -> None:
    world = random_world(seed)
    work = random_work(seed, world)
    one, other = play(name, world, work, order), play(name, world, work, order, compiled=True)
    assert_same(one, other)
    assert not find_outcome_problems(world, work, one)


@needs_compiled_world
def test_the_random_worlds_show_everything() -> None:
    """Or the comparison above would say little."""
    lost = staged = gangs = 0
    for seed in range(12):
        world = random_world(seed)
        work = random_work(seed, world)
        outcome = play("least-loaded", world, work, compiled=True)
        lost += len(outcome.lost)
        staged += not world.holds_cores
        gangs += int((work.job_gang > 0).sum())
    assert lost > 10
    assert staged > 2
    assert gangs > 20


BOTH = pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=needs_compiled_world)], ids=["python", "compiled"]
)


def three_clusters() -> WorldColumns:
    """Nodes of 4 cores: two in cluster 0, one in cluster 1, two in cluster 2."""
    return world_of([[0, 0], [0], [0, 0]], [0, 1, 2], cpu=[4_000])


def placed(name: str, compiled: bool, world: WorldColumns, work: WorkColumns) -> list[int]:
    """The nodes in order of task."""
    return [int(node) for node in play(name, world, work, compiled=compiled).node]


@BOTH
@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("independent", [2, 2, 2, 2, 2, 2]),
        # home has no data: cluster 2 has; then home; then the one with most room
        ("greedy", [3, 3, 4, 4, 2, 2]),
        ("best-fit", [0, 0, 1, 1, 2, 2]),
        ("least-loaded", [0, 1, 2, 3, 4, 0]),
    ],
)
def test_the_choice_of_nodes(name: str, nodes: list[int], compiled: bool) -> None:
    replicas = np.array([[2, -1, -1, -1]], np.int32)
    work = work_of([6], job_cpu=np.array([2_000]), job_home=np.array([1], np.int32), replica_rack=replicas)
    assert placed(name, compiled, three_clusters(), work) == nodes


@BOTH
def test_greedy_goes_to_the_emptiest_cluster_last(compiled: bool) -> None:
    """Two tasks fill home and its data; the third goes where most is free."""
    work = work_of(
        [1, 1, 1],
        job_cpu=np.array([2_000, 4_000, 4_000]),
        job_home=np.array([2, 1, 1], np.int32),
    )
    assert placed("greedy", compiled, three_clusters(), work) == [3, 2, 0]


@BOTH
def test_a_job_that_home_cannot_hold_goes_elsewhere(compiled: bool) -> None:
    world = world_of([[0], [1]], [0, 1], cpu=[2_000, 8_000])
    work = work_of([1], 2, job_cpu=np.array([4_000]))
    assert placed("independent", compiled, world, work) == [1]


def test_work_that_fits_nowhere_is_refused() -> None:
    world = world_of([[0], [0]], [0, 1], cpu=[4_000])
    for changes in (
        {"job_cpu": np.array([5_000])},
        {"job_memory": np.array([65 * GIB])},
        {"job_gpu": np.array([1])},
        {"job_classes": np.array([2], np.uint64)},
        {"job_cpu": np.array([4_000]), "job_gang": np.array([1], np.int32)},
    ):
        with pytest.raises(WorldRefusalError, match="no allowed node"):
            play("greedy", world, work_of([2], **changes))


@BOTH
@pytest.mark.parametrize(
    ("order", "following"),
    [
        ("fifo", [0, 1, 2, 3, 4, 5, 6]),
        ("fewest-remaining", [0, 3, 1, 2, 4, 5, 6]),
        ("shortest-work", [0, 4, 5, 6, 1, 2, 3]),
    ],
)
def test_the_order_of_the_queue(order: str, following: list[int], compiled: bool) -> None:
    """One core: the first job runs alone; of the others, job 2 has the fewest tasks and job 3 the
    shortest."""
    world = world_of([[0]], [0], cpu=[1_000])
    work = work_of(
        [1, 2, 1, 3],
        job_arrival=np.array([0, 1, 2, 3]) * SECOND,
        job_estimate=np.array([10, 10, 10, 1]) * SECOND,
    )
    outcome = play("best-fit", world, work, order, compiled)
    assert np.argsort(outcome.start, kind="stable").tolist() == following


@BOTH
def test_shortest_work_starves_nobody(compiled: bool) -> None:
    """A long job of 20 s waits beside an endless row of short ones, and goes before those that came later
    than ten times the difference."""
    world = world_of([[0]], [0], cpu=[1_000])
    jobs = 800
    work = work_of(
        [1] * jobs,
        job_arrival=np.arange(jobs) * SECOND // 2,
        job_estimate=np.where(np.arange(jobs) == 1, 20, 1) * SECOND,
        task_work=np.full(jobs, 1.0),
    )
    outcome = play("best-fit", world, work, "shortest-work", compiled)
    # its key is 0.5 + 10 x 20; those of the jobs to number 380 are smaller
    assert int(outcome.start[1]) == 380 * SECOND


@BOTH
def test_a_job_waits_for_what_it_needs(compiled: bool) -> None:
    world = world_of([[0]], [0], cpu=[4_000])
    work = work_of(
        [2, 1, 1],
        needs_offset=np.array([0, 0, 1, 3]),
        needs=np.array([0, 0, 1]),
        task_work=np.array([5.0, 9, 1, 1]),
    )
    outcome = play("best-fit", world, work, compiled=compiled)
    assert outcome.start.tolist() == [0, 0, 9 * SECOND, 10 * SECOND]


@BOTH
@pytest.mark.parametrize(
    ("gang", "nodes"), [(0, [0, 0, 1, 1]), (1, [2, 2, 3, 3]), (2, [2, 2, 3, 3]), (3, [4, 4, 4, 4])]
)
def test_a_gang_starts_together_in_its_domain(gang: int, nodes: list[int], compiled: bool) -> None:
    """Half of node 1 is taken: cluster 0 and its racks hold three tasks; only the node of class 1 holds
    four."""
    world = world_of([[0, 0], [0, 0], [1]], [0, 1, 1], cpu=[4_000, 8_000])
    work = work_of(
        [1, 4],
        2,
        job_cpu=np.array([4_000 if gang == 0 else 2_000, 2_000]),
        job_gang=np.array([0, gang], np.int32),
        job_arrival=np.array([0, SECOND]),
    )
    outcome = play("best-fit", world, work, compiled=compiled)
    if gang == 0:
        assert outcome.node.tolist()[1:] == [1, 1, 2, 2]
        return
    assert outcome.node.tolist()[1:] == nodes
    assert set(outcome.start.tolist()[1:]) == {SECOND}


@BOTH
def test_a_gang_waits_for_all_its_room_and_others_go_by(compiled: bool) -> None:
    world = world_of([[0]], [0], cpu=[2_000])
    work = work_of(
        [1, 2, 1],
        job_gang=np.array([0, 1, 0], np.int32),
        job_arrival=np.array([0, 1, 2]) * SECOND,
    )
    outcome = play("best-fit", world, work, compiled=compiled)
    assert (outcome.start // SECOND).tolist() == [0, 12, 12, 2]


@BOTH
def test_a_gang_that_loses_a_task_starts_again_as_a_whole(compiled: bool) -> None:
    """Task 1 has ended when the node of task 0 goes down; both run again, on the node that is left."""
    world = world_of([[0, 0]], [0], cpu=[1_000])
    world = msgspec.structs.replace(world, node_cpu=np.array([1_000, 2_000]))
    work = work_of(
        [2],
        job_gang=np.array([1], np.int32),
        task_work=np.array([9.0, 2.0]),
        outage_node=np.array([0], np.int32),
        outage_from=np.array([5 * SECOND]),
        outage_until=np.array([99 * SECOND]),
    )
    outcome = play("best-fit", world, work, compiled=compiled)
    assert outcome.node.tolist() == [1, 1]
    assert outcome.start.tolist() == [5 * SECOND] * 2
    assert sorted(row[0] for row in outcome.lost.tolist()) == [0, 1]
    assert outcome.wasted_core_us == 7 * SECOND
    assert not find_outcome_problems(world, work, outcome)


@BOTH
def test_cores_are_used_while_an_input_is_staged(compiled: bool) -> None:
    """The input of task 0, which takes all cores, takes 4 s; if cores are not held, task 1 runs in that
    time."""
    replicas = np.array([[0, -1, -1, -1], [-1] * 4], np.int32)
    work = work_of(
        [1, 1],
        2,
        job_cpu=np.array([4_000, 1_000]),
        task_bytes=np.array([800.0, 0.0]),
        task_work=np.array([10.0, 3.0]),
        replica_rack=replicas,
        job_classes=np.array([2, 2], np.uint64),
    )
    for holds, starts, ends in ((True, [0, 14], [14, 17]), (False, [4, 0], [14, 3])):
        world = world_of([[0], [1]], [0, 0], cpu=[1_000, 4_000], holds_cores=holds)
        outcome = play("best-fit", world, work, compiled=compiled)
        assert (outcome.start // SECOND).tolist() == starts
        assert (outcome.end // SECOND).tolist() == ends


class _Waits(LeastLoadedCentral):
    """Refuses everything before the second second."""

    pass_us = 2 * SECOND

    def choose(self, view: PolicyView, job: int, task: int) -> int:
        return WAIT if view.physics.now < 2 * SECOND else super().choose(view, job, task)


def test_a_policy_that_waits_is_asked_again_at_its_passes() -> None:
    work = work_of([1, 1], job_arrival=np.array([0, 1_500_000]))
    run = CentralRun(world_of([[0]], [0], cpu=[4_000]), work, lambda _: _Waits(), [0, 0], "fifo")
    assert run.play()
    assert run.outcome().start.tolist() == [2 * SECOND, 2 * SECOND]


def test_names_of_policies() -> None:
    assert tuple(world_policies())[: len(SIMPLE)] == SIMPLE
    assert [policy.name for policy in select_world_policies(["greedy"])] == ["greedy"]
    with pytest.raises(WorldRefusalError, match="known: independent, greedy"):
        select_world_policies(["steam"])
    with pytest.raises(AssertionError):
        register_world_policy(world_policies()["greedy"])
    with pytest.raises(WorldRefusalError, match="unknown order"):
        play("greedy", three_clusters(), work_of([1]), "steam")


@needs_compiled_world
def test_a_run_can_be_stopped() -> None:
    work = work_of([1] * 3_000, job_arrival=np.arange(3_000) * SECOND)
    calls: list[int] = []

    def progress(ended: int) -> bool:
        calls.append(ended)
        return False

    policy = world_policies()["greedy"]
    outcome = policy.run(three_clusters(), work, WorldRunSettings(), progress)
    assert calls == [1_000]
    assert not outcome.complete
    assert int((outcome.end >= 0).sum()) >= 1_000


def equal_world(nodes: int) -> WorldColumns:
    """Clusters of equal nodes: no speed, data or neighbours that matter."""
    return world_of([[0] * (nodes // 4)] * 4, [0, 0, 1, 2], cpu=[16_000], knee=0.0, slope=0.0)


@needs_compiled_world
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_without_speed_data_and_neighbours_all_that_conserve_work_agree(load: float) -> None:
    draw = np.random.default_rng(5)
    jobs, nodes = 6_000, 80
    counts = draw.integers(1, 20, jobs)
    work = draw.uniform(3.0, 60.0, int(counts.sum()))
    span = work.sum() / (nodes * 16 * load)
    made: Any = work_of(
        counts.tolist(),
        job_arrival=np.sort(draw.uniform(0, span * SECOND, jobs)).astype(np.int64),
        job_home=draw.integers(0, 3, jobs).astype(np.int32),
        task_work=work,
    )
    world = equal_world(nodes)
    means = []
    for name in SIMPLE[1:]:
        outcome = play(name, world, made, compiled=True)
        ends = np.maximum.reduceat(outcome.end, made.job_offset[:-1])
        means.append(float((ends - made.job_arrival).mean()))
    assert max(means) <= min(means) * 1.005
