"""Pool of clients of one league: each thread borrows its own client."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from hanse.client.client import LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.sdk.errors import NotAllowedError, SdkError


def to_sdk_error(error: CommandError) -> SdkError:
    """Convert a ``CommandError`` to an ``SdkError``."""
    kind = NotAllowedError if error.status is ExitCode.FORBIDDEN else SdkError
    return kind(f"{error.message} ({error.hint})" if error.hint else error.message)


def open_endpoints(name: str | None, token: str | None = None) -> Endpoints:
    """Return the endpoints of the named context, of ``$HANSE_CONTEXT``, or of the current context. ``token``:
    access token to use instead of the context's. Raises ``SdkError``."""
    try:
        endpoints = Endpoints.from_context(name or os.environ.get("HANSE_CONTEXT") or None, token)
        endpoints.check_token()
    except CommandError as error:
        raise to_sdk_error(error) from None
    return endpoints


class ClientPool:
    """Pool of clients of one context; it holds one for each thread that needs one at the same time."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._template = endpoints
        self.name = endpoints.name
        self._idle: deque[Endpoints] = deque()
        self._closed = False

    @contextmanager
    def borrow(self) -> Iterator[LeagueClient]:
        """Lend a client to one thread. Raises ``SdkError`` for what the league refuses."""
        try:
            endpoints = self._idle.pop()
        except IndexError:
            endpoints = self._template.copy()
        try:
            yield LeagueClient(endpoints)
        except CommandError as error:
            raise to_sdk_error(error) from None
        finally:
            if self._closed:
                endpoints.close()
            else:
                self._idle.append(endpoints)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
