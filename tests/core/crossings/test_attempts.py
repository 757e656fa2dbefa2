"""Attempts of one task that cross each other: late ends and refusals, counts that survive; one counts."""

from hanse.model.ids import SECOND, JobId, task_id
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import (
    CancelAttempts,
    Claim,
    ClaimReply,
    Outcome,
    RunnerOrders,
    RunnerReport,
    TaskUpdates,
)
from tests.core.crossings.harness import Crossings, Kept
from tests.core.wired import job, node, tasks


def two_clusters() -> Crossings:
    return Crossings(("b1",))


def moved_away() -> tuple[Crossings, JobId, str, Kept]:
    """b1 has heard nothing from a cluster for so long that it has started its task in the other one."""
    league = two_clusters()
    number = league.submit(job(tasks(1)))
    home = league.running(number)[0][0]
    unheard = league.cut("b1", home)
    return league, number, home, unheard


def test_a_success_that_is_heard_of_after_the_task_was_moved_changes_nothing() -> None:
    league, number, home, unheard = moved_away()
    league.end(number)  # it has succeeded, and the word of it is on its way
    league.run(60 * SECOND)
    assert league.attempts(number) == [1, 2]
    unheard.arrives()
    league.run(5 * SECOND)
    assert league.outcome(number) is None
    assert league.marks("b1")["broker.end_of_old_attempt"] == 1
    league.end(number)
    league.run(5 * SECOND)
    assert league.settled[task_id(number, 0)] == (2, Outcome.SUCCEEDED)
    league.rest()
    assert league.machines[home].find_leftovers() == []  # type: ignore[attr-defined]


def test_a_task_is_moved_only_when_its_first_attempt_must_have_ended() -> None:
    league, number, _, unheard = moved_away()
    league.run(60 * SECOND)  # two live attempts would be seen at once
    assert league.attempts(number) == [1, 2]
    assert len(league.running(number)) == 1
    unheard.arrives()
    league.run(5 * SECOND)
    assert len(league.running(number)) == 1
    league.rest()


def test_a_task_that_must_wait_for_its_cluster_is_not_started_elsewhere() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(1), unreachable=UnreachablePolicy.WAIT))
    unheard = league.cut("b1", league.running(number)[0][0])
    league.run(90 * SECOND)
    assert league.attempts(number) == [1]
    assert league.running(number)
    unheard.is_lost()
    league.run(10 * SECOND)
    league.end(number)
    league.run(5 * SECOND)
    assert league.settled[task_id(number, 0)] == (1, Outcome.SUCCEEDED)
    league.rest()


def test_a_task_that_cannot_be_stopped_is_not_started_beside_itself() -> None:
    """Its cluster was given up and is back; nothing can end the first attempt, not even its watchdog."""
    league = Crossings(("b1",), {"c1": (node(),)})
    number = league.submit(job(tasks(1)))
    league.stubborn = True
    unheard = league.cut("b1", "c1")
    league.run(33 * SECOND)
    league.guarded.clear()
    league.run(27 * SECOND)
    assert league.marks("b1")["broker.gave_cluster_up"] == 1
    unheard.is_lost()
    league.run(20 * SECOND)
    assert league.attempts(number) == [1]
    assert len(league.running(number)) == 1
    league.stubborn = False
    league.end(number, outcome=Outcome.CANCELLED)
    league.run(5 * SECOND)
    assert len(league.attempts(number)) == 2
    league.rest()


def test_a_late_refusal_of_an_old_attempt_does_not_start_a_third() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(1)))
    home = league.running(number)[0][0]
    answers = league.keep(ClaimReply | TaskUpdates, home, "b1")
    league.end(number, outcome=Outcome.LOST)
    league.drain(home)
    answers.is_lost()
    kept = league.keep(ClaimReply, "c2" if home == "c1" else "c1", "b1")
    league.run(10 * SECOND)
    kept.arrives(times=2, backwards=True)
    league.run(5 * SECOND)
    assert league.attempts(number) == [1, 2]
    league.drain(home, closed=False)
    league.rest()


def test_word_of_a_start_that_comes_after_the_end_changes_nothing() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(2)))
    home = league.running(number)[0][0]
    news = league.keep(TaskUpdates, home, "b1")
    league.end(number, 0)
    league.run(2 * SECOND)
    news.arrives(times=2, backwards=True)
    league.run(5 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    assert league.outcome(number, 1) is None
    league.rest()


def test_a_task_withdrawn_as_never_started_that_has_succeeded_has_succeeded() -> None:
    """Nobody heard of its start, so it is withdrawn; the cancellation and the word of its success cross."""
    league = two_clusters()
    news = league.keep(TaskUpdates)
    number = league.submit(job(tasks(1)))
    league.run(10 * SECOND)
    withdrawn = league.keep(CancelAttempts, "b1")
    league.run(6 * SECOND)
    assert withdrawn
    league.end(number)
    withdrawn.arrives()
    news.arrives()
    league.run(10 * SECOND)
    assert league.settled[task_id(number, 0)] == (1, Outcome.SUCCEEDED)
    league.rest()
    assert league.attempts(number) == [1]


def test_a_late_cancellation_of_an_old_attempt_does_not_stop_the_present_one() -> None:
    league = two_clusters()
    orders = league.keep(RunnerOrders, target="c1.r1")
    also = league.keep(RunnerOrders, target="c2.r1")
    number = league.submit(job(tasks(1)))
    withdrawn = league.keep(CancelAttempts, "b1")
    league.run(16 * SECOND)
    assert withdrawn
    orders.arrives()
    also.arrives()
    league.run(5 * SECOND)
    present = league.attempts(number)
    assert len(present) == 1
    withdrawn.arrives(times=2)
    league.run(5 * SECOND)
    assert league.attempts(number)[:1] == present
    league.rest()


def test_failures_are_counted_over_a_restart_of_the_owner() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(1), retries=2))
    for _ in range(2):
        league.end(number, outcome=Outcome.FAILED)
        league.dies("b1")
        league.returns("b1")
        league.run(5 * SECOND)
        assert number not in league.over
    league.end(number, outcome=Outcome.FAILED)
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.FAILED
    assert len(league.attempts(number)) == 3
    league.rest()


def test_a_failure_that_is_told_twice_counts_once() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(1), retries=1))
    news = league.keep(TaskUpdates, target="b1")
    league.end(number, outcome=Outcome.FAILED)
    league.run(4 * SECOND)
    assert len(news) > 1  # repeated by the link
    news.arrives(times=2)
    league.run(4 * SECOND)
    assert number not in league.over
    assert league.attempts(number) == [1, 2]
    league.rest()
    assert league.over[number] is Outcome.SUCCEEDED


def test_losses_preemptions_and_orders_that_came_too_late_are_no_failures() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(1), retries=0))
    league.end(number, outcome=Outcome.LOST)
    league.run(2 * SECOND)
    league.end(number, outcome=Outcome.PREEMPTED)
    league.run(2 * SECOND)
    late = [league.keep(RunnerOrders, target=runner) for runner in ("c1.r1", "c2.r1")]
    league.end(number, outcome=Outcome.LOST)
    league.run(12 * SECOND)
    for orders in late:
        orders.arrives()
    league.run(5 * SECOND)
    assert number not in league.over
    league.rest()
    assert league.over[number] is Outcome.SUCCEEDED


def test_a_cancelled_task_that_is_lost_is_not_started_again() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(2), retries=3))
    cancels = league.keep(CancelAttempts, "b1")
    league.cancel(number)
    league.end(number, 0, outcome=Outcome.LOST)
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(2 * SECOND)
    cancels.arrives()
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.CANCELLED
    assert league.attempts(number, 0) == league.attempts(number, 1) == [1]
    league.rest()


def test_a_claim_that_is_refused_after_its_job_was_cancelled_is_not_made_again() -> None:
    league = two_clusters()
    claims = league.keep(Claim, "b1")
    request = league.hand_in(job(tasks(1)))
    league.run(SECOND)
    number = league.replies[request].job  # type: ignore[union-attr]
    league.cancel(number)
    league.drain("c1")
    league.drain("c2")
    claims.arrives()
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.CANCELLED
    assert league.launched == []
    league.drain("c1", closed=False)
    league.drain("c2", closed=False)
    league.rest()


def test_when_one_of_a_gang_has_failed_for_good_the_others_are_ended_and_not_started_again() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(3), gang=True, retries=0))
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(5 * SECOND)
    assert not league.live
    assert league.over[number] is Outcome.FAILED
    assert [league.outcome(number, index) for index in range(3)] == [
        Outcome.CANCELLED,
        Outcome.FAILED,
        Outcome.CANCELLED,
    ]
    league.rest()
    assert len(league.launched) == 3


def test_a_gang_that_failed_stays_failed_when_its_owner_dies_before_the_others_are_ended() -> None:
    league = Crossings()
    number = league.submit(job(tasks(3), gang=True, retries=0), "b1")
    stops = league.keep(CancelAttempts, "b1")
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(2 * SECOND)
    assert stops
    league.dies("b1")
    stops.is_lost()
    league.run(20 * SECOND)
    assert league.over[number] is Outcome.FAILED
    league.rest()
    assert len(league.launched) == 3


def test_a_gang_of_which_one_failed_late_is_not_half_alive() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(3), gang=True, retries=0))
    news = league.keep(TaskUpdates, target="b1")
    league.end(number, 0)
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(2 * SECOND)
    news.arrives()
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.FAILED
    assert not league.running(number)
    league.rest()


def test_reports_that_arrive_backwards_and_twice_are_taken_in_order_and_once() -> None:
    league = two_clusters()
    number = league.submit(job(tasks(3), retries=1))
    reports = league.keep(RunnerReport)
    league.end(number, 0, outcome=Outcome.FAILED)
    league.end(number, 1)
    league.end(number, 2)
    reports.arrives(times=2, backwards=True)
    league.run(5 * SECOND)
    assert league.attempts(number, 0) == [1, 2]
    assert league.outcome(number, 1) is league.outcome(number, 2) is Outcome.SUCCEEDED
    league.rest()
