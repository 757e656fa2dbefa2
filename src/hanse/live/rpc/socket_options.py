"""What the wire asks of the kernel: to reach a peer soon or not at all, to notice one that has gone without a
word, and to say whether anything comes back.

TCP repeats what is not acknowledged after pauses that double. That is right for a crowded network and wrong
for one that was cut: after a cut of ten seconds a connection stays silent for up to ten seconds more. So a
connection over which nothing comes back is given up while the cut lasts, and a peer that does not answer is
knocked at once a second: the first knock after the heal gets through.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Final

KEEPALIVE_SECONDS: Final = 15
"""An idle connection is asked for a sign of life after so long."""
KEEPALIVE_EVERY: Final = 5
"""And again after so many seconds,"""
KEEPALIVE_TRIES: Final = 3
"""so often; then it is gone."""
REPEATED_LEAST: Final = 3
"""How often the kernel must have repeated something in vain before silence means a cut: a link that has
become slow suddenly is repeated to once or twice, too."""

_INFO_BYTES: Final = 60
"""Of the kernel's ``tcp_info``: up to and with the time since the last acknowledgement."""
_REPEATED_AT: Final = 2
"""Where it says how often the oldest unacknowledged data was repeated without any progress."""
_SILENT_AT: Final = 56
"""Where it says how many milliseconds ago the last acknowledgement came."""


async def reach(address: tuple[str, int], seconds: float) -> socket.socket:
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


def watch_over(connection: socket.socket | None, write_seconds: float = 0.0) -> None:
    """Have the kernel notice a peer that has gone without a word, where it can; with ``write_seconds``, also
    one that takes nothing for so long."""
    if connection is None:
        return
    with suppress(OSError):  # a comfort only: bounds of our own notice the same, later
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_SECONDS),
            ("TCP_KEEPINTVL", KEEPALIVE_EVERY),
            ("TCP_KEEPCNT", KEEPALIVE_TRIES),
            ("TCP_USER_TIMEOUT", int(write_seconds * 1_000)),
        ):
            if hasattr(socket, name) and value:
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def unheard(connection: socket.socket | None, repeated: int, seconds: float) -> bool:
    """Whether what we say over a connection gets no answer at all: the kernel has repeated it so often and
    nothing has come back for so long. A peer that is merely busy acknowledges, so it is never taken for gone.
    Where the kernel cannot tell, the answer is no."""
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return False
    if len(info) < _INFO_BYTES:
        return False
    silent = int.from_bytes(info[_SILENT_AT : _SILENT_AT + 4], "little" if _LITTLE else "big")
    return info[_REPEATED_AT] >= repeated and silent >= seconds * 1_000


_LITTLE: Final = socket.htons(1) != 1
"""Whether this machine's numbers begin with their smallest part."""
