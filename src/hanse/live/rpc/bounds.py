"""Bounds of the transport in one record: sizes, numbers and times."""

import msgspec

from hanse.live.rpc.frames import FRAME_BYTES_MAX


class TransportBounds(msgspec.Struct, frozen=True):
    """Sizes, numbers and times (in seconds) of the transport."""

    frame_bytes: int = FRAME_BYTES_MAX
    frame_seconds: float = 30.0
    """From the first byte of a frame to its last; then the connection is closed."""
    handshake_seconds: float = 5.0
    handshakes: int = 128
    """Handshakes under way; more connections are turned away."""
    handshakes_per_host: int = 32
    """The same from one address: one host must not keep all others out."""
    connections: int = 1_024
    """Inbound connections, including those under handshake."""
    connections_per_peer: int = 4
    """The same of one identity; the oldest is closed for a new one, because it may be dead."""
    outbox_envelopes: int = 16_384
    """Envelopes that wait for one peer; further ones are dropped. Twice a link's window."""
    outbox_seconds: float = 30.0
    """The outbox of a peer that is unreachable for this long is emptied: links repeat."""
    write_bytes: int = 1 << 20
    """Bytes written and not yet sent by the kernel; above it envelopes wait in the outbox."""
    write_seconds: float = 30.0
    """A peer that accepts no data for this long is dialled again."""
    connect_seconds: float = 2.0
    """Time that a peer may take to answer the first SYN, which the kernel repeats after one second; then a
    new connection is tried, so that a healed network is noticed within a second."""
    dial_seconds: float = 10.0
    """The same, including the handshake."""
    redial_first: float = 0.05
    """First pause before a peer is dialled again, from the start of one attempt to the next; it doubles up to
    ``redial_most``."""
    redial_most: float = 1.0
    silence_seconds: float = 3.0
    """A connection without acknowledgements for this long, although the kernel has retransmitted, is replaced
    by a new one."""
    silence_check_seconds: float = 0.5
    """Longest time between two checks for silence, while there is data to send."""
    close_seconds: float = 2.0
    """Time for a connection to send its last data."""
