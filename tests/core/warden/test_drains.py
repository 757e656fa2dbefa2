"""Drains: the reason is kept and told, the latest wish for a node counts, and an end opens by itself."""

from hanse.core.broker.broker import Broker
from hanse.core.warden.warden import Warden
from hanse.model.drains import DRAINED_NODES_REPORTED_MAX, DRAINS_REPORTED_MAX, Drain
from hanse.model.events import DrainRequested
from hanse.model.ids import MINUTE, SECOND
from hanse.policy.node_rankers import FirstNodeRanker
from tests.core.wired import Wired, job, node, tasks


def warden(league: Wired, name: str = "c1") -> Warden:
    machine = league.machines[name]
    assert isinstance(machine, Warden)
    return machine


def sight(league: Wired) -> tuple[Drain, ...]:
    broker = league.machines["b1"]
    assert isinstance(broker, Broker)
    return broker.view_state_of("c1").drains


def test_brokers_are_told_at_once_why_a_cluster_takes_no_work() -> None:
    league = Wired({"c1": (node(), node())})
    league.run(SECOND // 10)  # of two beats of one instant the first counts
    at = league.now
    league.give("c1", DrainRequested(at, (), True, "ada", "new disks"))
    league.deliver()
    assert sight(league) == (Drain((), "ada", "new disks", at),)
    league.drain("c1", closed=False)
    assert sight(league) == ()


def test_a_drain_with_an_end_opens_by_itself_also_after_a_restart() -> None:
    league = Wired({"c1": (node(1_000),)})
    league.give("c1", DrainRequested(league.now, (), True, "ada", "", league.now + 20 * SECOND))
    league.deliver()
    league.restart("c1")
    number = league.submit(job(tasks(1)))
    league.run(15 * SECOND)
    assert league.running(number) == {}
    assert warden(league).drains.active[0].requested_by == "ada"
    league.run(10 * SECOND)
    assert league.running(number) == {0: ("c1", 0)}
    assert sight(league) == ()


def test_the_latest_wish_for_a_node_counts() -> None:
    league = Wired({"c1": (node(), node(), node())})
    drains = warden(league).drains
    league.give("c1", DrainRequested(league.now, (), True, "ada", "all"))
    league.give("c1", DrainRequested(league.now, (1,), True, "bob", "one", league.now + MINUTE))
    assert [(one.nodes, one.requested_by) for one in drains.active] == [((0, 2), "ada"), ((1,), "bob")]
    league.give("c1", DrainRequested(league.now, (0,), False))
    assert [(one.nodes, one.requested_by) for one in drains.active] == [((2,), "ada"), ((1,), "bob")]
    assert drains.due == league.now + MINUTE
    drains.check()


def test_a_dump_keeps_the_reasons_and_an_older_one_has_none() -> None:
    league = Wired({"c1": (node(), node())})
    league.give("c1", DrainRequested(league.now, (1,), True, "ada", "new disks"))
    machine = warden(league)
    fresh = Warden(machine.config, FirstNodeRanker())
    fresh.restore(machine.dump())
    assert fresh.drains.active == machine.drains.active
    fresh.drains.restore([])  # as from a state that knew only which nodes drain
    assert fresh.drains.active == [Drain((1,))]


def test_a_beat_names_so_many_drains_and_no_more() -> None:
    league = Wired({"c1": tuple(node() for _ in range(2 * DRAINS_REPORTED_MAX))})
    for number in range(DRAINS_REPORTED_MAX + 5):
        league.give("c1", DrainRequested(league.now, (number,), True, "ada"))
    told = warden(league).drains.reported
    assert len(told) == DRAINS_REPORTED_MAX
    assert sum(len(one.nodes) for one in told) <= DRAINED_NODES_REPORTED_MAX


def test_room_that_was_granted_before_a_drain_is_not_used_any_more() -> None:
    """Whoever waits until a drained node is empty may rely on that."""
    league = Wired({"c1": (node(1_000),)})
    league.submit(job(tasks(1)))
    second = league.submit(job(tasks(1)))
    ((task, attempt),) = league.live
    league.exit(task, attempt)
    machine = warden(league)
    while not machine._ledger.leases:
        league.step()
    league.give("c1", DrainRequested(league.now, (), True, "ada"))
    assert machine.drains.attempts_per_node() == [0]
    league.run(MINUTE)
    assert league.running(second) == {}
    league.drain("c1", closed=False)
    league.run(SECOND)
    assert list(league.running(second)) == [0]
    assert machine.drains.attempts_per_node() == [1]
