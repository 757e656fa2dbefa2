"""A peer that is away while much happens: nobody's queue bursts, and nothing is lost."""

from hanse.core.messaging.link import WINDOW_MAX
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.ids import SECOND
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import Outcome
from tests.core.wired import Wired, job, node, tasks

CROWD = WINDOW_MAX // 2


def test_a_warden_holds_its_news_back_while_their_owner_is_away() -> None:
    count = CROWD + 400
    league = Wired({"c1": (node(cpu=1_000 * count),)})
    number = league.submit(job(tasks(count)))
    assert len(league.running(number)) == count
    league.deaf["b1"] = True
    for index in range(count):
        league.end(number, index)
        league.mail.clear()  # what is said to a deaf broker is lost; its link repeats it
    link = league.machines["c1"]._links.link("b1")  # type: ignore[attr-defined]
    assert len(link.unacked) <= CROWD + 2
    assert league.marks("c1")["warden.news_held_back"]
    state = league.machines["c1"].dump()
    league.machines["c1"].restore(state)
    assert league.machines["c1"].dump() == state
    del league.deaf["b1"]
    league.run(200 * SECOND)  # links repeat in small portions, and what had lapsed meanwhile runs again
    league.end(number, *league.running(number))
    league.run(10 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    assert len(league.settled) == count
    league.check_idle()


def test_a_broker_does_not_tell_a_lost_cluster_of_its_demand_for_ever() -> None:
    league = Wired({"c1": (node(cpu=1_000),), "c2": (node(cpu=1_000),)})
    league.submit(job(tasks(2)))
    league.deaf["c2"] = True
    link = league.machines["b1"]._context.links.link("c2")  # type: ignore[attr-defined]
    for turn in range(CROWD):  # each time the wardens ought to know
        come_and_go(league, turn)
    assert len(link.unacked) <= CROWD + 2


def test_a_broker_takes_no_more_jobs_than_its_heir_can_be_told_of() -> None:
    league = Wired({"c1": (node(),)}, brokers=("b1", "b2"))
    league.deaf["b2"] = True
    requests = [league.hand_in(job(tasks(1))) for _ in range(CROWD + 50)]
    turned_away = [league.replies[request] for request in requests if request in league.replies]
    assert turned_away
    assert all(isinstance(reply, RequestRejected) and "standby b2" in reply.reason for reply in turned_away)
    assert league.marks("b1")["broker.heir_behind"] == len(turned_away)
    link = league.machines["b1"]._context.links.link("b2")  # type: ignore[attr-defined]
    assert len(link.unacked) <= CROWD + 2


def test_a_warden_that_was_far_behind_hears_that_nothing_waits_any_more() -> None:
    """What waited was cancelled while the link was crowded: unless told, the warden would grant for ever.

    The tasks that fill both clusters stay where they are, so that nothing at all waits in the end.
    """
    league = Wired({"c1": (node(cpu=1_000),), "c2": (node(cpu=1_000),)})
    league.submit(job(tasks(2), unreachable=UnreachablePolicy.WAIT))
    waiting = league.submit(job(tasks(3)))
    assert wants(league, "c2") == 3
    link = league.machines["b1"]._context.links.link("c2")  # type: ignore[attr-defined]
    league.deaf["c2"] = True
    turn = 0
    while not link.is_crowded:
        turn += 1
        come_and_go(league, turn)
    league.cancel(waiting)
    league.deliver()
    del league.deaf["c2"]
    league.run(300 * SECOND)
    assert wants(league, "c2") == 0


def come_and_go(league: Wired, turn: int) -> None:
    """A job comes, waits, and is cancelled."""
    request = league.hand_in(job(tasks(1, cpu=100 + turn % 7)))
    league.deliver()
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    league.cancel(reply.job)
    league.deliver()


def wants(league: Wired, cluster: str) -> int:
    """For how many tasks a warden thinks that room is wanted."""
    return sum(want.count for want in league.machines[cluster]._grants.demand.entries)  # type: ignore[attr-defined]
