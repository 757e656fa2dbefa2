"""Which clusters a broker uses: newcomers when every broker knows them, those that have left never again."""

from collections.abc import Callable

import msgspec
import pytest

from hanse.core.broker.broker import Broker
from hanse.core.broker.cluster_view import ClusterView
from hanse.core.config import BrokerConfig
from hanse.core.warden.warden import Warden
from hanse.model.ids import SECOND
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import Claim, Demand, Envelope, Gossip, Outcome, RequestTakeover
from hanse.registry import make_policies
from tests.core.crossings.harness import Crossings
from tests.core.wired import Wired, job, node, tasks

BOTH = ("b1", "b2")


def broker_of(config: BrokerConfig) -> Broker:
    return Broker(config, *make_policies("fifo", "best-fit", "rotate", "least"))


def start_again(league: Wired, name: str, **changes: object) -> Broker:
    """Start a broker again with other settings, as after a change of the league file."""
    machine = league.machines[name]
    assert isinstance(machine, Broker)
    config = msgspec.structs.replace(machine.config, **changes)
    league.makers[name] = lambda: broker_of(config)
    league.restart(name)
    fresh = league.machines[name]
    assert isinstance(fresh, Broker)
    return fresh


def with_newcomer() -> Wired:
    """A league in which ``c2`` is there, and no broker has heard of it."""
    league = Wired({"c1": (node(),), "c2": (node(),)}, BOTH, boot=False)
    for name in BOTH:
        machine = league.machines[name]
        assert isinstance(machine, Broker)
        config = msgspec.structs.replace(machine.config, clusters=("c1",))
        league.machines[name] = broker_of(config)
        league.makers[name] = lambda config=config: broker_of(config)  # type: ignore[misc]
    league.loses = refused_by(*BOTH)
    for name in league.machines:
        league.boot(name)
    league.run(3 * SECOND)
    return league


def refused_by(*strangers: str) -> Callable[[Envelope], bool]:
    """Who does not know ``c2`` refuses its connections."""
    return lambda envelope: envelope.source == "c2" and envelope.target in strangers


JOINED = {"clusters": ("c1", "c2"), "version": 1, "brokers_since": (0, 0), "clusters_since": (0, 1)}


def said_to(league: Wired, source: str, target: str, kind: type) -> int:
    return sum(
        one == source and other == target and isinstance(body, kind) for one, other, body in league.said
    )


def test_a_newcomer_is_used_when_the_last_broker_knows_it() -> None:
    league = with_newcomer()
    league.loses = refused_by("b2")
    first = start_again(league, "b1", **JOINED)
    league.submit(job(tasks(8)), "b1")
    league.run(10 * SECOND)
    assert {cluster for cluster, _ in league.live.values()} == {"c1"}, "b2 could take over without asking c2"
    assert not first.believed_free("c2")
    assert said_to(league, "b1", "c2", Claim) == said_to(league, "b1", "c2", Demand) == 0
    league.loses = refused_by()
    start_again(league, "b2", **JOINED)
    league.run(10 * SECOND)
    assert {cluster for cluster, _ in league.live.values()} == {"c1", "c2"}
    assert len(league.live) == 8
    assert "broker.opened_cluster" in first.marks


def test_a_newcomer_stays_open_over_a_restart_of_those_who_opened_it() -> None:
    league = with_newcomer()
    league.loses = refused_by()
    start_again(league, "b1", **JOINED)
    start_again(league, "b2", **JOINED)
    league.run(5 * SECOND)
    league.deaf["b2"] = True
    league.restart("b1")
    league.hand_in(job(tasks(8)), "b1")
    league.run(20 * SECOND)
    assert len(league.live) == 8, "what everybody knew once everybody knows"


def test_nobody_waits_for_the_word_of_a_broker_that_joined_later_or_has_retired() -> None:
    later = BrokerConfig(
        "b1", 1, ("b1", "b2"), ("c1", "c2"), version=2, brokers_since=(0, 1), clusters_since=(0, 1)
    )
    machine = broker_of(later)
    assert not machine.find_leftovers()
    assert machine._cluster_lifecycle.not_open_yet == {}
    gone = msgspec.structs.replace(later, brokers_since=(0, 0), retired=("b2",))
    assert broker_of(gone)._cluster_lifecycle.not_open_yet == {}
    waits = msgspec.structs.replace(later, brokers_since=(0, 0))
    assert broker_of(waits)._cluster_lifecycle.not_open_yet == {"c2": 1}


def test_a_takeover_asks_a_cluster_that_joins_meanwhile() -> None:
    league = with_newcomer()
    number = league.submit(job(tasks(1)), "b1")
    league.run(SECOND)
    league.loses = lambda envelope: envelope.target == "b2" and envelope.source in ("c1", "c2")
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    assert said_to(league, "b2", "c1", RequestTakeover) > 0
    assert said_to(league, "b2", "c2", RequestTakeover) == 0
    start_again(league, "b2", **JOINED, retired=("b1",))  # else its owner gets another chance, and a new bid
    league.loses = lambda _: False
    league.run(10 * SECOND)
    assert said_to(league, "b2", "c2", RequestTakeover) > 0
    second = league.machines["b2"]
    assert isinstance(second, Broker)
    assert second.find_answering_broker(number) == "b2"


@pytest.mark.parametrize("unreachable", [UnreachablePolicy.MOVE, UnreachablePolicy.WAIT])
def test_a_claim_on_its_way_to_a_cluster_that_retires_is_made_elsewhere(
    unreachable: UnreachablePolicy,
) -> None:
    league = Crossings()
    league.loses = lambda envelope: isinstance(envelope.body, Claim)
    number = league.submit(job(tasks(1), unreachable=unreachable), "b1")
    claims = [target for source, target, body in league.said if isinstance(body, Claim)]
    assert claims
    gone, other = claims[0], "c2" if claims[0] == "c1" else "c1"
    league.dies(gone)
    league.loses = lambda _: False
    for name in BOTH:
        start_again(league, name, retired=(gone,))
    league.run(60 * SECOND)
    assert [cluster for cluster, _ in league.running(number).values()] == [other]
    league.end(number)
    league.run(5 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    first = league.machines["b1"]
    assert isinstance(first, Broker)
    assert not first.find_leftovers(), "nothing waits for who has left"


def test_a_lease_is_not_renewed_in_a_round_of_the_past() -> None:
    view = ClusterView("c1", 0, "b1")
    both = ("b1#1", "b1#2")
    assert view.find_renewable(both, (("b1#1", 1),)) == both
    view.state.rounds, view.state.least_round = {"b1#1": 2, "b1#2": 5}, {"b1#1": 3}
    assert view.find_renewable(both, (("b1#1", 2), ("b1#2", 5))) == ("b1#2",), "it was given up in that round"
    assert view.find_renewable(both, (("b1#1", 3), ("b1#2", 4))) == ("b1#1",), "it had come farther before"
    assert view.find_renewable(both, (("b1#1", 3), ("b1#2", 5))) == both


def test_a_warden_with_an_older_past_is_believed_after_some_beats() -> None:
    league = Wired({"c1": (node(),)}, BOTH)
    copy = league.machines["c1"].dump()
    number = league.submit(job(tasks(4)), "b1")
    league.end(number)
    league.run(5 * SECOND)
    first = league.machines["b1"]
    assert isinstance(first, Broker)
    known = first._context.view_by_name["c1"].state
    before = known.version
    older = league.makers["c1"]()
    older.restore(copy)
    league.machines["c1"] = older
    league.epochs["c1"] = 0
    league.boot("c1")
    league.run(10 * SECOND)
    assert isinstance(older, Warden)
    assert known.version < before
    assert first.believed_free("c1") == older.advertised_free()


def test_a_broker_says_what_would_be_lost_with_it() -> None:
    league = Wired({"c1": (node(),)}, BOTH)
    first = league.machines["b1"]
    assert isinstance(first, Broker)
    assert first.count_unreplicated() == 0
    league.loses = lambda _: True
    league.hand_in(job(tasks(1)), "b1")
    league.run(SECOND)
    assert first.count_unreplicated() > 0, "its heir has no copy"
    league.loses = lambda _: False
    league.run(10 * SECOND)
    assert first.count_unreplicated() == 0


def test_a_warden_knows_the_terms_of_its_estates() -> None:
    league = Wired({"c1": (node(),)}, BOTH)
    warden = league.machines["c1"]
    assert isinstance(warden, Warden)
    assert warden.shards() == {"b1#1": 1, "b2#1": 1}


def test_a_former_owner_does_not_use_a_newcomer_that_has_not_heard_of_the_takeover() -> None:
    """Found by chaos: b1 was cut off while b2 took its jobs over, and placed them in a cluster that had
    joined since and knew only b1."""
    league = with_newcomer()
    number = league.submit(job(tasks(8)), "b1")
    league.run(SECOND)
    league.deaf["b1"] = True
    strangers = refused_by(*BOTH)
    league.loses = lambda envelope: "b1" in (envelope.source, envelope.target) or strangers(envelope)
    league.run(30 * SECOND)
    assert "broker.adopted_estate" in league.machines["b2"].marks
    b1_and_c2 = {"b1", "c2"}
    league.deaf.clear()
    league.loses = lambda envelope: (
        (envelope.source == "c1" and envelope.target == "b1")  # nobody tells b1 that it was taken over
        or (
            envelope.source == "b2" and envelope.target in b1_and_c2 and not isinstance(envelope.body, Gossip)
        )
        or (envelope.source == "b1" and envelope.target == "c1")
    )
    start_again(league, "b2", **JOINED)
    former = start_again(league, "b1", **JOINED)
    league.run(10 * SECOND)
    assert former.config.version == 1
    assert said_to(league, "b1", "c2", Claim) == 0, "c2 takes b1 for the owner of jobs that b2 has"
    league.loses = refused_by()
    league.run(30 * SECOND)
    assert not former._cluster_lifecycle.not_open_yet, (
        "c2 knows of the takeover, and b2 says that it knows c2"
    )
    assert league.machines["b2"]._context.gossip.told_version == 1  # type: ignore[attr-defined]
    league.end(number)
    league.run(20 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
