"""Transport of one member: sends and receives envelopes over mutual TLS 1.3.

It takes an identity, its credentials, the address book, and a callback for deliveries. It runs on one event
loop and starts nothing before ``listen`` or the first ``send``. It guarantees little, because the machines'
links need no more: a delivered envelope is from the sender that it names, was allowed, is valid, and is
complete; a lost one is counted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random, SystemRandom

from hanse.live.rpc.bounds import TransportBounds
from hanse.live.rpc.inbound import Listener
from hanse.live.rpc.outbound import PeerSender
from hanse.live.rpc.peer_permissions import AddressBook, Peer
from hanse.live.rpc.transport_state import SharedTransportState
from hanse.live.rpc.validation_context import ValidationContext
from hanse.live.rpc.wire_version import server_context
from hanse.model.messages import Envelope
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity
from hanse.security.wall_time import wall_now


class Transport:
    """Sender and receiver of one member's envelopes.

    ``deliver`` is called on the loop's thread with the envelopes of one frame that passed all checks; it must
    not block. ``contexts`` has the validation context of each machine of this member by name (see
    ``validation_context.broker_validation_context`` and its siblings); for a machine without one only the
    model's bounds are checked.
    """

    def __init__(
        self, identity: Identity, credentials: Credentials, book: Mapping[str, Peer],
        deliver: Callable[[list[Envelope]], None], *, contexts: Mapping[str, ValidationContext] | None = None,
        bounds: TransportBounds | None = None, random: Random | None = None, clock: Callable[[],
        int] = wall_now,
    ) -> None:  # fmt: skip
        self.counters: Counter[str] = Counter()
        """Occurrences: ``sent``, ``received``, ``frames_...``, ``bytes_...``, ``admitted``, ``connected``,
        ``disconnected``, ``unreachable``, ``stalled``, ``redialled_unheard`` (no acknowledgements),
        ``redialled_heard`` (the peer had dialled us), ``dropped_<why>`` and ``refused_<why>``."""
        self._identity = identity
        self._contexts = dict(contexts or {})
        self._shared = SharedTransportState(
            AddressBook(identity, book),
            credentials,
            bounds or TransportBounds(),
            self.counters,
            random or SystemRandom(),
            clock,
        )
        self._listener = Listener(self._shared, self._context_of, deliver)
        self._senders: dict[Identity, PeerSender] = {}
        self._shared.on_peer_connected = self._on_peer_connected
        self._closing_senders: list[PeerSender] = []
        self._closed = False

    @property
    def refusals(self) -> tuple[str, ...]:
        """Latest refusals as texts."""
        return tuple(self._shared.refusals)

    async def listen(self, host: str, port: int) -> int:
        """Listen; return the port, chosen if it was 0."""
        return await self._listener.listen(host, port)

    def send(self, envelope: Envelope) -> None:
        """Send an envelope to its target. Never blocks; an envelope that cannot be sent is dropped and
        counted."""
        peer = self._shared.book.peers.get(envelope.target)
        if self._closed or peer is None or peer.identity == self._identity:
            self.counters["dropped_closed" if self._closed else "dropped_unknown"] += 1
            return
        sender = self._senders.get(peer.identity)
        if sender is None:
            address = self._shared.book.addresses[peer.identity]
            sender = self._senders[peer.identity] = PeerSender(self._shared, peer.identity, address)
        sender.send(envelope)

    def flush(self) -> None:
        """Send queued envelopes now, and not at the end of this turn of the loop."""
        for sender in self._senders.values():
            if sender.has_unflushed:
                sender.flush()

    def is_connected(self, name: str) -> bool:
        """Return True if there is an open connection for messages to this name."""
        peer = self._shared.book.peers.get(name)
        sender = self._senders.get(peer.identity) if peer is not None else None
        return sender is not None and sender.is_connected

    def update_book(self, book: Mapping[str, Peer]) -> None:
        """Use another address book: disconnect removed peers, dial moved ones at their new address."""
        updated = self._shared.book = AddressBook(self._identity, book)
        self._closing_senders = [sender for sender in self._closing_senders if sender.has_connections]
        for identity in list(self._senders):
            address = updated.addresses.get(identity)
            if address is not None:
                self._senders[identity].change_address(address)
                continue
            removed = self._senders.pop(identity)
            removed.close()
            self._closing_senders.append(removed)
        self._listener.drop_unknown()

    async def reload(self) -> None:
        """Use the certificate that the credentials have now, without dropping queued envelopes.

        Raises ``OSError`` if the files cannot be used; everything then stays as it was.
        """
        self._listener.ssl_context = server_context(self._shared.credentials)
        for sender in self._senders.values():
            sender.reconnect()

    def set_paused(self, paused: bool) -> None:
        """Pause or resume reading from all peers, for a full inbox; the network makes them wait."""
        self._listener.set_paused(paused)

    async def close(self) -> None:
        """Send queued envelopes to connected peers, and close every connection."""
        if self._closed:
            return
        self._closed = True
        senders = [*self._senders.values(), *self._closing_senders]
        for sender in senders:
            sender.close()
        await self._shared.cancel_tasks()
        await asyncio.gather(self._listener.close(), *(sender.wait_closed() for sender in senders))

    def _on_peer_connected(self, peer: Identity) -> None:
        """Tell the peer's sender that the peer has opened a connection to us."""
        sender = self._senders.get(peer)
        if sender is not None and not self._closed:
            sender.on_peer_connected()

    def _context_of(self, target: str) -> ValidationContext:
        context = self._contexts.get(target)
        if context is None:  # allowed by the address book, so at most one for each of our names
            context = self._contexts[target] = ValidationContext(target, layouts={})
        return context
