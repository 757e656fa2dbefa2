"""The door: what is turned away, with field and rule, before anything has changed; and what is taken once
only.
"""

from collections.abc import Callable

import pytest

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig
from hanse.model.constraints import Is
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.events import Booted, JobSubmitted
from hanse.model.ids import JobId, job_id
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import Claim, ReplicateJobs
from hanse.model.resources import Resources
from hanse.policy.cluster_rankers import RotatingRanker
from hanse.policy.placers import BestFit
from hanse.policy.queue_orders import Fifo
from hanse.policy.sizers import LeastSizer
from tests.core.wired import Wired, job, node, tasks

BAD: dict[str, tuple[Callable[[], JobSpec], str]] = {
    "negative resources": (lambda: job(tasks(1, cpu=-1)), "groups[0].ask"),
    "absurd resources": (lambda: job(tasks(1, cpu=1 << 60)), "groups[0].ask"),
    "no tasks": (lambda: job(tasks(0)), "groups[0].count"),
    "no groups": (job, "groups"),
    "a cycle": (
        lambda: job(TaskGroup(name="a", needs=("b",)), TaskGroup(name="b", needs=("a",))),
        "groups: ",
    ),
    "a need of itself": (lambda: job(TaskGroup(name="a", needs=("a",))), "groups[0].needs"),
    "a need of nobody": (lambda: job(TaskGroup(name="a", needs=("z",))), "groups[0].needs"),
    "two groups of one name": (lambda: job(TaskGroup(name="a"), TaskGroup(name="a")), "groups[1].name"),
    "a range with min above max": (
        lambda: job(tasks(1, 2_000, ask_max=Resources(cpu=1_000))),
        "groups[0].ask_max",
    ),
    "a gang larger than any cluster": (lambda: job(tasks(9), gang=True), "groups[0].count"),
    "a task larger than any node": (lambda: job(tasks(1, cpu=5_000)), "groups[0]"),
    "a gang of two groups": (
        lambda: job(TaskGroup(name="a"), TaskGroup(name="b"), gang=True),
        "gang: ",
    ),
    "control characters in the name": (lambda: job(tasks(1), name="a\x1b[2Jb"), "name"),
    "control characters in the tenant": (lambda: job(tasks(1), tenant="a\nb"), "tenant"),
    "control characters in the client's id": (lambda: job(tasks(1), client_id="\x00"), "client_id"),
    "a spec of ten megabytes": (lambda: job(tasks(1, payload=b"x" * (10 << 20))), "payload"),
    "ten megabytes of groups": (
        lambda: job(
            *(TaskGroup(name=f"g{n}", payload=b"x" * (1 << 20)) for n in range(10)),
        ),
        "4194304",
    ),
    "an unknown attribute": (lambda: job(tasks(1, where=Is("no_such", "x"))), "groups[0]"),
    "an unknown cluster": (lambda: job(tasks(1), clusters_allowed=("c9",)), "clusters"),
    "an unknown job to wait for": (lambda: job(tasks(1), after=(job_id(1, 99),)), "after"),
    "a priority beyond the scale": (lambda: job(tasks(1), priority=5_000), "priority"),
    "a deadline in the past": (lambda: job(tasks(1), deadline=-1), "deadline"),
    "negative retries": (lambda: job(tasks(1), retries=-1), "retries"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_rejected_with_its_field_and_changes_nothing(name: str) -> None:
    league = Wired({"c1": (node(), node())})
    make, field = BAD[name]
    broker = league.machines["b1"]
    before, said = broker.dump(), len(league.said)
    reason = league.rejected(make())
    assert field in reason
    assert ":" in reason  # the field, then the rule
    assert len(reason) < 2_000  # a reason, not an echo of the input
    assert not league.said[said:]
    after = broker.dump()
    assert _without_steps(after) == _without_steps(before)


def _without_steps(state: bytes) -> object:
    import msgspec

    decoded = msgspec.msgpack.decode(state)
    del decoded["steps"]  # the count of events taken
    return decoded


def test_the_reason_names_every_fault_at_once() -> None:
    league = Wired({"c1": (node(),)})
    reason = league.rejected(job(tasks(-3, cpu=-1), priority=10_000, name=""))
    for field in ("groups[0].count", "groups[0].ask", "priority", "name"):
        assert field in reason


def test_a_gang_too_large_is_told_the_largest_that_fits() -> None:
    league = Wired({"c1": (node(), node()), "c2": (node(),)})
    assert "more than 8" in league.rejected(job(tasks(9), gang=True))
    assert league.submit(job(tasks(8), gang=True))


def test_the_same_client_id_gives_the_same_job() -> None:
    league = Wired({"c1": (node(),)})
    first = league.submit(job(tasks(1), client_id="mine"))
    again = league.submit(job(tasks(1), client_id="mine"))
    other = league.submit(job(tasks(1), client_id="yours"))
    assert first == again != other
    assert len(league.live) == 2


def test_the_same_client_id_gives_the_same_job_after_it_has_ended() -> None:
    league = Wired({"c1": (node(),)})
    first = league.submit(job(tasks(1), client_id="mine"))
    league.end(first)
    assert league.over[first] == "succeeded"
    assert league.submit(job(tasks(1), client_id="mine")) == first
    assert not league.live


def test_submissions_without_a_client_id_are_different_jobs() -> None:
    league = Wired({"c1": (node(),)})
    assert league.submit(job(tasks(1))) != league.submit(job(tasks(1)))


def test_a_rejected_client_id_may_be_used_again() -> None:
    league = Wired({"c1": (node(),)})
    league.rejected(job(tasks(-1), client_id="mine"))
    assert league.submit(job(tasks(1), client_id="mine"))


def test_a_job_is_acknowledged_only_when_the_heir_has_it() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    request = league.hand_in(job(tasks(1)), "b1")
    assert isinstance(league.said[-1][2], ReplicateJobs)
    assert request not in league.replies
    assert not league.bodies(Claim)
    league.run(3_000_000)
    assert isinstance(league.replies[request], JobAccepted)
    assert len(league.live) == 1


def test_a_repeated_submission_before_the_acknowledgement_is_answered_once_it_is_safe() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    first = league.hand_in(job(tasks(1), client_id="mine"), "b1")
    second = league.hand_in(job(tasks(1), client_id="mine"), "b1")
    assert not league.replies
    league.run(3_000_000)
    assert isinstance(league.replies[second], JobAccepted)
    assert first not in league.replies
    assert len(league.live) == 1


def test_a_full_broker_says_so() -> None:
    config = BrokerConfig("b1", 1, ("b1",), ("c1",), jobs_max=2, tasks_max=10)
    broker = Broker(config, Fifo(), BestFit(), RotatingRanker(), LeastSizer())
    broker.handle(Booted(0, 1, 1))
    replies: list[JobAccepted | RequestRejected] = []
    for request, count in enumerate((9, 2, 1, 1)):
        commands = broker.handle(JobSubmitted(request, "me", request, job(tasks(count))))
        replies += [command for command in commands if isinstance(command, JobAccepted | RequestRejected)]
    assert [isinstance(reply, JobAccepted) for reply in replies] == [True, False, True, False]
    assert "full" in replies[1].reason  # type: ignore[union-attr]
    assert "full" in replies[3].reason  # type: ignore[union-attr]


def test_cancelling_an_unknown_job_is_refused_with_a_reason() -> None:
    league = Wired({"c1": (node(),)})
    league.cancel(JobId(job_id(1, 5)))
    reply = league.replies[league.requests]
    assert isinstance(reply, RequestRejected)
    assert "1-5" in reply.reason
