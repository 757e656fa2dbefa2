"""Pool of SQLite connections for queries; one thread at a time uses a connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue
from typing import Final

from hanse.live.readmodel.schema import connect

READERS_MAX: Final = 8
"""Number of concurrent queries; further queries wait until one of these has ended."""


class ConnectionPool:
    """Pool of read-only connections. Each query sees the file in the state after one batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: LifoQueue[sqlite3.Connection | None] = LifoQueue(READERS_MAX)
        for _ in range(READERS_MAX):
            self._free.put(None)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a read transaction."""
        connection = self._free.get()
        try:
            if connection is None:
                connection = connect(self._path)
                connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")
        finally:
            self._free.put(connection)

    def close(self) -> None:
        """Wait for the running queries, then close all connections."""
        for _ in range(READERS_MAX):
            connection = self._free.get()
            if connection is not None:
                connection.close()
        for _ in range(READERS_MAX):
            self._free.put(None)
