"""Exactly-once, in-order messages between two machines over a network that loses, duplicates and reorders.

Theory of operation (ADR 0003):

State. A ``Link`` is one side of a pair of machines and part of the dumped state; a ``LinkSet`` holds the
links of one machine. ``sent`` is the number of the last sequenced message; ``unacked`` holds those that the
peer has not acknowledged; ``received`` is the last number taken from the peer; ``ahead`` holds messages that
arrived too early.

Sending. ``send`` numbers a message and keeps it in ``unacked``. ``tick`` repeats the oldest ones when
``resend_after`` has passed without progress, then after twice the time, up to ``resend_max``. Every envelope
carries ``received`` as a cumulative acknowledgement; if none was sent for ``ack_delay``, ``tick`` sends an
``Ack``. ``send_soft`` sends a message that may be lost; instead of a number of its own it carries ``-sent``.

Receiving. A machine passes each envelope to ``receive`` and handles the bodies that it returns: a soft body
always, a sequenced one if its number is ``received + 1``, followed by the bodies in ``ahead`` that continue
it. A repeated message is dropped, and acknowledged again with the next tick.

Firm acknowledgements. An acknowledgement may overtake sequenced messages that the peer sent before it.
``firm`` is the acknowledgement known after all of those were taken here. Only soft messages can show this: a
repeated one has an old number and a new acknowledgement. The broker publishes only what is firm (ADR 0011).

Safety. A number is taken once, and in order. An acknowledgement means *durably taken*, because a shell
performs the effects of an event when the event is on disk; a restarted machine finds its links as they were,
and ``boot`` has everything unacknowledged repeated. A runner has no journal: it opens a new session, both
sides ``reopen`` the link, and sequenced messages and acknowledgements of another session are dropped.

Bounds. Machines stop proposing to a peer whose link is crowded; ``WINDOW_MAX`` is an assertion. Always
``len(unacked) == sent - acked``.
"""

# ruff: noqa: PLR1730  for every message: a call of min() costs more than the comparisons

from collections.abc import Callable
from typing import Final

import msgspec

from hanse.core.config import Timings
from hanse.model.effects import Effect, SendMessage
from hanse.model.messages import Ack, Envelope, Message, SequencedMessage

WINDOW_MAX: Final = 8_192
"""Messages in flight to one peer. A machine stops proposing to a peer when the link is more than half
full."""
AHEAD_MAX: Final = 1_024
"""Messages kept that arrived before their turn; further ones are dropped, and repeated by the sender."""
RESEND_MAX: Final = 64
"""Messages repeated at one time, the oldest first."""
NEVER: Final = 1 << 62
NO_SESSION: Final = -1
"""Session of a retired peer: no sequenced message is taken from it, and none is kept for it."""


class Link(msgspec.Struct, gc=False):
    """State of one side. Times are on the own machine's clock."""

    peer: str
    session: int = 0
    sent: int = 0
    """Number of the last message sent."""
    acked: int = 0
    """Number of the last message that the peer has taken."""
    firm: int = 0
    """Number of the last message with an acknowledgement that came after everything that the peer had sent
    before it, so that nothing on its way can contradict it."""
    received: int = 0
    """Number of the last message taken from the peer."""
    unacked: dict[int, SequencedMessage] = {}
    ahead: dict[int, SequencedMessage] = {}
    resend_at: int = NEVER
    resend_after: int = 0
    ack_at: int = NEVER
    since: int = 0
    """Time since which unacknowledged messages wait without any progress."""

    def is_unresponsive(self, now: int, patience: int) -> bool:
        """True if unacknowledged messages have waited for longer than ``patience`` without progress."""
        return now - self.since > patience and bool(self.unacked)

    @property
    def is_crowded(self) -> bool:
        """True if the peer is so far behind that new proposals should go elsewhere."""
        return len(self.unacked) * 2 > WINDOW_MAX


class LinkSet:
    """Links of a machine. ``effects`` is the machine's list of effects."""

    def __init__(
        self, name: str, timings: Timings, retired: tuple[str, ...] = (),
        on_firm_ack: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.timings = timings
        self.retired = retired
        """Peers that have left permanently: nothing is kept for them."""
        self.links: dict[str, Link] = {}
        self.due = NEVER
        """Time at which ``tick`` is next needed."""
        self._on_firm_ack = on_firm_ack
        """Callback after more of what was sent has become firm with some peer."""

    def link(self, peer: str) -> Link:
        """Return the link to a peer, created at the first call."""
        found = self.links.get(peer)
        if found is not None:
            return found
        if peer in self.retired:
            return Link(peer, NO_SESSION, unacked={}, ahead={})
        found = self.links[peer] = Link(peer, unacked={}, ahead={})
        return found

    def is_crowded(self, peer: str) -> bool:
        """True if the link to a peer is crowded; faster than ``link`` for links that exist."""
        link = self.links.get(peer)
        return link is not None and len(link.unacked) * 2 > WINDOW_MAX

    def send(self, effects: list[Effect], now: int, peer: str, body: SequencedMessage) -> int:
        """Send a message that must arrive; return its number on the link."""
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
        effects.append(SendMessage(Envelope(self.name, peer, link.session, number, link.received, body)))
        return number

    def send_soft(self, effects: list[Effect], peer: str, body: Message) -> None:
        """Send a message that may be lost."""
        link = self.links.get(peer) or self.link(peer)
        if link.ack_at != NEVER:  # a store costs several times as much as a load
            link.ack_at = NEVER
        effects.append(SendMessage(Envelope(self.name, peer, link.session, -link.sent, link.received, body)))

    def receive(self, now: int, envelope: Envelope) -> list[Message]:
        """Return the bodies to handle now: none, that of the envelope, or several in order."""
        link = self.links.get(envelope.source) or self.link(envelope.source)
        seq, ack = envelope.seq, envelope.ack
        if envelope.session != link.session:
            return [envelope.body] if seq <= 0 else []
        if ack > link.acked and ack <= link.sent:
            self._on_ack(link, now, ack)
        if seq <= 0:
            if ack > link.firm and -seq <= link.received:
                link.firm = min(ack, link.sent)
                if self._on_firm_ack is not None:
                    self._on_firm_ack()
            return [envelope.body]
        if seq <= link.received:
            link.ack_at = now  # the peer repeats a message: it lacks our acknowledgement
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
        return self._take_in_order(link, envelope.body) if link.ahead else [envelope.body]

    def _on_ack(self, link: Link, now: int, ack: int) -> None:
        """Remove everything up to ``ack``: the peer has taken it."""
        unacked, after = link.unacked, self.timings.resend_after
        for number in range(link.acked + 1, ack + 1):
            del unacked[number]
        link.acked = ack
        link.since = now
        if link.resend_after != after:
            link.resend_after = after
        link.resend_at = now + after if unacked else NEVER

    @staticmethod
    def _take_in_order(link: Link, first: Message) -> list[Message]:
        """Return a body that is next in order, and those kept that follow it."""
        bodies = [first]
        while link.ahead:
            body = link.ahead.pop(link.received + 1, None)
            if body is None:
                break
            link.received += 1
            bodies.append(body)
        return bodies

    def tick(self, effects: list[Effect], now: int) -> None:
        """Repeat what is overdue, and acknowledge what no message has acknowledged."""
        due = NEVER
        for link in self.links.values():
            at = link.resend_at
            if link.ack_at < at:
                at = link.ack_at
            if at <= now:
                at = self._catch_up(link, effects, now)
            if at < due:
                due = at
        self.due = due

    def _catch_up(self, link: Link, effects: list[Effect], now: int) -> int:
        """Send what is overdue on a link; return when something is next due there."""
        if link.ack_at != NEVER:
            link.ack_at = NEVER
        if link.resend_at <= now:
            for number, body in list(link.unacked.items())[:RESEND_MAX]:
                effects.append(
                    SendMessage(Envelope(self.name, link.peer, link.session, number, link.received, body))
                )
            link.resend_after = min(2 * link.resend_after, self.timings.resend_max)
            link.resend_at = now + link.resend_after
        else:
            effects.append(
                SendMessage(Envelope(self.name, link.peer, link.session, -link.sent, link.received, Ack()))
            )
        return link.resend_at

    def boot(self, now: int) -> None:
        """Have everything unacknowledged repeated, from the next tick on, after a restart."""
        for link in self.links.values():
            if link.unacked:
                link.resend_after = self.timings.resend_after
                link.resend_at = link.since = now
        self.due = now

    def reopen(self, peer: str, session: int) -> list[SequencedMessage]:
        """Start a new session with a peer that forgot the old one; return what it never acknowledged."""
        old = self.link(peer)
        self.links[peer] = Link(peer, session, unacked={}, ahead={})
        return list(old.unacked.values())

    def restore(self, links: dict[str, Link], due: int) -> None:
        """Restore the links of a dumped state."""
        self.links, self.due = links, due
        for peer in self.retired:
            links.pop(peer, None)

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        return [
            f"link to {link.peer} has {len(link.unacked)} unacknowledged"
            for link in self.links.values()
            if link.unacked
        ]

    def check(self) -> None:
        """Assert bounds and counts."""
        for link in self.links.values():
            assert len(link.unacked) == link.sent - link.acked <= WINDOW_MAX, f"{self.name}->{link.peer}"
            assert len(link.ahead) <= AHEAD_MAX
