"""A cluster that has left for good: nobody waits for its word."""

import msgspec

from hanse.core.broker.broker import Broker
from hanse.model.ids import SECOND
from hanse.model.messages import Outcome
from hanse.registry import make_policies
from tests.core.crossings.harness import THREE, Crossings
from tests.core.wired import job, tasks


def goes_on_without(league: Crossings, cluster: str, *brokers: str) -> None:
    """Brokers go on with settings in which a cluster has retired, as after a change of the league file."""
    for name in brokers:
        machine = league.machines[name]
        assert isinstance(machine, Broker)
        config = msgspec.structs.replace(machine.config, retired=(cluster,))
        fresh = Broker(
            config,
            *make_policies("fifo", "best-fit", "rotate", "least"),
        )
        fresh.restore(machine.dump())
        fresh.check()
        league.machines[name] = fresh


def test_a_takeover_that_waits_for_a_dead_warden_goes_on_when_the_cluster_is_retired() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    home = league.running(number)[0][0]
    other = "c2" if home == "c1" else "c1"
    league.dies(other, "b1")
    league.run(20 * SECOND)
    assert league.owners(number) == []
    goes_on_without(league, other, "b2")
    league.run(5 * SECOND)
    assert league.owners(number) == ["b2"]
    league.end(number)
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED


def test_brokers_take_over_without_a_cluster_that_retired_before() -> None:
    league = Crossings(THREE)
    league.dies("c2")
    goes_on_without(league, "c2", *THREE)
    number = league.submit(job(tasks(1)), "b1")
    league.run(20 * SECOND)  # it may have been offered to the dead one first
    assert league.running(number)[0][0] == "c1"
    league.dies("b1")
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    league.end(number)
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED


def test_a_broker_does_not_retire_in_the_middle_of_a_takeover() -> None:
    """Found by chaos: wardens that had agreed waited for ever for a bidder that had retired."""
    league = Crossings(THREE)
    number = league.submit(job(tasks(1)), "b1")
    home = league.running(number)[0][0]
    other = "c2" if home == "c1" else "c1"
    bidder = league.machines["b2"]
    assert isinstance(bidder, Broker)
    league.dies(other, "b1")
    league.run(20 * SECOND)
    assert league.owners(number) == []
    takeover = bidder._standby.shards
    assert [one.is_taking_over for one in takeover.values()] == [True]
    assert bidder._standby.count_takeovers() == 1
    assert bidder.count_unreplicated() > sum(len(link.unacked) for link in bidder.links.links.values())
    league.returns(other)
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    assert bidder._standby.count_takeovers() == 0
