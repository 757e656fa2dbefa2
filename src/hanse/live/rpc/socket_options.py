"""Socket options of the transport: fast connects, detection of dead peers, and the age of acknowledgements.

TCP retransmits after pauses that double. That is right for a crowded network and wrong for one that was cut:
after a cut of ten seconds a connection stays silent for up to ten seconds more. So a silent connection is
given up while the cut lasts, and a peer that does not answer is dialled once a second: the first SYN after
the heal gets through.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Final

KEEPALIVE_SECONDS: Final = 15
"""Seconds until an idle connection is probed."""
KEEPALIVE_INTERVAL_SECONDS: Final = 5
"""Seconds between two probes."""
KEEPALIVE_TRIES: Final = 3
"""Probes without an answer after which the connection is dead."""
RETRANSMITS_MIN: Final = 3
"""Futile retransmissions after which silence means a cut: on a link that has suddenly become slow the kernel
retransmits once or twice, too."""

_INFO_BYTES: Final = 60
"""Bytes of the kernel's ``tcp_info``, up to and with the time since the last acknowledgement."""
_RETRANSMITS_OFFSET: Final = 2
"""Offset of the number of retransmissions of the oldest unacknowledged data without any progress."""
_LAST_ACK_OFFSET: Final = 56
"""Offset of the milliseconds since the last acknowledgement."""


async def connect(address: tuple[str, int], seconds: float) -> socket.socket:
    """Connect to the first address of a peer that answers within so many seconds each.

    Raises ``OSError`` (a timeout is one) if none does.
    """
    loop = asyncio.get_running_loop()
    host, port = address
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, place in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_connect(connection, place)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failure


def set_keepalive(connection: socket.socket | None, write_seconds: float = 0.0) -> None:
    """Let the kernel detect a dead peer, where it can; with ``write_seconds``, also a peer that accepts no
    data for so long."""
    if connection is None:
        return
    with suppress(OSError):  # optional: our own bounds detect the same, later
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_SECONDS),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
            ("TCP_KEEPCNT", KEEPALIVE_TRIES),
            ("TCP_USER_TIMEOUT", int(write_seconds * 1_000)),
        ):
            if hasattr(socket, name) and value:
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_silent(connection: socket.socket | None, retransmits: int, seconds: float) -> bool:
    """Return True if sent data gets no answer: the kernel has retransmitted it so often and no
    acknowledgement has come for so long. A busy peer acknowledges, so it is never considered dead. Where the
    kernel cannot tell, the answer is False."""
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return False
    if len(info) < _INFO_BYTES:
        return False
    silent_milliseconds = int.from_bytes(
        info[_LAST_ACK_OFFSET : _LAST_ACK_OFFSET + 4], "little" if _IS_LITTLE_ENDIAN else "big"
    )
    return info[_RETRANSMITS_OFFSET] >= retransmits and silent_milliseconds >= seconds * 1_000


_IS_LITTLE_ENDIAN: Final = socket.htons(1) != 1
"""True if this machine is little-endian."""
