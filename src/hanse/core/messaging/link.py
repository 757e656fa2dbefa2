"""Exactly-once, in-order talk between two machines over a network that loses, doubles and reorders.

A ``Link`` is one side of a pair. It numbers what it sends, keeps it until the peer has acknowledged it,
repeats it when that takes too long, and hands on what it receives once and in order. Because every event is
journalled before it is handled, an acknowledgement means *durably taken*, and a restarted machine finds its
links as they were. A ``LinkSet`` holds the links of one machine.
"""

# ruff: noqa: PLR1730  on the way of every message: a call of min() costs more than all it compares

from collections.abc import Callable
from typing import Final

import msgspec

from hanse.core.config import Timings
from hanse.model.effects import Effect, SendMessage
from hanse.model.messages import Ack, Envelope, Message, SequencedMessage

WINDOW_MAX: Final = 8_192
"""Messages in flight to one peer. A machine stops proposing to a peer whose link is more than half full."""
AHEAD_MAX: Final = 1_024
"""Messages kept that arrived before their turn; further ones are dropped, and repeated by the sender."""
RESEND_MAX: Final = 64
"""Messages repeated at one time, the oldest first."""
NEVER: Final = 1 << 62
NO_SESSION: Final = -1
"""Of a peer that has left: nothing sequenced is taken from it, and nothing is kept for it."""


class Link(msgspec.Struct, gc=False):
    """The state of one side. Times on the own machine's clock."""

    peer: str
    session: int = 0
    sent: int = 0
    """Number of the last message sent."""
    acked: int = 0
    """Number of the last message that the peer has taken."""
    firm: int = 0
    """The same, as known when all that the peer had sent before saying so had been taken here, so that
    nothing of it can contradict this any more. Only soft messages tell: a repeated one has an old number
    and a new ack."""
    received: int = 0
    """Number of the last message taken from the peer."""
    unacked: dict[int, SequencedMessage] = {}
    ahead: dict[int, SequencedMessage] = {}
    resend_at: int = NEVER
    resend_after: int = 0
    ack_at: int = NEVER
    since: int = 0
    """Since when what is unacknowledged has been waited for without any progress."""

    def is_unresponsive(self, now: int, patience: int) -> bool:
        """Whether the peer has taken nothing for so long, although there was something to take."""
        return now - self.since > patience and bool(self.unacked)

    @property
    def is_crowded(self) -> bool:
        """Whether the peer is so far behind that new proposals should go elsewhere."""
        return len(self.unacked) * 2 > WINDOW_MAX


class LinkSet:
    """A machine's links, and the writing of its envelopes. ``out`` is the machine's list of commands."""

    def __init__(self, name: str, timings: Timings, retired: tuple[str, ...] = ()) -> None:
        self.name = name
        self.timings = timings
        self.retired = retired
        """Peers that have left for good: nothing is kept for them."""
        self.links: dict[str, Link] = {}
        self.due = NEVER
        """When ``tick`` is next needed."""
        self.on_firm_ack: Callable[[], None] | None = None
        """Called when more of what was sent is firm with some peer."""

    def link(self, peer: str) -> Link:
        """The link to a peer, made at the first mention."""
        found = self.links.get(peer)
        if found is not None:
            return found
        if peer in self.retired:
            return Link(peer, NO_SESSION, unacked={}, ahead={})
        found = self.links[peer] = Link(peer, unacked={}, ahead={})
        return found

    def is_crowded(self, peer: str) -> bool:
        """Whether the link to a peer is crowded, asked often and of links that mostly exist."""
        link = self.links.get(peer)
        return link is not None and len(link.unacked) * 2 > WINDOW_MAX

    def send(self, out: list[Effect], now: int, peer: str, body: SequencedMessage) -> int:
        """Send a message that must arrive; returns its number on the link."""
        link = self.links.get(peer) or self.link(peer)
        unacked = link.unacked
        assert len(unacked) < WINDOW_MAX, f"{self.name}: {peer} does not acknowledge"
        if not unacked:
            link.since = now
        link.sent = number = link.sent + 1
        unacked[number] = body
        if link.resend_at == NEVER:
            after = self.timings.resend_after
            if link.resend_after != after:
                link.resend_after = after
            link.resend_at = at = now + after
            if at < self.due:
                self.due = at
        if link.ack_at != NEVER:
            link.ack_at = NEVER
        out.append(SendMessage(Envelope(self.name, peer, link.session, number, link.received, body)))
        return number

    def send_soft(self, out: list[Effect], peer: str, body: Message) -> None:
        """Send a message that may be lost."""
        link = self.links.get(peer) or self.link(peer)
        if link.ack_at != NEVER:  # to store in a record costs several times what it costs to look
            link.ack_at = NEVER
        out.append(SendMessage(Envelope(self.name, peer, link.session, -link.sent, link.received, body)))

    def receive(self, now: int, envelope: Envelope) -> list[Message]:
        """What an arrived envelope lets the machine take now: nothing, its body, or several in order."""
        link = self.links.get(envelope.source) or self.link(envelope.source)
        seq, ack = envelope.seq, envelope.ack
        if envelope.session != link.session:
            return [envelope.body] if seq <= 0 else []
        if ack > link.acked and ack <= link.sent:
            self._on_ack(link, now, ack)
        if seq <= 0:
            if ack > link.firm and -seq <= link.received:
                link.firm = min(ack, link.sent)
                if self.on_firm_ack is not None:
                    self.on_firm_ack()
            return [envelope.body]
        if seq <= link.received:
            link.ack_at = now  # the peer repeats itself: it has not heard us
        elif link.ack_at == NEVER:
            link.ack_at = now + self.timings.ack_delay
        if link.ack_at < self.due:
            self.due = link.ack_at
        if link.resend_at < self.due:
            self.due = link.resend_at
        if seq != link.received + 1:
            if seq > link.received and len(link.ahead) < AHEAD_MAX:
                link.ahead[seq] = envelope.body  # type: ignore[assignment]  # numbered bodies are sequenced ones
            return []
        link.received = seq
        return self._in_turn(link, envelope.body) if link.ahead else [envelope.body]

    def _on_ack(self, link: Link, now: int, ack: int) -> None:
        """The peer has taken everything up to ``ack``."""
        unacked, after = link.unacked, self.timings.resend_after
        for number in range(link.acked + 1, ack + 1):
            del unacked[number]
        link.acked = ack
        link.since = now
        if link.resend_after != after:
            link.resend_after = after
        link.resend_at = now + after if unacked else NEVER

    @staticmethod
    def _in_turn(link: Link, first: Message) -> list[Message]:
        """What came in its turn, and what was kept because it had come too early."""
        bodies = [first]
        while link.ahead:
            body = link.ahead.pop(link.received + 1, None)
            if body is None:
                break
            link.received += 1
            bodies.append(body)
        return bodies

    def tick(self, out: list[Effect], now: int) -> None:
        """Repeat what is overdue and acknowledge what nothing else carried."""
        due = NEVER
        for link in self.links.values():
            at = link.resend_at
            if link.ack_at < at:
                at = link.ack_at
            if at <= now:
                at = self._catch_up(link, out, now)
            if at < due:
                due = at
        self.due = due

    def _catch_up(self, link: Link, out: list[Effect], now: int) -> int:
        """Say what is overdue on a link; when something is next due there."""
        if link.ack_at != NEVER:
            link.ack_at = NEVER
        if link.resend_at <= now:
            for number, body in list(link.unacked.items())[:RESEND_MAX]:
                out.append(
                    SendMessage(Envelope(self.name, link.peer, link.session, number, link.received, body))
                )
            link.resend_after = min(2 * link.resend_after, self.timings.resend_max)
            link.resend_at = now + link.resend_after
        else:
            out.append(
                SendMessage(Envelope(self.name, link.peer, link.session, -link.sent, link.received, Ack()))
            )
        return link.resend_at

    def boot(self, now: int) -> None:
        """After a restart: repeat everything unacknowledged at the next tick."""
        for link in self.links.values():
            if link.unacked:
                link.resend_after = self.timings.resend_after
                link.resend_at = link.since = now
        self.due = now

    def reopen(self, peer: str, session: int) -> list[SequencedMessage]:
        """Start a new session with a peer that forgot the old one; returns what it never acknowledged."""
        old = self.link(peer)
        self.links[peer] = Link(peer, session, unacked={}, ahead={})
        return list(old.unacked.values())

    def restore(self, links: dict[str, Link], due: int) -> None:
        """Take the links of a dumped state."""
        self.links, self.due = links, due
        for peer in self.retired:
            links.pop(peer, None)

    def find_leftovers(self) -> list[str]:
        """What is not as it should be when no work is left."""
        return [
            f"link to {link.peer} has {len(link.unacked)} unacknowledged"
            for link in self.links.values()
            if link.unacked
        ]

    def check(self) -> None:
        """Bounds and bookkeeping."""
        for link in self.links.values():
            assert len(link.unacked) == link.sent - link.acked <= WINDOW_MAX, f"{self.name}->{link.peer}"
            assert len(link.ahead) <= AHEAD_MAX
