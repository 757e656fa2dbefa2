"""The auth middleware of a server: it checks identity, role, rate and parameters before it calls a handler.

A client shows a certificate of the league or an access token; the role in it decides, by the table of
operations. An access token takes precedence over a certificate, because the client chose it for this request.
The revocation list is checked for every request of a person, because connections are kept open for long;
after a revocation, the long requests of that person are aborted too. Members are not checked against the
list: nobody revokes them, and their work must not depend on a list that may be damaged.

Each identity (and each address of anonymous clients) has a token bucket, a concurrency limit, and a bound on
its requests in progress. A refusal for too many requests is delayed before it is sent: a client that does not
wait on its own must wait, and cannot take the others' processor time with fast refusals.
"""

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hanse.live.http.concurrency_limiter import LateError, Turns
from hanse.live.http.operations import JSON, METRICS, Operation, Parameter, Place
from hanse.live.http.rate_limiter import BURST, RATE, STRANGER_BURST, STRANGER_RATE, Buckets
from hanse.live.http.responses import RefusedError, bad_parameter, bug, later
from hanse.security.access_tokens import AccessBook
from hanse.security.auth_refusal import Refusal
from hanse.security.identity import Identity, Role
from hanse.security.revocation_list import RevokedError

UNDER_WAY_MAX: Final = 64
"""Short requests of one identity at the same time, including those in the queue."""
LASTING_MAX: Final = 256
"""Requests of one identity at the same time that wait for something: ends, output, events."""
HELD_SECONDS: Final = 0.5
"""Seconds before a refusal for too many requests is sent."""
HELD_MAX: Final = 256
"""Refusals that are delayed at the same time; further ones go out at once."""
PEOPLE_SEEN_MAX: Final = 4_096
"""Names of people that are remembered; later names are not."""
ADDRESSES_KNOWN_MAX: Final = 1_024
"""Addresses whose network prefix is cached."""
SCHEME: Final = "bearer"
FILE_VERSION_HEADER: Final = "X-Hanse-League-File"
"""A client that keeps a list of the members sees by this header that the league file has changed."""
log: Final = logging.getLogger(__name__)

Values = dict[str, Any]
Observe = Callable[[str, int, float], None]
"""Called for every answered request with operation, status, seconds."""


class Call:
    """An admitted request: the identity of the client, and the parameters."""

    def __init__(
        self, request: Request, peer: Identity | None, key: str, values: Values, gate: "Gate"
    ) -> None:
        self.request = request
        self._peer = peer
        self.key = key
        """Key of the token bucket that pays for the request."""
        self._values = values
        self._gate = gate

    @property
    def peer(self) -> Identity:
        """Identity of the client; handlers of public operations must not ask for it."""
        assert self._peer is not None, "a public operation has no identity"
        return self._peer

    @property
    def by_token(self) -> bool:
        """True if the client showed an access token."""
        return "authorization" in self.request.headers

    @property
    def issued(self) -> int:
        """Time when the connection's certificate was issued, in microseconds since 1970."""
        issued = self.request.scope["state"]["issued"]
        assert isinstance(issued, int)
        return issued

    @property
    def client(self) -> str:
        """Identity of the client as the machines record it."""
        return f"{self.peer.role}/{self.peer.name}"

    def text(self, name: str) -> str:
        """Return a parameter; empty if the client did not give it."""
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def number(self, name: str) -> int:
        """Return a number that was given or has a default."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def optional(self, name: str) -> int | None:
        """Return a number; None if the client did not give it."""
        return self._values[name] if self._values[name] != "" else None

    def several(self, name: str) -> tuple[str, ...]:
        """Return a parameter that is a list."""
        value = self._values[name]
        assert isinstance(value, tuple), name
        return value

    def charge(self, cost: float) -> None:
        """Charge the client's token bucket for more than the fixed cost of the operation."""
        self._gate.identities.charge(self.key, cost)


Handler = Callable[[Call], Awaitable[Response]]


class Gate:
    """Authentication, authorization and limits for the requests of one server."""

    def __init__(self, league: str, book: AccessBook, count: Callable[[str], None]) -> None:
        self._league = league
        self._book = book
        self._count = count
        self.identities = Buckets(RATE, BURST)
        self.strangers = Buckets(STRANGER_RATE, STRANGER_BURST)
        self._under_way: dict[tuple[str, bool], int] = {}
        """Requests in progress, by identity and by whether the operation is long-lived."""
        self._lasting: dict[Call, None] = {}
        """Long-lived requests in progress, without those of public operations."""
        self._turns = Turns()
        self._held = 0
        self.seen: dict[str, None] = {}
        """Names of the people who have sent a request to this server."""
        self.observe: Observe | None = None
        self.file_version: int | None = None
        """Version of the league file that the member uses, sent with every answer; None: not sent."""

    def routes(self, table: tuple[Operation, ...], handlers: dict[Operation, Handler]) -> list[Route]:
        """Return a route for every path of a table. Every operation has a handler, and no other has one."""
        assert set(table) == set(handlers), "the table and the handlers differ"
        paths: dict[str, dict[str, tuple[Operation, Handler]]] = {}
        for operation in table:
            paths.setdefault(operation.path, {})[operation.verb] = (operation, handlers[operation])
        return [Route(path, _Endpoint(self, entries)) for path, entries in paths.items()]

    async def serve(
        self, operation: Operation, handler: Handler, request: Request, receive: Receive, send: Send
    ) -> None:
        """Admit and answer one request."""
        begun = time.monotonic()
        call: Call | None = None
        try:
            try:
                call = self._admitted(operation, request)
                self._enter(operation, call)
                response = await self._met(operation, handler, call)
            except RefusedError as refused:
                self._count(f"refused_{refused.code}")
                if refused.status == 429:
                    await self._hold()
                response = refused.answer()
            except Exception:
                log.exception("a request failed: %s", operation.name)
                self._count("failed_requests")
                response = bug().answer()
            if self.observe is not None:
                self.observe(operation.name, response.status_code, time.monotonic() - begun)
            if self.file_version is not None:
                response.headers[FILE_VERSION_HEADER] = str(self.file_version)
            await response(request.scope, receive, send)
        finally:
            if call is not None:
                self._leave(operation, call)

    async def _met(self, operation: Operation, handler: Handler, call: Call) -> Response:
        if call.request.method == "HEAD" and operation.media != JSON:
            return Response(media_type=operation.media)  # HEAD of a stream has no body
        if operation.lasting:
            return await handler(call)
        try:
            async with self._turns.turn((call.key, operation.verb != "GET")):
                return await handler(call)
        except LateError:
            raise later(429, "too_many", "too many of your requests are in the queue already") from None

    def recheck(self) -> None:
        """Abort the long-lived requests of clients that are no longer admitted, after a revocation."""
        for call in list(self._lasting):
            try:
                self._who(call.request, _stranger(call.request))
            except RefusedError as refused:
                self._count(f"ended_{refused.code}")
                call.request.scope["state"]["abort"]()

    def _enter(self, operation: Operation, call: Call) -> None:
        place = (call.key, operation.lasting)
        self._under_way[place] = self._under_way.get(place, 0) + 1
        if operation.lasting and not operation.public:
            self._lasting[call] = None

    def _leave(self, operation: Operation, call: Call) -> None:
        self._lasting.pop(call, None)
        place = (call.key, operation.lasting)
        left = self._under_way[place] - 1
        if left:
            self._under_way[place] = left
        else:
            del self._under_way[place]

    async def _hold(self) -> None:
        if self._held < HELD_MAX:
            self._held += 1
            try:
                await asyncio.sleep(HELD_SECONDS)
            finally:
                self._held -= 1

    # --- admission ------------------------------------------------------------------------------------------

    def _admitted(self, operation: Operation, request: Request) -> Call:
        """Admit a request or raise its refusal."""
        stranger = _stranger(request)
        if operation.public:
            peer, key = None, stranger
            self._pay(self.strangers, key, operation.cost)
        else:
            peer = self._who(request, stranger)
            key = f"{peer.role}/{peer.name}"
            if peer.name not in self.seen and not peer.role.member and len(self.seen) < PEOPLE_SEEN_MAX:
                self.seen[peer.name] = None
            if peer.role not in operation.roles:
                self._pay(self.identities, key, 1)
                able = f"it needs one of the roles: {', '.join(operation.roles)}"
                raise RefusedError(403, "forbidden", f"{peer.role.noun} may not do this", able)
            self._pay(self.identities, key, operation.cost)
        most = LASTING_MAX if operation.lasting else UNDER_WAY_MAX
        if self._under_way.get((key, operation.lasting), 0) >= most:
            raise later(429, "too_many", f"you have {most} such requests in progress already")
        return Call(request, peer, key, _values(operation.parameters, request), self)

    def _pay(self, buckets: Buckets, key: str, cost: int) -> None:
        wait = buckets.take(key, cost)
        if wait:
            raise later(429, "too_often", "you have exceeded your request rate", wait)

    def _who(self, request: Request, stranger: str) -> Identity:
        """Return the identity of the client, or raise 401. A failed attempt is charged to the address."""
        shown = request.headers.get("authorization")
        if shown is not None:
            return self._bearer(shown, stranger)
        peer: Identity | None = request.scope["state"].get("peer")
        if peer is None or peer.league != self._league:
            self._pay(self.strangers, stranger, 1)
            raise _unknown(
                "no_certificate",
                "this server needs a certificate of the league or an access token",
                "join with 'hanse join', use the context that 'hanse up' made, or 'hanse access create'",
            )
        if not peer.role.member:
            self._must_last(peer, request.scope["state"]["issued"], stranger)
        return peer

    def _must_last(self, peer: Identity, issued: int, stranger: str) -> None:
        """Raise the refusal of a person whose certificate was revoked."""
        try:
            ended = self._book.ends_person(peer.name, issued)
        except RevokedError as error:
            self._pay(self.identities, f"{peer.role}/{peer.name}", 1)
            raise _unread("certificate", error) from None
        if ended:
            self._pay(self.strangers, stranger, 1)
            raise certificate_revoked(peer)

    def _bearer(self, shown: str, stranger: str) -> Identity:
        scheme, _, token = shown.partition(" ")
        if scheme.lower() != SCHEME:
            self._pay(self.strangers, stranger, 1)
            raise _unknown("bad_token", "the Authorization header must be 'Bearer' and an access token", "")
        try:
            found = self._book.check(token.strip())
        except RevokedError as error:
            raise _unread("access token", error) from None
        if isinstance(found, Refusal):
            self._pay(self.strangers, stranger, 1)
            raise _unknown(f"token_{found.reason}", found.detail, "make one with 'hanse access create'")
        return found


class _Endpoint:
    """The operations of one path, as an ASGI application."""

    def __init__(self, gate: Gate, entries: dict[str, tuple[Operation, Handler]]) -> None:
        self._gate = gate
        self._entries = entries
        verbs = [*entries, *(["HEAD"] if "GET" in entries else []), "OPTIONS"]
        self._allow = {"Allow": ", ".join(verbs)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb: str = scope["method"]
        entry = self._entries.get("GET" if verb == "HEAD" else verb)
        if entry is not None:
            await self._gate.serve(*entry, Request(scope, receive), receive, send)
        elif verb == "OPTIONS":
            await Response(status_code=204, headers=self._allow)(scope, receive, send)
        else:
            refused = RefusedError(405, "bad_method", "this path does not have this method")
            refused.hint, refused.headers = f"use one of: {self._allow['Allow']}", self._allow
            await refused.answer()(scope, receive, send)


def guarded(
    roles: tuple[Role, ...],
    handler: Callable[[Request, Identity], Awaitable[Response]],
    _: Callable[[str], None],
) -> ASGIApp:
    """Return an application for a path outside the table (``METRICS``), limited to these roles. The
    surrounding application's auth middleware admits its requests, with the usual tokens, limits and
    errors."""

    async def meet(call: Call) -> Response:
        return await handler(call.request, call.peer)

    return _Guarded(roles, meet)


class _Guarded:
    """An ASGI application for such a path; it finds the auth middleware in the scope of the request."""

    def __init__(self, roles: tuple[Role, ...], handler: Handler) -> None:
        self._operation = msgspec.structs.replace(METRICS, roles=roles)
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate: Gate = scope["app"].state.gate
        entries = {self._operation.verb: (self._operation, self._handler)}
        await _Endpoint(gate, entries)(scope, receive, send)


async def not_found(request: Request, _: Exception) -> Response:
    """Answer a request for a path that does not exist."""
    hint = "GET /openapi.json lists all paths"
    return RefusedError(404, "no_such_path", f"there is no {request.url.path[:256]!r} here", hint).answer()


def _unknown(code: str, message: str, hint: str) -> RefusedError:
    refused = RefusedError(401, code, message, hint)
    refused.headers["WWW-Authenticate"] = 'Bearer realm="hanse"'
    return refused


def certificate_revoked(peer: Identity) -> RefusedError:
    """Return the refusal for a revoked certificate."""
    return _unknown(
        "certificate_revoked",
        f"the certificate of {peer.role} {peer.name} was revoked",
        "join again with a new token ('hanse token create', 'hanse join'); in the home of a broker, "
        "'hanse renew --anew' makes a new one",
    )


def _unread(what: str, error: RevokedError) -> RefusedError:
    """Return the refusal for a revocation list that cannot be read."""
    log.warning("every %s of a person is refused: %s", what, error)
    return later(503, "no_revocations", f"no {what} can be checked: {error}")


def _stranger(request: Request) -> str:
    """Return the key that pays for requests without a valid identity."""
    return _address_key(request.client.host if request.client is not None else "")


@lru_cache(ADDRESSES_KNOWN_MAX)
def _address_key(host: str) -> str:
    """Return the limiter key of an address: for IPv6 its /64 network, because one host may have all of it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


# --- parameters ---------------------------------------------------------------------------------------------


def _values(parameters: tuple[Parameter, ...], request: Request) -> Values:
    """Return the parameters of a request by name; raise 422 for an invalid, unknown or repeated one."""
    known = {parameter.name for parameter in parameters if parameter.place is Place.QUERY}
    query: dict[str, str] = {}
    for name, text in request.query_params.multi_items() if request.scope["query_string"] else ():
        if name not in known:
            raise bad_parameter(name[:64], f"unknown parameter; known ones: {', '.join(sorted(known))}")
        if name in query:
            raise bad_parameter(name, "must be given once")
        query[name] = text
    places = {Place.QUERY: query, Place.PATH: request.path_params, Place.HEADER: request.headers}
    return {
        parameter.name: _value(parameter, places[parameter.place].get(parameter.name))
        for parameter in parameters
    }


def _value(parameter: Parameter, text: str | None) -> int | str | tuple[str, ...]:
    if text is None:
        text = parameter.default
        if not text:
            return ""
    if parameter.whole is not None:
        return _whole(parameter, parameter.whole, text)
    if parameter.several:
        return tuple(dict.fromkeys(_choice(parameter, part) for part in text.split(",")))
    if parameter.choices:
        return _choice(parameter, text)
    if len(text) > parameter.length_max:
        raise bad_parameter(parameter.name, f"must have at most {parameter.length_max} characters")
    if parameter.pattern and re.fullmatch(parameter.pattern, text) is None:
        shape = f"example: {parameter.example}" if parameter.example else f"must match {parameter.pattern}"
        raise bad_parameter(parameter.name, shape)
    return text


def _whole(parameter: Parameter, bounds: tuple[int, int], text: str) -> int:
    least, most = bounds
    if not (text.isascii() and text.isdigit() and len(text) < 20) or not least <= int(text) <= most:
        raise bad_parameter(parameter.name, f"must be a whole number from {least} to {most}")
    return int(text)


def _choice(parameter: Parameter, text: str) -> str:
    if text not in parameter.choices:
        raise bad_parameter(parameter.name, f"must be one of: {', '.join(parameter.choices)}")
    return text
