"""Restarts of brokers, wardens and runners, and takeovers of a broker's jobs by its standby."""

import pytest

from hanse.core.warden.warden import Warden
from hanse.model.ids import SECOND, task_id
from hanse.model.messages import (
    Outcome,
    WardenHeartbeat,
)
from tests.core.wired import Wired, job, node, tasks

MINUTE = 60 * SECOND


@pytest.mark.parametrize("name", ["b1", "c1", "c1.r1"])
def test_a_restart_of_anybody_loses_nothing(name: str) -> None:
    league = Wired({"c1": (node(), node())})
    running, waiting = league.submit(job(tasks(6))), league.submit(job(tasks(5)))
    league.restart(name)
    league.run(5 * SECOND)
    league.check()
    assert sorted(attempt for _, attempt in league.live) == [1] * 8
    for _ in range(3):
        league.end(running)
        league.end(waiting)
    league.run(MINUTE)
    assert league.over == {running: Outcome.SUCCEEDED, waiting: Outcome.SUCCEEDED}
    league.check_idle()


def test_a_restarted_warden_has_a_new_epoch_and_the_same_ledger() -> None:
    league = Wired({"c1": (node(),)})
    league.submit(job(tasks(3)))
    before = league.machines["c1"]
    league.restart("c1")
    after = league.machines["c1"]
    assert isinstance(before, Warden)
    assert isinstance(after, Warden)
    assert after.advertised_free() == before.advertised_free() == [(1_000, 0, 0)]
    league.run(2 * SECOND)
    assert league.bodies(WardenHeartbeat)[-1].epoch == 2


def test_a_stray_attempt_is_stopped_before_its_node_opens() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(1)))
    ((key, (_, launch)),) = league.live.items()
    fresh = league.makers["c1"]()
    league.machines["c1"] = fresh  # a warden that has lost its journal
    league.boot("c1")
    league.stubborn = True
    league.restart("c1.r1")
    league.run(2 * SECOND)
    assert league.marks("c1")["warden.stopped_stray"] == 1
    assert isinstance(fresh, Warden)
    assert fresh.advertised_free() == [(0, 0, 0)]
    league.exit(*key, outcome=Outcome.CANCELLED)
    league.run(SECOND)
    assert fresh.advertised_free() == [(4_000, 0, 0)]
    del number, launch


def test_the_heir_adopts_a_dead_brokers_jobs_and_finishes_them() -> None:
    league = Wired({"c1": (node(2_000),)}, ("b1", "b2"))
    number = league.submit(job(tasks(3)), "b1")
    first = list(league.live)
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    assert league.marks("b2")["broker.adopted_estate"] == 1
    assert list(league.live) == first  # what ran goes on
    league.end(number)
    league.run(5 * SECOND)
    assert len(league.running(number)) == 1
    league.end(number)
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED


def test_the_former_owner_learns_that_its_estate_was_taken() -> None:
    league = Wired({"c1": (node(2_000),)}, ("b1", "b2"))
    number = league.submit(job(tasks(1)), "b1")
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    league.restart("b1")
    league.run(20 * SECOND)
    assert league.marks("b1")["broker.estate_taken"] == 1
    league.end(number)
    league.run(20 * SECOND)
    assert league.over == {number: Outcome.SUCCEEDED}
    later = league.submit(job(tasks(1)), "b1")
    assert league.running(later)


def test_a_broker_that_lives_keeps_its_estate() -> None:
    league = Wired({"c1": (node(2_000),)}, ("b1", "b2", "b3"))
    league.submit(job(tasks(1)), "b1")
    league.run(2 * MINUTE)
    assert not any(mark.startswith("broker.adopt") for name in ("b2", "b3") for mark in league.marks(name))


def test_task_numbers_survive_adoption() -> None:
    league = Wired({"c1": (node(1_000),)}, ("b1", "b2"))
    number = league.submit(job(tasks(2)), "b1")
    ((done, _),) = league.live
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    league.end(number)
    league.run(5 * SECOND)
    ((task, attempt),) = league.live
    assert [done, task] in (
        [task_id(number, 0), task_id(number, 1)],
        [task_id(number, 1), task_id(number, 0)],
    )
    assert attempt > 1 << 16  # above any that the former owner can have used
