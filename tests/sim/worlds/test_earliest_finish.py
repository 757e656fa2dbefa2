"""The rule, the oracle and the bound: twins agree, and each does what it is for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.policy.kernels import BACKEND
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory
from hanse.sim.worlds.earliest_finish.finish_run import make_history, run_earliest_finish, warm_up
from hanse.sim.worlds.earliest_finish.finish_settings import FinishSettings
from hanse.sim.worlds.invariants import find_outcome_problems
from hanse.sim.worlds.policy_records import WorldRefusalError, WorldRunSettings
from hanse.sim.worlds.policy_registry import world_policies
from tests.sim.worlds.small_worlds import SECOND, random_work, random_world, work_of, world_of
from tests.sim.worlds.test_central_policies import BOTH, assert_same
from tests.sim.worlds.twins import needs_compiled_world

needs_kernels = pytest.mark.skipif(BACKEND != "native", reason="the compiled kernels are not built")
VARIANTS = (
    FinishSettings(),
    FinishSettings(constants="prior", explores=0.3),
    FinishSettings(constants="only", uses_data=False),
    FinishSettings(wait_ratio=0.0, charge=1.0, is_shortest_first=False, uses_sizes=False),
    FinishSettings(learns_crowding=False, charge=0.0),
)


def play(name: str, world: WorldColumns, work: WorkColumns, compiled: bool) -> WorldOutcome:
    return world_policies()[name].run(world, work, WorldRunSettings("fifo", 7, compiled), None)


def assert_same_history(one: FinishHistory, other: FinishHistory) -> None:
    for name in ("rows", "crowding_row", "crowding_answer"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


@needs_compiled_world
@needs_kernels
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(VARIANTS))
def test_both_twins_of_the_rule_do_and_learn_the_same(seed: int, chosen: FinishSettings) -> None:
    world = random_world(seed)
    history = make_history(world)
    for part in range(2):  # the second run starts from what the first has learned
        work = random_work(seed + part, world)
        one, learned = run_earliest_finish(world, work, chosen, history, 3, compiled=True)
        other, twin = run_earliest_finish(world, work, chosen, history, 3, compiled=False)
        assert_same(one, other)
        assert_same_history(learned, twin)
        assert not find_outcome_problems(world, work, one)
        history = learned


@needs_compiled_world
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(["oracle", "oracle-go"]))
def test_both_twins_of_the_oracle_do_the_same(seed: int, name: str) -> None:
    world = random_world(seed)
    work = random_work(seed, world)
    one, other = play(name, world, work, compiled=True), play(name, world, work, compiled=False)
    assert_same(one, other)
    assert not find_outcome_problems(world, work, one)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(["greedy", "earliest-finish", "oracle"]))
def test_no_job_is_faster_than_the_bound(seed: int, name: str) -> None:
    world = random_world(seed)
    work = random_work(seed, world, outages=False)
    bound, run = play("bound", world, work, True), play(name, world, work, True)
    assert (completions(work, run) >= completions(work, bound) - len(work.needs)).all()


def completions(work: WorkColumns, outcome: WorldOutcome) -> np.ndarray:
    return np.maximum.reduceat(outcome.end, work.job_offset[:-1]) - work.job_arrival


def two_speeds(nodes: int = 4) -> WorldColumns:
    """One cluster of four cores a node; the second half of the nodes is of class 1."""
    return world_of([[0] * nodes + [1] * nodes], [0], cpu=[4_000, 4_000])


def rising(jobs: int, tasks: int, gap: int, slow: float, **columns: Any) -> WorkColumns:
    """Equal jobs that run faster on class 1 by a factor that no constant says."""
    return work_of(
        [tasks] * jobs,
        2,
        job_arrival=np.arange(jobs) * gap * SECOND,
        job_kind=np.zeros(jobs, np.int32),
        template_speed=np.array([[1.0, slow]]),
        job_template=np.zeros(jobs, np.int32),
        **columns,
    )


@BOTH
def test_the_rule_learns_where_tasks_run_faster(compiled: bool) -> None:
    """Jobs of six tasks are spread over both classes at first; later only the fast one is used."""
    work = rising(60, 20, 60, 3.0)
    outcome, _ = run_earliest_finish(
        two_speeds(), work, FinishSettings(), make_history(two_speeds()), compiled=compiled
    )
    fast = (outcome.node >= 4).reshape(60, 20)
    assert fast[-10:, :16].mean() > fast[0].mean()
    last = work.job_offset[-2]
    assert (outcome.node[last:] >= 4).sum() >= 16


@BOTH
def test_a_task_waits_for_a_better_node_but_not_for_ever(compiled: bool) -> None:
    """The fast node is taken for 12 s by the first job; the next one waits for it, as it has learned."""
    world = world_of([[0, 1]], [0], cpu=[1_000, 1_000])
    history = make_history(world)
    lessons = rising(40, 2, 60, 4.0)
    _, history = run_earliest_finish(world, lessons, FinishSettings(), history, compiled=compiled)
    work = rising(2, 1, 1, 4.0, task_work=np.array([12.0, 12.0]))
    outcome, _ = run_earliest_finish(world, work, FinishSettings(), history, compiled=compiled)
    assert outcome.node.tolist() == [1, 1]
    assert outcome.start[1] == 3 * SECOND  # the pass at which the first one's end is seen
    hasty, _ = run_earliest_finish(world, work, FinishSettings(wait_ratio=0.0), history, compiled=compiled)
    assert hasty.node.tolist() == [1, 0]
    long = rising(2, 1, 1, 4.0, task_work=np.array([4_000.0, 12.0]))
    bounded, _ = run_earliest_finish(world, long, FinishSettings(), history, compiled=compiled)
    assert bounded.node.tolist() == [1, 0]
    assert bounded.start[1] < 60 * SECOND


def test_a_run_leaves_its_history_as_it_is_and_a_warm_up_adds_to_it() -> None:
    world = two_speeds()
    history = make_history(world)
    run_earliest_finish(world, rising(5, 4, 10, 2.0), FinishSettings(), history)
    assert not history.rows.any()
    learned = warm_up(world, [rising(5, 4, 10, 2.0), rising(3, 4, 10, 2.0)], FinishSettings())
    assert learned.rows[0, -5] == pytest.approx(8, rel=0.01)  # jobs, less what has faded


def test_work_that_fits_nowhere_is_refused_by_all() -> None:
    world = world_of([[0], [0]], [0, 1], cpu=[4_000])
    for name in ("earliest-finish", "oracle", "bound"):
        with pytest.raises(WorldRefusalError, match="no allowed node"):
            play(name, world, work_of([2], job_cpu=np.array([5_000])), True)
