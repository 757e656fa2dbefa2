"""The lives of jobs: ends, retries, cancellation, dependencies, leases, lost nodes."""

from hanse.core.config import Timings
from hanse.model.decision_record import DecisionKind
from hanse.model.events import MessageReceived
from hanse.model.ids import SECOND, job_id, task_id
from hanse.model.job import JobSpec, TaskGroup, UnreachablePolicy
from hanse.model.messages import (
    AckEnds,
    AttemptEnd,
    CancelAttempts,
    Claim,
    Envelope,
    HeartbeatReply,
    Outcome,
    ReplicaUpdate,
    RunnerLease,
    RunnerOrders,
    StopTask,
    TaskUpdates,
)
from tests.core.wired import Wired, job, node, tasks

MINUTE = 60 * SECOND


def stops(league: Wired, since: int = 0) -> list[StopTask]:
    return [stop for orders in league.bodies(RunnerOrders, since) for stop in orders.stops]


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_task_that_succeeds_is_settled_by_its_attempt_and_so_is_its_job() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(2)))
    league.end(number, 0)
    assert league.settled == {task_id(number, 0): (1, Outcome.SUCCEEDED)}
    assert number not in league.over
    league.end(number, 1)
    assert league.over == {number: Outcome.SUCCEEDED}


def test_a_failed_task_without_retries_fails_its_job() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(2)))
    league.end(number, 0, outcome=Outcome.FAILED, code=3)
    assert league.outcome(number, 0) is Outcome.FAILED
    league.end(number, 1)
    assert league.over[number] is Outcome.FAILED


def test_a_failed_task_is_retried_as_often_as_the_job_says() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(1), retries=2))
    for attempt in (1, 2):
        assert list(league.live) == [(task_id(number, 0), attempt)]
        league.end(number, outcome=Outcome.FAILED, code=1)
        assert league.outcome(number) is None
    league.end(number, outcome=Outcome.FAILED, code=1)
    assert league.settled == {task_id(number, 0): (3, Outcome.FAILED)}
    reasons = [(entry.kind, entry.reason) for entry in league.decisions]
    assert (DecisionKind.RETRIED, "exit code 1") in reasons


def test_losses_do_not_count_as_retries() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(1)))
    league.end(number, outcome=Outcome.LOST)
    assert list(league.live) == [(task_id(number, 0), 2)]
    league.end(number)
    assert league.outcome(number) is Outcome.SUCCEEDED


def test_a_task_lost_too_often_counts_as_failed() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(1)))
    for _ in range(51):
        league.end(number, outcome=Outcome.LOST)
    assert league.settled == {task_id(number, 0): (51, Outcome.FAILED)}


def test_the_end_of_an_older_attempt_changes_nothing() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(1)))
    league.end(number, outcome=Outcome.LOST)
    link = league.machines["c1"]._links.links["b1"]  # type: ignore[attr-defined]
    news = TaskUpdates((), (AttemptEnd(task_id(number, 0), 1, Outcome.SUCCEEDED),))
    league.give(
        "b1", MessageReceived(league.now, Envelope("c1", "b1", 0, link.sent + 1, link.received, news))
    )
    assert league.outcome(number) is None
    assert league.marks("b1")["broker.end_of_old_attempt"] == 1


def test_an_end_is_settled_with_the_warden_only_after_the_heir_knows() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    number = league.submit(job(tasks(1)), "b1")
    league.loses = lambda envelope: isinstance(envelope.body, ReplicaUpdate)
    league.end(number)
    league.run(2 * SECOND)
    assert not league.bodies(AckEnds)
    assert league.outcome(number) is None
    league.loses = lambda _: False
    league.run(20 * SECOND)
    assert [settle.tasks for settle in league.bodies(AckEnds)] == [(task_id(number, 0),)]
    assert league.outcome(number) is Outcome.SUCCEEDED


# --- cancellation and deadlines -----------------------------------------------------------------------------


def test_cancelling_ends_what_waits_at_once_and_stops_what_runs() -> None:
    league = Wired({"c1": (node(2_000),)})
    number = league.submit(job(tasks(3), grace=7 * SECOND))
    before = len(league.said)
    league.stubborn = True
    league.cancel(number)
    assert league.outcome(number, 2) is Outcome.CANCELLED
    assert league.bodies(CancelAttempts, before)[0].tasks == (task_id(number, 0), task_id(number, 1))
    assert [stop.grace for stop in stops(league, before)] == [7 * SECOND, 7 * SECOND]
    assert league.outcome(number, 0) is None
    league.end(number, outcome=Outcome.CANCELLED)
    assert league.over[number] is Outcome.CANCELLED
    league.run(MINUTE)
    league.check_idle()


def test_a_task_that_succeeds_before_its_cancellation_has_succeeded() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(1)))
    league.stubborn = True
    league.cancel(number)
    league.end(number, outcome=Outcome.SUCCEEDED)
    assert league.outcome(number) is Outcome.SUCCEEDED


def test_a_job_past_its_deadline_is_cancelled() -> None:
    league = Wired({"c1": (node(1_000),)})
    number = league.submit(job(tasks(2), deadline=10 * SECOND))
    league.run(8 * SECOND)
    assert number not in league.over
    league.run(2 * SECOND)
    assert league.over[number] is Outcome.CANCELLED
    assert not league.live
    assert "its deadline has passed" in [d.reason for d in league.decisions][-1]


# --- dependencies -------------------------------------------------------------------------------------------


def diamond() -> JobSpec:
    return job(
        TaskGroup(name="top", count=2),
        TaskGroup(name="left", needs=("top",)),
        TaskGroup(name="right", needs=("top",)),
        TaskGroup(name="bottom", needs=("left", "right")),
    )


def test_a_group_is_released_when_all_that_it_needs_has_succeeded() -> None:
    league = Wired({"c1": (node(8_000),)})
    number = league.submit(diamond())
    assert list(league.running(number)) == [0, 1]
    league.end(number, 0)
    assert list(league.running(number)) == [1]
    league.end(number, 1)
    assert list(league.running(number)) == [2, 3]
    league.end(number, 3)
    assert list(league.running(number)) == [2]
    league.end(number, 2)
    assert list(league.running(number)) == [4]
    league.end(number)
    assert league.over[number] is Outcome.SUCCEEDED


def test_what_needs_a_failed_group_is_cancelled_and_the_rest_goes_on() -> None:
    league = Wired({"c1": (node(8_000),)})
    number = league.submit(diamond())
    league.end(number, 0, 1)
    league.end(number, 2, outcome=Outcome.FAILED)
    assert league.outcome(number, 4) is Outcome.CANCELLED
    assert list(league.running(number)) == [3]
    league.end(number)
    assert league.over[number] is Outcome.FAILED


def test_a_job_waits_for_another_job_also_of_another_broker() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    first = league.submit(job(tasks(1)), "b1")
    same = league.submit(job(tasks(1), after=(first,)), "b1")
    other = league.submit(job(tasks(1), after=(first,)), "b2")
    assert not league.running(same)
    assert not league.running(other)
    league.end(first)
    league.run(5 * SECOND)
    assert league.running(same)
    assert league.running(other)


def test_a_job_after_one_that_fails_is_cancelled() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    first = league.submit(job(tasks(1)), "b1")
    then = league.submit(job(tasks(1), after=(first,)), "b2")
    league.end(first, outcome=Outcome.FAILED)
    league.run(5 * SECOND)
    assert league.over[then] is Outcome.CANCELLED


def test_a_job_after_one_that_nobody_knows_is_cancelled() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    then = league.submit(job(tasks(1), after=(job_id(2, 77),)), "b1")
    league.run(5 * SECOND)
    assert league.over[then] is Outcome.CANCELLED
    assert league.marks("b1")["broker.dependency_unknown"] == 1


# --- leases and lost nodes ----------------------------------------------------------------------------------


def test_a_runners_lease_counts_from_when_it_asked() -> None:
    league = Wired({"c1": (node(),)})
    league.loses = lambda envelope: isinstance(envelope.body, RunnerLease)
    kept: list[Envelope] = []
    league.loses = lambda envelope: bool(
        isinstance(envelope.body, RunnerLease) and (kept.append(envelope) or True)  # type: ignore[func-returns-value]
    )
    league.run(3 * SECOND)
    league.guards.clear()
    league.loses = lambda _: False
    asked = kept[0].body.echo  # type: ignore[union-attr]
    assert asked < league.now - SECOND
    league.hand_over(kept[0])
    assert league.guards == [("c1.r1", asked + Timings().runner_lease)]


def test_an_older_renewal_does_not_shorten_the_lease() -> None:
    league = Wired({"c1": (node(),)})
    league.run(3 * SECOND)
    league.guards.clear()
    old = Envelope("c1", "c1.r1", 1 << 20, 0, 0, RunnerLease(1 << 20, 1, ()))
    league.hand_over(old)
    assert league.guards == []


def test_a_silent_runners_tasks_are_lost_only_after_its_lease_is_surely_over() -> None:
    league = Wired({"c1": (node(1_000, "r1"), node(1_000, "r2"))})
    number = league.submit(job(tasks(2)))
    league.deaf["c1.r1"] = True
    league.run(10 * SECOND)
    assert not league.marks("c1").get("warden.lost_runner")
    league.live = {key: it for key, it in league.live.items() if league.runner_of[key] != "c1.r1"}
    league.run(3 * SECOND)
    assert league.marks("c1")["warden.lost_runner"] == 1
    assert [entry.reason for entry in league.decisions if entry.kind is DecisionKind.MOVED] == [
        "its node was lost"
    ]
    assert len(league.running(number)) == 1
    league.boot("c1.r1")
    league.run(5 * SECOND)
    assert len(league.running(number)) == 2


def test_a_runner_that_comes_back_in_time_keeps_its_tasks() -> None:
    league = Wired({"c1": (node(),)})
    number = league.submit(job(tasks(2)))
    league.restart("c1.r1")
    league.run(5 * SECOND)
    assert sorted(attempt for _, attempt in league.live) == [1, 1]
    league.end(number)
    assert league.over[number] is Outcome.SUCCEEDED


def test_when_an_estates_lease_lapses_its_movable_tasks_are_ended_and_the_others_go_on() -> None:
    league = Wired({"c1": (node(),)})
    moving = league.submit(job(tasks(1), unreachable=UnreachablePolicy.MOVE))
    staying = league.submit(job(tasks(1), unreachable=UnreachablePolicy.WAIT))
    league.deaf["b1"] = True
    league.run(29 * SECOND)
    assert league.running(moving)
    league.run(3 * SECOND)
    assert not league.running(moving)
    assert league.running(staying)
    assert league.marks("c1")["warden.estate_lapsed"] == 1


def test_a_claim_of_a_round_that_is_over_is_refused() -> None:
    league = Wired({"c1": (node(),)})
    kept: list[Envelope] = []
    league.loses = lambda envelope: bool(
        isinstance(envelope.body, Claim) and (kept.append(envelope) or True)  # type: ignore[func-returns-value]
    )
    league.submit(job(tasks(1)))
    league.loses = lambda envelope: isinstance(envelope.body, Claim | HeartbeatReply)
    league.run(40 * SECOND)
    league.loses = lambda _: False
    league.hand_over(kept[0])
    assert league.marks("c1")["warden.refused_stale_round"] == 1
    assert not league.live
    league.run(20 * SECOND)
    assert len(league.live) == 1


def test_an_accepted_task_that_never_starts_is_withdrawn_and_the_standing_falls() -> None:
    league = Wired({"c1": (node(),), "c2": (node(),)})
    league.loses = lambda envelope: isinstance(envelope.body, RunnerOrders) and bool(envelope.body.starts)
    number = league.submit(job(tasks(1)))
    league.run(16 * SECOND)
    assert league.marks("b1")["broker.withdrew_unstarted"] == 1
    standings = [view.state.standing for view in league.machines["b1"]._context.views]  # type: ignore[attr-defined]
    assert min(standings) < 1_000 == max(standings)
    league.loses = lambda _: False
    league.run(MINUTE)
    assert len(league.running(number)) == 1


def test_a_cluster_that_nobody_can_reach_loses_its_movable_tasks_to_others() -> None:
    league = Wired({"c1": (node(),), "c2": (node(),)})
    number = league.submit(job(tasks(1)))
    ((home, _),) = league.running(number).values()
    other = "c2" if home == "c1" else "c1"
    league.loses = lambda envelope: {envelope.source, envelope.target} == {"b1", home}
    league.run(40 * SECOND)
    assert not league.running(number)  # its watchdog was told to end it
    league.run(20 * SECOND)
    assert league.running(number) == {0: (other, 0)}
    assert league.marks("b1")["broker.gave_cluster_up"] == 1
