"""Questions about jobs that a retired broker had taken over: nobody may wait for its word."""

from hanse.model.ids import SECOND, JobId
from hanse.model.messages import Outcome, OwnershipTransferred, ReplicateJobs
from tests.core.crossings.changed_members import CLUSTERS, learn, retires
from tests.core.crossings.harness import THREE, Crossings
from tests.core.wired import job, tasks


def taken_over(brokers: tuple[str, ...] = THREE) -> tuple[Crossings, JobId]:
    """b2 has taken a running job over from b1, which has returned and knows it."""
    league = Crossings(brokers)
    first = league.submit(job(tasks(1)), "b1")
    league.dies("b1")
    league.run(20 * SECOND)
    league.returns("b1")
    league.run(10 * SECOND)
    assert league.owners(first) == ["b2"]
    return league, first


def test_a_job_does_not_wait_for_ends_that_only_a_retired_broker_knew() -> None:
    """Found by chaos: who had given the job to the retired broker left the answer to that one for ever."""
    league, first = taken_over()
    other = league.submit(job(tasks(1)), "b3")
    then = league.submit(job(tasks(1), after=(first, other)), "b2")
    league.run(5 * SECOND)
    league.end(first)
    league.run(10 * SECOND)
    assert league.over[first] is Outcome.SUCCEEDED
    league.dies("b2")
    retires(league, "b2", *CLUSTERS, "b1", "b3")
    league.run(30 * SECOND)
    assert league.marks("b3")["broker.dependency_unknown"] == 1
    assert league.over[then] is Outcome.CANCELLED
    league.end(other)
    league.run(10 * SECOND)
    assert league.over[other] is Outcome.SUCCEEDED


def test_a_job_waits_for_one_that_was_taken_over_again() -> None:
    """Who has given it to a retired broker does not know it; who has a copy of it does."""
    league, first = taken_over()
    then = league.submit(job(tasks(1), after=(first,)), "b2")
    league.run(5 * SECOND)
    league.dies("b2")
    retires(league, "b2", *CLUSTERS, "b1", "b3")
    league.run(30 * SECOND)
    assert first not in league.over
    assert then not in league.over
    league.end(first)
    league.run(10 * SECOND)
    league.end(then)
    league.run(10 * SECOND)
    assert league.over == {first: Outcome.SUCCEEDED, then: Outcome.SUCCEEDED}


def test_a_job_waits_for_one_that_is_about_to_be_taken_over_here() -> None:
    """All others say that they do not know it, and nobody owns it: the one who asks has the only copy."""
    league, first = taken_over()
    home = league.running(first)[0][0]
    other = "c2" if home == "c1" else "c1"
    then = league.submit(job(tasks(1), after=(first,)), "b3")
    league.run(5 * SECOND)
    league.dies("b2", other)
    retires(league, "b2", home, "b1", "b3")
    league.run(30 * SECOND)
    assert league.owners(first) == []
    assert then not in league.over
    retires(league, "b2", other)
    league.run(10 * SECOND)
    assert league.owners(first) == ["b3"]
    league.end(first)
    league.run(10 * SECOND)
    league.end(then)
    league.run(10 * SECOND)
    assert league.over == {first: Outcome.SUCCEEDED, then: Outcome.SUCCEEDED}


def test_nobody_says_that_a_job_is_unknown_while_a_copy_may_come() -> None:
    """A broker that has not heard of the retirement still listens to the retired broker."""
    league, first = taken_over((*THREE, "b4"))
    league.end(first)
    league.run(10 * SECOND)
    league.dies("b2")
    learn(league, *CLUSTERS, retired=("b2",))
    learn(league, "b1", "b3", retired=("b2",), version=1)
    then = league.submit(job(tasks(1), after=(first,)), "b3")
    league.run(30 * SECOND)
    assert then not in league.over
    learn(league, "b4", retired=("b2",), version=1)
    league.run(10 * SECOND)
    assert league.over[then] is Outcome.CANCELLED


def test_an_orphan_does_not_wait_for_the_word_of_its_own_standby() -> None:
    """The copy that b3 has is of b1, which asks; b2 retired by force, and all that it said was lost."""
    league = Crossings(THREE)
    first = league.submit(job(tasks(1)), "b1")
    unheard, copies = league.keep(OwnershipTransferred), league.keep(ReplicateJobs, source="b2")
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(first) == ["b2"]
    league.dies("b2")
    unheard.is_lost()
    copies.is_lost()
    retires(league, "b2", *CLUSTERS, "b1", "b3")
    league.run(20 * SECOND)
    assert league.marks("b1")["broker.ended_orphan"] == 1
    assert league.over == {first: Outcome.CANCELLED}


def test_an_orphan_of_a_second_owner_does_not_wait_for_the_word_of_the_first() -> None:
    """b1 has given the job to b2, which asks."""
    league, first = taken_over()
    unheard, copies = league.keep(OwnershipTransferred), league.keep(ReplicateJobs, source="b3")
    league.dies("b2")
    league.run(20 * SECOND)
    assert league.owners(first) == ["b3"]
    league.dies("b3")
    unheard.is_lost()
    copies.is_lost()
    retires(league, "b3", *CLUSTERS, "b1", "b2")
    league.run(20 * SECOND)
    assert league.marks("b2")["broker.ended_orphan"] == 1
    assert league.over == {first: Outcome.CANCELLED}
