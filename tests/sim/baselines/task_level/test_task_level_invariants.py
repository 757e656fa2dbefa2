"""What must hold of every policy, whatever the workload: the checkers, determinism, the floor."""

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.registry import QUEUE_ORDERS
from hanse.sim.baselines.task_level import engine
from hanse.sim.replay.invariants import find_problems
from hanse.sim.replay.registry import policies
from hanse.sim.replay.run_records import ReplayOutcome, ReplaySettings, ReplayWorkload

SECOND = 1_000_000
NAMES = tuple(policies())


def workload_of(jobs: list[tuple[int, list[int]]]) -> ReplayWorkload:
    """Jobs as (arrival, durations) in microseconds."""
    jobs = sorted(jobs, key=lambda job: job[0])
    offset = [0]
    for _, durations in jobs:
        offset.append(offset[-1] + len(durations))
    return ReplayWorkload(
        "made",
        [arrival for arrival, _ in jobs],
        offset,
        [duration for _, durations in jobs for duration in durations],
        [sum(durations) // len(durations) for _, durations in jobs],
        [index % 3 for index in range(len(jobs))],
    )


durations = st.one_of(st.integers(0, 3 * SECOND), st.sampled_from([0, 500, 1000, 1500, SECOND, 200 * SECOND]))
arrivals = st.one_of(st.integers(0, 20 * SECOND), st.sampled_from([0, 500, 1500, SECOND]))
workloads = st.lists(
    st.tuples(arrivals, st.lists(durations, min_size=1, max_size=12)), min_size=1, max_size=14
).map(workload_of)
settings_of = st.builds(
    ReplaySettings,
    nodes=st.integers(6, 40),
    clusters=st.integers(1, 3),
    brokers=st.integers(1, 2),
    order=st.sampled_from(QUEUE_ORDERS.shipped),
    delay_us=st.sampled_from([0, 500, 7000]),
    seed=st.integers(0, 3),
    short_cutoff_us=st.just(SECOND),
    short_percent=st.sampled_from([0.0, 2.0, 20.0]),
    pigeon_group=st.sampled_from([1, 4, 10, 100]),
    heartbeat_us=st.sampled_from([100_000, 5 * SECOND]),
    gossip_us=st.sampled_from([50_000, SECOND]),
)


@pytest.mark.parametrize("name", NAMES)
@given(workload=workloads, chosen=settings_of)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_task_runs_once_and_no_node_runs_two(
    name: str, workload: ReplayWorkload, chosen: ReplaySettings
) -> None:
    policy = policies()[name]
    outcome = policy(workload, chosen)
    assert find_problems(workload, chosen, outcome, policy.start_messages) == []
    assert outcome.complete
    assert len(outcome.decision_ns) == workload.job_count


@pytest.mark.parametrize("name", NAMES)
def test_one_task_in_an_empty_league_waits_for_three_messages(name: str) -> None:
    workload = workload_of([(0, [10 * SECOND])])
    for seed in range(5):
        outcome = policies()[name](workload, ReplaySettings(nodes=100, seed=seed))
        assert outcome.job_end.tolist() == [10 * SECOND + 1500]


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_give_equal_outcomes(name: str) -> None:
    jobs = [
        (index * 300_000, [SECOND * (1 + (index * task) % 7) for task in range(1, 9)]) for index in range(60)
    ]
    workload = workload_of(jobs)
    chosen = ReplaySettings(nodes=40, clusters=2, brokers=2, short_cutoff_us=4 * SECOND, seed=7)
    first, second = (_deterministic(policies()[name](workload, chosen)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_told_to_stop_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EVENTS_PER_REPORT", 50)
    workload = workload_of([(index, [SECOND] * 40) for index in range(60)])
    outcome = policies()[name](workload, ReplaySettings(nodes=40, clusters=1, brokers=1), lambda _: False)
    assert not outcome.complete
    unfinished = outcome.job_end < 0
    assert int(unfinished.sum()) > 0
    begun = np.minimum.reduceat(outcome.start, workload.offset[:-1]) >= 0
    assert (begun == ~unfinished).all()


def test_progress_grows_to_the_number_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EVENTS_PER_REPORT", 50)
    workload = workload_of([(index, [SECOND] * 40) for index in range(60)])
    for name in NAMES:
        seen: list[int] = []

        def watch(tasks: int, seen: list[int] = seen) -> bool:
            seen.append(tasks)
            return True

        policies()[name](workload, ReplaySettings(nodes=40, clusters=1, brokers=1), watch)
        assert len(seen) > 1, name
        assert seen == sorted(seen), name
        assert seen[-1] == workload.task_count, name


def _deterministic(outcome: ReplayOutcome) -> tuple[object, ...]:
    kept = msgspec.structs.replace(outcome, decision_ns=[])
    return tuple(
        value.tolist() if isinstance(value, np.ndarray) else value for value in msgspec.structs.astuple(kept)
    )


def _good() -> tuple[ReplayWorkload, ReplaySettings, ReplayOutcome]:
    workload = workload_of([(0, [SECOND, SECOND]), (0, [SECOND])])
    chosen = ReplaySettings(nodes=8, clusters=1, brokers=1)
    return workload, chosen, policies()["central"](workload, chosen)


def test_the_checkers_see_what_is_wrong() -> None:
    workload, chosen, good = _good()
    assert find_problems(workload, chosen, good, 3) == []
    replace = msgspec.structs.replace
    same_node = replace(good, node=np.zeros_like(good.node))
    assert "two tasks at once" in find_problems(workload, chosen, same_node, 3)[0]
    early = replace(good, start=good.start - 1)
    assert any("before a message" in problem for problem in find_problems(workload, chosen, early, 3))
    twice = replace(good, launches=4)
    assert "4 launches" in find_problems(workload, chosen, twice, 3)[0]
    never = replace(good, start=np.where(np.arange(3) == 1, -1, good.start))
    assert any("2 tasks that ran" in problem for problem in find_problems(workload, chosen, never, 3))
    nowhere = replace(good, node=good.node + 8)
    assert any("does not exist" in problem for problem in find_problems(workload, chosen, nowhere, 3))
    too_soon = replace(good, job_end=good.job_end - 1)
    assert any("did not end" in problem for problem in find_problems(workload, chosen, too_soon, 3))
