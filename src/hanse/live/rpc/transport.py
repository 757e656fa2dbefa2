"""The wire of one member: envelopes out to its peers, and in from them, over mutual TLS 1.3.

Give it an identity, the credentials that prove it, the book of names, and whom to deliver to. It runs on one
event loop and starts nothing before ``listen`` or the first ``send``. What it promises is little, because the
machines' links need no more: what is delivered came from whom it says, was allowed to be said, makes sense,
and arrived whole; what is lost is counted.
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
    """Sends and receives the envelopes of one member.

    ``deliver`` is called on the loop's thread with the envelopes of one frame that passed all checks; it must
    not block. ``limits`` are those of each machine of this member by name (see
    ``validation_context.broker_limits`` and its siblings); a machine that has none is judged by the model's
    bounds alone.
    """

    def __init__(
        self, identity: Identity, credentials: Credentials, book: Mapping[str, Peer],
        deliver: Callable[[list[Envelope]], None], *, limits: Mapping[str, Limits] | None = None,
        bounds: Bounds | None = None, random: Random | None = None, clock: Callable[[], int] = wall_now,
    ) -> None:  # fmt: skip
        self.counters: Counter[str] = Counter()
        """How often what happened: ``sent``, ``received``, ``frames_...``, ``bytes_...``, ``admitted``,
        ``connected``, ``disconnected``, ``unreachable``, ``stalled``, ``redialled_unheard`` (nothing came
        back), ``redialled_heard`` (the peer had dialled us), ``dropped_<why>`` and ``refused_<why>``."""
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
        """The latest refusals in words."""
        return tuple(self._office.refusals)

    async def listen(self, host: str, port: int) -> int:
        """Take connections; the port, chosen if it was 0."""
        return await self._gate.listen(host, port)

    def send(self, envelope: Envelope) -> None:
        """Pass an envelope on to whoever speaks for its target. Never blocks; what cannot go is dropped and
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
        """Let what was said leave now, and not at the end of this turn of the loop."""
        for outlet in self._outlets.values():
            if outlet.due:
                outlet.flush()

    def connected(self, name: str) -> bool:
        """Whether there is an open connection for what we say to somebody."""
        peer = self._office.book.peers.get(name)
        outlet = self._outlets.get(peer.identity) if peer is not None else None
        return outlet is not None and outlet.connected

    def update(self, book: Mapping[str, Peer]) -> None:
        """Take another book: who is not in it is cut off, who has moved is dialled there."""
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
        """Use the certificate that the credentials hold now, without dropping what is queued.

        Raises ``OSError`` if the files cannot be used; everything then stays as it was.
        """
        self._gate.context = server_context(self._office.credentials)
        for outlet in self._outlets.values():
            outlet.renew()

    def hush(self, quiet: bool) -> None:
        """Stop taking what peers say (the network then makes them wait), or go on: for a full inbox."""
        self._gate.hush(quiet)

    async def close(self) -> None:
        """Say what is queued for those who are connected, and end every connection."""
        if self._closed:
            return
        self._closed = True
        outlets = [*self._outlets.values(), *self._retired]
        for outlet in outlets:
            outlet.close()
        await self._office.finish()
        await asyncio.gather(self._gate.close(), *(outlet.wait_closed() for outlet in outlets))

    def _heard(self, peer: Identity) -> None:
        """A peer has opened a connection to us."""
        outlet = self._outlets.get(peer)
        if outlet is not None and not self._closed:
            outlet.heard()

    def _limits_of(self, target: str) -> Limits:
        found = self._limits.get(target)
        if found is None:  # the book has let it through, so there are only as many as names of ours
            found = self._limits[target] = Limits(target, layouts={})
        return found
