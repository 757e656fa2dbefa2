"""Events of the dispatcher's sockets: who is called when a connection can be read or written."""

import selectors
import socket
from collections.abc import Callable

from hanse.sdk.workers.worker_connection import WorkerConnection

EventHandler = Callable[[int], None]
"""Function called with the events of a socket, as ``selectors`` names them."""


class ConnectionEvents:
    """Sockets that the dispatcher waits for, each with its handler. For one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._registered: dict[WorkerConnection, int] = {}
        """Events for which each connection is registered."""

    def select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events and return them; ``data`` of a key is the handler.

        ``timeout`` in seconds; None: until there is one.
        """
        return self._selector.select(timeout)

    def watch_socket(self, readable: socket.socket, handler: EventHandler) -> None:
        """Call a handler whenever a socket that is not a worker's can be read."""
        self._selector.register(readable, selectors.EVENT_READ, handler)

    def unwatch_socket(self, readable: socket.socket) -> None:
        """Call that handler no longer."""
        self._selector.unregister(readable)

    def add(self, connection: WorkerConnection, handler: EventHandler) -> None:
        """Call a handler whenever this connection can be read, and while output waits also written."""
        self._registered[connection] = selectors.EVENT_READ
        self._selector.register(connection.socket, selectors.EVENT_READ, handler)

    def set_handler(self, connection: WorkerConnection, handler: EventHandler) -> None:
        """Replace the handler of a connection."""
        self._selector.modify(connection.socket, self._registered[connection], handler)

    def update(self, connection: WorkerConnection) -> None:
        """Wait for a writable socket as long as output waits."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.has_output else 0)
        if connection in self._registered and self._registered[connection] != events:
            self._registered[connection] = events
            self._selector.modify(connection.socket, events, self._selector.get_key(connection.socket).data)

    def close_connection(self, connection: WorkerConnection) -> None:
        """Close a connection, which is forgotten."""
        if self._registered.pop(connection, None) is not None:
            self._selector.unregister(connection.socket)
        connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._registered):
            self.close_connection(connection)
        self._selector.close()
