"""A broker that has taken a shard over and used it, and is retired by force before it told the former owner:
that one asks everybody about its jobs."""

from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.events import CancelRequested
from hanse.model.ids import SECOND, JobId, job_of
from hanse.model.messages import JobEnded, Outcome, OwnershipTransferred, ReplicateJobs
from tests.core.crossings.changed_members import CLUSTERS, retires, succeed
from tests.core.crossings.harness import THREE, Crossings
from tests.core.wired import job, tasks


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


def test_a_job_starts_again_if_the_new_owner_tells_while_others_are_asked() -> None:
    """Found by chaos (seed 3007 of 10,000). b2 has taken over, b3 from b2, and another broker has retired: b1
    asks for its jobs, and then the word of b2 comes after all. The second job never left b1."""
    league = Crossings((*THREE, "b4"))
    league.dies("b4")
    retires(league, "b4", *CLUSTERS, *THREE)
    league.run(5 * SECOND)
    first = league.submit(job(tasks(2)), "b1")
    copies = league.keep(ReplicateJobs, "b1", "b2")
    request = league.hand_in(job(tasks(2)), "b1")
    league.deliver()
    league.dies("b1")
    copies.is_lost()
    untold = league.keep(OwnershipTransferred, "b2", "b1")
    league.run(20 * SECOND)
    assert league.owners(first) == ["b2"]
    league.dies("b2")
    league.run(20 * SECOND)
    assert league.owners(first) == ["b3"]
    answers = league.keep(JobEnded, "b3", "b1")
    league.restart("b1")
    league.run(10 * SECOND)
    league.restart("b2")
    league.run(10 * SECOND)
    assert len(answers) > 0
    assert request not in league.replies
    untold.arrives()
    answers.arrives()
    league.run(10 * SECOND)
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    succeed(league, first, reply.job)
