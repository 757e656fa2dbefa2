"""A broker that dies in the middle of a takeover and is retired by force: the former owner goes on, if the
other can have done nothing with the shard."""

import pytest

from hanse.core.broker.broker import Broker
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import (
    Claim,
    Demand,
    Envelope,
    Outcome,
    OwnershipReply,
    OwnershipTransferred,
    RegisterStandby,
    ReplicateJobs,
    RequestTakeover,
)
from tests.core.crossings.changed_members import CLUSTERS, learn, retires, succeed
from tests.core.crossings.harness import THREE, Crossings, Kept
from tests.core.wired import job, tasks


def all_agreed(brokers: tuple[str, ...] = ("b1", "b2")) -> tuple[Crossings, JobId, JobId, Kept]:
    """b1 is dead with a job that runs and one that waits. Every warden has agreed that b2 takes them over; b2
    has not heard it."""
    league = Crossings(brokers)
    running = league.submit(job(tasks(8)), "b1")
    waiting = league.submit(job(tasks(2)), "b1")
    assert len(league.running(running)) == 8
    return league, running, waiting, agree(league)


def agree(league: Crossings) -> Kept:
    """b1 dies, and every warden agrees that b2 takes over; b2 has not heard it."""
    answers = league.keep(OwnershipReply, target="b2")
    league.dies("b1")
    while len({envelope.source for envelope in answers.envelopes}) < 2:
        league.run(SECOND)
    return answers


def test_a_returning_owner_takes_back_what_a_retired_broker_never_took() -> None:
    league, running, waiting, answers = all_agreed()
    league.dies("b2")
    answers.is_lost()
    retires(league, "b2", *CLUSTERS, "b1")
    league.run(10 * SECOND)
    assert league.owners(running) == league.owners(waiting) == ["b1"]
    assert league.marks("b1")["broker.reclaimed_estate"] == 1
    succeed(league, running, waiting)
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8
    assert league.machines["b1"].shards()[0] == ["b1#2"], "nothing is left"  # type: ignore[attr-defined]


def test_what_ended_while_nobody_owned_it_is_not_run_again() -> None:
    league, running, waiting, answers = all_agreed()
    league.dies("b2")
    answers.is_lost()
    league.end(running)
    league.run(3 * SECOND)
    retires(league, "b2", *CLUSTERS, "b1")
    succeed(league, running, waiting)
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8


def test_a_cancellation_of_what_was_given_away_ends() -> None:
    league, running, waiting, answers = all_agreed()
    league.dies("b2")
    answers.is_lost()
    retires(league, "b2", "b1")
    league.cancel(running, "b1")
    league.cancel(waiting, "b1")
    league.run(10 * SECOND)
    assert running not in league.over
    retires(league, "b2", *CLUSTERS)
    league.run(60 * SECOND)
    assert league.over == {running: Outcome.CANCELLED, waiting: Outcome.CANCELLED}


def test_another_standby_takes_over_what_was_taken_back() -> None:
    league, running, waiting, answers = all_agreed(THREE)
    league.dies("b2")
    answers.is_lost()
    retires(league, "b2", *CLUSTERS, "b1", "b3")
    league.run(10 * SECOND)
    league.dies("b1")
    succeed(league, running, waiting)
    assert league.owners(running) == []
    assert league.marks("b3")["broker.adopted_estate"] == 1


class Apart(Crossings):
    """A league in which nothing of b1 reaches c2, at first."""

    is_apart = True

    def hand_over(self, envelope: Envelope) -> None:
        """Lose what b1 sends to c2."""
        if not (self.is_apart and envelope.source == "b1" and envelope.target == "c2"):
            super().hand_over(envelope)


def test_a_warden_to_which_nobody_had_registered_keeps_nothing_from_being_taken_back() -> None:
    """Found by chaos (seed 2613 of 10,000): a cluster that had just joined learned of the shard from b2."""
    league = Apart()
    number = league.submit(job(tasks(4)), "b1")
    assert len(league.running(number)) == 4
    answers = agree(league)
    league.dies("b2")
    answers.is_lost()
    league.is_apart = False
    retires(league, "b2", *CLUSTERS, "b1")
    league.run(20 * SECOND)
    assert league.marks("b1")["broker.reclaimed_estate"] == 1
    succeed(league, number)
    assert [league.attempts(number, index) for index in range(4)] == [[1]] * 4


def test_who_alone_can_take_a_shard_back_must_not_retire() -> None:
    """Found by chaos (seed 1535 of 10,000): its new standby had every copy, and was refused everywhere."""
    league, running, waiting, answers = all_agreed(THREE)
    league.dies("b2")
    answers.is_lost()
    retires(league, "b2", "b1", "b3")
    league.run(20 * SECOND)
    owner = league.machines["b1"]
    assert isinstance(owner, Broker)
    assert owner.count_exposed() == 2
    retires(league, "b2", *CLUSTERS)
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.reclaimed_estate"] == 1
    assert owner.count_exposed() == 0
    league.dies("b1")
    succeed(league, running, waiting)


def test_nothing_is_taken_back_before_every_warden_knows_who_has_retired() -> None:
    """A warden that does not know it would still listen to the other."""
    league, running, _, answers = all_agreed()
    league.dies("b2")
    answers.is_lost()
    retires(league, "b2", "c1", "b1")
    league.run(30 * SECOND)
    assert "broker.reclaimed_estate" not in league.marks("b1")
    assert len(league.launched) == 8
    retires(league, "b2", "c2")
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.reclaimed_estate"] == 1
    succeed(league, running)


def test_who_lives_after_all_and_hears_that_all_agreed_does_nothing() -> None:
    league, running, waiting, answers = all_agreed()
    apart = league.keep(source="b2", target="b1")
    retires(league, "b2", *CLUSTERS, "b1")
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.reclaimed_estate"] == 1
    answers.arrives()
    league.run(20 * SECOND)
    assert league.marks("b2").get("broker.adopted_estate", 0) <= 1
    apart.is_lost()
    succeed(league, running, waiting)
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8


def test_nothing_is_taken_back_from_one_that_has_acted_somewhere() -> None:
    """b2 has registered with one warden, and may have ended and published there what it liked."""
    league, _, _, answers = all_agreed()
    unheard = league.keep(RegisterStandby | Claim | Demand, "b2", "c2")
    answers.arrives()
    league.run(SECOND)
    assert league.marks("b2")["broker.adopted_estate"] == 1
    league.dies("b2")
    unheard.is_lost()
    started = list(league.launched)
    retires(league, "b2", *CLUSTERS, "b1")
    league.run(60 * SECOND)
    assert "broker.reclaimed_estate" not in league.marks("b1")
    assert league.launched == started


@pytest.mark.parametrize("drained", [True, False])
def test_a_cluster_that_has_left_may_have_heard_of_the_other(drained: bool) -> None:
    """One that was drained when it left would have told another cluster of it."""
    league, running, _, answers = all_agreed()
    league.dies("b2", "c2", "c2.r1")
    answers.is_lost()
    gone = ("b2", "c2")
    learn(league, "c1", retired=("b2",))
    learn(league, "b1", retired=gone, drained=("c2",) if drained else ())
    league.run(20 * SECOND)
    assert league.marks("b1").get("broker.reclaimed_estate", 0) == drained
    assert (league.over.get(running) is Outcome.CANCELLED) == (not drained), "it ends with a reason"


@pytest.mark.parametrize("first", ["b1", "b3"])
def test_a_standby_with_complete_copies_and_the_former_owner_do_not_both_act(first: str) -> None:
    """b2 had all agreements and has copied everything to b3, but no warden has heard of it."""
    league, running, waiting, answers = all_agreed(THREE)
    league.keep_if(
        lambda one: one.source == "b2" and not (one.target == "b3" and isinstance(one.body, ReplicateJobs))
    )
    answers.arrives()
    league.run(3 * SECOND)
    league.dies("b2")
    assert any(isinstance(body, ReplicateJobs) and target == "b3" for _, target, body in league.said)
    late = league.keep(OwnershipTransferred)
    if first == "b3":
        retires(league, "b2", *CLUSTERS, "b3")
        league.run(20 * SECOND)
        assert league.owners(running) == ["b3"]
        retires(league, "b2", "b1")
    else:
        league.dies("b3")
        retires(league, "b2", *CLUSTERS, "b1")
        league.run(20 * SECOND)
        assert league.owners(running) == ["b1"]
        retires(league, "b2", "b3")
    league.run(20 * SECOND)
    assert league.marks("b1").get("broker.reclaimed_estate", 0) == (first == "b1")
    late.is_lost()
    succeed(league, running, waiting)
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8


def test_copies_that_a_retired_broker_has_made_are_replaced() -> None:
    league, running, waiting, answers = all_agreed(THREE)
    league.keep_if(
        lambda one: one.source == "b2" and not (one.target == "b3" and isinstance(one.body, ReplicateJobs))
    )
    answers.arrives()
    league.run(3 * SECOND)
    league.dies("b2")
    bids = league.keep(RequestTakeover, "b3")
    retires(league, "b2", *CLUSTERS, "b3", "b1")
    league.run(10 * SECOND)
    assert league.owners(running) == ["b1"]
    league.end(running)
    league.run(5 * SECOND)
    bids.arrives()
    league.run(5 * SECOND)
    assert league.owners(waiting) == ["b1"]
    league.dies("b1")
    succeed(league, running, waiting)
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8


def test_a_shard_that_was_taken_back_ends_when_its_first_owner_returns() -> None:
    """Found by chaos (seed 104): b1 is told of the takeover by b2, whose shard has a higher term by now."""
    league = Crossings(THREE)
    number = league.submit(job(tasks(8)), "b1")
    league.dies("b1")
    league.run(15 * SECOND)
    assert league.owners(number) == ["b2"]
    answers = league.keep(OwnershipReply, target="b3")
    league.dies("b2")
    while len({envelope.source for envelope in answers.envelopes}) < 2:
        league.run(SECOND)
    league.dies("b3")
    answers.is_lost()
    retires(league, "b3", *CLUSTERS, "b2")
    league.run(10 * SECOND)
    assert league.marks("b2")["broker.reclaimed_estate"] == 1
    retires(league, "b3", "b1")
    succeed(league, number)
    assert [league.machines[name].shards()[0] for name in ("b1", "b2")] == [["b1#2"], ["b2#1"]]  # type: ignore[attr-defined]
    assert [league.attempts(number, index) for index in range(8)] == [[1]] * 8
