"""Jobs with ``on_loss: fail``: a task of which an attempt may have begun does not start again after a loss,
wherever it was lost; one that certainly never began does."""

import pytest

from hanse.core.config import Timings
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import SECOND, JobId
from hanse.model.job import JobSpec, OnLoss, UnreachablePolicy
from hanse.model.messages import (
    CancelAttempts,
    Claim,
    Demand,
    Outcome,
    OwnershipReply,
    ReplicaUpdate,
    RunnerOrders,
    TaskUpdates,
)
from tests.core.broker.test_cluster_lifecycle import start_again
from tests.core.crossings.harness import Crossings
from tests.core.wired import job, node, tasks

BOTH = ("b1", "b2")


def once(count: int = 1, **rest: object) -> JobSpec:
    """A job whose tasks must not run twice."""
    return job(tasks(count), on_loss=OnLoss.FAIL, **rest)


def one_broker() -> Crossings:
    return Crossings(("b1",))


def reasons(league: Crossings) -> list[str]:
    """What was said of tasks that were lost for good."""
    return [one.reason for one in league.decisions if one.kind is DecisionKind.ENDED]


def has_failed(league: Crossings, number: JobId, *attempts: int, index: int = 0) -> bool:
    """Whether a task ended as failed, after these attempts and no others, whatever comes after."""
    league.rest()
    is_failed = league.outcome(number, index) is Outcome.FAILED
    return is_failed and league.attempts(number, index) == list(attempts)


# --- lost in its cluster ----------------------------------------------------------------------------------


def test_a_task_that_is_lost_fails_and_says_so() -> None:
    league = one_broker()
    number = league.submit(once(2))
    league.end(number, 0, outcome=Outcome.LOST)
    league.run(5 * SECOND)
    assert league.outcome(number, 0) is Outcome.FAILED
    assert reasons(league) == ["lost: its node was lost"]
    assert len(league.running(number)) == 1, "the others go on"
    assert has_failed(league, number, 1)
    assert league.outcome(number, 1) is Outcome.SUCCEEDED


def test_a_loss_is_none_of_its_retries() -> None:
    league = one_broker()
    number = league.submit(once(retries=3))
    league.end(number, outcome=Outcome.FAILED)
    league.run(2 * SECOND)
    assert league.attempts(number) == [1, 2]
    league.end(number, outcome=Outcome.LOST)
    assert has_failed(league, number, 1, 2)


def test_a_runner_that_is_silent_for_longer_than_its_lease_has_lost_its_tasks_for_good() -> None:
    league = one_broker()
    number = league.submit(once())
    ((cluster, _),) = league.running(number).values()
    unheard = league.keep(source=f"{cluster}.r1")
    league.end(number)  # and succeeds where nobody hears it
    league.run(15 * SECOND)
    assert league.outcome(number) is Outcome.FAILED
    unheard.arrives()
    assert has_failed(league, number, 1)


def test_a_host_that_forgot_a_task_has_lost_it_for_good() -> None:
    league = one_broker()
    number = league.submit(once())
    ((cluster, _),) = league.running(number).values()
    league.dies(f"{cluster}.r1")
    league.live.clear()
    league.returns(f"{cluster}.r1")
    assert has_failed(league, number, 1)


def test_a_task_that_vanished_while_it_was_to_be_preempted_is_lost() -> None:
    """Nobody knows how it used its grace: it may have succeeded."""
    league = Crossings(("b1",), {"c1": (node(),)}, Timings(preempt_after=0))
    league.stubborn = True
    low = league.submit(once(preemptible=True))
    urgent = league.submit(job(tasks(1, cpu=4_000), priority=5))
    league.run(40 * SECOND)
    assert league.running(low)
    assert not league.running(urgent)
    league.dies("c1.r1")
    league.live.clear()
    league.returns("c1.r1")
    league.stubborn = False
    assert has_failed(league, low, 1)


# --- known ends, and starts that never were ---------------------------------------------------------------


def test_a_preempted_task_starts_again() -> None:
    league = Crossings(("b1",), {"c1": (node(),)}, Timings(preempt_after=0))
    low = league.submit(once(preemptible=True))
    league.submit(job(tasks(1, cpu=4_000), priority=5))
    league.run(40 * SECOND)
    assert not league.running(low)
    league.rest()
    assert league.attempts(low) == [1, 2]
    assert league.outcome(low) is Outcome.SUCCEEDED


def test_an_order_that_came_too_late_to_start_anything_is_given_elsewhere() -> None:
    league = one_broker()
    late = [league.keep(RunnerOrders, target=runner) for runner in ("c1.r1", "c2.r1")]
    number = league.submit(once())
    league.run(12 * SECOND)
    for orders in late:
        orders.arrives()
    league.run(5 * SECOND)
    assert league.attempts(number) == [2]
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED


def test_an_order_that_came_too_late_began_nothing_whatever_was_ordered_since() -> None:
    league = one_broker()
    orders = [league.keep(RunnerOrders, target=runner) for runner in ("c1.r1", "c2.r1")]
    number = league.submit(once())
    apart = league.cut("b1", "c1", "c2")
    league.run(32 * SECOND)
    for one in orders:
        one.arrives()
    apart.arrives()
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED
    assert len(league.attempts(number)) == 1


def test_a_claim_that_was_refused_is_made_again() -> None:
    league = one_broker()
    claims = league.keep(Claim, "b1")
    request = league.hand_in(once())
    league.run(SECOND)
    league.drain("c1")
    league.drain("c2")
    claims.arrives()
    league.run(2 * SECOND)
    assert league.launched == []
    league.drain("c1", closed=False)
    league.drain("c2", closed=False)
    league.run(5 * SECOND)
    number = league.replies[request].job  # type: ignore[union-attr]
    assert league.running(number)
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED


def test_a_start_that_was_not_told_in_time_is_left_alone() -> None:
    """It runs, and its broker has not heard of it: what is taken back now would have to fail."""
    league = one_broker()
    news = league.keep(TaskUpdates, target="b1")
    number = league.submit(once())
    league.run(20 * SECOND)
    assert league.bodies(CancelAttempts) == []
    assert league.running(number)
    news.arrives()
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED
    assert league.attempts(number) == [1]


# --- clusters given up ------------------------------------------------------------------------------------


def test_a_task_in_a_cluster_that_cannot_be_reached_fails() -> None:
    league = one_broker()
    number = league.submit(once())
    ((cluster, _),) = league.running(number).values()
    apart = league.cut("b1", cluster)
    league.run(60 * SECOND)
    assert league.outcome(number) is Outcome.FAILED
    assert reasons(league) == [f"lost: {cluster} cannot be reached"]
    apart.arrives()
    assert has_failed(league, number, 1)


def test_a_claim_that_was_never_answered_may_have_been_taken() -> None:
    league = one_broker()
    claims = league.keep(Claim, "b1")
    request = league.hand_in(once())
    league.run(SECOND)
    gone = claims.envelopes[0].target
    apart = league.cut("b1", gone)
    league.run(60 * SECOND)
    number = league.replies[request].job  # type: ignore[union-attr]
    assert league.outcome(number) is Outcome.FAILED
    apart.arrives()
    claims.arrives()
    assert has_failed(league, number)


def test_a_task_that_waits_for_its_cluster_goes_on_there() -> None:
    league = one_broker()
    number = league.submit(once(unreachable=UnreachablePolicy.WAIT))
    ((cluster, _),) = league.running(number).values()
    apart = league.cut("b1", cluster)
    league.run(60 * SECOND)
    assert league.outcome(number) is None
    apart.arrives()
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED
    assert league.attempts(number) == [1]


@pytest.mark.parametrize("unreachable", [UnreachablePolicy.MOVE, UnreachablePolicy.WAIT])
def test_a_cluster_that_was_retired_may_have_begun_what_it_was_sent(unreachable: UnreachablePolicy) -> None:
    league = Crossings()
    number = league.submit(once(unreachable=unreachable))
    ((gone, _),) = league.running(number).values()
    league.dies(gone, f"{gone}.r1")
    league.live.clear()
    for name in BOTH:
        start_again(league, name, retired=(gone,))
    league.run(60 * SECOND)
    assert league.outcome(number) is Outcome.FAILED
    assert reasons(league) == [f"lost: {gone} has left the league"]
    assert league.attempts(number) == [1]


def test_a_cancelled_task_that_cannot_be_reached_is_cancelled() -> None:
    league = one_broker()
    number = league.submit(once())
    ((cluster, _),) = league.running(number).values()
    apart = league.cut("b1", cluster)
    league.cancel(number)
    league.run(60 * SECOND)
    assert league.outcome(number) is Outcome.CANCELLED
    apart.arrives()
    league.rest()


# --- takeovers --------------------------------------------------------------------------------------------


def test_an_heir_fails_what_a_warden_has_lost() -> None:
    league = Crossings()
    news = league.keep(TaskUpdates, target="b1")
    number = league.submit(once(), "b1")
    league.end(number, outcome=Outcome.LOST)
    league.dies("b1")
    news.is_lost()
    league.run(20 * SECOND)
    assert league.outcome(number) is Outcome.FAILED
    assert has_failed(league, number, 1)


def test_an_heir_starts_what_nobody_has_begun() -> None:
    league = Crossings()
    claims = league.keep(Claim | Demand, "b1")
    number = league.submit(once(), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert len(league.running(number)) == 1
    claims.arrives()
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED
    assert len(league.attempts(number)) == 1


def test_an_heir_does_not_start_what_failed_unheard_by_it() -> None:
    """The owner gives a cluster up and fails its task; before the heir hears of it the cluster is back, and
    tells the end of the attempt. If its warden might forget that now, nobody would know that it ran."""
    league = Crossings()
    number = league.submit(once(), "b1")
    ((cluster, _),) = league.running(number).values()
    apart = league.cut("b1", cluster)
    untold = league.keep(ReplicaUpdate, "b1", "b2")
    league.run(50 * SECOND)
    assert f"lost: {cluster} cannot be reached" in reasons(league)
    apart.arrives()
    league.run(3 * SECOND)
    assert league.marks("b1")["broker.old_end_kept"] >= 1
    league.dies("b1")
    untold.is_lost()
    league.run(40 * SECOND)
    assert league.attempts(number) == [1]
    assert has_failed(league, number, 1)


@pytest.mark.parametrize("accepted", ["before", "after"])
def test_an_heir_cannot_ask_a_cluster_that_has_left(accepted: str) -> None:
    """The cluster and the owner are gone, with what they knew: what was accepted before that may have run."""
    league = Crossings()
    claims = league.keep(Claim | Demand, "b1")
    gone = "c2"
    before = league.submit(once(), "b1") if accepted == "before" else None
    league.dies(gone, f"{gone}.r1")
    start_again(league, "b2", retired=(gone,))
    league.run(60 * SECOND)
    after = league.submit(once(), "b1") if accepted == "after" else None
    league.dies("b1")
    claims.is_lost()
    league.run(30 * SECOND)
    if before is not None:
        assert league.outcome(before) is Outcome.FAILED
        assert reasons(league) == [f"lost: it is unknown whether it started in {gone}"]
        assert league.launched == []
    if after is not None:
        assert league.running(after)


def test_an_heir_need_not_ask_a_cluster_that_was_drained_when_it_left() -> None:
    """Whatever ran there has ended, and the heir was told of every end that forbids another attempt."""
    league = Crossings()
    number = league.submit(job(tasks(2, 4_000), on_loss=OnLoss.FAIL), "b1")
    there = next(index for index in range(2) if league.running(number)[index][0] == "c2")
    league.end(number, there, outcome=Outcome.LOST)
    league.run(5 * SECOND)
    claims = league.keep(Claim | Demand, "b1")
    waiting = league.submit(once(clusters_allowed=("c2", "c1")), "b1")
    league.dies("c2", "c2.r1")
    start_again(league, "b2", retired=("c2",), drained=("c2",))
    league.dies("b1")
    claims.is_lost()
    league.run(30 * SECOND)
    league.end(number, 1 - there)
    league.run(5 * SECOND)
    assert len(league.running(waiting)) == 1
    assert league.outcome(number, there) is Outcome.FAILED
    assert league.attempts(number, there) == [1]
    assert reasons(league) == ["lost: its node was lost"]


def test_what_may_not_use_a_cluster_that_has_left_did_not_run_there() -> None:
    league = Crossings()
    claims = league.keep(Claim | Demand, "b1")
    number = league.submit(once(clusters_allowed=("c1",)), "b1")
    other = league.submit(job(tasks(1)), "b1")
    league.dies("c2", "c2.r1")
    start_again(league, "b2", retired=("c2",))
    league.dies("b1")
    claims.is_lost()
    league.run(30 * SECOND)
    assert league.running(number)
    assert league.running(other), "it may run again"


def test_a_takeover_that_is_given_up_loses_nothing() -> None:
    league = Crossings()
    number = league.submit(once(unreachable=UnreachablePolicy.WAIT), "b1")
    answers = league.keep(OwnershipReply, target="b2")
    league.dies("b1")
    league.run(15 * SECOND)
    league.returns("b1")
    league.run(5 * SECOND)
    answers.arrives()
    league.rest()
    assert league.outcome(number) is Outcome.SUCCEEDED
    assert league.attempts(number) == [1]
