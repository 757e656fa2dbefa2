"""Losses in gangs whose job says ``on_loss: fail``: one loss fails the whole gang."""

from hanse.model.ids import SECOND
from hanse.model.messages import (
    Outcome,
    RunnerOrders,
    RunnerReport,
)
from tests.core.crossings.harness import Crossings
from tests.core.crossings.test_losses import once, one_broker
from tests.core.wired import node


def test_when_one_of_a_gang_is_lost_the_gang_has_failed() -> None:
    league = one_broker()
    number = league.submit(once(3, gang=True, retries=3))
    league.end(number, 1, outcome=Outcome.LOST)
    league.run(5 * SECOND)
    assert not league.live
    assert [league.outcome(number, index) for index in range(3)] == [
        Outcome.CANCELLED,
        Outcome.FAILED,
        Outcome.CANCELLED,
    ]
    league.rest()
    assert len(league.launched) == 3


def test_a_gang_in_a_cluster_that_is_given_up_has_failed() -> None:
    league = one_broker()
    number = league.submit(once(3, gang=True))
    (cluster, _) = league.running(number)[0]
    apart = league.cut("b1", cluster)
    league.run(60 * SECOND)
    assert league.over[number] is Outcome.FAILED
    assert league.outcome(number, 0) is Outcome.FAILED
    apart.arrives()
    league.rest()
    assert len(league.launched) == 3


def test_a_gang_of_which_one_failed_is_retried_as_a_whole() -> None:
    league = one_broker()
    number = league.submit(once(3, gang=True, retries=1))
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(10 * SECOND)
    assert [league.attempts(number, index) for index in range(3)] == [[1, 2]] * 3
    league.rest()
    assert league.over[number] is Outcome.SUCCEEDED


def test_a_gang_of_which_one_could_not_start_does_not_start_the_others_again() -> None:
    """Two runners: one gets its order too late, so its part never began; the other part had."""
    league = Crossings(("b1",), {"c1": (node(1_000), node(1_000, "r2"))})
    late = league.keep(RunnerOrders, target="c1.r2")
    reports = league.keep(RunnerReport, "c1.r2")
    number = league.submit(once(2, gang=True))
    league.run(9 * SECOND)
    assert len(league.running(number)) == 1
    league.run(2 * SECOND)
    late.arrives()
    reports.arrives()
    league.run(10 * SECOND)
    assert league.over[number] is Outcome.FAILED
    assert len(league.launched) == 1
    league.rest()
    assert len(league.launched) == 1
