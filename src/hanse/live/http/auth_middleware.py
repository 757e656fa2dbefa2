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
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.concurrency_limiter import ConcurrencyLimiter, QueueTimeoutError
from hanse.live.http.operation_record import JSON, Operation
from hanse.live.http.operation_table import METRICS
from hanse.live.http.rate_limiter import ANONYMOUS_BURST, ANONYMOUS_RATE, BURST, RATE, RateLimiter
from hanse.live.http.request_parameters import parse_parameters
from hanse.live.http.responses import RefusedError, internal_error, retry_later
from hanse.security.access_tokens import AccessTokenVerifier
from hanse.security.auth_refusal import AuthRefusal
from hanse.security.identity import Identity, Role
from hanse.security.revocation_list import RevocationListError

REQUESTS_MAX: Final = 64
"""Short requests of one identity at the same time, including those in the queue."""
LONG_REQUESTS_MAX: Final = 256
"""Requests of one identity at the same time that wait for something: ends, output, events."""
REFUSAL_DELAY_SECONDS: Final = 0.5
"""Seconds before a refusal for too many requests is sent."""
DELAYED_REFUSALS_MAX: Final = 256
"""Refusals that are delayed at the same time; further ones go out at once."""
PEOPLE_SEEN_MAX: Final = 4_096
"""Names of people that are remembered; later names are not."""
ADDRESS_CACHE_MAX: Final = 1_024
"""Addresses whose network prefix is cached."""
SCHEME: Final = "bearer"
FILE_VERSION_HEADER: Final = "X-Hanse-League-File"
"""A client that keeps a list of the members sees by this header that the league file has changed."""
log: Final = logging.getLogger(__name__)

RequestObserver = Callable[[str, int, float], None]
"""Called for every answered request with operation, status, seconds."""


class AuthMiddleware:
    """Authentication, authorization and limits for the requests of one server."""

    def __init__(self, league: str, verifier: AccessTokenVerifier, count: Callable[[str], None]) -> None:
        self._league = league
        self._verifier = verifier
        self._count = count
        self.identity_limiter = RateLimiter(RATE, BURST)
        self.anonymous_limiter = RateLimiter(ANONYMOUS_RATE, ANONYMOUS_BURST)
        self._in_progress: dict[tuple[str, bool], int] = {}
        """Requests in progress, by identity and by whether the operation is long-lived."""
        self._long_calls: dict[AdmittedRequest, None] = {}
        """Long-lived requests in progress, without those of public operations."""
        self._concurrency = ConcurrencyLimiter()
        self._delayed = 0
        self.people_seen: dict[str, None] = {}
        """Names of the people who have sent a request to this server."""
        self.on_answer: RequestObserver | None = None
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
        started_at = time.monotonic()
        call: AdmittedRequest | None = None
        try:
            try:
                call = self._admit(operation, request)
                self._enter(operation, call)
                response = await self._handle(operation, handler, call)
            except RefusedError as refused:
                self._count(f"refused_{refused.code}")
                if refused.status == 429:
                    await self._delay_refusal()
                response = refused.to_response()
            except Exception:
                log.exception("a request failed: %s", operation.name)
                self._count("failed_requests")
                response = internal_error().to_response()
            if self.on_answer is not None:
                self.on_answer(operation.name, response.status_code, time.monotonic() - started_at)
            if self.file_version is not None:
                response.headers[FILE_VERSION_HEADER] = str(self.file_version)
            await response(request.scope, receive, send)
        finally:
            if call is not None:
                self._leave(operation, call)

    async def _handle(self, operation: Operation, handler: Handler, call: AdmittedRequest) -> Response:
        if call.request.method == "HEAD" and operation.media != JSON:
            return Response(media_type=operation.media)  # HEAD of a stream has no body
        if operation.long_lived:
            return await handler(call)
        try:
            async with self._concurrency.slot((call.key, operation.verb != "GET")):
                return await handler(call)
        except QueueTimeoutError:
            raise retry_later(429, "too_many", "too many of your requests are in the queue already") from None

    def abort_revoked(self) -> None:
        """Abort the long-lived requests of clients that are no longer admitted, after a revocation."""
        for call in list(self._long_calls):
            try:
                self._authenticate(call.request, _anonymous_key(call.request))
            except RefusedError as refused:
                self._count(f"ended_{refused.code}")
                call.request.scope["state"]["abort"]()

    def _enter(self, operation: Operation, call: AdmittedRequest) -> None:
        slot = (call.key, operation.long_lived)
        self._in_progress[slot] = self._in_progress.get(slot, 0) + 1
        if operation.long_lived and not operation.public:
            self._long_calls[call] = None

    def _leave(self, operation: Operation, call: AdmittedRequest) -> None:
        self._long_calls.pop(call, None)
        slot = (call.key, operation.long_lived)
        left = self._in_progress[slot] - 1
        if left:
            self._in_progress[slot] = left
        else:
            del self._in_progress[slot]

    async def _delay_refusal(self) -> None:
        if self._delayed < DELAYED_REFUSALS_MAX:
            self._delayed += 1
            try:
                await asyncio.sleep(REFUSAL_DELAY_SECONDS)
            finally:
                self._delayed -= 1

    # --- admission ------------------------------------------------------------------------------------------

    def _admit(self, operation: Operation, request: Request) -> AdmittedRequest:
        """Admit a request or raise its refusal."""
        address = _anonymous_key(request)
        if operation.public:
            peer, key = None, address
            self._charge(self.anonymous_limiter, key, operation.cost)
        else:
            peer = self._authenticate(request, address)
            key = f"{peer.role}/{peer.name}"
            if (
                peer.name not in self.people_seen
                and not peer.role.is_member
                and len(self.people_seen) < PEOPLE_SEEN_MAX
            ):
                self.people_seen[peer.name] = None
            if peer.role not in operation.roles:
                self._charge(self.identity_limiter, key, 1)
                hint = f"it needs one of the roles: {', '.join(operation.roles)}"
                raise RefusedError(403, "forbidden", f"{peer.role.with_article} may not do this", hint)
            self._charge(self.identity_limiter, key, operation.cost)
        limit = LONG_REQUESTS_MAX if operation.long_lived else REQUESTS_MAX
        if self._in_progress.get((key, operation.long_lived), 0) >= limit:
            raise retry_later(429, "too_many", f"you have {limit} such requests in progress already")
        values = parse_parameters(operation.parameters, request)
        return AdmittedRequest(request, peer, key, values, self.identity_limiter)

    def _charge(self, limiter: RateLimiter, key: str, cost: int) -> None:
        wait = limiter.take(key, cost)
        if wait:
            raise retry_later(429, "too_often", "you have exceeded your request rate", wait)

    def _authenticate(self, request: Request, address: str) -> Identity:
        """Return the identity of the client, or raise 401. A failed attempt is charged to the address."""
        header = request.headers.get("authorization")
        if header is not None:
            return self._authenticate_token(header, address)
        peer: Identity | None = request.scope["state"].get("peer")
        if peer is None or peer.league != self._league:
            self._charge(self.anonymous_limiter, address, 1)
            raise _unauthenticated_error(
                "no_certificate",
                "this server needs a certificate of the league or an access token",
                "join with 'hanse join', use the context that 'hanse up' made, or 'hanse access create'",
            )
        if not peer.role.is_member:
            self._check_not_revoked(peer, request.scope["state"]["issued"], address)
        return peer

    def _check_not_revoked(self, peer: Identity, issued: int, address: str) -> None:
        """Raise the refusal of a person whose certificate was revoked."""
        try:
            revoked = self._verifier.is_person_revoked(peer.name, issued)
        except RevocationListError as error:
            self._charge(self.identity_limiter, f"{peer.role}/{peer.name}", 1)
            raise _revocations_unreadable("certificate", error) from None
        if revoked:
            self._charge(self.anonymous_limiter, address, 1)
            raise certificate_revoked_error(peer)

    def _authenticate_token(self, header: str, address: str) -> Identity:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != SCHEME:
            self._charge(self.anonymous_limiter, address, 1)
            raise _unauthenticated_error(
                "bad_token", "the Authorization header must be 'Bearer' and an access token", ""
            )
        try:
            verified = self._verifier.check(token.strip())
        except RevocationListError as error:
            raise _revocations_unreadable("access token", error) from None
        if isinstance(verified, AuthRefusal):
            self._charge(self.anonymous_limiter, address, 1)
            raise _unauthenticated_error(
                f"token_{verified.reason}", verified.detail, "make one with 'hanse access create'"
            )
        return verified


class _Endpoint:
    """The operations of one path, as an ASGI application."""

    def __init__(self, auth: AuthMiddleware, entries: dict[str, tuple[Operation, Handler]]) -> None:
        self._auth = auth
        self._entries = entries
        verbs = [*entries, *(["HEAD"] if "GET" in entries else []), "OPTIONS"]
        self._allow = {"Allow": ", ".join(verbs)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb: str = scope["method"]
        entry = self._entries.get("GET" if verb == "HEAD" else verb)
        if entry is not None:
            await self._auth.serve(*entry, Request(scope, receive), receive, send)
        elif verb == "OPTIONS":
            await Response(status_code=204, headers=self._allow)(scope, receive, send)
        else:
            refused = RefusedError(405, "bad_method", "this path does not have this method")
            refused.hint, refused.headers = f"use one of: {self._allow['Allow']}", self._allow
            await refused.to_response()(scope, receive, send)


def guard(
    roles: tuple[Role, ...],
    handler: Callable[[Request, Identity], Awaitable[Response]],
    _: Callable[[str], None],
) -> ASGIApp:
    """Return an application for a path outside the table (``METRICS``), limited to these roles. The
    surrounding application's auth middleware admits its requests, with the usual tokens, limits and
    errors."""

    async def handle(call: AdmittedRequest) -> Response:
        return await handler(call.request, call.peer)

    return _GuardedEndpoint(roles, handle)


class _GuardedEndpoint:
    """An ASGI application for such a path; it finds the auth middleware in the scope of the request."""

    def __init__(self, roles: tuple[Role, ...], handler: Handler) -> None:
        self._operation = msgspec.structs.replace(METRICS, roles=roles)
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        auth: AuthMiddleware = scope["app"].state.gate
        entries = {self._operation.verb: (self._operation, self._handler)}
        await _Endpoint(auth, entries)(scope, receive, send)


async def not_found(request: Request, _: Exception) -> Response:
    """Answer a request for a path that does not exist."""
    hint = "GET /openapi.json lists all paths"
    return RefusedError(
        404, "no_such_path", f"there is no {request.url.path[:256]!r} here", hint
    ).to_response()


def _unauthenticated_error(code: str, message: str, hint: str) -> RefusedError:
    refused = RefusedError(401, code, message, hint)
    refused.headers["WWW-Authenticate"] = 'Bearer realm="hanse"'
    return refused


def certificate_revoked_error(peer: Identity) -> RefusedError:
    """Return the refusal for a revoked certificate."""
    return _unauthenticated_error(
        "certificate_revoked",
        f"the certificate of {peer.role} {peer.name} was revoked",
        "join again with a new token ('hanse token create', 'hanse join'); in the home of a broker, "
        "'hanse renew --anew' makes a new one",
    )


def _revocations_unreadable(what: str, error: RevocationListError) -> RefusedError:
    """Return the refusal for a revocation list that cannot be read."""
    log.warning("every %s of a person is refused: %s", what, error)
    return retry_later(503, "no_revocations", f"no {what} can be checked: {error}")


def _anonymous_key(request: Request) -> str:
    """Return the key that pays for requests without a valid identity."""
    return _address_key(request.client.host if request.client is not None else "")


@lru_cache(ADDRESS_CACHE_MAX)
def _address_key(host: str) -> str:
    """Return the limiter key of an address: for IPv6 its /64 network, because one host may have all of it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
