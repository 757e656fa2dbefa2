"""The slow path: demand, grants under a lease, binding, release; holds for gangs; preemption."""

import pytest

from hanse.core.broker.job_table import shape_of
from hanse.core.config import Timings, WardenConfig
from hanse.core.warden.warden import Warden
from hanse.model.constraints import Is
from hanse.model.effects import JobAccepted
from hanse.model.events import Booted, MessageReceived
from hanse.model.ids import MILLISECOND, SECOND, TaskId, task_id
from hanse.model.job import JobSpec
from hanse.model.messages import (
    Claim,
    Demand,
    DemandLine,
    Envelope,
    HeartbeatReply,
    Offer,
    Outcome,
    QueueKey,
    RunnerOrders,
    TaskUpdates,
)
from hanse.policy.node_rankers import FirstNodeRanker
from tests.core.wired import Wired, job, node, tasks

MINUTE = 60 * SECOND


def offers(league: Wired, since: int = 0) -> list[Offer]:
    """All grants that were told of."""
    return [offer for news in league.bodies(TaskUpdates, since) for offer in news.offers]


def test_room_that_frees_is_granted_bound_and_run() -> None:
    league = Wired({"c1": (node(1_000),)})
    first, second = league.submit(job(tasks(1))), league.submit(job(tasks(1)))
    assert league.running(second) == {}
    before = len(league.said)
    league.end(first)
    (offer,) = offers(league, before)
    bound = [batch for claim in league.bodies(Claim, before) for batch in claim.batches]
    assert [batch.lease for batch in bound] == [offer.lease]
    assert league.running(second) == {0: ("c1", 0)}


def test_a_grant_is_bound_to_the_best_task_at_that_moment_not_the_one_that_asked() -> None:
    league = Wired({"c1": (node(1_000),)}, order="fewest-remaining")
    first, large = league.submit(job(tasks(1))), league.submit(job(tasks(3)))
    league.exit(task_id(first, 0), 1)
    while not offers(league):
        league.step()
    request = league.hand_in(job(tasks(1)))  # while the grant is on its way
    league.run(SECOND)
    reply = league.replies[request]
    assert isinstance(reply, JobAccepted)
    assert league.running(reply.job) == {0: ("c1", 0)}
    assert league.running(large) == {}


def test_demand_of_all_brokers_is_served_in_one_order() -> None:
    league = Wired({"c1": (node(1_000),)}, ("b1", "b2"))
    blocker = league.submit(job(tasks(1)), "b1")
    second = league.submit(job(tasks(1)), "b2")
    third = league.submit(job(tasks(1)), "b1")
    fourth = league.submit(job(tasks(1)), "b2")
    order = []
    for ended in (blocker, second, third, fourth):
        league.end(ended)
        league.run(2 * SECOND)
        order += [number for number in (second, third, fourth) if league.running(number)]
    assert order == [second, third, fourth]


def test_an_unused_grant_is_given_back() -> None:
    league = Wired({"c1": (node(1_000),)})
    first, second = league.submit(job(tasks(1))), league.submit(job(tasks(1)))
    league.exit(task_id(first, 0), 1)
    while not offers(league):
        league.step()
    held = list(league.mail)
    league.mail.clear()
    league.cancel(second)  # before the grant arrives
    for envelope in held:
        league.hand_over(envelope)
    league.run(10 * SECOND)
    assert league.marks("b1")["broker.released_grant"] == 1
    assert any(claim.releases for claim in league.bodies(Claim))
    league.check_idle()


def test_a_grant_that_nobody_binds_expires() -> None:
    league = Wired({"c1": (node(1_000),)}, ("b1", "b2"))
    first = league.submit(job(tasks(1)), "b1")
    waits, next_one = league.submit(job(tasks(1)), "b2"), league.submit(job(tasks(1)), "b1")
    league.loses = lambda envelope: (
        "b2" in (envelope.source, envelope.target)
        and "c1"
        in (
            envelope.source,
            envelope.target,
        )
    )
    league.end(first)
    league.run(5 * SECOND)
    assert league.marks("c1")["warden.lease_expired"] >= 1
    assert league.running(waits) == {}
    assert league.running(next_one) == {0: ("c1", 0)}


def test_a_late_binding_of_an_expired_lease_is_treated_as_a_claim() -> None:
    league = Wired({"c1": (node(1_000),)}, timings=Timings(grant_lease=500 * MILLISECOND))
    first, second = league.submit(job(tasks(1))), league.submit(job(tasks(1)))
    league.exit(task_id(first, 0), 1)
    kept = []
    league.loses = lambda envelope: (
        isinstance(envelope.body, Claim) and envelope.source == "b1" and not kept.append(envelope)  # type: ignore[func-returns-value]
    )
    league.run(600 * MILLISECOND)
    assert kept
    league.loses = lambda _: False
    league.run(10 * SECOND)
    assert league.marks("c1")["warden.bound_expired_lease"] == 1
    assert league.running(second) == {0: ("c1", 0)}
    league.check()


def test_grants_of_two_clusters_for_one_task_leave_one_attempt() -> None:
    league = Wired({"c1": (node(1_000),), "c2": (node(1_000),)})
    blockers = [league.submit(job(tasks(1))), league.submit(job(tasks(1)))]
    waiting = league.submit(job(tasks(1)))
    for blocker in blockers:
        league.exit(task_id(blocker, 0), 1)
    league.run(5 * SECOND)
    assert len(league.running(waiting)) == 1
    assert len(league.live) == 1
    league.end(waiting)
    league.run(MINUTE)
    league.check_idle()


def test_a_gang_starts_whole_or_not_at_all() -> None:
    league = Wired({"c1": (node(2_000),), "c2": (node(2_000),)})
    blocker = league.submit(job(tasks(3)))
    gang = league.submit(job(tasks(2), gang=True))
    assert league.running(gang) == {}
    league.end(blocker)
    started = league.running(gang)
    assert len(started) == 2
    assert len({cluster for cluster, _ in started.values()}) == 1
    league.end(gang)
    assert league.over[gang] is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("node_ranker", "shares"), [("first", [1, 4]), ("best-fit", [1, 4]), ("spread", [2, 3])]
)
def test_the_node_ranker_chooses_the_nodes_of_a_gang_that_waited(node_ranker: str, shares: list[int]) -> None:
    league = Wired({"c1": (node(4_000), node(4_000))}, node_ranker=node_ranker)
    first = league.submit(job(tasks(2, cpu=4_000)))
    gang = league.submit(job(tasks(5), gang=True))
    league.end(first)
    assert league.marks("c1")["warden.granted_gang"] == 1
    places = [place for _, place in league.running(gang).values()]
    assert sorted(map(places.count, {0: None, 1: None})) == shares
    league.check()


def test_room_is_held_back_for_a_gang_while_small_tasks_queue() -> None:
    league = Wired({"c1": (node(2_000), node(2_000))})
    small = [league.submit(job(tasks(1))) for _ in range(4)]
    gang = league.submit(job(tasks(4), gang=True))
    late = [league.submit(job(tasks(1))) for _ in range(4)]
    for number in small:
        league.end(number)
    assert len(league.running(gang)) == 4
    assert not any(league.running(number) for number in late)
    assert league.marks("c1")["warden.holds_room"] >= 1
    league.end(gang)
    assert all(league.running(number) for number in late)


def test_when_one_of_a_gang_is_lost_all_start_anew() -> None:
    league = Wired({"c1": (node(1_000, "r1"), node(1_000, "r2"), node(1_000, "r3"))})
    gang = league.submit(job(tasks(2), gang=True))
    nodes = [place for _, place in league.running(gang).values()]
    victim = next(key for key in league.live if key[0] == task_id(gang, 0))
    league.exit(*victim, outcome=Outcome.LOST)
    league.run(5 * SECOND)
    assert sorted(attempt for _, attempt in league.live) == [2, 2]
    assert league.marks("b1")["broker.broke_gang"] == 1
    del nodes


def preemption(*nodes: int, after: int = 0) -> Wired:
    timings = Timings(preempt_after=after)
    return Wired({"c1": tuple(node(cpu) for cpu in nodes)}, timings=timings, order="priority")


def test_higher_priority_preempts_with_the_jobs_own_grace() -> None:
    league = preemption(1_000)
    low = league.submit(job(tasks(1), preemptible=True, grace=3 * SECOND))
    before = len(league.said)
    high = league.submit(job(tasks(1), priority=10))
    stops = [stop for orders in league.bodies(RunnerOrders, before) for stop in orders.stops]
    assert [(stop.task, stop.grace) for stop in stops] == [(task_id(low, 0), 3 * SECOND)]
    assert league.running(high) == {0: ("c1", 0)}
    assert league.running(low) == {}
    assert league.outcome(low) is None  # it waits again
    league.end(high)
    assert league.running(low) == {0: ("c1", 0)}


def test_what_is_not_preemptible_is_left_alone() -> None:
    league = preemption(1_000)
    low = league.submit(job(tasks(1)))
    high = league.submit(job(tasks(1), priority=10))
    league.run(10 * SECOND)
    assert league.running(low)
    assert not league.running(high)


def test_equal_priority_does_not_preempt() -> None:
    league = preemption(1_000)
    low = league.submit(job(tasks(1), preemptible=True, priority=10))
    high = league.submit(job(tasks(1), priority=10))
    league.run(10 * SECOND)
    assert league.running(low)
    assert not league.running(high)


def stopped(league: Wired, since: int) -> list[TaskId]:
    """The tasks that runners were told to stop, from the ``since``-th message on."""
    return [stop.task for orders in league.bodies(RunnerOrders, since) for stop in orders.stops]


def test_preemption_stops_no_more_than_it_needs() -> None:
    league = preemption(4_000)
    low = league.submit(job(tasks(4), preemptible=True))
    before = len(league.said)
    high = league.submit(job(tasks(1, 2_000), priority=5))
    league.run(5 * SECOND)
    assert league.running(high)
    assert len(stopped(league, before)) == 2
    assert len(league.running(low)) == 2


def test_preemption_takes_the_node_where_fewest_must_go() -> None:
    league = preemption(2_000, 2_000)
    small = league.submit(job(tasks(2, 1_000), preemptible=True))
    large = league.submit(job(tasks(1, 2_000), preemptible=True))
    before = len(league.said)
    high = league.submit(job(tasks(1, 2_000), priority=5))
    league.run(5 * SECOND)
    assert league.running(high)
    assert stopped(league, before) == [task_id(large, 0)]
    assert len(league.running(small)) == 2


def test_preemption_stops_the_lowest_priority_first() -> None:
    league = preemption(1_000, 1_000)
    middle = league.submit(job(tasks(1), preemptible=True, priority=2))
    low = league.submit(job(tasks(1), preemptible=True, priority=1))
    before = len(league.said)
    high = league.submit(job(tasks(1), priority=50))
    league.run(5 * SECOND)
    assert league.running(high)
    assert league.running(middle)
    assert stopped(league, before) == [task_id(low, 0)]


def test_of_equal_victims_on_a_node_the_youngest_goes() -> None:
    league = preemption(2_000)
    league.submit(job(tasks(1), preemptible=True))
    league.run(20 * SECOND)
    young = league.submit(job(tasks(1), preemptible=True))
    before = len(league.said)
    league.submit(job(tasks(1), priority=5))
    league.run(5 * SECOND)
    assert stopped(league, before) == [task_id(young, 0)]


def test_a_task_that_has_only_just_started_is_spared() -> None:
    league = preemption(1_000, after=MINUTE)
    low = league.submit(job(tasks(1), preemptible=True))
    league.submit(job(tasks(1), priority=5))
    league.run(10 * SECOND)
    assert league.running(low)


def test_demand_is_told_once_and_not_with_every_beat() -> None:
    league = Wired({"c1": (node(1_000),)})
    league.submit(job(tasks(1)))
    league.submit(job(tasks(5)))
    before = len(league.said)
    league.run(30 * SECOND)
    assert not league.bodies(Demand, before)


def rival_of(*others: JobSpec, first: JobSpec | None = None) -> QueueKey:
    """The rival that is named with room of two CPUs for the first job, while others wait at b2."""
    league = Wired({"c1": (node(2_000, zone="a"),)}, ("b1", "b2"))
    blocker = league.submit(job(tasks(1, cpu=2_000)), "b1")
    league.submit(first or job(tasks(1, cpu=2_000)), "b1")
    for other in others:
        league.submit(other, "b2")
    before = len(league.said)
    league.exit(task_id(blocker, 0), 1)
    while not offers(league, before):
        league.step()
    return offers(league, before)[0].rival_key


def test_a_rival_is_named_if_it_could_use_the_room() -> None:
    assert rival_of() == ()
    equal = rival_of(job(tasks(1, cpu=2_000)))
    assert len(equal) == 1
    assert rival_of(job(tasks(1, cpu=500))) == equal, "a smaller one fits too"
    assert rival_of(job(tasks(1, cpu=2_000, where=Is("zone", "a")))) == equal
    best = rival_of(job(tasks(1, cpu=2_000, where=Is("zone", "a"))), job(tasks(1, cpu=2_000)))
    assert best == equal, "of several the best"


def test_a_gang_has_no_rival_and_is_none() -> None:
    pair = job(tasks(2, cpu=1_000), gang=True)
    assert rival_of(pair) == ()
    assert rival_of(job(tasks(1, cpu=2_000)), first=pair) == ()


def test_who_has_nothing_better_left_gives_the_room_on() -> None:
    league = Wired({"c1": (node(1_000),)}, ("b1", "b2"), order="fewest-remaining")
    blocker = league.submit(job(tasks(1)), "b1")
    small, large = league.submit(job(tasks(1)), "b1"), league.submit(job(tasks(3)), "b1")
    middle = league.submit(job(tasks(2)), "b2")
    league.exit(task_id(blocker, 0), 1)
    while not offers(league):
        league.step()
    assert offers(league)[0].rival_key[0] == 2
    league.cancel(small)  # while the offer to b1 is on its way
    league.run(SECOND)
    assert league.running(middle) == {0: ("c1", 0)}
    assert league.running(large) == {}


def test_who_was_outbid_tells_every_warden_what_it_has_left() -> None:
    league = Wired({name: (node(1_000),) for name in ("c1", "c2", "c3")}, ("b1", "b2"))
    league.submit(job(tasks(3)), "b1")
    for broker in ("b1", "b2", "b1"):
        league.submit(job(tasks(1)), broker)
    place = {cluster: task for (task, _), (cluster, _) in league.live.items()}
    league.exit(place["c1"], 1)
    league.deliver()  # b1's first task goes there, and only c1 hears that its second is the best it has left
    before = len(league.said)
    league.exit(place["c2"], 1)
    league.deliver()
    from_b1 = [(target, body) for source, target, body in league.said[before:] if source == "b1"]
    assert [target for target, body in from_b1 if isinstance(body, Claim) and body.releases] == ["c2"]
    assert "c3" in [target for target, body in from_b1 if isinstance(body, Demand)]


def test_of_equal_keys_the_one_that_is_asked_keeps_the_room() -> None:
    league = Wired({"c1": (node(1_000),)}, ("b1", "b2"))
    blocker = league.submit(job(tasks(1)), "b1")
    league.hand_in(job(tasks(1)), "b1")
    league.hand_in(job(tasks(1)), "b2")
    league.run(SECOND)
    before = len(league.said)
    league.end(blocker)
    (offer,) = offers(league, before)
    assert offer.rival_key
    assert [claim.releases for claim in league.bodies(Claim, before)] == [()]


def test_a_late_message_of_a_retired_broker_does_not_wake_its_demand() -> None:
    """Nobody would ever withdraw it, and nodes would be held for it for ever."""
    config = WardenConfig("c1", (node(),), ("b1", "b2"), retired=("b2",))
    warden = Warden(config, FirstNodeRanker())
    warden.handle(Booted(0, 1, 7))
    assert warden._grants.silent_brokers == {"b2": True}
    line = DemandLine(0, shape_of(job(tasks(1)), 0, 0), (1,), 1, hold=True)
    late = Envelope("b2", "c1", 1, 1, 0, Demand((line,)))
    warden.handle(MessageReceived(SECOND, late))
    warden.handle(MessageReceived(SECOND, Envelope("b2", "c1", 1, 0, 0, HeartbeatReply(0, ()))))
    assert warden._grants.silent_brokers == {"b2": True}
    assert warden._grants.hold is None
