"""The metrics of a machine's links: messages by kind, each counted once, and the backlog of each peer.

Messages may be repeated and may arrive out of order; a counter of their content must count each once. This
module follows the numbers on the envelopes as ``core.messaging.link`` does, and keeps nothing of the
messages.
"""

from typing import Final

from hanse.model.messages import Envelope

AHEAD_MAX: Final = 1_024
"""Numbers kept of messages that arrived out of order; the link itself drops further ones."""


class _Side:
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


class Links:
    """The links of one machine."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        """Envelopes sent by kind of body, with repetitions."""
        self.taken: dict[str, int] = {}
        self.repeated = 0
        """Numbered messages that were sent again."""
        self._sides: dict[str, _Side] = {}

    def takes(self, envelope: Envelope) -> bool:
        """Note an envelope that arrived; return whether it is the first of its number, or has none."""
        kind = type(envelope.body).__name__
        self.taken[kind] = self.taken.get(kind, 0) + 1
        side = self._side(envelope.source, envelope.session)
        seq = envelope.seq
        if envelope.session < side.session:
            return seq <= 0  # of an ended session: numbered messages are not taken
        side.acked = max(side.acked, envelope.ack)
        if seq <= 0:
            return True
        received = side.received
        if received < 0 or seq == received + 1:  # after a restart only the sequence from here on is known
            side.received = seq
            while side.ahead and side.ahead.pop(side.received + 1, seq) is None:
                side.received += 1
            return True
        if seq <= received or seq in side.ahead or len(side.ahead) >= AHEAD_MAX:
            return False
        side.ahead[seq] = None
        return True

    def sends(self, envelope: Envelope) -> bool:
        """Note an envelope that leaves; return whether it is the first of its number."""
        kind = type(envelope.body).__name__
        self.sent[kind] = self.sent.get(kind, 0) + 1
        side = self._side(envelope.target, envelope.session)
        seq = envelope.seq
        if seq <= 0:
            side.sent = max(side.sent, -seq)
            return False
        if seq <= side.sent:
            self.repeated += 1
            return False
        side.sent = seq
        return True

    def backlog(self) -> dict[str, int]:
        """Return the count of numbered messages that each peer has not acknowledged."""
        return {
            peer: max(side.sent - side.acked, 0)
            for peer, side in self._sides.items()
            if side.sent >= 0 and side.acked >= 0
        }

    def _side(self, peer: str, session: int) -> _Side:
        side = self._sides.get(peer)
        if side is None or side.session < session:
            side = self._sides[peer] = _Side(session)
        return side
