"""Asking peers about the past: who is kept out until when, and what a contradiction leaves behind."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hanse.core.config import Timings
from hanse.core.messaging.link import Link, LinkSet
from hanse.live import history_check
from hanse.live.high_water_mark import JOURNAL_OLDER_FILE, LostHistoryError, refuse_known_older
from hanse.live.history_check import HistoryCheck
from hanse.model.messages import Ack, Envelope
from hanse.model.messages.history_check import HistoryQuery, HistoryReply

SENT, RECEIVED = 7, 3
SECONDS_MAX = 60


def awaited(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A story as an ordinary test."""

    @functools.wraps(story)
    def test(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(story(**fixtures), SECONDS_MAX))

    return test


class Member:
    """A member that starts, with two peers, and what it says to them."""

    def __init__(self, directory: Path) -> None:
        post = LinkSet("b1", Timings())
        for peer in ("b2", "c1"):
            post.links[peer] = Link(peer, sent=SENT, acked=SENT, received=RECEIVED, unacked={}, ahead={})
        self.said: list[Envelope] = []
        self.past = HistoryCheck(directory, post, ("b2", "c1"), self.said.append)

    @property
    def number(self) -> int:
        """The number of its question."""
        return next(envelope.body.number for envelope in self.said if isinstance(envelope.body, HistoryQuery))

    async def asking(self) -> "asyncio.Task[None]":
        """Begin to ask, and wait until everybody was asked."""
        task = asyncio.create_task(self.past.ask())
        while not self.said:
            await asyncio.sleep(0)
        return task

    def hears(self, peer: str, body: HistoryQuery | HistoryReply | Ack, ack: int = 0) -> bool:
        """Whether something that arrives is kept from the machine."""
        return self.past.intercept(Envelope(peer, "b1", 0, 0, ack, body))


@awaited
async def test_a_peer_is_kept_out_until_it_has_answered(tmp_path: Path) -> None:
    member = Member(tmp_path)
    asking = await member.asking()
    assert {envelope.target for envelope in member.said} == {"b2", "c1"}
    assert member.hears("c1", Ack(), ack=SENT)
    assert member.hears("c1", HistoryReply(member.number + 1, 99, 99)), "an answer to an earlier life"
    assert member.hears("c1", HistoryReply(member.number, SENT, RECEIVED))
    assert not member.hears("c1", Ack())
    assert member.past.unanswered == {"b2"}
    assert member.hears("b2", HistoryReply(member.number, 0, 0))
    await asking
    await member.past.keep_asking()
    assert not (tmp_path / JOURNAL_OLDER_FILE).exists()


@awaited
@pytest.mark.parametrize(("taken", "acked"), [(SENT + 1, 0), (0, RECEIVED + 1)])
async def test_a_contradiction_ends_it_and_leaves_a_marker(tmp_path: Path, taken: int, acked: int) -> None:
    member = Member(tmp_path)
    asking = await member.asking()
    member.hears("b2", HistoryReply(member.number, taken, acked))
    with pytest.raises(LostHistoryError, match="is older than"):
        await asking
    assert "b2" in member.past.unanswered, "nothing more is said to it"
    with pytest.raises(LostHistoryError, match=r"is older than .* delete"):
        refuse_known_older(tmp_path)


@awaited
async def test_a_peer_that_asks_is_answered_and_asked_at_once(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.hears("b2", HistoryQuery(5))
    assert [envelope.body for envelope in member.said[:1]] == [HistoryReply(5, RECEIVED, SENT)]
    assert [(envelope.target, type(envelope.body)) for envelope in member.said[1:]] == [("b2", HistoryQuery)]


@awaited
@pytest.mark.parametrize("ack", [SENT, SENT + 1])
async def test_a_peer_that_cannot_answer_is_judged_by_what_it_acknowledges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ack: int
) -> None:
    monkeypatch.setattr(history_check, "NO_REPLY_SECONDS", -1.0)
    member = Member(tmp_path)
    assert member.hears("c1", Ack(), ack=ack)
    assert (JOURNAL_OLDER_FILE in {path.name for path in tmp_path.iterdir()}) is (ack > SENT)
    assert ("c1" in member.past.unanswered) is (ack > SENT)
