"""A door's application: the routes of its table behind the gate, and what every door answers alike."""

from pathlib import Path
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from hanse.live.config.league import League
from hanse.live.http.auth_middleware import Call, Gate, not_found
from hanse.live.http.openapi import document
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity


class Host(Protocol):
    """What a door needs of its daemon."""

    league: League
    identity: Identity
    counters: dict[str, int]
    credentials: Credentials
    home: Path

    def count(self, what: str) -> None:
        """Count an occurrence."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop: something is not to be trusted any more."""
        ...


class Application(Starlette):
    """The ASGI application of a door. Whatever its routes do not list does not exist.

    A request goes from here to its route: the gate meets all that may go wrong on the way, so of what
    Starlette puts in between only the answer for a path that does not exist is needed.
    """

    def __init__(self, gate: Gate, routes: list[BaseRoute]) -> None:
        super().__init__(routes=routes, exception_handlers={HTTPException: not_found})
        self.router.redirect_slashes = False
        self.state.gate = gate
        self._fixed: dict[str, Route] = {}
        """Routes by path, of those without parameters that were asked for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["app"] = self
        found = self._fixed.get(scope["path"])
        if found is not None:
            scope["endpoint"], scope["path_params"] = found.endpoint, {}
            await found.app(scope, receive, send)
            return
        for route in self.router.routes:
            match, more = route.matches(scope)
            if match is Match.FULL and isinstance(route, Route):
                scope.update(more)
                if not more["path_params"]:
                    self._fixed[route.path] = route
                await route.app(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


class Document:
    """The OpenAPI document of a door, made when somebody first asks for it."""

    def __init__(self, door: str) -> None:
        self._door = door
        self._text = b""

    async def answer(self, _: Call) -> Response:
        """The document."""
        if not self._text:
            self._text = msgspec.json.encode(document(self._door))
        return Response(self._text, media_type="application/json")
