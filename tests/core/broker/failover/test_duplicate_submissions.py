"""One submission, one job: a broker that took it, died unheard and comes back does not run it as well."""

from hanse.core.broker.broker import Broker
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.ids import SECOND
from hanse.model.job import JobSpec
from hanse.model.messages import Outcome, ReplicateJobs, RequestTakeover
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from tests.core.wired import Wired, job, node, tasks

BROKERS = ("b1", "b2", "b3")


def named(client_id: str = "mine") -> JobSpec:
    return job(tasks(1), client_id=client_id)


def died_unheard(brokers: tuple[str, ...] = BROKERS) -> tuple[Wired, int]:
    """b1 has taken a job and died before anybody else heard of it."""
    league = Wired({"c1": (node(),)}, brokers)
    league.loses = lambda envelope: isinstance(envelope.body, ReplicateJobs) and envelope.source == "b1"
    request = league.hand_in(named(), "b1")
    league.deliver()
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    league.loses = lambda _: False
    assert request not in league.replies
    return league, request


def test_a_job_that_was_submitted_elsewhere_meanwhile_never_was() -> None:
    league, request = died_unheard()
    other = league.submit(named(), "b3")
    league.boot("b1")
    league.run(20 * SECOND)
    assert list(league.live) == [(other << 20, 1)], "it runs once"
    reply = league.replies[request]
    assert isinstance(reply, RequestRejected)
    assert "the league has this job already, as 3-0" in reply.reason
    assert league.marks("b1")["broker.dropped_duplicate"] == 1
    league.end(other)
    league.run(10 * SECOND)
    assert league.outcome(other) is Outcome.SUCCEEDED
    for name in BROKERS:
        machine = league.machines[name]
        assert isinstance(machine, Broker)
        assert machine.shards()[1] == [], "no copy of it stays with an heir"
        assert not machine._replication.state.doubtful
    league.check_idle()
    again = league.hand_in(named(), "b1")
    league.run(SECOND)
    assert league.replies[again] == JobAccepted("me", again, other)


def test_it_is_found_when_it_has_ended_already() -> None:
    league, _ = died_unheard()
    other = league.submit(named(), "b2")
    league.end(other)
    league.boot("b1")
    league.run(20 * SECOND)
    assert not league.live
    assert league.marks("b1")["broker.dropped_duplicate"] == 1


def test_it_is_found_when_its_owner_is_dead_and_only_an_heir_has_a_copy() -> None:
    league, _ = died_unheard()
    league.loses = lambda envelope: envelope.target == "b1"
    other = league.submit(named(), "b2")
    league.deaf["b2"] = True
    league.loses = lambda envelope: isinstance(envelope.body, RequestTakeover)
    league.boot("b1")
    league.run(20 * SECOND)
    assert [key[0] >> 20 for key in league.live] == [other]
    assert league.marks("b1")["broker.dropped_duplicate"] == 1


def test_a_job_that_nobody_knows_runs_when_its_broker_is_back() -> None:
    league, request = died_unheard()
    league.boot("b1")
    league.run(20 * SECOND)
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    assert list(league.live) == [(reply.job << 20, 1)]
    answers = [
        (source, body.known_job) for source, _, body in league.said if isinstance(body, DuplicateReply)
    ]
    assert dict(answers) == {"b2": 0, "b3": 0}


def test_a_peer_that_is_dead_holds_nothing_up_for_long() -> None:
    league, request = died_unheard()
    league.deaf["b3"] = True
    league.boot("b1")
    league.run(30 * SECOND)
    assert isinstance(league.replies[request], JobAccepted)


def test_a_job_that_its_adopter_never_got_is_asked_about_too() -> None:
    league = Wired({"c1": (node(),)}, BROKERS)
    old = league.submit(job(tasks(1)), "b1")  # so that there is something to adopt
    league.loses = lambda envelope: isinstance(envelope.body, ReplicateJobs) and envelope.source == "b1"
    league.hand_in(named(), "b1")
    league.deliver()
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    league.loses = lambda _: False
    assert league.marks("b2")["broker.adopted_estate"] == 1
    other = league.submit(named(), "b3")
    league.boot("b1")
    league.run(30 * SECOND)
    assert league.marks("b1")["broker.dropped_duplicate"] == 1
    assert sorted(key[0] >> 20 for key in league.live) == sorted((old, other))


def test_of_two_doubtful_ones_the_lower_number_stays() -> None:
    """Both brokers took it, and both were restarted before either was heard."""
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    league.loses = lambda envelope: isinstance(envelope.body, ReplicateJobs)
    requests = [league.hand_in(named(), name) for name in ("b1", "b2")]
    league.deliver()
    for name in ("b1", "b2"):
        league.restart(name)
    league.loses = lambda _: False
    league.run(20 * SECOND)
    replies = [league.replies[request] for request in requests]
    assert isinstance(replies[0], JobAccepted)
    assert isinstance(replies[1], RequestRejected)
    assert list(league.live) == [(replies[0].job << 20, 1)]


def test_whoever_is_answered_at_once_asks_nobody() -> None:
    league = Wired({"c1": (node(),)}, BROKERS)
    league.submit(named(), "b1")
    league.submit(named("another"), "b2")
    league.run(10 * SECOND)
    assert not league.bodies(DuplicateQuery)
