"""Adoptions leave nothing behind: an adopted estate ends when its jobs have, and never comes back."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hanse.core.broker.broker import Broker
from hanse.core.broker.failover.shard_teardown import ROUNDS_SPARE, TRANSFERRED_MAX
from hanse.core.config import NodeConfig, WardenConfig
from hanse.core.warden.ownership import CLOSED_TERM, RANGES_MAX, SHARDS_PER_BROKER_MAX, Ownership
from hanse.core.warden.warden import Warden
from hanse.model.events import MessageReceived
from hanse.model.ids import SECOND, ClusterId, JobId
from hanse.model.messages import (
    AckEnds,
    Envelope,
    Outcome,
    OwnershipTransferred,
    RefusalReason,
    RegisterStandby,
    ReplicateJobs,
    RequestTakeover,
    WardenHeartbeat,
)
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased
from tests.core.wired import Wired, job, node, tasks

CLUSTERS: dict[str, tuple[NodeConfig, ...]] = {"c1": (node(),), "c2": (node(),)}


def broker(league: Wired, name: str) -> Broker:
    machine = league.machines[name]
    assert isinstance(machine, Broker)
    return machine


def known(league: Wired) -> dict[str, list[str]]:
    """What every warden knows, and what every broker owns."""
    found = {}
    for name, machine in league.machines.items():
        if isinstance(machine, Warden):
            found[name] = list(machine.shards())
        elif isinstance(machine, Broker):
            found[name] = machine.shards()[0]
    return found


def only_the_latest(league: Wired, brokers: tuple[str, ...]) -> bool:
    """Whether there is one estate a broker, and wardens know no others."""
    found = known(league)
    mine = sorted(shard for name in brokers for shard in found[name])
    one_each = all(len(found[name]) == 1 for name in brokers)
    return one_each and all(sorted(found[cluster]) == mine for cluster in CLUSTERS)


def adopted(brokers: tuple[str, ...] = ("b1", "b2")) -> tuple[Wired, JobId]:
    """A league in which b1 has died and b2 has adopted its job, which still runs."""
    league = Wired(CLUSTERS, brokers)
    old = league.submit(job(tasks(1)), "b1")
    league.deaf["b1"] = True
    league.run(15 * SECOND)
    assert league.marks("b2")["broker.adopted_estate"] == 1
    return league, old


# --- the story --------------------------------------------------------------------------------------------


def test_an_adopted_estate_is_closed_when_its_job_has_ended_and_its_former_owner_has_let_go() -> None:
    league, old = adopted()
    league.end(old)
    league.run(20 * SECOND)
    assert "b1#1" in known(league)["b2"], "its former owner has not heard of it"
    assert not league.bodies(CloseShard)
    league.boot("b1")
    league.run(30 * SECOND)
    assert [body.shard for body in league.bodies(OwnershipReleased)] == ["b1#1"]
    assert only_the_latest(league, ("b1", "b2"))
    assert known(league)["b1"] == ["b1#2"]
    league.check_idle()


def test_an_estate_with_a_job_is_not_closed() -> None:
    league, old = adopted()
    league.boot("b1")
    league.run(60 * SECOND)
    assert league.bodies(OwnershipReleased)
    assert not league.bodies(CloseShard)
    league.end(old)
    league.run(10 * SECOND)
    assert only_the_latest(league, ("b1", "b2"))


def test_word_that_all_have_let_go_passes_along_the_chain_of_owners() -> None:
    """b1's estate is adopted by b2, then by b3 from b2. Who was first is last to come back."""
    league = Wired(CLUSTERS, ("b1", "b2", "b3"))
    old = league.submit(job(tasks(1)), "b1")
    league.deaf["b1"] = True
    league.run(15 * SECOND)
    league.deaf["b2"] = True
    league.run(20 * SECOND)
    assert league.marks("b3")["broker.adopted_estate"] == 1
    league.end(old)
    league.boot("b2")
    league.run(30 * SECOND)
    assert league.marks("b2")["broker.owes_word"] == 1
    assert "b1#1" in known(league)["b3"], "b2 has let go, b1 may not have"
    league.boot("b1")
    league.run(60 * SECOND)
    handed = [(source, target) for source, target, body in league.said if isinstance(body, OwnershipReleased)]
    assert list(dict.fromkeys(handed)) == [("b1", "b2"), ("b2", "b3")]
    assert only_the_latest(league, ("b1", "b2", "b3"))
    league.check_idle()


def test_an_owner_that_restarts_while_it_closes_goes_on_closing() -> None:
    league, old = adopted()
    league.end(old)
    league.loses = lambda envelope: envelope.target == "c2" and isinstance(envelope.body, CloseShard)
    league.boot("b1")
    league.run(20 * SECOND)
    assert "b1#1" in known(league)["c2"]
    assert "b1#1" not in known(league)["c1"]
    league.restart("b2")
    league.restart("c1")
    league.loses = lambda _: False
    league.run(30 * SECOND)
    assert only_the_latest(league, ("b1", "b2"))


def test_a_warden_with_something_left_of_it_is_asked_again() -> None:
    league, old = adopted()
    league.loses = lambda envelope: envelope.target == "c1" and isinstance(envelope.body, AckEnds)
    league.end(old)
    warden = league.machines["c1"]
    assert isinstance(warden, Warden)
    answer = warden._ownership.on_close_shard(
        "b2", CloseShard("b1#1", 1 << 20), busy=warden._attempts.is_busy("b1#1")
    )
    assert answer == CloseShardReply("b1#1", 1 << 20, False)
    league.loses = lambda _: False
    league.boot("b1")
    league.run(30 * SECOND)
    assert only_the_latest(league, ("b1", "b2"))


def test_a_broker_that_keeps_coming_and_going_leaves_one_estate() -> None:
    league = Wired(CLUSTERS, ("b1", "b2"))
    for _ in range(5):
        old = league.submit(job(tasks(1)), "b1")
        league.deaf["b1"] = True
        league.run(15 * SECOND)
        league.end(old)
        league.boot("b1")
        league.run(40 * SECOND)
        assert league.outcome(old) is Outcome.SUCCEEDED
    assert only_the_latest(league, ("b1", "b2"))
    assert known(league)["b1"] == ["b1#6"]
    for cluster in CLUSTERS:
        warden = league.machines[cluster]
        assert isinstance(warden, Warden)
        assert warden._ownership.closed_generations == {"b1": [(1, 5)]}
    for name in ("b1", "b2"):
        for view in broker(league, name)._context.views:
            assert list(view.state.rounds) == known(league)[name]
    league.check_idle()


def test_copies_of_an_estate_that_has_left_its_owners_hands_are_dropped() -> None:
    """b2 was heir until it could not be reached; b3 became heir, and adopted."""
    league = Wired(CLUSTERS, ("b1", "b2", "b3"))
    old = league.submit(job(tasks(1)), "b1")
    league.deaf["b2"] = True
    league.run(30 * SECOND)
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    assert league.marks("b3")["broker.adopted_estate"] == 1
    league.loses = lambda envelope: (
        isinstance(envelope.body, RequestTakeover)  # lest it hears by itself that it is too late
        or (isinstance(envelope.body, ReplicateJobs) and (envelope.source, envelope.target) == ("b3", "b2"))
    )
    league.boot("b2")
    league.run(4 * SECOND)
    assert broker(league, "b2").shards()[1] == ["b1#1"]
    league.boot("b1")
    league.run(10 * SECOND)
    assert not broker(league, "b2").shards()[1]
    league.loses = lambda _: False
    league.end(old)
    league.run(30 * SECOND)
    assert only_the_latest(league, ("b1", "b2", "b3"))


def test_word_of_a_former_owner_does_not_touch_what_a_later_one_has_sent() -> None:
    league, _ = adopted(("b1", "b2", "b3"))
    assert broker(league, "b3").shards()[1] == ["b1#1"], "b2 has copied it to b3"
    league.boot("b1")
    league.run(10 * SECOND)
    assert ("b1", "b3", DropReplicas("b1#1")) in league.said
    assert broker(league, "b3").shards()[1] == ["b1#1"]


# --- the fence --------------------------------------------------------------------------------------------


def tenure() -> Ownership:
    return Ownership(WardenConfig("c1", (), ("b1", "b2", "b3")), lambda _: None)


def closed(*generations: int) -> Ownership:
    there = tenure()
    for generation in generations:
        assert there.on_register_standby("b1", RegisterStandby(f"b1#{generation}", 1, "b2")).accepted
        assert there.on_close_shard("b1", CloseShard(f"b1#{generation}", 1), busy=False).done
    return there


def test_a_closed_estate_is_fenced_for_registrations_bids_and_claims() -> None:
    there = closed(1)
    late = there.on_register_standby("b1", RegisterStandby("b1#1", 5, "b3", is_accepted_elsewhere=True))
    assert (late.accepted, late.refusal, late.owner) == (False, RefusalReason.CLOSED, "")
    bid = there.on_request_takeover("b2", RequestTakeover("b1#1", "b1", 7, 3))
    assert (bid.accepted, bid.refusal, bid.takeover_id) == (False, RefusalReason.CLOSED, 3)
    assert bid.term == CLOSED_TERM, "an heir drops what it kept"
    assert there.find_refusal(0, "b1", "b1#1", {"b1#1": 1}) is RefusalReason.FENCED
    assert not there.shards
    assert there.on_register_standby("b1", RegisterStandby("b1#2", 1, "b2")).accepted


def test_an_estate_is_closed_by_its_owner_only_and_not_while_something_is_left() -> None:
    there = tenure()
    there.on_register_standby("b1", RegisterStandby("b1#1", 1, "b2"))
    assert not there.on_close_shard("b2", CloseShard("b1#1", 1), busy=False).done
    assert not there.on_close_shard("b1", CloseShard("b1#1", 1), busy=True).done
    assert there.find_owner("b1#1") == "b1"
    assert there.on_close_shard("b1", CloseShard("b1#1", 1), busy=False).done
    assert there.on_close_shard("b1", CloseShard("b1#1", 1), busy=False).done, "asking again does no harm"


def test_an_open_estate_older_than_a_closed_one_stays_open() -> None:
    there = tenure()
    there.on_register_standby("b1", RegisterStandby("b1#1", 1, "b2"))
    there.on_register_standby("b1", RegisterStandby("b1#2", 1, "b2"))
    assert there.on_close_shard("b1", CloseShard("b1#2", 1), busy=False).done
    assert there.on_register_standby("b1", RegisterStandby("b1#1", 2, "b3")).accepted


@given(st.lists(st.integers(1, 12), unique=True), st.integers(1, 12))
def test_exactly_what_was_closed_is_closed(generations: list[int], asked: int) -> None:
    there = closed(*generations)
    assert there.is_closed(f"b1#{asked}") is (asked in generations)
    assert not there.is_closed(f"b2#{asked}")
    ranges = there.closed_generations.get("b1", [])
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))


def test_fences_are_bounded_and_an_open_estate_in_between_stays_open() -> None:
    there = tenure()
    there.on_register_standby("b1", RegisterStandby("b1#2", 1, "b2"))
    for generation in range(1, 2 * RANGES_MAX + 4, 2):
        there.on_register_standby("b1", RegisterStandby(f"b1#{generation}", 1, "b2"))
        assert there.on_close_shard("b1", CloseShard(f"b1#{generation}", 1), busy=False).done
    assert len(there.closed_generations["b1"]) == RANGES_MAX
    assert there.is_closed("b1#1")
    assert there.on_register_standby("b1", RegisterStandby("b1#2", 2, "b3")).accepted


def test_open_estates_of_one_broker_are_bounded_and_the_next_is_refused_with_the_reason() -> None:
    there = tenure()
    for generation in range(1, SHARDS_PER_BROKER_MAX + 1):
        assert there.on_register_standby("b1", RegisterStandby(f"b1#{generation}", 1, "b2")).accepted
    more = f"b1#{SHARDS_PER_BROKER_MAX + 1}"
    answer = there.on_register_standby("b1", RegisterStandby(more, 1, "b2"))
    assert (answer.accepted, answer.refusal, answer.term) == (False, RefusalReason.BUSY, 1)
    assert not there.on_request_takeover("b2", RequestTakeover(more, "b1", 1, 1)).accepted
    assert there.on_register_standby("b2", RegisterStandby("b2#1", 1, "b3")).accepted, (
        "others have their own bound"
    )
    assert there.on_close_shard("b1", CloseShard("b1#7", 1), busy=False).done
    assert there.on_register_standby("b1", RegisterStandby(more, 1, "b2")).accepted


# --- bounds of a broker's tables --------------------------------------------------------------------------


def tell(league: Wired, source: str, target: str, number: int, body: object) -> None:
    link = league.machines[target]._context.links.link(source)  # type: ignore[attr-defined]
    sequence = link.received + 1 if number else 0
    league.give(target, MessageReceived(league.now, Envelope(source, target, 0, sequence, 0, body)))  # type: ignore[arg-type]


def test_estates_that_were_given_away_are_remembered_up_to_a_bound() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    for number in range(TRANSFERRED_MAX + 5):
        tell(league, "b2", "b1", 1, OwnershipTransferred(f"b1#{number + 100}", (), 1 << 20))
        league.deliver()
    given_away = broker(league, "b1")._replication.state.transferred
    assert len(given_away) == TRANSFERRED_MAX
    assert next(iter(given_away)) == "b1#105"


def test_lease_rounds_of_estates_that_are_not_ours_are_kept_up_to_a_bound() -> None:
    league = Wired({"c1": (node(),)}, ("b1", "b2"))
    rounds = tuple((f"b2#{number}", 1) for number in range(ROUNDS_SPARE + 10))
    tell(league, "c1", "b1", 0, WardenHeartbeat(ClusterId("c1"), 1, league.now + 1, 1, rounds))
    sight = broker(league, "b1").view_state_of("c1")
    assert len(sight.rounds) > ROUNDS_SPARE
    league.run(3 * SECOND)
    assert list(sight.rounds) == ["b1#1"]
