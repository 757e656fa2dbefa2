"""The metrics of a machine's links: messages by kind, each counted once, and the backlog of each peer.

Messages may be repeated and may arrive out of order; a counter of their content must count each once. This
module follows the numbers on the envelopes as ``core.messaging.link`` does, and keeps nothing of the
messages.
"""

from typing import Final

from hanse.model.messages import Envelope

AHEAD_MAX: Final = 1_024
"""Numbers kept of messages that arrived out of order; the link itself drops further ones."""


class _PeerLink:
    """The link to one peer, in its present session."""

    __slots__ = ("acked", "ahead", "received", "sent", "session")

    def __init__(self, session: int) -> None:
        self.session = session
        self.sent = -1
        """Number of the last message sent; -1: none yet in this process."""
        self.acked = -1
        """The highest number that the peer has acknowledged."""
        self.received = -1
        """All numbers up to this one were seen; -1: none yet in this process."""
        self.ahead: dict[int, None] = {}


class LinkMetrics:
    """The links of one machine."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        """Envelopes sent by kind of body, with repetitions."""
        self.received: dict[str, int] = {}
        self.repeated = 0
        """Numbered messages that were sent again."""
        self._links: dict[str, _PeerLink] = {}

    def note_received(self, envelope: Envelope) -> bool:
        """Note an envelope that arrived; return whether it is the first of its number, or has none."""
        kind = type(envelope.body).__name__
        self.received[kind] = self.received.get(kind, 0) + 1
        link = self._link(envelope.source, envelope.session)
        seq = envelope.seq
        if envelope.session < link.session:
            return seq <= 0  # of an ended session: numbered messages are not taken
        link.acked = max(link.acked, envelope.ack)
        if seq <= 0:
            return True
        received = link.received
        if received < 0 or seq == received + 1:  # after a restart only the sequence from here on is known
            link.received = seq
            while link.ahead and link.ahead.pop(link.received + 1, seq) is None:
                link.received += 1
            return True
        if seq <= received or seq in link.ahead or len(link.ahead) >= AHEAD_MAX:
            return False
        link.ahead[seq] = None
        return True

    def note_sent(self, envelope: Envelope) -> bool:
        """Note an envelope that leaves; return whether it is the first of its number."""
        kind = type(envelope.body).__name__
        self.sent[kind] = self.sent.get(kind, 0) + 1
        link = self._link(envelope.target, envelope.session)
        seq = envelope.seq
        if seq <= 0:
            link.sent = max(link.sent, -seq)
            return False
        if seq <= link.sent:
            self.repeated += 1
            return False
        link.sent = seq
        return True

    def backlog(self) -> dict[str, int]:
        """Return the count of numbered messages that each peer has not acknowledged."""
        return {
            peer: max(link.sent - link.acked, 0)
            for peer, link in self._links.items()
            if link.sent >= 0 and link.acked >= 0
        }

    def _link(self, peer: str, session: int) -> _PeerLink:
        link = self._links.get(peer)
        if link is None or link.session < session:
            link = self._links[peer] = _PeerLink(session)
        return link
