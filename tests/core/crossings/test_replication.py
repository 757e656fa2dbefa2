"""What an owner may say, and when: crossings of its messages to heir and wardens, and a change of heir."""

from hanse.core.broker.failover.replica_updates import REPLICATE_JOBS_MAX
from hanse.model.effects import JobAccepted
from hanse.model.ids import SECOND, JobId, job_id
from hanse.model.messages import (
    AckEnds,
    Outcome,
    RegisterStandby,
    ReplicateJobs,
    ReplicaUpdate,
    RequestTakeover,
    WatchJobs,
)
from tests.core.crossings.harness import THREE, Crossings, Kept
from tests.core.wired import job, node, tasks


def silence_heir(league: Crossings) -> Kept:
    """b2 is out of reach of the other brokers, and lives: the wardens go on hearing it."""
    return league.cut("b2", "b1", "b3")


def talk_to(league: Crossings, peer: str, number: JobId, times: int) -> None:
    """Let b1 have some sequenced messages on its link to a peer."""
    for _ in range(times):
        league.submit(job(tasks(1), after=(number,)), "b1")
    assert sum(isinstance(body, WatchJobs) for _, target, body in league.said if target == peer) >= times


# --- before the heir has it -------------------------------------------------------------------------------


def test_a_job_is_neither_acknowledged_nor_run_before_its_heir_has_it() -> None:
    league = Crossings()
    copy = league.keep(ReplicateJobs, "b1", "b2")
    request = league.hand_in(job(tasks(1)), "b1")
    league.run(4 * SECOND)
    assert request not in league.replies
    assert not league.live
    copy.arrives()
    league.run(SECOND)
    assert isinstance(league.replies[request], JobAccepted)
    assert league.live
    league.rest()


def test_an_owner_that_dies_unheard_returns_with_the_job_that_its_heir_never_got() -> None:
    league = Crossings()
    league.submit(job(tasks(1)), "b1")
    copy = league.keep(ReplicateJobs, "b1", "b2")
    request = league.hand_in(job(tasks(1)), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.marks("b2")["broker.adopted_estate"] == 1
    copy.arrives()
    league.returns("b1")
    league.run(20 * SECOND)
    assert isinstance(league.replies[request], JobAccepted)
    league.rest()
    assert len(league.acknowledged) == 2


def test_a_copy_that_arrives_many_times_makes_one_job() -> None:
    league = Crossings()
    copy = league.keep(ReplicateJobs, "b1", "b2")
    number = league.hand_in(job(tasks(2)), "b1")
    league.run(4 * SECOND)
    copy.arrives(times=3)
    league.run(SECOND)
    league.dies("b1")
    league.run(20 * SECOND)
    assert len(league.live) == 2
    league.rest()
    del number


def test_no_end_is_made_known_or_forgotten_before_the_heir_has_it() -> None:
    league = Crossings()
    number = league.submit(job(tasks(2)), "b1")
    told = league.keep(ReplicaUpdate, "b1", "b2")
    league.end(number, 0)
    league.run(4 * SECOND)
    assert league.outcome(number, 0) is None
    assert not league.bodies(AckEnds)
    told.arrives()
    league.run(SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    league.rest()


def test_a_job_cancelled_before_its_owner_died_is_not_run_by_the_heir() -> None:
    league = Crossings()
    running = league.submit(job(tasks(9)), "b1")
    league.stubborn = True
    league.cancel(running)
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(running) == ["b2"]
    started = len(league.launched)
    league.end(running, outcome=Outcome.CANCELLED)
    league.run(20 * SECOND)
    assert league.over[running] is Outcome.CANCELLED
    assert len(league.launched) == started
    league.rest()


def test_an_heir_keeps_no_copy_of_a_job_that_has_ended() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    league.end(number)
    league.run(2 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    assert league.machines["b2"].shards()[1] == []  # type: ignore[attr-defined]
    league.rest()


def test_what_ended_and_was_forgotten_by_its_warden_is_not_run_again_by_the_heir() -> None:
    league = Crossings()
    number = league.submit(job(tasks(3), retries=0), "b1")
    league.end(number, 0)
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(2 * SECOND)
    assert league.bodies(AckEnds)
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    league.rest()
    assert [league.outcome(number, index) for index in range(3)] == [
        Outcome.SUCCEEDED,
        Outcome.FAILED,
        Outcome.SUCCEEDED,
    ]
    assert league.attempts(number, 0) == league.attempts(number, 1) == [1]


# --- change of heir ---------------------------------------------------------------------------------------


def test_a_new_heir_gets_the_ends_that_the_old_one_knew() -> None:
    league = Crossings(THREE)
    number = league.submit(job(tasks(4)), "b1")
    league.end(number, 0)
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(2 * SECOND)
    silence_heir(league)
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    league.dies("b1", "b2")
    league.run(20 * SECOND)
    assert league.owners(number) == ["b3"]
    league.rest()
    assert league.attempts(number, 0) == league.attempts(number, 1) == [1]


def test_a_job_in_waiting_is_acknowledged_only_when_the_new_heir_has_it() -> None:
    league = Crossings(THREE)
    other = league.submit(job(tasks(1)), "b3")
    talk_to(league, "b3", other, 4)
    copy = league.keep(ReplicateJobs, "b1", "b3")
    league.dies("b2")
    request = league.hand_in(job(tasks(1)), "b1")
    league.run(9 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    assert request not in league.replies
    copy.arrives()
    league.run(9 * SECOND)
    assert isinstance(league.replies[request], JobAccepted)
    league.rest()


def test_an_end_in_waiting_is_made_known_only_when_the_new_heir_has_it() -> None:
    league = Crossings(THREE)
    other = league.submit(job(tasks(1)), "b3")
    talk_to(league, "b3", other, 4)
    number = league.submit(job(tasks(2)), "b1")
    copy = league.keep(ReplicateJobs, "b1", "b3")
    league.dies("b2")
    league.end(number, 0)
    league.run(9 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    assert league.outcome(number, 0) is None
    assert not league.bodies(AckEnds)
    copy.arrives()
    league.run(4 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    assert league.bodies(AckEnds)
    league.rest()


def test_an_end_on_its_way_to_the_old_heir_is_made_known_when_the_new_one_has_it() -> None:
    """The link to b2 has carried more messages than the one to b3: their numbers are unrelated."""
    league = Crossings(THREE)
    talk_to(league, "b2", league.submit(job(tasks(1)), "b2"), 12)
    number = league.submit(job(tasks(2)), "b1")
    update = league.keep(ReplicaUpdate, "b1", "b2")
    league.end(number, 0)
    league.run(SECOND)
    assert update
    league.dies("b2")
    league.run(9 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    update.is_lost()
    league.rest()


def test_nothing_is_made_known_while_every_warden_takes_the_old_heir_for_the_heir() -> None:
    """b1 names b3 its heir, and no warden has heard of it. b3 knows of the end, b2 does not; and it is b2
    that the wardens will agree with when b1 dies."""
    league = Crossings(THREE)
    number = league.submit(job(tasks(2)), "b1")
    away = silence_heir(league)
    named, bid = league.keep(RegisterStandby, "b1"), league.keep(RequestTakeover, "b2")
    league.run(8 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    league.end(number, 0)
    league.run(SECOND)
    assert league.bodies(ReplicaUpdate)
    assert league.outcome(number, 0) is None
    assert not league.bodies(AckEnds)
    league.dies("b1")
    named.is_lost()
    bid.arrives()
    league.run(5 * SECOND)
    assert league.owners(number) == ["b2"]
    away.arrives()
    league.rest()
    assert league.attempts(number, 0) == [1]


def test_an_old_heir_with_an_outdated_copy_takes_nothing_over() -> None:
    league = Crossings(THREE)
    number = league.submit(job(tasks(3)), "b1")
    away = silence_heir(league)
    league.run(8 * SECOND)
    league.end(number, 0)
    league.run(2 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    late = league.submit(job(tasks(1)), "b1")
    league.dies("b1", "b3")
    away.is_lost()
    league.run(30 * SECOND)
    assert league.owners(number) == league.owners(late) == []
    assert not league.marks("b2").get("broker.adopted_estate")
    league.returns("b3")
    league.run(30 * SECOND)
    assert league.owners(number) == league.owners(late) == ["b3"]
    league.rest()


def halfway() -> tuple[Crossings, list[JobId], Kept]:
    """b1 has more jobs than one message holds. It names b3 its heir, which has got the first part of them."""
    league = Crossings(THREE, {"c1": (node(100_000),), "c2": (node(100_000),)})
    numbers = [league.submit(job(tasks(1)), "b1") for _ in range(REPLICATE_JOBS_MAX + 2)]
    rest = league.keep_if(
        lambda one: one.target == "b3" and isinstance(one.body, ReplicateJobs) and len(one.body.jobs) == 2
    )
    return league, numbers, rest


def test_an_heir_with_half_of_the_jobs_takes_nothing_over() -> None:
    """It would leave the other half to b1, which starts anew what still runs when it returns."""
    league, numbers, rest = halfway()
    league.dies("b2")
    league.run(8 * SECOND)
    assert rest
    league.dies("b1")
    league.run(15 * SECOND)
    assert not league.marks("b3").get("broker.adoption_begun")
    league.returns("b1")
    league.run(15 * SECOND)
    assert league.owners(numbers[0]) == league.owners(numbers[-1]) == ["b1"]
    rest.arrives()
    league.run(SECOND)
    league.dies("b1")
    league.run(15 * SECOND)
    assert league.owners(numbers[0]) == league.owners(numbers[-1]) == ["b3"]
    league.rest()
    assert all(league.attempts(number) == [1] for number in numbers)


def test_the_old_heir_takes_over_while_the_new_one_has_half_of_the_jobs() -> None:
    league, numbers, rest = halfway()
    away = silence_heir(league)
    bid = league.keep(RequestTakeover, "b2")
    league.run(8 * SECOND)
    assert rest
    league.dies("b1")
    bid.arrives()
    league.run(10 * SECOND)
    assert league.owners(numbers[0]) == league.owners(numbers[-1]) == ["b2"]
    rest.is_lost()
    away.is_lost()
    league.returns("b1")
    league.run(15 * SECOND)
    assert league.owners(numbers[0]) == league.owners(numbers[-1]) == ["b2"]
    league.rest()
    assert all(league.attempts(number) == [1] for number in numbers)


def test_an_heir_that_becomes_heir_again_does_not_revive_what_ended_meanwhile() -> None:
    league = Crossings(THREE)
    gone, stays = league.submit(job(tasks(1)), "b1"), league.submit(job(tasks(1)), "b1")
    away = silence_heir(league)
    league.run(8 * SECOND)
    league.end(gone)
    league.run(2 * SECOND)
    assert league.over[gone] is Outcome.SUCCEEDED
    away.is_lost()
    league.dies("b3")
    league.run(20 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 2
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(stays) == ["b2"]
    assert league.owners(gone) == []
    league.rest()
    assert league.attempts(gone) == [1]


def test_a_deadline_counts_from_the_submission_also_for_a_later_heir() -> None:
    league = Crossings(THREE)
    league.run(50 * SECOND)
    number = league.submit(job(tasks(1), deadline=40 * SECOND), "b1")
    league.run(9 * SECOND)
    league.dies("b2")
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    league.dies("b1")
    league.run(15 * SECOND)
    assert league.owners(number) == ["b3"]
    league.run(6 * SECOND)
    assert league.over[number] is Outcome.CANCELLED
    league.rest()


def test_an_owner_without_any_heir_left_goes_on_alone() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    league.dies("b2")
    league.end(number)
    league.run(10 * SECOND)
    assert league.outcome(number) is Outcome.SUCCEEDED
    alone = league.submit(job(tasks(1)), "b1")
    assert league.running(alone)
    league.returns("b2")
    league.run(10 * SECOND)
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(alone) == ["b2"]
    league.rest()


def test_a_crash_between_the_journal_and_the_wire_loses_nothing() -> None:
    league = Crossings()
    request = league.hand_in(job(tasks(1)), "b1")
    league.dies("b1", unsaid=True)
    league.run(2 * SECOND)
    league.returns("b1")
    league.run(4 * SECOND)
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    assert reply.job == job_id(1, 0)
    league.rest()
