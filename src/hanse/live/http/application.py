"""The ASGI application of a server: the routes of its operations, behind the auth middleware."""

from pathlib import Path
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from hanse.league.config import LeagueConfig
from hanse.live.http.admitted_request import AdmittedRequest
from hanse.live.http.auth_middleware import AuthMiddleware, not_found
from hanse.live.http.openapi import document
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity


class DaemonContext(Protocol):
    """The parts of a daemon that its server needs."""

    league: LeagueConfig
    identity: Identity
    counters: dict[str, int]
    credentials: Credentials
    home: Path

    def count(self, what: str) -> None:
        """Count one occurrence of ``what``."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the daemon: its state can no longer be trusted."""
        ...


class ApiApplication(Starlette):
    """The ASGI application of a server. Paths outside its routes do not exist.

    A request goes straight to its route. The auth middleware handles all errors on the way, so of Starlette's
    own middleware only the answer for an unknown path is needed.
    """

    def __init__(self, auth: AuthMiddleware, routes: list[BaseRoute]) -> None:
        super().__init__(routes=routes, exception_handlers={HTTPException: not_found})
        self.router.redirect_slashes = False
        self.state.gate = auth
        self._routes_by_path: dict[str, Route] = {}
        """Routes without parameters that were requested before, by path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["app"] = self
        known = self._routes_by_path.get(scope["path"])
        if known is not None:
            scope["endpoint"], scope["path_params"] = known.endpoint, {}
            await known.app(scope, receive, send)
            return
        for route in self.router.routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL and isinstance(route, Route):
                scope.update(child_scope)
                if not child_scope["path_params"]:
                    self._routes_by_path[route.path] = route
                await route.app(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


class OpenApiDocument:
    """The OpenAPI document of a server, built on the first request for it."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._text = b""

    async def answer(self, _: AdmittedRequest) -> Response:
        """Answer with the document."""
        if not self._text:
            self._text = msgspec.json.encode(document(self._role))
        return Response(self._text, media_type="application/json")
