"""An owner that was away comes back: what it lets go, what it keeps, and what it answers."""

from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.events import CancelRequested
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import Claim, JobEnded, Outcome, OwnershipTransferred, RegisterStandby
from tests.core.crossings.harness import THREE, Crossings
from tests.core.wired import job, tasks


def taken_over(brokers: tuple[str, ...] = ("b1", "b2")) -> tuple[Crossings, JobId]:
    """b1 has died with a job running, and b2 has it."""
    league = Crossings(brokers)
    number = league.submit(job(tasks(2)), "b1")
    league.dies("b1")
    league.run(15 * SECOND)
    assert league.owners(number) == ["b2"]
    return league, number


def test_a_returning_owner_lets_go_of_what_was_taken_and_serves_new_jobs() -> None:
    league, number = taken_over()
    league.returns("b1")
    league.run(10 * SECOND)
    assert league.owners(number) == ["b2"]
    later = league.submit(job(tasks(1)), "b1")
    assert league.owners(later) == ["b1"]
    assert league.running(later)
    league.rest()
    assert league.attempts(number, 0) == league.attempts(number, 1) == [1]


def test_an_owner_that_has_not_heard_of_the_takeover_starts_nothing_of_what_was_taken() -> None:
    league = Crossings()
    blocker = league.submit(job(tasks(8)), "b1")
    number = league.submit(job(tasks(2)), "b1")
    assert not league.running(number)
    league.dies("b1")
    league.run(15 * SECOND)
    taken = league.keep(OwnershipTransferred, "b2")
    league.returns("b1")
    league.end(blocker)
    league.run(10 * SECOND)
    assert len(league.attempts(number)) == 1
    assert min(league.attempts(number)) > 1 << 16  # the adopter's
    taken.arrives()
    league.rest()


def test_a_takeover_told_many_times_is_let_go_once() -> None:
    league, number = taken_over()
    taken = league.keep(OwnershipTransferred, "b2")
    league.returns("b1")
    league.run(3 * SECOND)
    taken.arrives(times=3)
    league.run(3 * SECOND)
    later = league.submit(job(tasks(1)), "b1")
    league.repeat(OwnershipTransferred, "b2", "b1")
    league.run(3 * SECOND)
    assert league.owners(later) == ["b1"]
    assert league.owners(number) == ["b2"]
    league.rest()


def test_the_submitter_is_answered_when_only_the_adopter_can_know_that_the_copy_arrived() -> None:
    league = Crossings()
    league.submit(job(tasks(1)), "b1")
    heard = league.keep(source="b2", target="b1")
    request = league.hand_in(job(tasks(1)), "b1")
    league.run(SECOND)
    assert request not in league.replies
    league.dies("b1")
    heard.is_lost()
    league.run(20 * SECOND)
    league.returns("b1")
    league.run(10 * SECOND)
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    assert league.owners(reply.job) == ["b2"]
    league.rest()


def test_an_end_that_the_heir_was_told_to_forget_is_made_known_by_the_returning_owner() -> None:
    """The heir has dropped the job that ended, so it takes over the other one only, and will never speak of
    the first. The owner died before it heard that the heir knew."""
    league = Crossings()
    ended, other = league.submit(job(tasks(1)), "b1"), league.submit(job(tasks(1)), "b1")
    heard = league.keep(source="b2", target="b1")
    league.end(ended)
    league.run(SECOND)
    assert ended not in league.over
    league.dies("b1")
    heard.is_lost()
    league.run(20 * SECOND)
    assert league.owners(other) == ["b2"]
    assert ended not in league.over
    league.returns("b1")
    league.run(10 * SECOND)
    assert league.over[ended] is Outcome.SUCCEEDED
    league.rest()
    assert league.attempts(ended) == [1]


def test_an_owner_that_all_wardens_disown_takes_new_jobs_before_the_adopters_word_comes() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    apart = league.cut("b1", "b2")
    named = league.keep(RegisterStandby, "b1")
    league.run(10 * SECOND)
    assert league.owners(number) == ["b1", "b2"]
    named.arrives()
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.founded_anew"] == 1
    later = league.submit(job(tasks(1)), "b1")
    assert league.running(later)
    apart.is_lost()
    league.run(10 * SECOND)
    assert league.owners(number) == ["b2"]
    assert league.owners(later) == ["b1"]
    league.rest()
    assert league.attempts(number) == league.attempts(later) == [1]


def test_who_asks_the_former_owner_is_sent_to_the_adopter() -> None:
    league, number = taken_over()
    league.returns("b1")
    league.run(10 * SECOND)
    league.requests += 1
    league.give("b1", CancelRequested(league.now, "me", league.requests, number))
    reply = league.replies[league.requests]
    assert isinstance(reply, RequestRejected)
    assert "b2" in reply.reason
    league.rest()


def test_a_job_that_waits_for_one_that_was_taken_hears_of_its_end_from_the_adopter() -> None:
    league = Crossings(THREE)
    first = league.submit(job(tasks(1)), "b1")
    then = league.submit(job(tasks(1), after=(first,)), "b3")
    league.dies("b1")
    league.run(15 * SECOND)
    assert league.owners(first) == ["b2"]
    answers = league.keep(JobEnded)
    league.end(first)
    league.run(5 * SECOND)
    assert not league.running(then)
    answers.arrives(times=2, backwards=True)
    league.run(10 * SECOND)
    assert league.running(then)
    league.rest()


def test_the_answer_of_one_who_does_not_know_a_job_counts_only_for_the_question_it_answers() -> None:
    """b3 asks about b1's job; b2 does not know it and says so, late. Meanwhile b2 has adopted it."""
    league = Crossings(THREE)
    first = league.submit(job(tasks(1)), "b1")
    answers = league.keep(JobEnded)
    then = league.submit(job(tasks(1), after=(first,)), "b3")
    league.dies("b1")
    league.run(15 * SECOND)
    answers.arrives()
    league.run(5 * SECOND)
    assert then not in league.over
    league.end(first)
    league.run(15 * SECOND)
    assert league.running(then)
    league.rest()


def test_a_former_owner_with_jobs_of_its_own_keeps_them_when_the_adopter_dies_too() -> None:
    league, number = taken_over(THREE)
    league.returns("b1")
    league.run(10 * SECOND)
    own = league.submit(job(tasks(1)), "b1")
    league.dies("b2")
    league.run(30 * SECOND)
    assert league.owners(own) == ["b1"]
    assert league.owners(number) == ["b3"]
    league.rest()
    assert league.attempts(own) == [1]
    assert league.attempts(number) == [1]


def test_the_claims_of_a_returning_owner_for_new_jobs_are_not_fenced_with_the_old_ones() -> None:
    league, _ = taken_over()
    old = league.keep(Claim, "b1")
    league.returns("b1")
    league.run(10 * SECOND)
    request = league.hand_in(job(tasks(1)), "b1")
    league.run(SECOND)
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    old.arrives()
    league.run(SECOND)
    assert len(league.running(reply.job)) == 1
    league.rest()
