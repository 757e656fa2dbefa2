"""Owners one after the other: what a former one still says must not harm what a later one has."""

from hanse.model.effects import JobAccepted
from hanse.model.ids import SECOND, job_id
from hanse.model.messages import (
    Ack,
    Gossip,
    Outcome,
    OwnershipTransferred,
    RegisterStandby,
    ReplicateJobs,
    ReplicaUpdate,
    RequestTakeover,
    TaskUpdates,
)
from hanse.model.messages.shard_teardown import DropReplicas
from tests.core.crossings.harness import THREE, Crossings
from tests.core.wired import job, tasks


def test_what_a_former_owner_said_last_does_not_make_the_next_heir_forget_a_job() -> None:
    """b1 names b3 its heir, which no warden hears of. It counts the second failure as the last, tells b3 to
    forget the job, and dies before that arrives. b2 takes over with b3 for its heir, counts that failure as
    the first, and runs the job. When b2 dies as well b3 must have it."""
    league = Crossings(THREE)
    number = league.submit(job(tasks(1), retries=1), "b1")
    league.end(number, outcome=Outcome.FAILED)
    assert league.attempts(number) == [1, 2]
    away = league.cut("b2", "b1", "b3")
    named, bid = league.keep(RegisterStandby, "b1"), league.keep(RequestTakeover, "b2")
    league.run(8 * SECOND)
    assert league.marks("b1")["broker.changed_heir"] == 1
    late = league.keep(ReplicaUpdate, "b1", "b3")
    league.end(number, outcome=Outcome.FAILED)
    league.run(SECOND)
    assert late
    assert number not in league.over
    league.dies("b1")
    named.is_lost()
    bid.arrives()
    away.is_lost()
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    assert len(league.running(number)) == 1
    late.arrives()
    league.run(2 * SECOND)
    league.dies("b2")
    league.run(30 * SECOND)
    assert league.owners(number) == ["b3"]
    league.rest()


def test_a_former_owners_late_copy_brings_back_nothing_that_its_successor_has_finished() -> None:
    league = Crossings(THREE)
    gone, stays = league.submit(job(tasks(1)), "b1"), league.submit(job(tasks(1)), "b1")
    away = league.cut("b2", "b1", "b3")
    named = league.keep(RegisterStandby, "b1")
    late = league.keep_if(lambda one: one.source == "b1" and one.target == "b3" and _sequenced(one.body))
    league.run(8 * SECOND)
    assert late
    league.dies("b1")
    away.is_lost()
    named.is_lost()
    league.run(20 * SECOND)
    assert league.owners(gone) == ["b2"]
    league.end(gone)
    league.run(5 * SECOND)
    assert league.over[gone] is Outcome.SUCCEEDED
    late.arrives()
    league.dies("b2")
    league.run(30 * SECOND)
    assert league.owners(stays) == ["b3"]
    assert league.owners(gone) == []
    league.rest()
    assert league.attempts(gone) == [1]


def _sequenced(body: object) -> bool:
    return not isinstance(body, Gossip | Ack)


def test_a_former_owner_that_lets_go_does_not_take_its_successors_copies_along() -> None:
    league = Crossings(THREE)
    number = league.submit(job(tasks(1)), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    over = league.keep(DropReplicas, "b1", "b3")
    league.returns("b1")
    league.run(5 * SECOND)
    assert over
    over.arrives()
    league.run(SECOND)
    league.dies("b2", "b1")
    league.run(30 * SECOND)
    assert league.owners(number) == ["b3"]
    league.rest()
    assert league.attempts(number) == [1]


def test_three_owners_in_turn_finish_a_job_once() -> None:
    league = Crossings(THREE)
    number = league.submit(job(tasks(3)), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    league.end(number, 0)
    league.run(2 * SECOND)
    league.dies("b2")
    league.run(30 * SECOND)
    assert league.owners(number) == ["b3"]
    league.end(number, 1)
    league.run(2 * SECOND)
    league.returns("b1", "b2")
    league.run(20 * SECOND)
    league.end(number, 2)
    league.run(10 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    assert [league.attempts(number, index) for index in range(3)] == [[1], [1], [1]]
    league.rest()


def test_a_success_that_its_adopter_knows_is_not_forgotten_for_the_former_owner() -> None:
    """The warden's word of the end to b1 was on its way when b2 took over and heard of it too. b1, back,
    hears it late and must not have it forgotten: b2 has not told its own heir yet."""
    league = Crossings(THREE)
    number = league.submit(job(tasks(1)), "b1")
    news = league.keep(TaskUpdates, target="b1")
    league.dies("b1")
    league.end(number)
    told = league.keep(ReplicaUpdate, "b2", "b3")
    while not told:
        league.run(SECOND // 10)
    assert number not in league.over
    league.returns("b1")
    while not league.marks("b1").get("broker.estate_taken"):
        league.run(SECOND // 10)
    news.arrives()
    league.run(2 * SECOND)
    league.dies("b1", "b2")
    told.is_lost()
    league.run(30 * SECOND)
    league.rest()
    assert league.attempts(number) == [1]


def test_an_owner_that_was_replaced_makes_nothing_known_on_a_bare_acknowledgement() -> None:
    """b2 has taken over and b1 has not heard of it. b1 hears of the second failure, the last one that it
    allows, and tells b2, which acknowledges what it has no use for."""
    league = Crossings()
    number = league.submit(job(tasks(1), retries=1), "b1")
    league.end(number, outcome=Outcome.FAILED)
    assert league.attempts(number) == [1, 2]
    unheard = league.keep(source="b1", target="b2")
    news = league.keep(TaskUpdates, target="b1")
    taken = league.keep(OwnershipTransferred, "b2")
    league.end(number, outcome=Outcome.FAILED)
    league.run(10 * SECOND)
    assert league.owners(number) == ["b1", "b2"]
    unheard.is_lost()
    news.arrives()
    league.run(SECOND)
    league.hand_in(job(tasks(1)), "b1")
    league.run(4 * SECOND)
    assert taken
    assert number not in league.over
    taken.arrives()
    league.run(5 * SECOND)
    assert league.owners(number) == ["b2"]
    league.rest()


def test_copies_of_a_replaced_owner_are_acknowledged_to_no_submitter() -> None:
    league = Crossings()
    league.submit(job(tasks(1)), "b1")
    unheard = league.keep(source="b1", target="b2")
    taken = league.keep(OwnershipTransferred, "b2")
    league.run(10 * SECOND)
    assert taken
    unheard.is_lost()
    request = league.hand_in(job(tasks(1)), "b1")
    league.run(4 * SECOND)
    assert league.bodies(ReplicateJobs)[-1].jobs
    assert request not in league.replies
    league.dies("b1")
    league.run(10 * SECOND)
    assert league.owners(job_id(1, 1)) == []  # the adopter has no use for the late copy
    league.returns("b1")
    taken.arrives()
    league.run(10 * SECOND)
    assert isinstance(league.replies[request], JobAccepted)
    league.rest()
