"""A takeover and what crosses it: late answers, ends in the middle, bids that are given up."""

from hanse.model.effects import JobAccepted
from hanse.model.events import JobSubmitted
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import (
    AbortTakeover,
    AckEnds,
    Claim,
    Outcome,
    OwnershipReply,
    RequestTakeover,
)
from tests.core.crossings.harness import Crossings, Kept
from tests.core.wired import job, node, tasks


def home_of(league: Crossings, number: JobId, index: int = 0) -> str:
    return league.running(number)[index][0]


def other_than(cluster: str) -> str:
    return "c2" if cluster == "c1" else "c1"


def half_taken() -> tuple[Crossings, JobId, str, Kept]:
    """b1 is dead; the warden of its job has agreed to b2, the other's answer is on its way."""
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    home = home_of(league, number)
    answer = league.keep(OwnershipReply, other_than(home), "b2")
    league.dies("b1")
    league.run(10 * SECOND)
    assert answer
    assert league.owners(number) == []
    return league, number, home, answer


# --- bids -------------------------------------------------------------------------------------------------


def test_a_takeover_waits_for_the_last_warden() -> None:
    league, number, _, answer = half_taken()
    league.run(10 * SECOND)
    assert league.owners(number) == []
    answer.arrives()
    assert league.owners(number) == ["b2"]
    league.rest()
    assert league.attempts(number) == [1]


def test_an_end_in_the_middle_of_a_takeover_is_not_lost() -> None:
    league, number, _, answer = half_taken()
    league.end(number)
    league.run(5 * SECOND)
    assert not league.bodies(AckEnds)
    answer.arrives()
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    league.rest()
    assert league.attempts(number) == [1]


def test_an_end_in_a_takeover_that_is_given_up_reaches_the_owner() -> None:
    league, number, _, answer = half_taken()
    league.end(number)
    league.returns("b1")
    answer.arrives()
    league.run(20 * SECOND)
    assert league.owners(number) in ([], ["b1"])
    assert league.over[number] is Outcome.SUCCEEDED
    league.rest()
    assert league.attempts(number) == [1]


def test_an_answer_to_an_earlier_bid_counts_for_nothing() -> None:
    league, number, home, answer = half_taken()
    league.returns("b1")
    league.run(10 * SECOND)
    assert league.marks("b2")["broker.adoption_abandoned"] == 1
    league.dies("b1")
    again = league.keep(RequestTakeover, "b2", other_than(home))
    league.run(10 * SECOND)
    assert again
    answer.arrives()
    league.run(SECOND)
    assert league.owners(number) == []
    league.rest()
    assert league.attempts(number) == [1]


def test_agreement_to_an_earlier_bid_counts_for_nothing() -> None:
    league, number, home, answer = half_taken()
    league.returns("b1")
    league.run(10 * SECOND)
    assert league.marks("b2")["broker.adoption_abandoned"] == 1
    answer.is_lost()
    league.dies("b1")
    again = league.keep(RequestTakeover, "b2", home)
    league.run(12 * SECOND)
    assert again
    assert league.owners(number) == []
    league.rest()


def test_what_was_reported_to_an_earlier_bid_counts_for_nothing() -> None:
    """The attempt that c1 reported to the first bid is over and forgotten when the second one succeeds."""
    league, number, home, answer = half_taken()
    league.returns("b1")
    answer.is_lost()
    league.run(10 * SECOND)
    assert league.owners(number) == ["b1"]
    league.drain("c1")
    league.drain("c2")
    league.end(number, outcome=Outcome.LOST)
    league.run(3 * SECOND)
    assert home in [target for _, target, body in league.said if isinstance(body, AckEnds)]
    league.dies("b1")
    league.drain("c1", closed=False)
    league.drain("c2", closed=False)
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    assert len(league.running(number)) == 1
    league.rest()


def test_an_owner_that_lives_is_given_back_what_half_a_takeover_had_taken() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    home = home_of(league, number)
    league.keep(RequestTakeover, "b2", other_than(home))
    deaf = league.cut("b1", "b2")
    league.run(10 * SECOND)
    assert league.marks("b2")["broker.adoption_begun"] == 1
    deaf.is_lost()
    league.run(10 * SECOND)
    later = league.submit(job(tasks(1), clusters_allowed=(home,)), "b1")
    assert league.running(later)
    league.end(number)
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    league.rest()


def test_an_owner_whose_heir_died_in_half_a_takeover_is_let_in_again() -> None:
    """One warden has agreed to b2, which dies and gives nothing back. b1 names another heir, and proves with
    the other warden's word that b2's bid can never succeed."""
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    home = home_of(league, number)
    unheard = league.keep(source="b1", target="b2")
    half = league.keep(RequestTakeover, "b2", other_than(home))
    while not half:
        league.run(SECOND // 2)
    league.dies("b2")
    half.is_lost()
    unheard.is_lost()
    league.run(15 * SECOND)
    later = league.submit(job(tasks(1), clusters_allowed=(home,)), "b1")
    assert league.running(later)
    league.end(number)
    league.run(2 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    league.rest()


def test_a_late_return_of_a_bid_does_not_undo_a_later_takeover() -> None:
    league, number, _, answer = half_taken()
    given_up = league.keep(AbortTakeover, "b2")
    league.returns("b1")
    league.run(4 * SECOND)
    assert given_up
    league.dies("b1")
    answer.is_lost()
    league.run(6 * SECOND)
    given_up.arrives(times=2, backwards=True)
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    later = league.submit(job(tasks(1)), "b2")
    assert league.running(later)
    league.rest()
    assert league.attempts(number) == [1]


def test_a_bid_that_arrives_twice_is_one_takeover() -> None:
    league = Crossings()
    number = league.submit(job(tasks(2)), "b1")
    bid = league.keep(RequestTakeover, "b2")
    league.dies("b1")
    league.run(8 * SECOND)
    bid.arrives(times=3, backwards=True)
    league.run(5 * SECOND)
    assert league.owners(number) == ["b2"]
    league.repeat(RequestTakeover, "b2", "c1")
    league.rest()
    assert league.attempts(number, 0) == league.attempts(number, 1) == [1]


def test_an_heir_that_dies_in_the_middle_of_a_takeover_completes_it_when_it_returns() -> None:
    league, number, _, answer = half_taken()
    league.dies("b2")
    answer.is_lost()
    league.end(number)
    league.run(10 * SECOND)
    league.returns("b2")
    league.run(20 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    league.rest()
    assert league.attempts(number) == [1]


def test_a_warden_that_restarts_in_the_middle_of_a_takeover_stands_by_its_answer() -> None:
    league, number, home, answer = half_taken()
    league.dies(home)
    league.returns(home)
    answer.arrives()
    league.run(5 * SECOND)
    assert league.owners(number) == ["b2"]
    league.returns("b1")
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    league.rest()
    assert league.attempts(number) == [1]


# --- what is taken over -----------------------------------------------------------------------------------


def test_the_latest_attempt_that_any_warden_knows_is_the_one_taken_over() -> None:
    """Attempt 1 was lost in one cluster, which has not been told to forget it; attempt 2 runs in the
    other."""
    league = Crossings(clusters={"c1": (node(1_000),), "c2": (node(1_000),)})
    number = league.submit(job(tasks(1)), "b1")
    first = home_of(league, number)
    full = league.submit(job(tasks(1)), "b1")
    settled = league.keep(AckEnds | Claim, "b1", first)
    league.drain(first)
    league.end(number, outcome=Outcome.LOST)
    league.end(full)
    league.run(5 * SECOND)
    assert home_of(league, number) == other_than(first)
    league.dies("b1")
    settled.is_lost()
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    assert league.attempts(number) == [1, 2]
    league.end(number)
    league.run(10 * SECOND)
    assert league.settled[next(iter(league.launched))[0]] == (2, Outcome.SUCCEEDED)
    league.drain(first, closed=False)
    league.rest()


def test_an_adopter_never_uses_an_attempt_number_again() -> None:
    """Attempt 1 is the only one that a warden remembers; attempt 2 was lost elsewhere and is forgotten."""
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    first = home_of(league, number)
    forget = league.keep(AckEnds, "b1", first)
    league.drain(first)
    claims = league.keep(Claim, "b1", first)
    league.end(number, outcome=Outcome.LOST)
    league.run(5 * SECOND)
    assert league.attempts(number) == [1, 2]
    league.drain(other_than(first))
    league.end(number, outcome=Outcome.LOST)
    league.run(3 * SECOND)
    assert other_than(first) in [target for _, target, body in league.said if isinstance(body, AckEnds)]
    league.dies("b1")
    for kept in (forget, claims):
        kept.is_lost()
    league.drain("c1", closed=False)
    league.drain("c2", closed=False)
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    assert len(league.attempts(number)) == 3
    league.rest()


def test_a_claim_of_the_former_owner_that_arrives_after_the_takeover_starts_nothing() -> None:
    league = Crossings()
    league.submit(job(tasks(1)), "b1")
    claims = league.keep(Claim, "b1")
    number = league.submit(job(tasks(1)), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    before = league.attempts(number)
    assert len(before) == 1
    claims.arrives()
    league.run(5 * SECOND)
    assert league.attempts(number) == before
    assert sum(league.marks(name).get("warden.refused_fenced", 0) for name in ("c1", "c2")) >= 1
    league.rest()


def test_an_end_that_the_heir_knew_and_nobody_was_told_is_made_known_by_the_adopter() -> None:
    league = Crossings()
    number = league.submit(job(tasks(2)), "b1")
    heard = league.keep_if(lambda one: one.source == "b2" and one.target == "b1")
    league.end(number, 0)
    league.run(2 * SECOND)
    assert league.outcome(number, 0) is None
    league.dies("b1")
    heard.is_lost()
    league.run(20 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    league.rest()


def test_a_deadline_counts_from_when_the_first_owner_took_the_job() -> None:
    league = Crossings()
    league.run(50 * SECOND)
    number = league.submit(job(tasks(1), deadline=40 * SECOND), "b1")
    league.run(20 * SECOND)
    league.dies("b1")
    league.run(15 * SECOND)
    assert league.owners(number) == ["b2"]
    assert number not in league.over
    league.run(6 * SECOND)
    assert league.over[number] is Outcome.CANCELLED
    league.rest()


def test_an_adopter_knows_the_submissions_that_it_adopted() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1), client_id="mine"), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    league.requests += 1
    league.give("b2", JobSubmitted(league.now, "me", league.requests, job(tasks(1), client_id="mine")))
    league.run(SECOND)
    reply = league.replies[league.requests]
    assert isinstance(reply, JobAccepted)
    assert reply.job == number
    league.rest()


def test_a_group_that_waited_for_another_is_released_by_the_adopter() -> None:
    league = Crossings()
    spec = job(tasks(1, name="first"), tasks(1, name="then", needs=("first",)))
    number = league.submit(spec, "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    assert list(league.running(number)) == [0]
    league.end(number)
    league.run(5 * SECOND)
    assert list(league.running(number)) == [1]
    league.rest()


def test_a_gang_that_lost_one_with_its_owner_starts_together_again() -> None:
    league = Crossings()
    number = league.submit(job(tasks(3), gang=True), "b1")
    assert len(league.running(number)) == 3
    claims = league.keep(Claim, "b1")
    league.dies("b1")
    league.exit(*next(iter(league.live)), outcome=Outcome.LOST)
    league.run(30 * SECOND)
    claims.is_lost()
    assert league.owners(number) == ["b2"]
    assert len(league.running(number)) == 3
    assert all(len(league.attempts(number, index)) == 2 for index in range(3))
    league.rest()
