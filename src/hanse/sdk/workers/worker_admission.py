"""Admission of workers: a connection is accepted, and served until its peer has proved its key."""

import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from hanse.sdk.workers.connection_events import ConnectionEvents
from hanse.sdk.workers.refused_connections import RefusedConnections
from hanse.sdk.workers.worker_connection import CONNECTION_ERRORS, ConnectionSettings, WorkerConnection
from hanse.sdk.workers.worker_protocol import FrameError

UNAUTHENTICATED_MAX: Final = 256
"""Connections without proof of their key; further ones wait until these have proved it or are closed."""
AUTHENTICATION_SECONDS_MAX: Final = 20.0


class WorkerAdmission:
    """Admission of an executor's workers. Used by the dispatcher's thread."""

    def __init__(
        self,
        listener: socket.socket,
        settings: ConnectionSettings,
        events: ConnectionEvents,
        refusals: RefusedConnections,
        on_admitted: Callable[[WorkerConnection], None],
    ) -> None:
        """Begin to listen. ``on_admitted`` gets each connection that is ready for calls."""
        self._listener = listener
        self._settings = settings
        self._events = events
        self._refusals = refusals
        self._on_admitted = on_admitted
        self._unauthenticated: dict[WorkerConnection, None] = {}
        """Connections without proof, the oldest first."""
        self._listening = False
        listener.setblocking(False)
        self._update_listening()

    def next_deadline(self) -> float | None:
        """Return the time at which the first connection must have proved its key."""
        oldest = next(iter(self._unauthenticated), None)
        return None if oldest is None else oldest.opened_at + AUTHENTICATION_SECONDS_MAX

    def close_late(self, now: float) -> None:
        """Close the connections that have not proved their key in time."""
        for connection in [
            connection
            for connection in self._unauthenticated
            if now - connection.opened_at > AUTHENTICATION_SECONDS_MAX
        ]:
            self._refusals.record(connection, "no proof of a key in time")
            self._close(connection)

    def _accept(self, _: int) -> None:
        try:
            accepted, _address = self._listener.accept()
        except OSError:
            return
        connection = WorkerConnection(accepted, self._settings, time.monotonic())
        self._unauthenticated[connection] = None
        self._events.add(connection, lambda mask: self._serve(connection, mask))
        self._update_listening()

    def _update_listening(self) -> None:
        """Accept connections only while not too many others are without proof."""
        should_listen = len(self._unauthenticated) < UNAUTHENTICATED_MAX
        if should_listen and not self._listening:
            self._events.watch_socket(self._listener, self._accept)
        elif self._listening and not should_listen:
            self._events.unwatch_socket(self._listener)
        self._listening = should_listen

    def _serve(self, connection: WorkerConnection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                connection.write()
            if mask & selectors.EVENT_READ and connection.receive():
                raise FrameError("a worker that sends messages before it has calls")
        except CONNECTION_ERRORS as error:
            if isinstance(error, (FrameError, ssl.SSLError)):
                self._refusals.record(connection, str(error))
            self._close(connection)
            return
        if connection.ready:
            self._forget(connection)
            self._on_admitted(connection)
        self._events.update(connection)

    def _close(self, connection: WorkerConnection) -> None:
        self._forget(connection)
        self._events.close_connection(connection)

    def _forget(self, connection: WorkerConnection) -> None:
        del self._unauthenticated[connection]
        self._update_listening()
