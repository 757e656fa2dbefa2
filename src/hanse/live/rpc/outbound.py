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

from hanse.live.rpc.bounds import Office
from hanse.live.rpc.frames import take_frame
from hanse.live.rpc.socket_options import REPEATED_LEAST, reach, unheard, watch_over
from hanse.live.rpc.wire_version import client_context, version_problem
from hanse.model.messages import Envelope
from hanse.security.identity import Identity

SERVER_NAME: Final = "hanse"
"""Server name of every peer in the handshake: the certificate proves the real one."""


class Stream(asyncio.Protocol):
    """Open connection to a peer."""

    def __init__(self, outlet: "Outlet") -> None:
        self._outlet = outlet
        self._office = outlet.office
        self._transport: asyncio.Transport | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._looked = 0.0
        """Time of the latest check for silence."""
        self.writable = False
        self.foreign = False
        """True if the peer speaks none of our wire versions."""
        self.since = 0.0
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the wire version of the authenticated peer."""
        self._transport = cast(asyncio.Transport, transport)
        problem = version_problem(transport.get_extra_info("ssl_object"))
        self.foreign = not self._office.understands(self._outlet.peer, problem)
        self._transport.set_write_buffer_limits(high=self._office.bounds.write_bytes)
        watch_over(transport.get_extra_info("socket"), self._office.bounds.write_seconds)
        self.since = self._looked = asyncio.get_running_loop().time()
        self.writable = not self.foreign
        self._outlet.opened(self)

    def write(self, frame: bytearray) -> None:
        """Send a frame; ``writable`` tells if more may follow."""
        assert self._transport is not None, "a connection is written to when it is open"
        self._transport.write(frame)

    def unheard(self) -> bool:
        """Return True if the peer acknowledges nothing. Checked now and then, because it costs a system
        call."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < self._office.bounds.look_seconds:
            return False
        self._looked = now
        return self._silent(REPEATED_LEAST, self._office.bounds.unheard_seconds)

    def stuck(self) -> bool:
        """Return True if the kernel is waiting to retransmit, even if only for a moment."""
        return self._silent(1, 0.0)

    def _silent(self, repeated: int, seconds: float) -> bool:
        assert self._transport is not None, "a connection is checked when it is open"
        return unheard(self._transport.get_extra_info("socket"), repeated, seconds)

    def data_received(self, data: bytes) -> None:
        """Refuse data: peers answer over connections of their own."""
        del data
        self._office.refuse("talk_back", self._outlet.peer)
        self.abort()

    def pause_writing(self) -> None:
        """Stop writing: the peer reads more slowly than we write."""
        self.writable = False
        loop = asyncio.get_running_loop()
        self._stall = loop.call_later(self._office.bounds.write_seconds, self._stalled)

    def resume_writing(self) -> None:
        """Go on: the peer has caught up."""
        self._relieve()
        self.writable = True
        self._outlet.flush()

    def _stalled(self) -> None:
        self._office.counters["stalled"] += 1
        self.abort()

    def _relieve(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection."""
        self._relieve()
        self.writable = False
        if not self.closed.done():
            self.closed.set_result(None)
        self._outlet.lost(self, exc)

    def close(self) -> None:
        """Send written data, then close; abort if that takes too long."""
        self._relieve()
        self.writable = False
        if self._transport is not None and not self.closed.done():
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._office.bounds.close_seconds, self._abort_late)
            self.closed.add_done_callback(lambda _: timer.cancel())
            self._transport.close()

    def _abort_late(self) -> None:
        """Abort, unless the connection has ended in this turn of the loop."""
        if not self.closed.done():
            self.abort()

    def abort(self) -> None:
        """End at once."""
        self._relieve()
        self.writable = False
        if self._transport is not None:
            self._transport.abort()


class Outlet:
    """Sender of all messages to one peer."""

    def __init__(self, office: Office, peer: Identity, address: tuple[str, int]) -> None:
        self.office = office
        self.peer = peer
        self.address = address
        self.outbox: deque[Envelope] = deque()
        self._streams: dict[Stream, None] = {}
        """Connections not closed yet; the latest open one is written to."""
        self._stream: Stream | None = None
        self._dialling = False
        self._closed = False
        self._scheduled: asyncio.Handle | None = None
        self._redial: asyncio.TimerHandle | None = None
        self._failures = 0
        self._not_before = 0.0
        """Earliest time of the next dial, on the loop's clock."""
        self._lost_at = -1.0
        """Time since which the peer is unreachable; negative: it is reachable, or was not dialled."""

    @property
    def connected(self) -> bool:
        """True if there is an open connection."""
        return self._stream is not None

    @property
    def due(self) -> bool:
        """True if envelopes were added since the last flush."""
        return self._scheduled is not None

    def send(self, envelope: Envelope) -> None:
        """Queue an envelope; it leaves at the end of this turn of the loop."""
        if len(self.outbox) >= self.office.bounds.outbox_envelopes:
            self.office.counters["dropped_full"] += 1
            return
        self.outbox.append(envelope)
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write queued envelopes as far as the network accepts them; dial if there is no connection."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        stream, outbox, counters = self._stream, self.outbox, self.office.counters
        if stream is None:
            if outbox:
                self._want()
            return
        if outbox and stream.unheard():
            self._give_up(stream, "redialled_unheard")
            return
        while outbox and stream.writable:
            frame, count = take_frame(outbox, self.office.bounds.frame_bytes)
            if frame is None:
                counters["dropped_oversize"] += count
                continue
            counters["sent"] += count
            counters["frames_sent"] += 1
            counters["bytes_sent"] += len(frame)
            stream.write(frame)

    def heard(self) -> None:
        """Dial without waiting: the peer has just opened a connection to us, so it can be reached."""
        self._failures = 0
        if self._stream is not None:
            if self._stream.stuck():
                self._give_up(self._stream, "redialled_heard")
        elif self._redial is not None:
            self.office.counters["redialled_heard"] += 1
            self._redial.cancel()
            self._dial_again()

    def _give_up(self, stream: Stream, reason: str) -> None:
        """Replace a connection. Data in the old one is lost, and repeated by the links."""
        self.office.counters[reason] += 1
        self.office.counters["disconnected"] += 1
        self._stream = None
        stream.abort()
        self._want()

    # --- dialling ------------------------------------------------------------------------------------------

    def _want(self) -> None:
        """Dial now, or when the pause is over."""
        if self._dialling or self._redial is not None or self._closed:
            return
        loop = asyncio.get_running_loop()
        wait = self._not_before - loop.time() if self._failures else 0.0
        if wait > 0:
            self._redial = loop.call_later(wait, self._dial_again)
        else:
            self._begin()

    def _dial_again(self) -> None:
        self._redial = None
        self._begin()

    def _begin(self) -> None:
        if not self._closed:
            self._dialling = True
            self.office.errand(self._dial())

    async def _dial(self) -> None:
        bounds = self.office.bounds
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(bounds.dial_seconds):
                _, stream = await loop.create_connection(
                    lambda: Stream(self),
                    sock=await reach(self.address, bounds.connect_seconds),
                    ssl=client_context(self.office.credentials, self.peer),
                    server_hostname=SERVER_NAME,
                    ssl_handshake_timeout=bounds.dial_seconds,
                    ssl_shutdown_timeout=bounds.close_seconds,
                )
            if stream.foreign:
                self._unreachable(begun)
        except ssl.SSLError as error:
            self.office.refuse("peer", self.peer, str(error))
            self._unreachable(begun)
        except (OSError, UnicodeError):  # a timeout is an OSError; an invalid host name is the other
            self._unreachable(begun)
        finally:
            self._dialling = False
        self.flush()

    def _unreachable(self, begun: float) -> None:
        loop = asyncio.get_running_loop()
        self.office.counters["unreachable"] += 1
        self._pause(begun)
        if self._lost_at < 0:
            self._lost_at = loop.time()
        if loop.time() - self._lost_at >= self.office.bounds.outbox_seconds and self.outbox:
            self.office.counters["dropped_unreachable"] += len(self.outbox)
            self.outbox.clear()

    def _pause(self, begun: float) -> None:
        """Set the pause before the next dial: half of the doubled time, and a random part of the other half;
        counted from the start of the last one, because a dial without an answer has taken its time
        already."""
        bounds = self.office.bounds
        self._failures += 1
        span = bounds.redial_first * 2 ** min(self._failures - 1, 30)
        share = 0.5 + self.office.random.random() / 2
        self._not_before = begun + min(span, bounds.redial_most) * share

    def opened(self, stream: Stream) -> None:
        """Use a new connection."""
        self._streams[stream] = None
        if self._closed or stream.foreign:
            stream.abort()
            return
        self.office.counters["connected"] += 1
        self._stream = stream
        self._lost_at = -1.0

    def lost(self, stream: Stream, error: Exception | None) -> None:
        """Handle the end of a connection. After a long-lived one the peer is dialled again at once."""
        self._streams.pop(stream, None)
        if stream is not self._stream:
            return
        self._stream = None
        self.office.counters["disconnected"] += 1
        if isinstance(error, ssl.SSLError):
            self.office.refuse("by_peer", self.peer, str(error))
        now = asyncio.get_running_loop().time()
        if now - stream.since >= self.office.bounds.redial_most:
            self._failures = 0
        else:
            self._pause(now)
        if self.outbox:
            self._want()

    def move(self, address: tuple[str, int]) -> None:
        """Dial the peer at another address from now on. An open connection stays."""
        if address != self.address:
            self.address = address
            self._failures = 0
            if self._redial is not None:
                self._redial.cancel()
                self._dial_again()

    def renew(self) -> None:
        """Open a new connection for a new certificate, and let the old one send its data."""
        stream, self._stream = self._stream, None
        self._failures = 0
        if stream is not None:
            stream.close()
        self.flush()

    # --- closing ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Accept no more envelopes, and close every connection when its data is sent."""
        self._closed = True
        self.flush()
        if self._redial is not None:
            self._redial.cancel()
            self._redial = None
        if self.outbox:
            self.office.counters["dropped_closed"] += len(self.outbox)
            self.outbox.clear()
        self._stream = None
        for stream in self._streams:
            stream.close()

    @property
    def lingers(self) -> bool:
        """True if a connection is not closed yet."""
        return bool(self._streams)

    async def wait_closed(self) -> None:
        """Wait until every connection is closed."""
        await asyncio.gather(*(stream.closed for stream in self._streams))
