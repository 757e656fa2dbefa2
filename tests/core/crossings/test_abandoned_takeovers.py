"""A broker that dies in the middle of a takeover and is retired by force: the former owner goes on, if the
other can have done nothing with the shard."""

import msgspec
import pytest

from hanse.core.broker.broker import Broker
from hanse.core.machine import Machine
from hanse.core.warden.warden import Warden
from hanse.model.effects import RequestRejected
from hanse.model.events import CancelRequested
from hanse.model.ids import SECOND, JobId, job_of
from hanse.model.messages import (
    Claim,
    Demand,
    Outcome,
    OwnershipReply,
    OwnershipTransferred,
    RegisterStandby,
    ReplicateJobs,
    RequestTakeover,
)
from hanse.registry import NODE_RANKERS, make_policies
from tests.core.crossings.harness import THREE, Crossings, Kept
from tests.core.wired import Wired, job, tasks

CLUSTERS = ("c1", "c2")


def learn(league: Wired, *names: str, **changes: object) -> None:
    """Members start again with a newer version of the league file."""
    for name in names:
        machine = league.machines[name]
        config = msgspec.structs.replace(machine.config, **changes)  # type: ignore[attr-defined]

        def make(config: object = config, is_broker: bool = isinstance(machine, Broker)) -> Machine:
            if is_broker:
                return Broker(config, *make_policies("fifo", "best-fit", "rotate", "least"))  # type: ignore[arg-type]
            return Warden(config, NODE_RANKERS.get("first")())  # type: ignore[arg-type]

        league.makers[name] = make
        league.restart(name)
        if isinstance(league, Crossings):
            league.journals[name] = []


def all_agreed(brokers: tuple[str, ...] = ("b1", "b2")) -> tuple[Crossings, JobId, JobId, Kept]:
    """b1 is dead with a job that runs and one that waits. Every warden has agreed that b2 takes them over; b2
    has not heard it."""
    league = Crossings(brokers)
    running = league.submit(job(tasks(8)), "b1")
    waiting = league.submit(job(tasks(2)), "b1")
    assert len(league.running(running)) == 8
    answers = league.keep(OwnershipReply, target="b2")
    league.dies("b1")
    while len({envelope.source for envelope in answers.envelopes}) < 2:
        league.run(SECOND)
    return league, running, waiting, answers


def retires(league: Crossings, name: str, *others: str) -> None:
    """A dead broker is retired by force, and everybody else hears of it."""
    for each in others:
        learn(league, each, retired=(name,))


def succeed(league: Crossings, *jobs: JobId) -> None:
    """Whatever of these jobs runs succeeds, until they are over."""
    for _ in range(4):
        league.run(20 * SECOND)
        for task, attempt in list(league.live):
            league.exit(task, attempt)
    league.run(5 * SECOND)
    assert [league.over.get(number) for number in jobs] == [Outcome.SUCCEEDED] * len(jobs)


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


# --- taken over, used, and gone ---------------------------------------------------------------------------


class Slices(Crossings):
    """A league that ends cancelled jobs in small slices."""

    slice_tasks = 16


def used_and_gone(
    brokers: tuple[str, ...] = ("b1", "b2"), kind: type[Crossings] = Crossings
) -> tuple[Crossings, JobId, JobId]:
    """b2 has taken over from b1, which was not told, and has died; b1 is still away."""
    league = kind(brokers)
    running = league.submit(job(tasks(8)), "b1")
    waiting = league.submit(job(tasks(2)), "b1")
    untold = league.keep(OwnershipTransferred, "b2", "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(waiting) == ["b2"]
    league.dies("b2")
    untold.is_lost()
    return league, running, waiting


def why(league: Crossings, number: JobId) -> str:
    """The last thing that was said of a job."""
    return [one.reason for one in league.decisions if one.job == number][-1]


def test_what_nobody_else_knows_is_cancelled_with_the_reason() -> None:
    league, running, waiting = used_and_gone()
    started = list(league.launched)
    retires(league, "b2", *CLUSTERS, "b1")
    league.run(60 * SECOND)
    assert league.over == {running: Outcome.CANCELLED, waiting: Outcome.CANCELLED}
    assert "retired by force" in why(league, running)
    assert "retired by force" in why(league, waiting)
    assert league.launched == started
    assert league.owners(running) == league.owners(waiting) == []
    assert league.machines["b1"].shards()[0] == ["b1#2"]  # type: ignore[attr-defined]


def test_what_a_third_broker_has_is_its_own_and_ends_there() -> None:
    league, running, waiting = used_and_gone(THREE)
    retires(league, "b2", *CLUSTERS, "b3")
    league.run(20 * SECOND)
    assert league.owners(running) == ["b3"]
    retires(league, "b2", "b1")
    league.run(20 * SECOND)
    assert league.owners(running) == ["b1", "b3"], "it waits for the word of b3"
    succeed(league, running, waiting)
    league.run(10 * SECOND)
    assert league.owners(running) == league.owners(waiting) == []
    assert league.marks("b1")["broker.found_orphan"] == 2
    league.requests += 1
    league.give("b1", CancelRequested(league.now, "me", league.requests, running))
    reply = league.replies[league.requests]
    assert isinstance(reply, RequestRejected)
    assert "b3" in reply.reason
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8


def test_what_ended_at_the_retired_one_is_told_from_what_the_third_one_has() -> None:
    """b2 ends a job, and dies before the end is published; b3 was told to forget it."""
    league = Crossings(THREE)
    running = league.submit(job(tasks(8)), "b1")
    waiting = league.submit(job(tasks(2)), "b1")
    untold = league.keep(OwnershipTransferred, "b2", "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(running) == ["b2"]
    unheard = league.keep(source="b3", target="b2")
    league.end(running)
    league.run(SECOND)
    league.dies("b2")
    untold.is_lost()
    unheard.is_lost()
    league.run(SECOND)
    assert running not in league.over
    retires(league, "b2", *CLUSTERS, "b3", "b1")
    succeed(league, waiting)
    league.run(20 * SECOND)
    assert league.over[running] is Outcome.CANCELLED
    assert "retired by force" in why(league, running)
    assert [league.attempts(running, index) for index in range(8)] == [[1]] * 8
    assert league.owners(running) == league.owners(waiting) == []


def test_nothing_is_given_up_while_a_broker_has_not_answered() -> None:
    league, running, _ = used_and_gone(THREE)
    league.dies("b3")
    retires(league, "b2", *CLUSTERS, "b1")
    league.run(60 * SECOND)
    assert running not in league.over
    retires(league, "b2", "b3")
    succeed(league, running)


def test_a_job_that_was_cancelled_meanwhile_ends() -> None:
    league, running, waiting = used_and_gone()
    retires(league, "b2", "b1")
    league.cancel(running)
    league.cancel(waiting)
    retires(league, "b2", *CLUSTERS)
    league.run(60 * SECOND)
    assert league.over == {running: Outcome.CANCELLED, waiting: Outcome.CANCELLED}


def test_an_orphan_that_is_being_ended_does_not_start_when_its_new_shard_is_taken_over() -> None:
    """b1 ends it slice by slice, and b3, which takes over from b1, never got it."""
    league = Slices(THREE)
    many = league.submit(job(tasks(400)), "b1")
    untold = league.keep(OwnershipTransferred, "b2", "b1")
    copies = league.keep(ReplicateJobs, "b2", "b3")
    league.dies("b1")
    league.run(20 * SECOND)
    league.dies("b2")
    untold.is_lost()
    copies.is_lost()
    retires(league, "b2", *CLUSTERS, "b3", "b1")
    league.run(SECOND // 2)
    other = league.hand_in(job(tasks(1)), "b1")
    while other not in league.replies and league.now < 60 * SECOND:
        league.run(SECOND // 100)
    assert "broker.ended_orphan" not in league.marks("b1")
    copies = league.keep_if(lambda one: isinstance(one.body, ReplicateJobs) and one.body.shard == "b1#2")
    for _ in range(3_000):
        if "broker.ended_orphan" in league.marks("b1"):
            break
        league.run(SECOND // 100)
    started = [task for task, _ in league.launched if job_of(task) == many]
    assert league.owners(many) == ["b1"], "it takes many slices"
    league.dies("b1")
    copies.is_lost()
    league.run(20 * SECOND)
    league.restart("b1")
    succeed(league)
    assert league.over[many] is Outcome.CANCELLED
    assert [task for task, _ in league.launched if job_of(task) == many] == started
