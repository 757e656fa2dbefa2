"""Brokers that live and cannot reach each other: both go on taking jobs, and nothing runs twice."""

from hanse.model.effects import JobAccepted
from hanse.model.ids import SECOND
from hanse.model.messages import Envelope, Outcome, OwnershipTransferred, RegisterStandby
from tests.core.wired import Wired, job, node, tasks


def between(envelope: Envelope, *names: str) -> bool:
    """Whether a message is between two of these."""
    return envelope.source in names and envelope.target in names


def test_an_heir_that_cannot_be_reached_is_replaced_although_gossip_says_that_it_lives() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2", "b3"))
    league.loses = lambda envelope: between(envelope, "b1", "b2")
    first = league.hand_in(job(tasks(1)), "b1")  # its copy for b2 does not get through
    assert first not in league.replies
    league.run(30 * SECOND)
    assert isinstance(league.replies[first], JobAccepted)
    assert league.marks("b1")["broker.changed_heir"] == 1
    again = league.hand_in(job(tasks(1)), "b1")
    league.run(SECOND)
    assert isinstance(league.replies[again], JobAccepted)


def test_a_broker_that_was_adopted_unheard_takes_jobs_for_a_new_estate() -> None:
    league = Wired({"c1": (node(),), "c2": (node(),)}, ("b1", "b2"))
    old = league.submit(job(tasks(1)), "b1")
    cut = True
    league.loses = lambda envelope: (
        between(envelope, "b1", "b2")
        or (cut and envelope.source == "b1" and isinstance(envelope.body, RegisterStandby))
    )
    league.run(30 * SECOND)
    assert league.marks("b2")["broker.adopted_estate"] == 1, "b2 was first to name itself"
    cut = False
    league.run(30 * SECOND)
    fresh = league.hand_in(job(tasks(1)), "b1")
    league.run(30 * SECOND)
    reply = league.replies[fresh]
    assert isinstance(reply, JobAccepted)
    assert len(league.running(reply.job)) == 1
    assert not any(
        isinstance(body, OwnershipTransferred)
        and target == "b1"
        and not league.loses(Envelope("b2", "b1", 0, 0, 0, body))
        for _, target, body in league.said
    ), "b1 has not heard of the adoption"
    league.end(reply.job)
    league.end(old)
    league.loses = lambda _: False
    league.run(60 * SECOND)
    assert league.outcome(reply.job) is Outcome.SUCCEEDED
    assert league.outcome(old) is Outcome.SUCCEEDED
    league.check_idle()
