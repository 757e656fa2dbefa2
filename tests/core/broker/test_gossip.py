"""Membership: word of the living spreads, the silent fall under suspicion, and an heir is always alive."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.core.broker.gossip import BrokerGossip
from hanse.core.config import BrokerConfig, Timings
from hanse.model.ids import SECOND
from hanse.model.messages import Gossip, MemberStatus

TIMINGS = Timings()
NAMES = tuple(f"b{number}" for number in range(1, 8))


def heir(member: BrokerGossip) -> str:
    """The first live broker after this one."""
    return next((name for name in member.ring if member.is_alive(name)), "")


def league(count: int) -> dict[str, BrokerGossip]:
    names = NAMES[:count]
    configs = [BrokerConfig(name, at + 1, names, (), TIMINGS) for at, name in enumerate(names)]
    members = {config.name: BrokerGossip(config) for config in configs}
    for member in members.values():
        member.boot(0, 1)
    return members


def chat(members: dict[str, BrokerGossip], now: int, dead: tuple[str, ...] = ()) -> None:
    for name, member in members.items():
        if name not in dead:
            peers, gossip = member.next_gossip(7 + NAMES.index(name))
            for peer in peers:
                if peer not in dead:
                    members[peer].on_gossip(now, gossip)


@given(count=st.integers(1, 7))
def test_a_round_tells_two_others_and_never_oneself(count: int) -> None:
    member = league(count)["b1"]
    for second in range(20):
        peers, gossip = member.next_gossip(second)
        assert len(peers) == len(set(peers)) == min(2, count - 1)
        assert "b1" not in peers
        assert gossip.members[0] == MemberStatus("b1", 1, second + 1)


@settings(deadline=None)
@given(count=st.integers(2, 7), victim=st.integers(0, 6))
def test_only_the_dead_are_suspected_and_all_agree(count: int, victim: int) -> None:
    members = league(count)
    dead = (NAMES[victim % count],)
    suspects: dict[str, list[str]] = {name: [] for name in members}
    for second in range(1, 30):
        chat(members, second * SECOND, dead)
        for name, member in members.items():
            if name not in dead:
                suspects[name] += member.suspect_silent(second * SECOND)
    for name, member in members.items():
        if name not in dead:
            assert suspects[name] == list(dead)
            assert not member.is_alive(dead[0])
            assert heir(member) not in dead
    back = members[dead[0]]
    back.boot(30 * SECOND, 2)
    for second in range(30, 45):
        chat(members, second * SECOND)
    assert all(member.is_alive(dead[0]) for name, member in members.items() if name not in dead)


@given(st.lists(st.tuples(st.sampled_from(NAMES[:4]), st.integers(0, 4), st.integers(0, 9)), max_size=40))
def test_knowledge_only_grows_whatever_the_order(words: list[tuple[str, int, int]]) -> None:
    member = league(3)["b1"]
    best = {"b2": (0, 0), "b3": (0, 0)}
    for at, (name, epoch, beat) in enumerate(words, 1):
        member.on_gossip(at, Gossip((MemberStatus(name, epoch, beat),)))
        if name in best and (epoch, beat) > best[name]:
            best[name] = (epoch, beat)
            assert member.known[name].heard_at == at
        assert {peer: (heard.epoch, heard.beat) for peer, heard in member.known.items()} == best


def test_a_later_epoch_outranks_any_beat_of_an_earlier_one() -> None:
    member = league(2)["b1"]
    member.on_gossip(1, Gossip((MemberStatus("b2", 1, 900),)))
    member.on_gossip(2, Gossip((MemberStatus("b2", 2, 1),)))
    member.on_gossip(3, Gossip((MemberStatus("b2", 1, 901),)))
    assert (member.known["b2"].epoch, member.known["b2"].beat, member.known["b2"].heard_at) == (2, 1, 2)


def test_the_heir_is_the_next_alive_in_the_leagues_order() -> None:
    members = league(4)
    assert [heir(members[name]) for name in NAMES[:4]] == ["b2", "b3", "b4", "b1"]
    members["b1"].known["b2"].is_suspect = True
    assert heir(members["b1"]) == "b3"
    for heard in members["b1"].known.values():
        heard.is_suspect = True
    assert heir(members["b1"]) == ""
