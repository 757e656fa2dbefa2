"""Links over a network that loses, doubles and reorders, between machines that restart: once each, and in
order.
"""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hanse.core.config import Timings
from hanse.core.messaging.link import AHEAD_MAX, NEVER, WINDOW_MAX, Link, LinkSet
from hanse.model.effects import Effect, SendMessage
from hanse.model.ids import SECOND, TaskId
from hanse.model.messages import Ack, CancelAttempts, Envelope

SIDES = ("a", "b")


def body(number: int) -> CancelAttempts:
    return CancelAttempts((TaskId(number),), (0,))


def other(side: str) -> str:
    return "b" if side == "a" else "a"


class LinkHistory(RuleBasedStateMachine):
    """Two machines and the envelopes between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.session = 0
        self.serial = 0
        self.fresh()

    def fresh(self) -> None:
        self.posts = {side: LinkSet(side, Timings()) for side in SIDES}
        self.air: list[Envelope] = []
        self.begin_session()

    def begin_session(self) -> None:
        self.sent: dict[str, list[int]] = {side: [] for side in SIDES}
        self.taken: dict[str, list[int]] = {side: [] for side in SIDES}
        self.sent_when_taken: dict[str, list[int]] = {side: [] for side in SIDES}
        """For each message taken, how many the taker had sent by then."""

    def out(self, commands: list[Effect]) -> None:
        self.air += [command.envelope for command in commands if isinstance(command, SendMessage)]

    @rule(side=st.sampled_from(SIDES))
    def send(self, side: str) -> None:
        self.serial += 1
        commands: list[Effect] = []
        number = self.posts[side].send(commands, self.now, other(side), body(self.serial))
        self.sent[side].append(self.serial)
        assert number == len(self.sent[side])
        self.out(commands)

    @rule(side=st.sampled_from(SIDES))
    def send_soft(self, side: str) -> None:
        commands: list[Effect] = []
        self.posts[side].send_soft(commands, other(side), Ack())
        self.out(commands)

    @precondition(lambda self: self.air)
    @rule(data=st.data(), again=st.booleans())
    def arrive(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.air) - 1))
        self.hand_over(self.air[at] if again else self.air.pop(at))

    def hand_over(self, envelope: Envelope) -> None:
        side = envelope.target
        for taken in self.posts[side].receive(self.now, envelope):
            if isinstance(taken, CancelAttempts):
                self.taken[side].append(taken.tasks[0])
                self.sent_when_taken[side].append(len(self.sent[side]))

    @precondition(lambda self: self.air)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.air.pop(data.draw(st.integers(0, len(self.air) - 1)))

    @rule(seconds=st.integers(0, 3))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * SECOND
        for post in self.posts.values():
            commands: list[Effect] = []
            if self.now >= post.due:
                post.tick(commands, self.now)
                assert post.due > self.now
            self.out(commands)

    @rule(side=st.sampled_from(SIDES))
    def restart(self, side: str) -> None:
        """The journal gives the links back; what was not acknowledged is repeated."""
        old = self.posts[side]
        self.posts[side] = post = LinkSet(side, Timings())
        post.links = msgspec.msgpack.decode(msgspec.msgpack.encode(old.links), type=dict[str, Link])
        post.boot(self.now)

    @rule()
    def reopen(self) -> None:
        """Both sides begin a new session: nothing of the old one is ever taken again."""
        self.session += 1
        for side in SIDES:
            unacked = self.posts[side].reopen(other(side), self.session)
            numbers = [it.tasks[0] for it in unacked if isinstance(it, CancelAttempts)]
            assert numbers == self.sent[side][len(self.sent[side]) - len(numbers) :]
            untaken = set(self.sent[side]) - set(self.taken[other(side)])
            assert untaken <= set(numbers)
        self.begin_session()

    @rule()
    def heal(self) -> None:
        """Over a good network all that was sent arrives, and is known to have."""
        for _ in range(40):
            waiting, self.air = self.air, []
            for envelope in waiting:
                self.hand_over(envelope)
            self.now += 9 * SECOND
            self.pass_time(0)
        for side in SIDES:
            assert self.taken[other(side)] == self.sent[side]
            link = self.posts[side].link(other(side))
            assert not link.unacked
            assert not link.ahead
            assert link.resend_at == NEVER

    @invariant()
    def once_and_in_order(self) -> None:
        for side in SIDES:
            taken = self.taken[other(side)]
            assert taken == self.sent[side][: len(taken)]

    @invariant()
    def bookkeeping(self) -> None:
        for side, post in self.posts.items():
            post.check()
            link = post.link(other(side))
            assert link.acked <= len(self.taken[other(side)])
            assert link.received == len(self.taken[side])
            assert len(link.ahead) <= AHEAD_MAX
            assert link.unacked == {} or link.resend_at < NEVER

    @invariant()
    def firm_means_that_nothing_the_peer_said_before_is_missing(self) -> None:
        for side, post in self.posts.items():
            firm = post.link(other(side)).firm
            if firm:
                said_before = self.sent_when_taken[other(side)][firm - 1]
                assert len(self.taken[side]) >= said_before


LinkHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
test_link_history = LinkHistory.TestCase


def test_a_link_that_is_half_full_counts_as_crowded() -> None:
    post = LinkSet("a", Timings())
    commands: list[Effect] = []
    for number in range(WINDOW_MAX // 2):
        post.send(commands, 0, "b", body(number))
    assert not post.link("b").is_crowded
    post.send(commands, 0, "b", body(0))
    assert post.link("b").is_crowded


def test_what_arrives_too_far_ahead_is_dropped_and_taken_when_it_is_repeated() -> None:
    sender, taker = LinkSet("a", Timings()), LinkSet("b", Timings())
    commands: list[Effect] = []
    for number in range(AHEAD_MAX + 50):
        sender.send(commands, 0, "b", body(number))
    envelopes = [command.envelope for command in commands if isinstance(command, SendMessage)]
    for envelope in envelopes[1:]:
        assert taker.receive(0, envelope) == []
    assert len(taker.link("a").ahead) == AHEAD_MAX
    assert len(taker.receive(0, envelopes[0])) == AHEAD_MAX + 1
    left = [taken for envelope in envelopes for taken in taker.receive(1, envelope)]
    assert [it.tasks[0] for it in left if isinstance(it, CancelAttempts)] == list(
        range(AHEAD_MAX + 1, AHEAD_MAX + 50)
    )


def test_repeats_grow_rarer_up_to_a_bound_and_start_anew_with_an_acknowledgement() -> None:
    timings = Timings()
    post = LinkSet("a", timings)
    commands: list[Effect] = []
    post.send(commands, 0, "b", body(1))
    post.send(commands, 0, "b", body(2))
    times = []
    now = 0
    for _ in range(6):
        now = post.due
        times.append(now)
        post.tick(commands, now)
    gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert gaps == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 8 * SECOND, 8 * SECOND]
    post.receive(now, Envelope("b", "a", 0, 0, 1, Ack()))
    assert post.link("b").resend_at == now + timings.resend_after
