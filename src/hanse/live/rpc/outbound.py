"""Outbound connections: one for each peer, for all messages to it.

A ``PeerSender`` holds the envelopes that wait for one peer. Envelopes of one turn of the event loop leave
together. A peer is dialled when there is a message for it. If it cannot be reached it is dialled again after
a pause that doubles, with a random part so that many members do not return in step; at once when the peer has
just dialled us. A silent connection is replaced, so that a healed network is used at once (see
``socket_options``). Dropped envelopes are counted, and repeated by the machines' links.
"""

import asyncio
import ssl
from collections import deque
from typing import Final, cast

from hanse.live.rpc.frames import pop_frame
from hanse.live.rpc.socket_options import RETRANSMITS_MIN, connect, is_silent, set_keepalive
from hanse.live.rpc.transport_state import SharedTransportState
from hanse.live.rpc.wire_version import client_context, version_problem
from hanse.model.messages import Envelope
from hanse.security.identity import Identity

SERVER_NAME: Final = "hanse"
"""Server name of every peer in the handshake: the certificate proves the real one."""


class OutboundConnection(asyncio.Protocol):
    """Open connection to a peer."""

    def __init__(self, sender: "PeerSender") -> None:
        self._sender = sender
        self._shared = sender.shared
        self._transport: asyncio.Transport | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._checked_at = 0.0
        """Time of the latest check for silence."""
        self.writable = False
        self._ending = False
        """True if it was closed or aborted: a TLS transport that is closed twice cannot be aborted."""
        self.dialled = False
        """True if the dial has returned. A dial that is cancelled before closes the transport itself."""
        self.incompatible = False
        """True if the peer speaks none of our wire versions."""
        self.opened_at = 0.0
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the wire version of the authenticated peer."""
        self._transport = cast(asyncio.Transport, transport)
        problem = version_problem(transport.get_extra_info("ssl_object"))
        self.incompatible = not self._shared.check_version(self._sender.peer, problem)
        self._transport.set_write_buffer_limits(high=self._shared.bounds.write_bytes)
        set_keepalive(transport.get_extra_info("socket"), self._shared.bounds.write_seconds)
        self.opened_at = self._checked_at = asyncio.get_running_loop().time()
        self.writable = not self.incompatible
        self._sender.on_connected(self)

    def write(self, frame: bytearray) -> None:
        """Send a frame; ``writable`` tells if more may follow."""
        assert self._transport is not None, "a connection is written to when it is open"
        self._transport.write(frame)

    def is_silent(self) -> bool:
        """Return True if the peer acknowledges nothing. Checked now and then, because it costs a system
        call."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < self._shared.bounds.silence_check_seconds:
            return False
        self._checked_at = now
        return self._is_silent(RETRANSMITS_MIN, self._shared.bounds.silence_seconds)

    def is_retransmitting(self) -> bool:
        """Return True if the kernel is waiting to retransmit, even if only for a moment."""
        return self._is_silent(1, 0.0)

    def _is_silent(self, retransmits: int, seconds: float) -> bool:
        assert self._transport is not None, "a connection is checked when it is open"
        return is_silent(self._transport.get_extra_info("socket"), retransmits, seconds)

    def data_received(self, data: bytes) -> None:
        """Refuse data: peers answer over connections of their own."""
        del data
        self._shared.record_refusal("talk_back", self._sender.peer)
        self.abort()

    def pause_writing(self) -> None:
        """Stop writing: the peer reads more slowly than we write."""
        self.writable = False
        loop = asyncio.get_running_loop()
        self._stall_timer = loop.call_later(self._shared.bounds.write_seconds, self._on_stalled)

    def resume_writing(self) -> None:
        """Go on: the peer has caught up."""
        self._cancel_stall_timer()
        self.writable = True
        self._sender.flush()

    def _on_stalled(self) -> None:
        self._shared.counters["stalled"] += 1
        self.abort()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection."""
        self._cancel_stall_timer()
        self.writable = False
        if not self.closed.done():
            self.closed.set_result(None)
        self._sender.on_connection_lost(self, exc)

    def close(self) -> None:
        """Send written data, then close; abort if that takes too long, or if the dial has not returned."""
        if not self.dialled:
            self.abort()
            return
        self._cancel_stall_timer()
        self.writable = False
        if self._transport is not None and not self._ending and not self.closed.done():
            self._ending = True
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._shared.bounds.close_seconds, self._abort_late)
            self.closed.add_done_callback(lambda _: timer.cancel())
            self._transport.close()

    def _abort_late(self) -> None:
        """Abort, unless the connection has ended in this turn of the loop."""
        if not self.closed.done():
            self.abort()

    def abort(self) -> None:
        """End at once."""
        self._cancel_stall_timer()
        self.writable = False
        if self._transport is not None:
            self._ending = True
            self._transport.abort()


class PeerSender:
    """Sender of all messages to one peer."""

    def __init__(self, shared: SharedTransportState, peer: Identity, address: tuple[str, int]) -> None:
        self.shared = shared
        self.peer = peer
        self.address = address
        self.outbox: deque[Envelope] = deque()
        self._connections: dict[OutboundConnection, None] = {}
        """Connections not closed yet; the latest open one is written to."""
        self._connection: OutboundConnection | None = None
        self._is_dialling = False
        self._closed = False
        self._flush_handle: asyncio.Handle | None = None
        self._redial_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._redial_allowed_at = 0.0
        """Earliest time of the next dial, on the loop's clock."""
        self._unreachable_since = -1.0
        """Time since which the peer is unreachable; negative: it is reachable, or was not dialled."""

    @property
    def is_connected(self) -> bool:
        """True if there is an open connection."""
        return self._connection is not None

    @property
    def has_unflushed(self) -> bool:
        """True if envelopes were added since the last flush."""
        return self._flush_handle is not None

    def send(self, envelope: Envelope) -> None:
        """Queue an envelope; it leaves at the end of this turn of the loop."""
        if len(self.outbox) >= self.shared.bounds.outbox_envelopes:
            self.shared.counters["dropped_full"] += 1
            return
        self.outbox.append(envelope)
        if self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write queued envelopes as far as the network accepts them; dial if there is no connection."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        connection, outbox, counters = self._connection, self.outbox, self.shared.counters
        if connection is None:
            if outbox:
                self._dial_when_allowed()
            return
        if outbox and connection.is_silent():
            self._give_up(connection, "redialled_unheard")
            return
        while outbox and connection.writable:
            frame, count = pop_frame(outbox, self.shared.bounds.frame_bytes)
            if frame is None:
                counters["dropped_oversize"] += count
                continue
            counters["sent"] += count
            counters["frames_sent"] += 1
            counters["bytes_sent"] += len(frame)
            connection.write(frame)

    def on_peer_connected(self) -> None:
        """Dial without waiting: the peer has just opened a connection to us, so it can be reached."""
        self._failures = 0
        if self._connection is not None:
            if self._connection.is_retransmitting():
                self._give_up(self._connection, "redialled_heard")
        elif self._redial_timer is not None:
            self.shared.counters["redialled_heard"] += 1
            self._redial_timer.cancel()
            self._redial_now()

    def _give_up(self, connection: OutboundConnection, reason: str) -> None:
        """Replace a connection. Data in the old one is lost, and repeated by the links."""
        self.shared.counters[reason] += 1
        self.shared.counters["disconnected"] += 1
        self._connection = None
        connection.abort()
        self._dial_when_allowed()

    # --- dialling ------------------------------------------------------------------------------------------

    def _dial_when_allowed(self) -> None:
        """Dial now, or when the pause is over."""
        if self._is_dialling or self._redial_timer is not None or self._closed:
            return
        loop = asyncio.get_running_loop()
        wait = self._redial_allowed_at - loop.time() if self._failures else 0.0
        if wait > 0:
            self._redial_timer = loop.call_later(wait, self._redial_now)
        else:
            self._start_dial()

    def _redial_now(self) -> None:
        self._redial_timer = None
        self._start_dial()

    def _start_dial(self) -> None:
        if not self._closed:
            self._is_dialling = True
            self.shared.start_task(self._dial())

    async def _dial(self) -> None:
        bounds = self.shared.bounds
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(bounds.dial_seconds):
                _, connection = await loop.create_connection(
                    lambda: OutboundConnection(self),
                    sock=await connect(self.address, bounds.connect_seconds),
                    ssl=client_context(self.shared.credentials, self.peer),
                    server_hostname=SERVER_NAME,
                    ssl_handshake_timeout=bounds.dial_seconds,
                    ssl_shutdown_timeout=bounds.close_seconds,
                )
            connection.dialled = True
            if connection.incompatible:
                self._on_unreachable(begun)
        except ssl.SSLError as error:
            self.shared.record_refusal("peer", self.peer, str(error))
            self._on_unreachable(begun)
        except (OSError, UnicodeError):  # a timeout is an OSError; an invalid host name is the other
            self._on_unreachable(begun)
        finally:
            self._is_dialling = False
        self.flush()

    def _on_unreachable(self, begun: float) -> None:
        loop = asyncio.get_running_loop()
        self.shared.counters["unreachable"] += 1
        self._delay_redial(begun)
        if self._unreachable_since < 0:
            self._unreachable_since = loop.time()
        if loop.time() - self._unreachable_since >= self.shared.bounds.outbox_seconds and self.outbox:
            self.shared.counters["dropped_unreachable"] += len(self.outbox)
            self.outbox.clear()

    def _delay_redial(self, begun: float) -> None:
        """Set the pause before the next dial: half of the doubled time, and a random part of the other half;
        counted from the start of the last one, because a dial without an answer has taken its time
        already."""
        bounds = self.shared.bounds
        self._failures += 1
        span = bounds.redial_first * 2 ** min(self._failures - 1, 30)
        share = 0.5 + self.shared.random.random() / 2
        self._redial_allowed_at = begun + min(span, bounds.redial_most) * share

    def on_connected(self, connection: OutboundConnection) -> None:
        """Use a new connection."""
        self._connections[connection] = None
        if self._closed or connection.incompatible:
            connection.abort()
            return
        self.shared.counters["connected"] += 1
        self._connection = connection
        self._unreachable_since = -1.0

    def on_connection_lost(self, connection: OutboundConnection, error: Exception | None) -> None:
        """Handle the end of a connection. After a long-lived one the peer is dialled again at once."""
        self._connections.pop(connection, None)
        if connection is not self._connection:
            return
        self._connection = None
        self.shared.counters["disconnected"] += 1
        if isinstance(error, ssl.SSLError):
            self.shared.record_refusal("by_peer", self.peer, str(error))
        now = asyncio.get_running_loop().time()
        if now - connection.opened_at >= self.shared.bounds.redial_most:
            self._failures = 0
        else:
            self._delay_redial(now)
        if self.outbox:
            self._dial_when_allowed()

    def change_address(self, address: tuple[str, int]) -> None:
        """Dial the peer at another address from now on. An open connection stays."""
        if address != self.address:
            self.address = address
            self._failures = 0
            if self._redial_timer is not None:
                self._redial_timer.cancel()
                self._redial_now()

    def reconnect(self) -> None:
        """Open a new connection for a new certificate, and let the old one send its data."""
        connection, self._connection = self._connection, None
        self._failures = 0
        if connection is not None:
            connection.close()
        self.flush()

    # --- closing ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Accept no more envelopes, and close every connection when its data is sent."""
        self._closed = True
        self.flush()
        if self._redial_timer is not None:
            self._redial_timer.cancel()
            self._redial_timer = None
        if self.outbox:
            self.shared.counters["dropped_closed"] += len(self.outbox)
            self.outbox.clear()
        self._connection = None
        for connection in self._connections:
            connection.close()

    @property
    def has_connections(self) -> bool:
        """True if a connection is not closed yet."""
        return bool(self._connections)

    async def wait_closed(self) -> None:
        """Wait until every connection is closed."""
        await asyncio.gather(*(connection.closed for connection in self._connections))
