"""Inbound connections: opened by peers, read by us, and never written to.

Everything is checked before it is used: the certificate (by TLS, then by role and address book), the
negotiated version, the length of a frame before it is stored, its envelopes as typed records, their names
against the certificate, their types against the table of permissions, and their content. The first problem is
counted and ends the connection, and no message of that frame is delivered.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from hanse.live.rpc.bounds import Office
from hanse.live.rpc.frames import HEADER_BYTES, decode
from hanse.live.rpc.socket_options import watch_over
from hanse.live.rpc.validation import vet_frame
from hanse.live.rpc.validation_context import Limits
from hanse.live.rpc.wire_version import server_context, version_problem
from hanse.model.ids import SECOND
from hanse.model.messages import Envelope
from hanse.security.identity import Identity, identity_of

BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted."""
ACCEPT_RETRY_SECONDS: Final = 1.0
"""Seconds to wait when the process has no file descriptor left; no event reports a free one."""


class Inlet(asyncio.Protocol):
    """Connection that a peer has opened."""

    def __init__(self, gate: "Gate", host: str = "") -> None:
        self.identity: Identity | None = None
        self.host = host
        """Address of the peer."""
        self.shaken = False
        """True after the handshake."""
        self._gate = gate
        self._office = gate.office
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._stall: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._over = False
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""

    # --- lifetime ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the peer's identity and version after the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._gate.arrived(self)
        peer = transport.get_extra_info("ssl_object")
        identity = identity_of(peer)
        reason = self._stranger(identity)
        if reason or identity is None:
            self.refuse(reason, str(identity or "a certificate without an identity"))
            return
        self.identity = identity
        if not self._office.understands(identity, version_problem(peer)):
            self.abort()
            return
        left = ssl.cert_time_to_seconds(str(peer.getpeercert()["notAfter"])) - self._office.clock() / SECOND
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(max(0.0, left), self.refuse, "expired")
        self._gate.admit(self)

    def _stranger(self, identity: Identity | None) -> str:
        """Return why the holder of a valid certificate may not connect; empty if it may."""
        book = self._office.book
        if identity is None:
            return "foreign"
        if identity.league != book.own.league:
            return "league"
        if not identity.role.member:
            return "role"
        return "" if identity in book.addresses and identity != book.own else "unknown"

    def connection_lost(self, exc: Exception | None) -> None:
        """Count tampering, and remove the connection."""
        if isinstance(exc, ssl.SSLError) and not self._over:
            self._office.refuse("tampered", self.identity, str(exc))
        self._end()
        self._gate.forget(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def refuse(self, reason: str, detail: str = "") -> None:
        """Count a refusal, and end the connection."""
        self._office.refuse(reason, self.identity, detail)
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._over = True
        self._buffer.clear()
        for timer in (self._stall, self._expiry):
            if timer is not None:
                timer.cancel()
        self._stall = self._expiry = None

    def hush(self, quiet: bool) -> None:
        """Pause or resume reading from the network."""
        if self._transport is not None and not self._over:
            (self._transport.pause_reading if quiet else self._transport.resume_reading)()

    # --- frames --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Deliver whole frames, and keep the beginning of the next."""
        if self._over:
            return
        buffer = self._buffer
        chunk: bytes | bytearray = data
        if buffer:
            buffer += data
            chunk = buffer
        at = self._frames(chunk)
        if at < 0:
            return
        if chunk is buffer:
            del buffer[:at]
        elif at < len(data):
            buffer += data[at:]
        if self._stall is not None and (at or not buffer):
            self._stall.cancel()
            self._stall = None
        if buffer and self._stall is None:
            loop = asyncio.get_running_loop()
            self._stall = loop.call_later(self._office.bounds.frame_seconds, self.refuse, "stalled")

    def _frames(self, chunk: bytes | bytearray) -> int:
        """Deliver the whole frames at the beginning of a chunk; return their length in bytes, or -1 if the
        connection has ended."""
        at, size = 0, len(chunk)
        most = self._office.bounds.frame_bytes
        while size - at >= HEADER_BYTES:
            begin = at + HEADER_BYTES
            length = int.from_bytes(chunk[at:begin], "big")
            if length > most:
                self.refuse("oversize", f"a frame of {length} bytes")
                return -1
            if size - begin < length:
                break
            with memoryview(chunk) as whole, whole[begin : begin + length] as content:
                envelopes = decode(content)
            if not self._take(envelopes, HEADER_BYTES + length):
                return -1
            at = begin + length
        return at

    def _take(self, envelopes: list[Envelope] | str, size: int) -> bool:
        """Check and deliver a frame of ``size`` bytes; return True if the connection goes on."""
        if isinstance(envelopes, str):
            self.refuse(envelopes)
            return False
        sender, may_say = self.identity, self._office.book.may_say
        assert sender is not None, "frames are read from admitted peers"
        for envelope in envelopes:
            allowed = may_say(sender, envelope.source, envelope.target)
            if isinstance(allowed, str):
                self.refuse(allowed, f"from {envelope.source[:64]!r} to {envelope.target[:64]!r}")
                return False
            if type(envelope.body) not in allowed:
                self.refuse("body", f"{type(envelope.body).__name__} from {envelope.source}")
                return False
        good, stale, reason = vet_frame(envelopes, self._gate.limits_of)
        if reason:
            self.refuse("vetting", reason)
            return False
        counters = self._office.counters
        counters["received"] += len(good)
        counters["frames_received"] += 1
        counters["bytes_received"] += size
        if stale:
            counters["refused_stale"] += stale
        if good:
            self._gate.deliver(good)
        return not self._over


class Gate:
    """Listener that accepts connections, bounds their number, and delivers their envelopes."""

    def __init__(
        self,
        office: Office,
        limits: Callable[[str], Limits],
        deliver: Callable[[list[Envelope]], None],
    ) -> None:
        self.office = office
        self.limits_of = limits
        self.deliver = deliver
        self.context: ssl.SSLContext | None = None
        self.open: dict[Inlet, None] = {}
        """Open connections, admitted or not."""
        self.inlets: dict[Inlet, None] = {}
        """Admitted connections, oldest first."""
        self._sockets: list[socket.socket] = []
        self._shaking: Counter[str] = Counter()
        """Handshakes under way, by host."""
        self._accepted: dict[socket.socket, None] = {}
        """Accepted sockets whose handshake has not begun."""
        self._hushed = False

    async def listen(self, host: str, port: int) -> int:
        """Listen on every address of a host; return the port (chosen if it was 0)."""
        loop = asyncio.get_running_loop()
        self.context = server_context(self.office.credentials)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            bound = _bind(family, (address[0], port, *address[2:]))
            self._sockets.append(bound)
            port = bound.getsockname()[1]
            self.office.errand(self._accept(bound))
        return port

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                self.office.refuse("accept", detail=str(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            host, bounds, shaking = str(address[0]), self.office.bounds, self._shaking.total()
            if (
                shaking >= bounds.handshakes
                or self._shaking[host] >= bounds.handshakes_per_host
                or shaking + len(self.open) >= bounds.connections
            ):
                self.office.refuse("crowded", host)
                connection.close()
                continue
            self._shaking[host] += 1
            self._accepted[connection] = None
            self.office.errand(self._shake(connection, host))

    async def _shake(self, connection: socket.socket, host: str) -> None:
        """Do the handshake of a new connection."""
        del self._accepted[connection]
        inlet = Inlet(self, host)
        watch_over(connection)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: inlet,
                connection,
                ssl=self.context,
                ssl_handshake_timeout=self.office.bounds.handshake_seconds,
                ssl_shutdown_timeout=self.office.bounds.close_seconds,
            )
        except OSError as error:  # TLS errors are included
            self.office.refuse(_handshake_reason(error), host, str(error))
        finally:
            if not inlet.shaken:
                self._shaken(host)

    def arrived(self, inlet: Inlet) -> None:
        """Count a connection as open after its handshake."""
        inlet.shaken = True
        self._shaken(inlet.host)
        self.open[inlet] = None

    def _shaken(self, host: str) -> None:
        self._shaking[host] -= 1
        if self._shaking[host] <= 0:
            del self._shaking[host]

    def admit(self, inlet: Inlet) -> None:
        """Admit the connection of a known peer; close its oldest one if it has too many."""
        self.office.counters["admitted"] += 1
        self.inlets[inlet] = None
        same = [other for other in self.inlets if other.identity == inlet.identity]
        for oldest in same[: -self.office.bounds.connections_per_peer]:
            oldest.refuse("superseded")
        if self._hushed:
            inlet.hush(quiet=True)
        if inlet.identity is not None:
            self.office.heard(inlet.identity)

    def forget(self, inlet: Inlet) -> None:
        """Remove a closed connection."""
        self.open.pop(inlet, None)
        self.inlets.pop(inlet, None)

    def hush(self, quiet: bool) -> None:
        """Pause or resume reading from all connections."""
        if quiet != self._hushed:
            self._hushed = quiet
            for inlet in self.inlets:
                inlet.hush(quiet)

    def review(self) -> None:
        """Close connections of peers that are no longer in the address book."""
        for inlet in list(self.inlets):
            if inlet.identity not in self.office.book.addresses:
                inlet.refuse("unknown")

    async def close(self) -> None:
        """Close all sockets and connections. The accepting tasks have ended before."""
        for waiting in (*self._sockets, *self._accepted):
            waiting.close()
        self._sockets.clear()
        self._accepted.clear()
        inlets = list(self.open)
        for inlet in inlets:
            inlet.abort()
        await asyncio.gather(*(inlet.closed for inlet in inlets))


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):  # a host without the option listens on the other address anyway
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _handshake_reason(error: OSError) -> str:
    """Return the reason of a failed handshake, as the name of a counter."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "expired" if "expired" in error.verify_message else "certificate"
    if isinstance(error, ssl.SSLError) and "DID_NOT_RETURN_A_CERTIFICATE" in (error.reason or ""):
        return "no_certificate"
    slow = isinstance(error, ConnectionAbortedError) and "handshake" in str(error)
    return "slow_handshake" if slow else "handshake"
