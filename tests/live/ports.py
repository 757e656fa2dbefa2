"""Ports for members that come later."""

import random
import socket
from contextlib import suppress

from hanse.league.config import Address


def free_address() -> Address:
    """A port below those that the kernel gives to connections, so that none takes it meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return Address("127.0.0.1", port)
