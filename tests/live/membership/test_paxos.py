"""However rounds overlap, messages get lost and brokers come back: one text for each version."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.api.league_file_records import Vote, VoteReply, VoteRequest
from hanse.live.membership.paxos import Acceptor, VoteCount

BROKERS = ("b1", "b2", "b3")


class Broker:
    """An acceptor on a disk, and what it has written there."""

    def __init__(self) -> None:
        self.disk = Vote(0)
        self.start()

    def start(self) -> None:
        self.acceptor = Acceptor(self.disk, self._keep)

    def _keep(self, vote: Vote) -> None:
        self.disk = vote

    def answer(self, question: VoteRequest) -> VoteReply:
        return self.acceptor.answer(question, 4)


class Proposer:
    """One round after the other, a step at a time; ``reached`` says who hears of a step and answers."""

    def __init__(self, name: str, brokers: list[Broker]) -> None:
        self.name, self.brokers = name, brokers
        self.round = 0
        self.text = f"the text of {name}"
        self.promised: str | None = None
        self.chosen: str | None = None

    def step(self, reached: list[int]) -> None:
        tally = VoteCount(len(self.brokers))
        if self.promised is None:
            self.round += 1
        question = VoteRequest(5, (self.round, self.name), self.promised or "")
        for index in reached:
            tally.add(self.brokers[index].answer(question))
        if self.promised is None:
            if tally.is_won:
                self.promised = tally.text_to_propose or self.text
        else:
            if tally.is_won:
                self.chosen = self.promised
            self.promised = None
        self.round = max(self.round, tally.highest_ballot[0])


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), unique=True), st.integers(-1, 2)), max_size=40
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_no_two_texts_are_ever_chosen_for_one_version(steps: list[tuple[int, list[int], int]]) -> None:
    """Steps of three proposers in any order; each reaches some brokers; a broker may start again before."""
    brokers = [Broker() for _ in BROKERS]
    proposers = [Proposer(name, brokers) for name in BROKERS]
    chosen: set[str] = set()
    for who, reached, restarted in steps:
        if restarted >= 0:
            brokers[restarted].start()
        proposers[who].step(reached)
        chosen |= {one.chosen for one in proposers if one.chosen is not None}
        assert len(chosen) <= 1


def test_a_round_that_reaches_a_majority_is_won_and_a_smaller_one_is_not() -> None:
    brokers = [Broker() for _ in BROKERS]
    lonely = Proposer("b1", brokers)
    lonely.step([0])
    assert lonely.promised is None
    lonely.step([0, 1])
    lonely.step([0, 1])
    assert lonely.chosen == "the text of b1"
    late = Proposer("b3", brokers)
    for _ in range(4):
        late.step([1, 2])
    assert late.chosen == "the text of b1"


def test_a_broker_votes_on_the_version_behind_its_own_alone() -> None:
    broker = Broker()
    for version in (4, 6):
        reply = broker.answer(VoteRequest(version, (1, "b1")))
        assert (reply.agreed, reply.current) == (False, 4)
    assert broker.disk == Vote(0)
    assert broker.answer(VoteRequest(5, (1, "b1"))).agreed


def test_a_promise_outlives_the_broker() -> None:
    broker = Broker()
    assert broker.answer(VoteRequest(5, (7, "b2"))).agreed
    broker.start()
    assert not broker.answer(VoteRequest(5, (6, "b3"))).agreed
    assert not broker.answer(VoteRequest(5, (7, "b1"), "text")).agreed
    assert broker.answer(VoteRequest(5, (7, "b2"), "text")).agreed
    assert broker.disk.text == "text"
