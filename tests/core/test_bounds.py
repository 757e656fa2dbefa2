"""Every table that peers can fill has a bound, and what goes beyond it is refused with a reason or waits."""

import msgspec
import pytest

from hanse.core.broker.broker import Broker
from hanse.core.messaging.link import RESEND_MAX, WINDOW_MAX
from hanse.core.warden import grants as grants_module
from hanse.core.warden.warden import Warden
from hanse.model.effects import JobAccepted
from hanse.model.events import JobSubmitted
from hanse.model.ids import SECOND, job_id, task_id
from hanse.model.messages import RefusalReason, ReplicateJobs, ReplicaUpdate, WatchJobs
from tests.core.wired import Wired, job, node, tasks


def warden(league: Wired, name: str = "c1") -> Warden:
    machine = league.machines[name]
    assert isinstance(machine, Warden)
    return machine


def slots(league: Wired) -> int:
    return warden(league)._ledger.slots


def test_the_slots_of_a_gangs_lease_count_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, "SLOTS_MAX", 3)
    league = Wired({"c1": (node(4_000),)})
    first = league.submit(job(tasks(4)))
    gang = league.submit(job(tasks(4), gang=True))
    league.end(first)
    league.run(5 * SECOND)
    assert not league.marks("c1").get("warden.granted_gang"), "four slots are more than three"
    assert league.marks("c1")["warden.grants_full"] > 0
    assert slots(league) == 0
    league.check()
    monkeypatch.setattr(grants_module, "SLOTS_MAX", 4)
    league.cancel(gang)
    last = league.submit(job(tasks(4)))
    again = league.submit(job(tasks(4), gang=True))
    league.end(last)
    league.run(5 * SECOND)
    assert len(league.running(again)) == 4
    assert slots(league) == 0, "what is bound is no longer under lease"


def test_single_grants_stop_at_the_bound_and_go_on_when_earlier_ones_are_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grants_module, "SLOTS_MAX", 2)
    league = Wired({"c1": (node(4_000),)})
    first, second = league.submit(job(tasks(4))), league.submit(job(tasks(4)))
    for index in range(4):
        league.exit(task_id(first, index), 1)
    league.deliver()
    league.check()
    league.run(5 * SECOND)
    assert len(league.running(second)) == 4


def test_the_slots_of_leases_survive_a_restart() -> None:
    league = Wired({"c1": (node(4_000),)})
    first = league.submit(job(tasks(4)))
    league.submit(job(tasks(4), gang=True))
    league.deaf["b1"] = True
    for index in range(4):
        league.exit(task_id(first, index), 1)
    league.deliver()
    assert slots(league) == 4
    league.restart("c1")
    assert slots(league) == 4
    league.check()


def test_ends_that_nobody_settles_count_as_attempts_that_a_warden_keeps() -> None:
    league = Wired({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    machine = warden(league)
    machine.config = machine._grants.config = msgspec.structs.replace(machine.config, runs_max=2)
    league.loses = lambda envelope: isinstance(
        envelope.body, ReplicaUpdate
    )  # so nothing is safe with the heir
    first = league.submit(job(tasks(2)), "b1")
    league.end(first)
    assert machine.attempt_count == 0
    assert len(machine._attempts.unacked_ends) == 2
    second = league.submit(job(tasks(1)), "b3")
    assert not league.running(second)
    assert league.marks("c1")[f"warden.refused_{RefusalReason.BUSY}"] > 0
    league.loses = lambda _: False
    league.run(20 * SECOND)
    assert league.running(second)


def test_questions_to_a_peer_that_is_away_do_not_pile_up() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    broker = league.machines["b1"]
    assert isinstance(broker, Broker)
    league.deaf["b2"] = True
    league.run(20 * SECOND)
    waits = league.submit(job(tasks(1), after=(job_id(2, 77),)), "b1")
    league.run((WINDOW_MAX + 100) * SECOND)  # one question a beat
    link = broker._context.links.link("b2")
    assert any(isinstance(body, WatchJobs) for body in link.unacked.values())
    assert len(link.unacked) <= RESEND_MAX
    league.check()
    assert not league.running(waits)
    league.boot("b2")
    league.run(60 * SECOND)
    assert waits in league.over, "now everybody has said that there is no such job"


def test_many_doubtful_jobs_are_asked_about_within_the_window_of_a_link() -> None:
    """A broker that died with thousands of unacknowledged jobs asks about all of them, a part at a time."""
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    count = WINDOW_MAX // 2 + 100
    league.loses = lambda envelope: isinstance(envelope.body, ReplicateJobs)
    for number in range(count):
        league.give("b1", JobSubmitted(league.now, "me", number, job(tasks(1), client_id=f"job {number}")))
        if number % 1_000 == 0:
            league.mail.clear()
    league.mail.clear()
    league.restart("b1")
    league.loses = lambda _: False
    league.run(200 * SECOND)
    assert sum(isinstance(reply, JobAccepted) for reply in league.replies.values()) > 0
    machine = league.machines["b1"]
    assert isinstance(machine, Broker)
    assert not machine._replication.state.doubtful
    assert all(record.admitted for record in machine._context.jobs.values())
