"""What the read models show of jobs that change hands, and of tasks whose cluster is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.model.ids import SECOND, index_of, job_text
from hanse.model.job import OnLoss, UnreachablePolicy
from hanse.model.messages import Outcome, OwnershipTransferred, ResourceUsage
from tests.core.broker.test_cluster_lifecycle import start_again
from tests.core.crossings.changed_members import learn
from tests.core.wired import job, node, tasks
from tests.live.readmodel.histories import Told, disagreements
from tests.live.readmodel.test_projection import states, task

MINUTE = 60 * SECOND


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Told]:
    """Two brokers, heirs of each other."""
    told = Told(tmp_path, {"c1": (node(8_000),)}, brokers=("b1", "b2"))
    yield told
    told.close()


# --- heirs -------------------------------------------------------------------------------------------------


def test_the_heir_shows_a_copy_with_its_owner(pair: Told) -> None:
    number = pair.submit(job(tasks(2), name="far"))
    row = pair.ask("b2").jobs(name="far")[0]
    assert (row.owner, row.state, row.total) == ("b1", "queued", 2)
    pair.end(number, 0)
    assert pair.ask("b2").jobs(name="far")[0].succeeded == 1
    detail = pair.ask("b2").job(number)
    assert detail is not None
    assert detail.copy
    pair.end(number, 1)
    assert [pair.ask(name).jobs(name="far")[0].state for name in ("b1", "b2")] == ["succeeded", "succeeded"]


def test_an_adopted_job_is_the_adopters(pair: Told) -> None:
    number = pair.submit(job(tasks(3, 3_000), name="far"))
    assert states(pair, number) == ["running", "running", "queued"]
    pair.deaf["b1"] = True
    pair.run(MINUTE)
    assert any(isinstance(body, OwnershipTransferred) for body in pair.bodies(OwnershipTransferred))
    assert disagreements(pair.ask("b2"), pair.machines["b2"]) == []
    row = pair.ask("b2").jobs(name="far")[0]
    assert (row.owner, row.state, row.running, row.clusters) == ("b2", "running", 2, ("c1",))
    pair.end(number, 0, 1)
    pair.end(number)
    pair.run(SECOND)
    row = pair.ask("b2").jobs(name="far")[0]
    assert (row.owner, row.state, row.succeeded) == ("b2", "succeeded", 3)
    pair.boot("b1")
    pair.run(MINUTE)
    assert pair.ask("b1").jobs(name="far")[0].owner == "b2"
    pair.agree()


def test_an_adopted_job_shows_when_it_started_once_it_has_ended(pair: Told) -> None:
    pair.submit(job(tasks(2), name="far"))
    pair.deaf["b1"] = True
    pair.run(MINUTE)
    ran = {0: 50 * SECOND, 1: 40 * SECOND}
    for found, attempt in list(pair.live):
        pair.exit(found, attempt, usage=ResourceUsage(run_time=ran[index_of(found)]))
    pair.run(SECOND)
    row = pair.ask("b2").jobs(name="far")[0]
    assert (row.owner, row.state) == ("b2", "succeeded")
    assert row.started is not None
    assert row.ended is not None
    assert row.ended - row.started == ran[0], "as long as the task that ran longest"


def test_a_job_that_was_over_before_the_adoption_does_not_begin_anew(pair: Told) -> None:
    """The adopter had been told to forget it, and the owner did not hear that the adopter has."""
    number = pair.submit(job(tasks(1), name="over"))
    pair.submit(job(tasks(1), name="on"))
    pair.loses = lambda envelope: (envelope.source, envelope.target) == ("b2", "b1")
    pair.end(number)
    pair.run(SECOND)
    pair.deaf["b1"] = True
    pair.run(MINUTE)
    assert all(number not in body.jobs for body in pair.bodies(OwnershipTransferred))
    pair.loses = lambda _: False
    pair.boot("b1")
    pair.run(MINUTE)
    row = pair.ask("b1").jobs(name="over")[0]
    assert (row.state, row.succeeded, row.owner) == ("succeeded", 1, "b1")
    ended = task(pair, number)
    assert (ended.state, ended.attempt, ended.cluster, ended.node) == ("succeeded", 1, "c1", 0)
    assert pair.ask("b1").jobs(name="on")[0].owner == "b2"
    pair.agree()


def test_ends_that_nobody_had_taken_come_with_the_adoption(pair: Told) -> None:
    number = pair.submit(job(tasks(2)))
    pair.deaf["b1"] = True
    pair.end(number, 1, outcome=Outcome.FAILED, code=7)
    pair.run(MINUTE)
    row = task(pair, number, 1, "b2")
    assert (row.state, row.outcome, row.code, row.cluster) == ("failed", "failed", 7, "c1")
    assert states(pair, number, "b2")[0] == "running"


def test_ends_told_during_an_adoption_count_when_it_is_complete(tmp_path: Path) -> None:
    told = Told(tmp_path, {"c1": (node(2_000),), "c2": (node(2_000),)}, brokers=("b1", "b2"))
    number = told.submit(job(tasks(2), clusters_allowed=("c1",)))
    told.deaf["b1"] = told.deaf["c2"] = True
    told.run(8 * SECOND)  # the heir has bid, and only one of two wardens can agree
    assert told.ask("b2").jobs()[0].owner == "b1"
    told.end(number, 0, outcome=Outcome.FAILED, code=5)
    assert task(told, number, 0, "b2").outcome == ""
    del told.deaf["c2"]
    told.run(20 * SECOND)
    assert disagreements(told.ask("b2"), told.machines["b2"]) == []
    row = task(told, number, 0, "b2")
    assert (row.state, row.outcome, row.code) == ("failed", "failed", 5)
    told.close()


def test_numbers_of_adopted_jobs_do_not_confuse_what_is_new(pair: Told) -> None:
    """The adopter's first submission repeats the client id of an adopted job that is over."""
    number = pair.submit(job(tasks(1), client_id="x"), "b2")
    pair.deaf["b2"] = True
    pair.run(MINUTE)
    pair.end(number)
    assert pair.submit(job(tasks(1), client_id="x"), "b1") == number
    own = pair.submit(job(tasks(1)), "b1")
    rows = {row.id: row.state for row in pair.ask("b1").jobs()}
    assert rows == {job_text(number): "succeeded", job_text(own): "running"}


# --- lost clusters -----------------------------------------------------------------------------------------


def test_attempts_at_a_cluster_that_has_left_are_over(tmp_path: Path) -> None:
    league = Told(tmp_path, {"c1": (node(),), "c2": (node(),)})
    number = league.submit(job(tasks(8), unreachable=UnreachablePolicy.WAIT))
    assert states(league, number) == ["running"] * 8
    league.deaf |= {"c2": True, "c2.r1": True}
    start_again(league, "b1", retired=("c2",))
    league.run(2 * MINUTE)
    league.agree()
    assert sorted(states(league, number)) == ["queued"] * 4 + ["running"] * 4
    league.close()


def test_what_is_lost_and_must_not_run_twice_has_failed(tmp_path: Path) -> None:
    league = Told(tmp_path, {"c1": (node(),), "c2": (node(),)})
    number = league.submit(job(tasks(8), on_loss=OnLoss.FAIL))
    league.end(number, 0, outcome=Outcome.LOST)
    league.agree()
    assert sorted(states(league, number)) == ["failed"] + ["running"] * 7
    (gone,) = {cluster for cluster, _ in league.running(number).values()} - {league.running(number)[1][0]}
    there = sum(cluster == gone for cluster, _ in league.running(number).values())
    league.deaf |= {gone: True, f"{gone}.r1": True}
    league.run(2 * MINUTE)
    league.agree()
    assert sorted(states(league, number)) == ["failed"] * (1 + there) + ["running"] * (7 - there)
    league.close()


def test_a_gang_that_is_lost_and_must_not_run_twice_has_failed(tmp_path: Path) -> None:
    league = Told(tmp_path, {"c1": (node(),), "c2": (node(),)})
    number = league.submit(job(tasks(3), gang=True, on_loss=OnLoss.FAIL))
    (gone, _) = league.running(number)[0]
    league.deaf |= {gone: True, f"{gone}.r1": True}
    league.run(2 * MINUTE)
    league.agree()
    assert states(league, number) == ["failed", "cancelled", "cancelled"]
    league.close()


# --- orphans ----------------------------------------------------------------------------------------------


def test_a_job_that_a_third_broker_has_ended_is_shown_as_its_own(tmp_path: Path) -> None:
    told = Told(tmp_path, {"c1": (node(8_000),)}, brokers=("b1", "b2", "b3"))
    number = told.submit(job(tasks(2), name="far"))
    told.deaf["b1"] = True
    told.run(MINUTE)
    told.deaf["b2"] = True
    learn(told, "c1", "b3", retired=("b2",))
    told.run(MINUTE)
    assert told.ask("b3").jobs(name="far")[0].owner == "b3"
    learn(told, "b1", retired=("b2",))
    told.run(MINUTE)
    for _ in range(3):
        told.end(number)
        told.run(MINUTE)
    assert told.ask("b3").jobs(name="far")[0].state == "succeeded"
    assert told.ask("b1").jobs(name="far")[0].owner == "b3"
    told.close()


def test_a_job_of_which_nobody_knows_the_end_is_cancelled_and_says_why(pair: Told) -> None:
    number = pair.submit(job(tasks(2), name="far"))
    pair.deaf["b1"] = True
    pair.run(MINUTE)
    pair.deaf["b2"] = True
    learn(pair, "c1", "b1", retired=("b2",))
    pair.run(MINUTE)
    row = pair.ask("b1").jobs(name="far")[0]
    assert (row.owner, row.state, row.total) == ("b1", "cancelled", 2)
    detail = pair.ask("b1").job(number)
    assert detail is not None
    assert "retired by force" in str(detail)
