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

from hanse.live.rpc.frames import HEADER_BYTES, decode_frame
from hanse.live.rpc.socket_options import set_keepalive
from hanse.live.rpc.transport_state import SharedTransportState
from hanse.live.rpc.validation import validate_frame
from hanse.live.rpc.validation_context import ValidationContext
from hanse.live.rpc.wire_version import server_context, version_problem
from hanse.model.ids import SECOND
from hanse.model.messages import Envelope
from hanse.security.identity import Identity, peer_identity

BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted."""
ACCEPT_RETRY_SECONDS: Final = 1.0
"""Seconds to wait when the process has no file descriptor left; no event reports a free one."""


class InboundConnection(asyncio.Protocol):
    """Connection that a peer has opened."""

    def __init__(self, listener: "Listener", host: str = "") -> None:
        self.identity: Identity | None = None
        self.host = host
        """Address of the peer."""
        self.handshake_done = False
        """True after the handshake."""
        self._listener = listener
        self._shared = listener.shared
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._stall_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""

    # --- lifetime ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the peer's identity and version after the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._listener.on_handshake_done(self)
        peer = transport.get_extra_info("ssl_object")
        identity = peer_identity(peer)
        reason = self._identity_problem(identity)
        if reason or identity is None:
            self.refuse(reason, str(identity or "a certificate without an identity"))
            return
        self.identity = identity
        if not self._shared.check_version(identity, version_problem(peer)):
            self.abort()
            return
        left = ssl.cert_time_to_seconds(str(peer.getpeercert()["notAfter"])) - self._shared.clock() / SECOND
        loop = asyncio.get_running_loop()
        self._expiry_timer = loop.call_later(max(0.0, left), self.refuse, "expired")
        self._listener.admit(self)

    def _identity_problem(self, identity: Identity | None) -> str:
        """Return why the holder of a valid certificate may not connect; empty if it may."""
        book = self._shared.book
        if identity is None:
            return "foreign"
        if identity.league != book.own.league:
            return "league"
        if not identity.role.is_member:
            return "role"
        return "" if identity in book.addresses and identity != book.own else "unknown"

    def connection_lost(self, exc: Exception | None) -> None:
        """Count tampering, and remove the connection."""
        if isinstance(exc, ssl.SSLError) and not self._ended:
            self._shared.record_refusal("tampered", self.identity, str(exc))
        self._end()
        self._listener.remove(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def refuse(self, reason: str, detail: str = "") -> None:
        """Count a refusal, and end the connection."""
        self._shared.record_refusal(reason, self.identity, detail)
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._ended = True
        self._buffer.clear()
        for timer in (self._stall_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._stall_timer = self._expiry_timer = None

    def set_paused(self, paused: bool) -> None:
        """Pause or resume reading from the network."""
        if self._transport is not None and not self._ended:
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    # --- frames --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Deliver whole frames, and keep the beginning of the next."""
        if self._ended:
            return
        buffer = self._buffer
        chunk: bytes | bytearray = data
        if buffer:
            buffer += data
            chunk = buffer
        at = self._deliver_frames(chunk)
        if at < 0:
            return
        if chunk is buffer:
            del buffer[:at]
        elif at < len(data):
            buffer += data[at:]
        if self._stall_timer is not None and (at or not buffer):
            self._stall_timer.cancel()
            self._stall_timer = None
        if buffer and self._stall_timer is None:
            loop = asyncio.get_running_loop()
            self._stall_timer = loop.call_later(self._shared.bounds.frame_seconds, self.refuse, "stalled")

    def _deliver_frames(self, chunk: bytes | bytearray) -> int:
        """Deliver the whole frames at the beginning of a chunk; return their length in bytes, or -1 if the
        connection has ended."""
        at, size = 0, len(chunk)
        most = self._shared.bounds.frame_bytes
        while size - at >= HEADER_BYTES:
            begin = at + HEADER_BYTES
            length = int.from_bytes(chunk[at:begin], "big")
            if length > most:
                self.refuse("oversize", f"a frame of {length} bytes")
                return -1
            if size - begin < length:
                break
            with memoryview(chunk) as whole, whole[begin : begin + length] as content:
                envelopes = decode_frame(content)
            if not self._deliver_frame(envelopes, HEADER_BYTES + length):
                return -1
            at = begin + length
        return at

    def _deliver_frame(self, envelopes: list[Envelope] | str, size: int) -> bool:
        """Check and deliver a frame of ``size`` bytes; return True if the connection goes on."""
        if isinstance(envelopes, str):
            self.refuse(envelopes)
            return False
        sender, allowed_messages = self.identity, self._shared.book.allowed_messages
        assert sender is not None, "frames are read from admitted peers"
        for envelope in envelopes:
            allowed = allowed_messages(sender, envelope.source, envelope.target)
            if isinstance(allowed, str):
                self.refuse(allowed, f"from {envelope.source[:64]!r} to {envelope.target[:64]!r}")
                return False
            if type(envelope.body) not in allowed:
                self.refuse("body", f"{type(envelope.body).__name__} from {envelope.source}")
                return False
        good, stale, reason = validate_frame(envelopes, self._listener.context_of)
        if reason:
            self.refuse("vetting", reason)
            return False
        counters = self._shared.counters
        counters["received"] += len(good)
        counters["frames_received"] += 1
        counters["bytes_received"] += size
        if stale:
            counters["refused_stale"] += stale
        if good:
            self._listener.deliver(good)
        return not self._ended


class Listener:
    """Listener that accepts connections, bounds their number, and delivers their envelopes."""

    def __init__(
        self,
        shared: SharedTransportState,
        context_of: Callable[[str], ValidationContext],
        deliver: Callable[[list[Envelope]], None],
    ) -> None:
        self.shared = shared
        self.context_of = context_of
        self.deliver = deliver
        self.ssl_context: ssl.SSLContext | None = None
        self.connections: dict[InboundConnection, None] = {}
        """Open connections, admitted or not."""
        self.admitted: dict[InboundConnection, None] = {}
        """Admitted connections, oldest first."""
        self._sockets: list[socket.socket] = []
        self._handshakes: Counter[str] = Counter()
        """Handshakes under way, by host."""
        self._accepted_sockets: dict[socket.socket, None] = {}
        """Accepted sockets whose handshake has not begun."""
        self._paused = False

    async def listen(self, host: str, port: int) -> int:
        """Listen on every address of a host; return the port (chosen if it was 0)."""
        loop = asyncio.get_running_loop()
        self.ssl_context = server_context(self.shared.credentials)
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            bound = _bind(family, (address[0], port, *address[2:]))
            self._sockets.append(bound)
            port = bound.getsockname()[1]
            self.shared.start_task(self._accept(bound))
        return port

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                self.shared.record_refusal("accept", detail=str(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            host, bounds, handshakes = str(address[0]), self.shared.bounds, self._handshakes.total()
            if (
                handshakes >= bounds.handshakes
                or self._handshakes[host] >= bounds.handshakes_per_host
                or handshakes + len(self.connections) >= bounds.connections
            ):
                self.shared.record_refusal("crowded", host)
                connection.close()
                continue
            self._handshakes[host] += 1
            self._accepted_sockets[connection] = None
            self.shared.start_task(self._handshake(connection, host))

    async def _handshake(self, connection: socket.socket, host: str) -> None:
        """Do the handshake of a new connection."""
        del self._accepted_sockets[connection]
        inbound = InboundConnection(self, host)
        set_keepalive(connection)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: inbound,
                connection,
                ssl=self.ssl_context,
                ssl_handshake_timeout=self.shared.bounds.handshake_seconds,
                ssl_shutdown_timeout=self.shared.bounds.close_seconds,
            )
        except OSError as error:  # TLS errors are included
            self.shared.record_refusal(_handshake_reason(error), host, str(error))
        finally:
            if not inbound.handshake_done:
                self._end_handshake(host)

    def on_handshake_done(self, inbound: InboundConnection) -> None:
        """Count a connection as open after its handshake."""
        inbound.handshake_done = True
        self._end_handshake(inbound.host)
        self.connections[inbound] = None

    def _end_handshake(self, host: str) -> None:
        self._handshakes[host] -= 1
        if self._handshakes[host] <= 0:
            del self._handshakes[host]

    def admit(self, inbound: InboundConnection) -> None:
        """Admit the connection of a known peer; close its oldest one if it has too many."""
        self.shared.counters["admitted"] += 1
        self.admitted[inbound] = None
        same = [other for other in self.admitted if other.identity == inbound.identity]
        for oldest in same[: -self.shared.bounds.connections_per_peer]:
            oldest.refuse("superseded")
        if self._paused:
            inbound.set_paused(paused=True)
        if inbound.identity is not None:
            self.shared.on_peer_connected(inbound.identity)

    def remove(self, inbound: InboundConnection) -> None:
        """Remove a closed connection."""
        self.connections.pop(inbound, None)
        self.admitted.pop(inbound, None)

    def set_paused(self, paused: bool) -> None:
        """Pause or resume reading from all connections."""
        if paused != self._paused:
            self._paused = paused
            for inbound in self.admitted:
                inbound.set_paused(paused)

    def drop_unknown(self) -> None:
        """Close connections of peers that are no longer in the address book."""
        for inbound in list(self.admitted):
            if inbound.identity not in self.shared.book.addresses:
                inbound.refuse("unknown")

    async def close(self) -> None:
        """Close all sockets and connections. The accepting tasks have ended before."""
        for waiting in (*self._sockets, *self._accepted_sockets):
            waiting.close()
        self._sockets.clear()
        self._accepted_sockets.clear()
        connections = list(self.connections)
        for inbound in connections:
            inbound.abort()
        await asyncio.gather(*(inbound.closed for inbound in connections))


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
