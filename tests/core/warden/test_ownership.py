"""Whose jobs run here: one owner at a time, adoption by the named heir only, and rounds that never come
back.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hanse.core.broker.failover.terms import TERMS_BITS
from hanse.core.config import WardenConfig
from hanse.core.warden.ownership import Ownership
from hanse.model.ids import SECOND
from hanse.model.messages import AbortTakeover, RefusalReason, RegisterStandby, RequestTakeover

ESTATE = "b1#1"
BROKERS = ("b1", "b2", "b3")
CONFIG = WardenConfig("c1", (), BROKERS)
LEASE = CONFIG.timings.cluster_lease


def tenure() -> Ownership:
    return Ownership(CONFIG, lambda _: None)


def may_claim(there: Ownership, now: int, broker: str) -> RefusalReason | None:
    return there.find_refusal(now, broker, ESTATE, dict(there.rounds(broker, now)))


def owned() -> Ownership:
    there = tenure()
    assert there.on_register_standby("b1", RegisterStandby(ESTATE, 1, "b2")).accepted
    there.rounds("b1", 0)
    there.renew("b1", 0, 0, (ESTATE,))
    return there


def test_an_estate_that_nobody_has_registered_is_fenced() -> None:
    assert tenure().find_refusal(0, "b1", ESTATE, {ESTATE: 1}) is RefusalReason.FENCED


def test_the_owner_may_claim_while_its_lease_lasts() -> None:
    there = owned()
    assert may_claim(there, LEASE - 1, "b1") is None
    assert may_claim(there, LEASE, "b1") is RefusalReason.STALE_ROUND
    assert there.find_refusal(0, "b2", ESTATE, {ESTATE: 1}) is RefusalReason.FENCED


def test_where_nobody_had_registered_only_the_last_owner_hears_that_a_takeover_was_abandoned() -> None:
    """b2 had taken over from b1 before this cluster joined."""
    config = WardenConfig("c1", (), BROKERS, retired=("b3",))
    there = Ownership(config, lambda _: None)
    term = 1 << TERMS_BITS
    assert there.on_request_takeover("b3", RequestTakeover(ESTATE, "b2", term, 1)).accepted
    assert not there.on_register_standby("b1", RegisterStandby(ESTATE, 5, "b2")).is_abandoned
    reply = there.on_register_standby("b2", RegisterStandby(ESTATE, term + 1, "b1"))
    assert reply.is_abandoned
    assert not reply.accepted


def test_a_standby_of_a_later_term_may_ask_again_after_it_gave_up() -> None:
    """Found by chaos (seed 1268): the owner died before its last registration arrived."""
    there = owned()
    for takeover_id in (1, 2):
        assert there.on_request_takeover("b3", RequestTakeover(ESTATE, "b1", 2, takeover_id)).accepted
        assert there.find_owner(ESTATE) == "b3"
        there.on_abort_takeover("b3", AbortTakeover(ESTATE, 2, takeover_id))
        assert there.find_owner(ESTATE) == "b1"
    assert not there.on_request_takeover("b2", RequestTakeover(ESTATE, "b1", 1, 1)).accepted


def test_a_lease_counts_from_when_the_beat_was_sent() -> None:
    there = owned()
    there.rounds("b1", 5 * SECOND)
    there.renew("b1", 20 * SECOND, 5 * SECOND, (ESTATE,))
    assert there.expire_leases(5 * SECOND + LEASE - 1) == []
    assert there.expire_leases(5 * SECOND + LEASE) == [ESTATE]


def test_a_lapse_begins_a_new_round_and_the_old_one_is_refused_for_ever() -> None:
    there = owned()
    old = dict(there.rounds("b1", SECOND))
    assert there.expire_leases(LEASE) == [ESTATE]
    assert there.expire_leases(LEASE) == []  # once
    now = LEASE + SECOND
    new = dict(there.rounds("b1", now))
    assert new[ESTATE] == old[ESTATE] + 1
    there.renew("b1", now, now, (ESTATE,))
    assert there.find_refusal(now, "b1", ESTATE, new) is None
    assert there.find_refusal(now, "b1", ESTATE, old) is RefusalReason.STALE_ROUND


def test_an_answer_to_a_beat_of_an_earlier_round_does_not_begin_the_new_one() -> None:
    there = owned()
    there.renew("b1", 10 * SECOND, 10 * SECOND, (ESTATE,))
    there.expire_leases(10 * SECOND + LEASE)
    there.rounds("b1", 11 * SECOND + LEASE)  # tells of the new round
    there.renew("b1", 12 * SECOND + LEASE, 20 * SECOND, (ESTATE,))
    assert there.find_lapsed() == (ESTATE,)
    there.renew("b1", 12 * SECOND + LEASE, 11 * SECOND + LEASE, (ESTATE,))
    assert there.find_lapsed() == ()


def test_the_named_heir_may_adopt_and_then_the_owner_is_fenced() -> None:
    there = owned()
    assert there.on_request_takeover("b2", RequestTakeover(ESTATE, "b1", 1, 1)).accepted
    assert there.find_owner(ESTATE) == "b2"
    assert there.find_refusal(0, "b1", ESTATE, {ESTATE: 1}) is RefusalReason.FENCED


def test_another_than_the_heir_may_not_adopt() -> None:
    there = owned()
    answer = there.on_request_takeover("b3", RequestTakeover(ESTATE, "b1", 1, 1))
    assert (answer.accepted, answer.owner) == (False, "b1")


def test_an_heir_of_an_older_term_may_not_adopt() -> None:
    there = owned()
    assert there.on_register_standby("b1", RegisterStandby(ESTATE, 2, "b3")).accepted
    assert not there.on_request_takeover("b2", RequestTakeover(ESTATE, "b1", 1, 1)).accepted
    assert there.on_request_takeover("b3", RequestTakeover(ESTATE, "b1", 2, 1)).accepted


def test_an_adoption_that_takes_somebody_else_for_the_owner_is_refused() -> None:
    there = owned()
    assert there.on_request_takeover("b2", RequestTakeover(ESTATE, "b1", 1, 1)).accepted
    assert not there.on_request_takeover("b3", RequestTakeover(ESTATE, "b1", 5, 1)).accepted


def test_what_an_heir_gives_back_is_the_owners_again() -> None:
    there = owned()
    there.on_request_takeover("b2", RequestTakeover(ESTATE, "b1", 1, 1))
    assert there.on_abort_takeover("b2", AbortTakeover(ESTATE, 1, 1)).owner == "b1"
    assert may_claim(there, 0, "b1") is None


def test_giving_back_what_one_does_not_have_changes_nothing() -> None:
    there = owned()
    there.on_abort_takeover("b3", AbortTakeover(ESTATE, 1, 1))
    assert there.find_owner(ESTATE) == "b1"


def test_a_warden_that_first_hears_of_an_estate_by_an_adoption_takes_its_owner_back() -> None:
    there = tenure()
    assert there.on_request_takeover("b2", RequestTakeover(ESTATE, "b1", 1, 1)).accepted
    there.on_abort_takeover("b2", AbortTakeover(ESTATE, 1, 1))
    assert there.on_register_standby("b1", RegisterStandby(ESTATE, 3, "b2")).accepted
    assert there.find_owner(ESTATE) == "b1"


class TenureHistory(RuleBasedStateMachine):
    """Any messages in any order at one warden, with time that only goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.there = tenure()
        self.now = 0
        self.round = 0
        self.dead: set[int] = set()
        """Rounds that have lapsed."""
        self.beats: list[int] = []

    @rule(term=st.integers(1, 6), heir=st.sampled_from(("b2", "b3")), sure=st.booleans())
    def register(self, term: int, heir: str, sure: bool) -> None:
        record = self.there.shards.get(ESTATE)
        before, known = (record.owner, record.term) if record else ("", 0)
        answer = self.there.on_register_standby("b1", RegisterStandby(ESTATE, term, heir, sure))
        assert answer.owner == self.there.find_owner(ESTATE)
        if answer.accepted and term >= known:
            assert (answer.owner, answer.term) == ("b1", term)
        else:
            assert answer.owner == before
            assert answer.term == known

    @rule(broker=st.sampled_from(("b2", "b3")), term=st.integers(1, 6), bid=st.integers(1, 3))
    def adopt(self, broker: str, term: int, bid: int) -> None:
        record = self.there.shards.get(ESTATE)
        known = (record.owner, record.term, record.standby) if record else ("", 0, "")
        answer = self.there.on_request_takeover(broker, RequestTakeover(ESTATE, "b1", term, bid))
        assert answer.takeover_id == bid
        if answer.accepted:
            assert self.there.find_owner(ESTATE) == broker
            assert known[0] in ("", "b1", broker)
            if known[0] == "b1":
                assert term > known[1] or (term == known[1] and known[2] == broker)
        else:
            assert self.there.find_owner(ESTATE) == known[0]

    @rule(broker=st.sampled_from(BROKERS), term=st.integers(1, 6))
    def give_back(self, broker: str, term: int) -> None:
        before = self.there.find_owner(ESTATE)
        self.there.on_abort_takeover(broker, AbortTakeover(ESTATE, term, 1))
        if before != broker:
            assert self.there.find_owner(ESTATE) == before

    @rule(seconds=st.sampled_from((1, 5, 31)))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * SECOND
        rounds = {name: record.round for name, record in self.there.shards.items()}
        for shard in self.there.expire_leases(self.now):
            self.dead.add(rounds[shard])

    @rule(broker=st.sampled_from(BROKERS))
    def beat(self, broker: str) -> None:
        self.there.rounds(broker, self.now)
        self.beats.append(self.now)

    @rule(broker=st.sampled_from(BROKERS), data=st.data())
    def renew(self, broker: str, data: st.DataObject) -> None:
        echo = data.draw(st.sampled_from(self.beats)) if self.beats else self.now
        record = self.there.shards.get(ESTATE)
        before = record.until if record else 0
        self.there.renew(broker, self.now, echo, (ESTATE,))
        if record is not None and record.until != before:
            assert record.owner == broker
            assert record.until == echo + LEASE > before

    @invariant()
    def only_the_owner_passes_and_only_in_a_living_round(self) -> None:
        for broker in BROKERS:
            for number in range(1, 8):
                passed = self.there.find_refusal(self.now, broker, ESTATE, {ESTATE: number}) is None
                if passed:
                    assert self.there.find_owner(ESTATE) == broker
                    assert number not in self.dead
                    assert self.there.shards[ESTATE].round == number

    @invariant()
    def rounds_only_rise(self) -> None:
        record = self.there.shards.get(ESTATE)
        if record is not None:
            assert record.round >= self.round
            self.round = record.round


TenureHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_tenure_history = TenureHistory.TestCase
