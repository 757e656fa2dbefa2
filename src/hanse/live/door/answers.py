"""How doors answer: JSON, and errors in one shape.

An error is ``{"error": {"code", "message", "hint"}}``: a word for programs, a sentence for people, and what
to do next.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hanse.live.identity.identity import Identity, Role

BODY_BYTES_MAX: Final = 64 << 20
"""The largest request body: a batch of jobs."""

VIEW: Final = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.APPROVER, Role.ADMIN)
SUBMIT: Final = (Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)
OPERATE: Final = (Role.OPERATOR, Role.ADMIN)
MEMBERS: Final = (Role.BROKER, Role.WARDEN, Role.RUNNER)
ANYBODY: Final[tuple[Role, ...]] = tuple(Role)

BROKER_HEADER: Final = "X-Hanse-Broker"
RUNNER_HEADER: Final = "X-Hanse-Runner"

_encode: Final = msgspec.json.Encoder().encode
Handler = Callable[[Request, Identity], Awaitable[Response]]


class RefusedError(Exception):
    """A request that is not met."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint

    def answer(self) -> Response:
        """As the client gets it."""
        error = {"code": self.code, "message": self.message, "hint": self.hint}
        return json_answer({"error": error}, self.status)


class ElsewhereError(RefusedError):
    """Another member has the answer: 307, its name in a header, because addresses prove nothing."""

    def __init__(self, header: str, member: str, location: str, why: str) -> None:
        super().__init__(307, "elsewhere", f"{member} {why}", f"ask {location}")
        self._headers = {"Location": location, header: member}

    def answer(self) -> Response:
        """Where to go."""
        response = super().answer()
        response.headers.update(self._headers)
        return response


def json_answer(value: object, status: int = 200) -> Response:
    """A JSON answer of records and plain data."""
    return Response(_encode(value), status, media_type="application/json")


def guarded(
    roles: tuple[Role, ...], handler: Handler, count: Callable[[str], None]
) -> Callable[[Request], Awaitable[Response]]:
    """A route that only these roles may use. Who has no certificate, or another role, changes nothing."""

    async def route(request: Request) -> Response:
        try:
            return await handler(request, _admitted(request.state.peer, roles))
        except RefusedError as refused:
            count(f"refused_{refused.code}")
            return refused.answer()

    return route


def _admitted(peer: Identity | None, roles: tuple[Role, ...]) -> Identity:
    if peer is None:
        raise RefusedError(
            401,
            "no_certificate",
            "this door needs a certificate of the league",
            "join with 'hanse join', or use the context that 'hanse up' made",
        )
    if peer.role not in roles:
        able = f"it takes one of: {', '.join(roles)}"
        raise RefusedError(403, "forbidden", f"a {peer.role} may not do this", able)
    return peer


async def body_of(request: Request) -> Any:
    """The decoded JSON body, bounded."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise _too_large()
    try:
        return msgspec.json.decode(bytes(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, "not_json", f"the body is not JSON: {error}") from None


def _too_large() -> RefusedError:
    return RefusedError(
        413, "too_large", f"a request may have at most {BODY_BYTES_MAX} bytes", "send fewer jobs at once"
    )


def number_of(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number among the query's parameters."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20) or not least <= int(text) <= most:
        raise RefusedError(422, "bad_parameter", f"{name} is a whole number from {least} to {most}")
    return int(text)
