"""What peers remember is compared with what a member remembers itself."""

from hanse.core.config import Timings
from hanse.core.history_check import LinkHistory, answer_history_query
from hanse.core.messaging.link import Link, LinkSet
from hanse.model.messages.history_check import HistoryReply


def post(**links: tuple[int, int, int]) -> LinkSet:
    """A post with links that have sent, had acknowledged and received so much."""
    found = LinkSet("b1", Timings())
    for peer, (sent, acked, received) in links.items():
        found.links[peer] = Link(peer, sent=sent, acked=acked, received=received, unacked={}, ahead={})
    return found


def test_a_past_that_says_as_much_or_more_is_taken() -> None:
    remembered = LinkHistory(post(c1=(7, 5, 3)))
    assert remembered.find_contradiction("c1", 7, 3) is None
    assert remembered.find_contradiction("c1", 0, 0) is None, (
        "the peer may have forgotten: that is for it to find"
    )
    assert remembered.find_contradiction("c2", 0, 0) is None


def test_what_was_said_or_acknowledged_and_is_forgotten_shows() -> None:
    remembered = LinkHistory(post(c1=(7, 5, 3)))
    said = remembered.find_contradiction("c1", 8, 3)
    assert said == "c1 has taken 8 messages from it, and its journal knows of 7"
    acknowledged = remembered.find_contradiction("c1", 7, 4)
    assert acknowledged == "it has acknowledged 4 messages of c1, and its journal has 3"
    assert remembered.find_contradiction("c2", 1, 0) is not None


def test_what_is_said_after_the_start_does_not_count() -> None:
    mine = post(c1=(7, 5, 3))
    remembered = LinkHistory(mine)
    mine.links["c1"].sent = 9
    assert remembered.find_contradiction("c1", 8, 0) is not None, "numbers that are being used a second time"


def test_an_answer_tells_the_link_and_makes_none() -> None:
    mine = post(c1=(7, 5, 3))
    assert answer_history_query(mine, "c1", 11) == HistoryReply(11, 3, 5)
    assert answer_history_query(mine, "c2", 12) == HistoryReply(12, 0, 0)
    assert list(mine.links) == ["c1"]


def test_a_session_that_is_over_says_nothing_and_one_that_is_not_known_shows() -> None:
    mine = post(r1=(7, 5, 3))
    mine.links["r1"].session = 4
    remembered = LinkHistory(mine)
    assert remembered.find_contradiction("r1", 99, 99, 3) is None
    assert remembered.find_contradiction("r1", 8, 0, 4) is not None
    assert remembered.find_contradiction("r1", 0, 0, 5) == (
        "r1 is in a session with it that its journal does not know"
    )
