"""Check that a member's state is its newest, by what its peers remember of it.

A member sends, and acknowledges, only what is on its disk. So however it died, no peer has taken more from it
than it knows to have sent, or holds an acknowledgement of more than it knows to have received. Otherwise it
has come back with older state: an older copy of its files, or a journal that lost its end.
"""

from typing import NamedTuple

from hanse.core.messaging.link import LinkSet
from hanse.model.messages.history_check import HistoryReply


class LinkProgress(NamedTuple):
    """Progress of the link to one peer, in message numbers of the link."""

    session: int = 0
    sent: int = 0
    received: int = 0


class LinkHistory:
    """Progress of a member's links at its restart."""

    def __init__(self, links: LinkSet) -> None:
        self._known = {
            link.peer: LinkProgress(link.session, link.sent, link.received) for link in links.links.values()
        }

    def find_contradiction(self, peer: str, taken: int, acked: int, session: int = 0) -> str | None:
        """Return what a peer remembers and this member does not; None if nothing. A session starts from zero,
        so numbers of an earlier one prove nothing."""
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
    """Answer a peer's query about its own link. This is no event and changes no state."""
    link = links.links.get(peer)
    return HistoryReply(number, 0, 0) if link is None else HistoryReply(number, link.received, link.acked)
