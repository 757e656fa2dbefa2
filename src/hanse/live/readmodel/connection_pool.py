"""Connections for questions: a few, each used by one thread at a time."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue
from typing import Final

from hanse.live.readmodel.schema import connect

READERS_MAX: Final = 8
"""Questions answered at the same time; further ones wait for one of these to end."""


class Pool:
    """Connections that cannot write. Each question sees the file as one batch left it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: LifoQueue[sqlite3.Connection | None] = LifoQueue(READERS_MAX)
        for _ in range(READERS_MAX):
            self._free.put(None)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction of its own."""
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
        """Wait for the questions at hand, and close all connections."""
        for _ in range(READERS_MAX):
            connection = self._free.get()
            if connection is not None:
                connection.close()
        for _ in range(READERS_MAX):
            self._free.put(None)
