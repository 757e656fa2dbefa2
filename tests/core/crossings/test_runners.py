"""A runner's return: late reports, late orders, restarts in the middle of a start or a stop."""

from hanse.model.ids import SECOND, JobId, task_id
from hanse.model.messages import (
    AttemptEnd,
    OpenSession,
    Outcome,
    RunnerHeartbeat,
    RunnerLease,
    RunnerOrders,
    RunnerReport,
)
from tests.core.crossings.harness import Crossings
from tests.core.wired import job, node, tasks

RUNNER = "c1.r1"


def one_cluster(*nodes: str) -> Crossings:
    """One broker, one cluster; one node for each runner that is named."""
    return Crossings(("b1",), {"c1": tuple(node(runner=name) for name in nodes or ("r1",))})


def restart_runner(league: Crossings, name: str = RUNNER) -> None:
    league.dies(name)
    league.returns(name)


def is_settled_by(league: Crossings, number: JobId, attempt: int) -> bool:
    return league.settled.get(task_id(number, 0)) == (attempt, Outcome.SUCCEEDED)


# --- reports ----------------------------------------------------------------------------------------------


def test_a_report_lost_with_its_runner_is_made_good_when_it_returns() -> None:
    league = one_cluster()
    number = league.submit(job(tasks(1)))
    report = league.keep(RunnerReport, RUNNER)
    league.end(number)
    league.dies(RUNNER)
    league.returns(RUNNER)
    league.run(5 * SECOND)
    assert is_settled_by(league, number, 1)
    report.arrives(times=2)
    league.rest()
    assert league.attempts(number) == [1]


def test_an_end_while_the_runner_was_down_is_told_when_it_returns() -> None:
    league = one_cluster()
    number = league.submit(job(tasks(2)))
    league.dies(RUNNER)
    league.end(number, 0)
    league.end(number, 1, outcome=Outcome.FAILED)
    league.returns(RUNNER)
    league.run(5 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    assert league.outcome(number, 1) is Outcome.FAILED
    league.rest()


def test_a_success_that_is_reported_after_its_loss_changes_nothing() -> None:
    """The runner cannot be heard until its lease is over; the task is started elsewhere. Then its report of
    the first attempt's success arrives."""
    league = one_cluster("r1", "r2")
    number = league.submit(job(tasks(1)))
    ((_, at),) = league.running(number).values()
    runner = f"c1.r{at + 1}"
    unheard = league.keep(source=runner)
    league.end(number)
    league.run(15 * SECOND)
    assert league.attempts(number) == [1, 2]
    unheard.arrives()
    league.run(5 * SECOND)
    assert league.outcome(number) is None
    assert league.running(number)
    league.end(number)
    league.run(5 * SECOND)
    assert is_settled_by(league, number, 2)
    league.rest()


def test_a_report_of_an_older_attempt_does_not_end_the_present_one() -> None:
    """Both attempts run on the same runner: the first was lost with a session, the second has begun."""
    league = one_cluster()
    number = league.submit(job(tasks(1)))
    league.dies(RUNNER)
    league.live.clear()  # its host went down with it
    league.ended[RUNNER].clear()
    league.returns(RUNNER)
    league.run(5 * SECOND)
    assert league.attempts(number) == [1, 2]
    league.ended[RUNNER][task_id(number, 0), 1] = _end(number, 1)
    restart_runner(league)
    league.run(5 * SECOND)
    assert league.outcome(number) is None
    assert league.running(number)
    league.rest()
    assert is_settled_by(league, number, 2)


def _end(number: JobId, attempt: int) -> AttemptEnd:
    return AttemptEnd(task_id(number, 0), attempt, Outcome.SUCCEEDED)


def test_an_end_that_the_runner_was_not_told_to_forget_is_reported_again_and_counts_once() -> None:
    league = one_cluster()
    number = league.submit(job(tasks(1), retries=3))
    forget = league.keep(RunnerOrders, "c1", RUNNER)
    league.end(number, outcome=Outcome.FAILED)
    league.run(3 * SECOND)
    restart_runner(league)
    forget.is_lost()
    league.run(5 * SECOND)
    assert league.attempts(number) in ([1, 2], [1, 3])  # the second never started: its order was lost
    league.rest()
    assert not any(league.ended.values())


# --- orders -----------------------------------------------------------------------------------------------


def test_a_start_that_was_on_its_way_when_the_runner_restarted_starts_nothing() -> None:
    league = one_cluster()
    orders = league.keep(RunnerOrders, "c1", RUNNER)
    number = league.submit(job(tasks(1)))
    restart_runner(league)
    league.run(2 * SECOND)
    orders.arrives(times=2)
    league.run(5 * SECOND)
    assert league.attempts(number) == [2]
    league.rest()


def test_a_runner_that_restarts_while_a_task_starts_keeps_it() -> None:
    league = one_cluster()
    report = league.keep(RunnerReport, RUNNER)
    number = league.submit(job(tasks(1)))
    assert league.running(number)
    restart_runner(league)
    report.is_lost()
    league.run(20 * SECOND)
    assert league.attempts(number) == [1]
    assert not league.marks("b1").get("broker.withdrew_unstarted")
    league.rest()


def test_a_stop_that_was_lost_with_its_runner_is_ordered_again() -> None:
    league = one_cluster()
    number = league.submit(job(tasks(1)))
    orders = league.keep(RunnerOrders, "c1", RUNNER)
    league.cancel(number)
    assert league.running(number)
    restart_runner(league)
    orders.is_lost()
    league.run(5 * SECOND)
    assert not league.running(number)
    assert league.over[number] is Outcome.CANCELLED
    league.rest()


def test_an_order_that_was_longer_on_its_way_than_its_lease_starts_nothing() -> None:
    """The runner's lease is renewed all the time; the order is older than what its sender can count on."""
    league = one_cluster()
    orders = league.keep(RunnerOrders, "c1", RUNNER)
    number = league.submit(job(tasks(1)))
    league.run(12 * SECOND)
    orders.arrives()
    assert not league.live
    assert league.marks(RUNNER)["runner.refused_without_lease"] == 1
    league.run(5 * SECOND)
    assert league.attempts(number) == [2]
    league.rest()


def test_a_runner_without_a_lease_starts_nothing() -> None:
    league = one_cluster()
    league.keep(RunnerLease, "c1", RUNNER)
    league.keep(RunnerHeartbeat, RUNNER, "c1")
    league.run(8 * SECOND)
    orders = league.keep(RunnerOrders, "c1", RUNNER)
    number = league.submit(job(tasks(1)))
    league.run(2 * SECOND)
    orders.arrives()
    league.run(SECOND)
    assert league.attempts(number) == []
    league.rest()


# --- sessions and leases ----------------------------------------------------------------------------------


def test_a_greeting_of_an_older_session_takes_nothing_back() -> None:
    league = one_cluster()
    greeting = league.keep(OpenSession, RUNNER)
    restart_runner(league)
    restart_runner(league)
    league.keeping.remove(greeting)
    old, *_ = greeting.envelopes
    league.run(2 * SECOND)
    number = league.submit(job(tasks(1)))
    assert league.attempts(number) == [1]
    league.hand_over(old)
    league.run(2 * SECOND)
    assert league.attempts(number) == [1]
    assert not league.marks("c1").get("warden.run_vanished")
    league.rest()


def test_a_renewal_for_an_older_session_neither_renews_nor_confirms() -> None:
    league = one_cluster()
    renewal = league.keep(RunnerLease, "c1", RUNNER)
    league.run(2 * SECOND)
    greeting = league.keep(OpenSession, RUNNER)
    restart_runner(league)
    league.guards.clear()
    renewal.arrives()
    assert league.guards == []
    greeting.is_lost()
    league.run(2 * SECOND)
    number = league.submit(job(tasks(1)))
    assert league.attempts(number) == [1]
    league.rest()


def test_a_runner_that_was_given_up_opens_its_nodes_again_with_a_new_session() -> None:
    league = one_cluster()
    number = league.submit(job(tasks(1)))
    unheard = league.keep(source=RUNNER)
    league.run(15 * SECOND)
    assert league.marks("c1")["warden.lost_runner"] == 1
    assert not league.live  # its watchdog ended it
    unheard.is_lost()
    league.run(5 * SECOND)
    assert league.attempts(number) == [1, 2]
    league.rest()


def test_nobody_is_started_elsewhere_before_the_watchdog_must_have_ended_the_first() -> None:
    """Whoever hears whom: the runner's last renewal arrives late, so that its lease ends late."""
    for silent in ("beat", "lease"):
        league = one_cluster("r1", "r2")
        number = league.submit(job(tasks(1)))
        ((_, at),) = league.running(number).values()
        runner = f"c1.r{at + 1}"
        if silent == "beat":
            league.keep(source=runner)
        else:
            league.keep(target=runner)
        league.run(30 * SECOND)  # two live attempts would be seen at once
        assert len(league.running(number)) == 1
        league.rest()


def test_a_warden_that_restarts_finds_what_its_runners_run() -> None:
    league = one_cluster("r1", "r2")
    number = league.submit(job(tasks(6)))
    assert len(league.running(number)) == 6
    league.dies("c1")
    league.end(number, 0)
    league.run(5 * SECOND)
    league.returns("c1")
    league.run(10 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    assert all(league.attempts(number, index) == [1] for index in range(6))
    league.rest()


def test_warden_and_runner_that_restart_together_lose_nothing() -> None:
    league = one_cluster()
    orders = league.keep(RunnerOrders, "c1", RUNNER)
    number = league.submit(job(tasks(2)))
    league.dies("c1", RUNNER)
    league.returns(RUNNER)
    league.run(2 * SECOND)
    league.returns("c1")
    orders.arrives()
    league.run(10 * SECOND)
    assert len(league.running(number)) == 2
    league.rest()


def test_a_stray_of_a_runner_given_up_is_stopped_before_its_node_is_used() -> None:
    """The watchdog is slow: the runner is back, with its task, after the warden has counted it as lost."""
    league = one_cluster()
    number = league.submit(job(tasks(4)))
    unheard = league.keep(source=RUNNER)
    league.run(SECOND)
    league.guarded.clear()  # a watchdog that does not look
    league.run(13 * SECOND)
    assert league.marks("c1")["warden.lost_runner"] == 1
    league.stubborn = True
    unheard.is_lost()
    league.run(3 * SECOND)
    assert league.marks("c1")["warden.stopped_stray"] == 4
    assert all(attempt == 1 for _, attempt in league.live)
    league.stubborn = False
    for task, attempt in list(league.live):
        league.exit(task, attempt, Outcome.CANCELLED)
    league.run(5 * SECOND)
    assert [attempt for _, attempt in league.live] == [2] * 4
    league.rest()
    assert number in league.over
