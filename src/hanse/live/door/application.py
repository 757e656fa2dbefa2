"""A door's application: the routes of its table behind the gate, and what every door answers alike."""

from pathlib import Path
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute

from hanse.live.door.gate import Call, Gate, not_found
from hanse.live.door.openapi import document
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import Identity
from hanse.live.league import League


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
    """The ASGI application of a door. Whatever its routes do not list does not exist."""

    def __init__(self, gate: Gate, routes: list[BaseRoute]) -> None:
        super().__init__(routes=routes, exception_handlers={HTTPException: not_found})
        self.router.redirect_slashes = False
        self.state.gate = gate


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
