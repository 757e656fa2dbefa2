"""Whether a member's past is its newest, judged by what its peers remember of it.

A member says, and acknowledges, only what is on its disk. So however it died, no peer has taken more from it
than it knows to have sent, or holds an acknowledgement of more than it knows to have received. Where one has,
the member has come back with an older past: an older copy of its files, or a journal whose end was lost.
"""

from typing import NamedTuple

from hanse.core.messaging.link import LinkSet
from hanse.model.messages.history_check import HistoryReply


class LinkProgress(NamedTuple):
    """How far the talk with one peer had come. Numbers are those of the link."""

    session: int = 0
    sent: int = 0
    received: int = 0


class LinkHistory:
    """What a member remembers of its talk with others at the moment when it comes back."""

    def __init__(self, links: LinkSet) -> None:
        self._known = {
            link.peer: LinkProgress(link.session, link.sent, link.received) for link in links.links.values()
        }

    def find_contradiction(self, peer: str, taken: int, acked: int, session: int = 0) -> str | None:
        """What a peer remembers that this member does not; None if nothing. A session begins at nothing, so
        the numbers of one that is over say nothing."""
        known = self._known.get(peer, LinkProgress())
        if session > known.session:
            return f"{peer} is in a session with it that its journal does not know"
        if session < known.session:
            return None
        if taken > known.sent:
            return f"{peer} has taken {taken} messages from it, and its journal knows of {known.sent}"
        if acked > known.received:
            return f"it has acknowledged {acked} messages of {peer}, and its journal has {known.received}"
        return None


def answer_history_query(links: LinkSet, peer: str, number: int) -> HistoryReply:
    """The answer to a peer that asks what is remembered of it. Changes nothing, as no event has happened."""
    link = links.links.get(peer)
    return HistoryReply(number, 0, 0) if link is None else HistoryReply(number, link.received, link.acked)
