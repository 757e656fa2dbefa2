"""The metrics of links: each message counts once, in whatever order it comes."""

from hypothesis import given
from hypothesis import strategies as st

from hanse.live.telemetry.link_metrics import AHEAD_MAX, LinkMetrics
from hanse.model.messages import Ack, Envelope


def arriving(seq: int, ack: int = 0, session: int = 0) -> Envelope:
    return Envelope("peer", "me", session, seq, ack, Ack())


@given(st.lists(st.integers(1, 30), max_size=200))
def test_each_number_counts_once_in_whatever_order_it_comes(order: list[int]) -> None:
    links = LinkMetrics()
    assert links.note_received(arriving(1))
    counted = [seq for seq in order if links.note_received(arriving(seq))]
    assert sorted(counted) == sorted(set(order) - {1})


def test_what_comes_too_early_is_bounded_and_a_new_session_begins_anew() -> None:
    links = LinkMetrics()
    assert links.note_received(arriving(1))
    assert sum(links.note_received(arriving(seq)) for seq in range(3, AHEAD_MAX + 10)) == AHEAD_MAX
    assert links.note_received(arriving(1, session=5))
    assert links.note_received(arriving(2, session=5))
    assert not links.note_received(arriving(2, session=4))
    assert links.note_received(arriving(0, session=4))


def test_a_backlog_is_what_was_sent_and_not_acknowledged() -> None:
    links = LinkMetrics()

    def send(seq: int) -> bool:
        return links.note_sent(Envelope("me", "peer", 0, seq, 0, Ack()))

    assert links.backlog() == {}
    assert [send(seq) for seq in (1, 2, 3)] == [True] * 3
    assert not send(2)
    assert links.repeated == 1
    links.note_received(arriving(0, ack=1))
    assert links.backlog() == {"peer": 2}
    links.note_received(arriving(0, ack=0))  # an old word does not undo a newer one
    assert links.backlog() == {"peer": 2}
    links.note_received(arriving(0, ack=3))
    assert links.backlog() == {"peer": 0}
    assert links.sent == {"Ack": 4}
