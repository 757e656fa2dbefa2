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

from hanse.live.rpc.bounds import Bounds, Office
from hanse.live.rpc.inbound import Gate
from hanse.live.rpc.outbound import Outlet
from hanse.live.rpc.peer_permissions import Book, Peer
from hanse.live.rpc.validation_context import Limits
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
        deliver: Callable[[list[Envelope]], None], *, limits: Mapping[str, Limits] | None = None,
        bounds: Bounds | None = None, random: Random | None = None, clock: Callable[[], int] = wall_now,
    ) -> None:  # fmt: skip
        self.counters: Counter[str] = Counter()
        """Occurrences: ``sent``, ``received``, ``frames_...``, ``bytes_...``, ``admitted``, ``connected``,
        ``disconnected``, ``unreachable``, ``stalled``, ``redialled_unheard`` (no acknowledgements),
        ``redialled_heard`` (the peer had dialled us), ``dropped_<why>`` and ``refused_<why>``."""
        self._identity = identity
        self._limits = dict(limits or {})
        self._office = Office(
            Book(identity, book),
            credentials,
            bounds or Bounds(),
            self.counters,
            random or SystemRandom(),
            clock,
        )
        self._gate = Gate(self._office, self._limits_of, deliver)
        self._outlets: dict[Identity, Outlet] = {}
        self._office.heard = self._heard
        self._retired: list[Outlet] = []
        self._closed = False

    @property
    def refusals(self) -> tuple[str, ...]:
        """Latest refusals as texts."""
        return tuple(self._office.refusals)

    async def listen(self, host: str, port: int) -> int:
        """Listen; return the port, chosen if it was 0."""
        return await self._gate.listen(host, port)

    def send(self, envelope: Envelope) -> None:
        """Send an envelope to its target. Never blocks; an envelope that cannot be sent is dropped and
        counted."""
        peer = self._office.book.peers.get(envelope.target)
        if self._closed or peer is None or peer.identity == self._identity:
            self.counters["dropped_closed" if self._closed else "dropped_unknown"] += 1
            return
        outlet = self._outlets.get(peer.identity)
        if outlet is None:
            address = self._office.book.addresses[peer.identity]
            outlet = self._outlets[peer.identity] = Outlet(self._office, peer.identity, address)
        outlet.send(envelope)

    def flush(self) -> None:
        """Send queued envelopes now, and not at the end of this turn of the loop."""
        for outlet in self._outlets.values():
            if outlet.due:
                outlet.flush()

    def connected(self, name: str) -> bool:
        """Return True if there is an open connection for messages to this name."""
        peer = self._office.book.peers.get(name)
        outlet = self._outlets.get(peer.identity) if peer is not None else None
        return outlet is not None and outlet.connected

    def update(self, book: Mapping[str, Peer]) -> None:
        """Use another address book: disconnect removed peers, dial moved ones at their new address."""
        fresh = self._office.book = Book(self._identity, book)
        self._retired = [outlet for outlet in self._retired if outlet.lingers]
        for identity in list(self._outlets):
            address = fresh.addresses.get(identity)
            if address is not None:
                self._outlets[identity].move(address)
                continue
            gone = self._outlets.pop(identity)
            gone.close()
            self._retired.append(gone)
        self._gate.review()

    async def reload(self) -> None:
        """Use the certificate that the credentials have now, without dropping queued envelopes.

        Raises ``OSError`` if the files cannot be used; everything then stays as it was.
        """
        self._gate.context = server_context(self._office.credentials)
        for outlet in self._outlets.values():
            outlet.renew()

    def hush(self, quiet: bool) -> None:
        """Pause or resume reading from all peers, for a full inbox; the network makes them wait."""
        self._gate.hush(quiet)

    async def close(self) -> None:
        """Send queued envelopes to connected peers, and close every connection."""
        if self._closed:
            return
        self._closed = True
        outlets = [*self._outlets.values(), *self._retired]
        for outlet in outlets:
            outlet.close()
        await self._office.finish()
        await asyncio.gather(self._gate.close(), *(outlet.wait_closed() for outlet in outlets))

    def _heard(self, peer: Identity) -> None:
        """Tell the peer's sender that the peer has opened a connection to us."""
        outlet = self._outlets.get(peer)
        if outlet is not None and not self._closed:
            outlet.heard()

    def _limits_of(self, target: str) -> Limits:
        found = self._limits.get(target)
        if found is None:  # allowed by the address book, so at most one for each of our names
            found = self._limits[target] = Limits(target, layouts={})
        return found
