"""Placement by estimated finish: learned node classes, waiting for a better one, limits at the wardens."""

from collections.abc import Iterator

import pytest

from hanse.core.broker.finish_placement import WAITS_FOR_BETTER
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import SECOND, JobId
from hanse.model.job import JobSpec
from hanse.model.messages import Claim, Demand, Outcome, ResourceUsage
from hanse.policy.finish_time.waiting import WAIT_RATIO
from tests.core.wired import Wired, job, node, tasks

FAST, SLOW = 10, 100
"""Seconds of a task on the two classes."""
LEARNING_JOBS = 4


def two_classes() -> Wired:
    """A cluster of two fast nodes, one of two slow ones."""
    return Wired(
        {"a": (node(1_000, **{"class": "slow"}),) * 2, "b": (node(1_000, **{"class": "fast"}),) * 2},
        placer="random", cluster_ranker="earliest-finish",
    )  # fmt: skip


def end_all(league: Wired, number: JobId) -> None:
    """All running tasks of a job succeed after the time that their class takes."""
    for (task, attempt), (cluster, _) in list(league.live.items()):
        if task >> 20 == number:
            seconds = FAST if cluster == "b" else SLOW
            league.exit(task, attempt, Outcome.SUCCEEDED, 0, ResourceUsage(run_time=seconds * SECOND))
    league.run(SECOND)


def nightly(count: int = 4, name: str = "etl/nightly") -> JobSpec:
    return job(tasks(count), name=name)


def taught() -> Wired:
    """A league whose broker has seen jobs of one kind on both classes."""
    league = two_classes()
    for _ in range(LEARNING_JOBS):
        number = league.submit(nightly())
        league.run(200 * SECOND)
        end_all(league, number)
        assert league.over[number] is Outcome.SUCCEEDED
    return league


@pytest.fixture
def league() -> Iterator[Wired]:
    """A taught league, checked after the test."""
    found = taught()
    yield found
    found.check()


def test_a_kind_goes_to_the_class_on_which_it_ends_soonest(league: Wired) -> None:
    number = league.submit(nightly(2))
    assert {cluster for cluster, _ in league.running(number).values()} == {"b"}


def test_a_kind_without_history_follows_its_kind_of_work(league: Wired) -> None:
    number = league.submit(nightly(2, "etl/weekly"))
    assert {cluster for cluster, _ in league.running(number).values()} == {"b"}


def test_tasks_wait_for_a_better_class_and_no_longer_than_the_ideal(league: Wired) -> None:
    number = league.submit(nightly(3))
    assert [cluster for cluster, _ in league.running(number).values()] == ["b", "b"]
    waits = [each for each in league.decisions if each.kind is DecisionKind.WAITING]
    assert waits[-1].reason == WAITS_FOR_BETTER
    league.run(60 * SECOND)  # longer than a task takes on the fast class
    assert sorted(cluster for cluster, _ in league.running(number).values()) == ["a", "b", "b"]


def test_a_task_that_waits_gets_the_better_node_when_it_comes_free(league: Wired) -> None:
    number = league.submit(nightly(3))
    running = league.running(number)
    league.end(number, min(running))
    assert [cluster for cluster, _ in league.running(number).values()] == ["b", "b"]
    assert len(league.running(number)) == 2


def test_wardens_hear_of_the_limit_and_do_not_grant_beyond_it(league: Wired) -> None:
    before = len(league.said)
    number = league.submit(nightly(3))
    lines = [line for demand in league.bodies(Demand, before) for line in demand.lines]
    lines += [line for claim in league.bodies(Claim, before) for line in claim.demand or ()]
    limited = [line.preference for line in lines if line.preference is not None and line.preference.limit]
    assert limited
    assert min(each.limit for each in limited) < SLOW * 1000
    # the slow nodes stayed free, although their warden had demand for them
    assert "a" not in {cluster for cluster, _ in league.running(number).values()}


def test_a_freed_node_that_is_not_acceptable_yet_is_not_granted(league: Wired) -> None:
    other = league.submit(job(tasks(2), name="other", clusters_allowed=("a",)))
    number = league.submit(nightly(3))
    assert [cluster for cluster, _ in league.running(number).values()] == ["b", "b"]
    league.end(other)  # its warden has demand, and a node that has just come free
    assert [cluster for cluster, _ in league.running(number).values()] == ["b", "b"]
    league.run(60 * SECOND)
    assert len(league.running(number)) == 3


def test_a_broker_that_restarts_knows_what_it_had_learned(league: Wired) -> None:
    dumped = league.machines["b1"].dump()
    league.restart("b1")
    assert league.machines["b1"].dump() != b""
    fresh = league.makers["b1"]()
    fresh.restore(dumped)
    assert fresh.dump() == dumped
    league.run(SECOND)
    number = league.submit(nightly(2))
    assert {cluster for cluster, _ in league.running(number).values()} == {"b"}


def test_a_limit_outlives_a_restart_and_still_ends(league: Wired) -> None:
    number = league.submit(nightly(3))
    league.restart("b1")
    league.run(60 * SECOND)
    assert len(league.running(number)) == 3


def test_jobs_that_declare_their_data_stay_near_it() -> None:
    league = two_classes()
    size = 100_000_000_000  # 250 s from the own cluster, 800 s from another one
    number = league.submit(job(tasks(1, input_bytes=size), name="scan", data=("a",)))
    assert {cluster for cluster, _ in league.running(number).values()} == {"a"}
    other = league.submit(job(tasks(1, input_bytes=size), name="scan", data=("b",)))
    assert {cluster for cluster, _ in league.running(other).values()} == {"b"}


def test_the_ratio_leaves_out_what_is_much_worse() -> None:
    assert SLOW > FAST * WAIT_RATIO
