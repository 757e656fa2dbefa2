"""What passes a machine's links, as its shell sees it: kinds of messages, each once, and how far behind a
peer is.

Messages may be repeated and may come before their turn; whoever counts what they say must count each once.
This follows the numbers on the envelopes as ``core.messaging.link`` does, and holds nothing of the messages.
"""

from typing import Final

from hanse.model.messages import Envelope

AHEAD_MAX: Final = 1_024
"""Numbers kept that came before their turn; the link drops further messages itself."""


class _Side:
    """One peer, in its present session."""

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
        """Envelopes by kind of body, repeated ones too."""
        self.taken: dict[str, int] = {}
        self.repeated = 0
        """Numbered messages that were sent again."""
        self._sides: dict[str, _Side] = {}

    def takes(self, envelope: Envelope) -> bool:
        """Note an envelope that arrived; whether it is the first of its number, or has none."""
        kind = type(envelope.body).__name__
        self.taken[kind] = self.taken.get(kind, 0) + 1
        side = self._side(envelope.source, envelope.session)
        seq = envelope.seq
        if envelope.session < side.session:
            return seq <= 0  # of a session that is over: what is numbered is not taken
        side.acked = max(side.acked, envelope.ack)
        if seq <= 0:
            return True
        received = side.received
        if received < 0 or seq == received + 1:  # of what a restart interrupted, only what follows is known
            side.received = seq
            while side.ahead and side.ahead.pop(side.received + 1, seq) is None:
                side.received += 1
            return True
        if seq <= received or seq in side.ahead or len(side.ahead) >= AHEAD_MAX:
            return False
        side.ahead[seq] = None
        return True

    def sends(self, envelope: Envelope) -> bool:
        """Note an envelope that leaves; whether it is the first of its number."""
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
        """Numbered messages that each peer has not acknowledged."""
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
