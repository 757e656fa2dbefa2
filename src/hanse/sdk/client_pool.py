"""The league's doors for several threads: each borrows a client of its own and gives it back."""

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
    """An error of a command as one of this package."""
    kind = NotAllowedError if error.status is ExitCode.FORBIDDEN else SdkError
    return kind(f"{error.message} ({error.hint})" if error.hint else error.message)


def chosen(name: str | None, token: str | None = None) -> Doors:
    """The doors of the context of this name, of ``$HANSE_CONTEXT``, or of the current one; ``token`` is shown
    there if it is given. Raises ``SdkError``."""
    try:
        doors = Doors.chosen(name or os.environ.get("HANSE_CONTEXT") or None, token)
        doors.check()
    except CommandError as error:
        raise plainly(error) from None
    return doors


class LeagueDoors:
    """Doors of one context; there are as many as threads that use them at once."""

    def __init__(self, doors: Doors) -> None:
        self._first = doors
        self.name = doors.name
        self._idle: deque[Doors] = deque()
        self._closed = False

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client for one thread. What the league refuses is raised as ``SdkError``."""
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
        """Let go of every connection."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
