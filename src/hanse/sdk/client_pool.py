"""Pool of clients of one league: each thread borrows its own client."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from hanse.client.client import Client
from hanse.client.endpoints import Doors
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.sdk.errors import NotAllowedError, SdkError


def plainly(error: CommandError) -> SdkError:
    """Convert a ``CommandError`` to an ``SdkError``."""
    kind = NotAllowedError if error.status is ExitCode.FORBIDDEN else SdkError
    return kind(f"{error.message} ({error.hint})" if error.hint else error.message)


def chosen(name: str | None, token: str | None = None) -> Doors:
    """Return the endpoints of the named context, of ``$HANSE_CONTEXT``, or of the current context. ``token``:
    access token to use instead of the context's. Raises ``SdkError``."""
    try:
        doors = Doors.chosen(name or os.environ.get("HANSE_CONTEXT") or None, token)
        doors.check()
    except CommandError as error:
        raise plainly(error) from None
    return doors


class LeagueDoors:
    """Pool of clients of one context; it holds one for each thread that needs one at the same time."""

    def __init__(self, doors: Doors) -> None:
        self._first = doors
        self.name = doors.name
        self._idle: deque[Doors] = deque()
        self._closed = False

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Lend a client to one thread. Raises ``SdkError`` for what the league refuses."""
        try:
            doors = self._idle.pop()
        except IndexError:
            doors = self._first.another()
        try:
            yield Client(doors)
        except CommandError as error:
            raise plainly(error) from None
        finally:
            if self._closed:
                doors.close()
            else:
                self._idle.append(doors)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
