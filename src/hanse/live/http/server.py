"""An HTTPS server: an ASGI application behind TLS, in the daemon's own event loop.

uvicorn's protocol class parses HTTP; uvicorn's server is not used, because it wakes ten times a second for as
long as it lives. The identity of the client comes from the connection's certificate and is put into the
request's state as ``peer``, and the time of issue as ``issued``. Bounds hold for connections in total, for
connections of each identity or address, and for the head of a request; a connection without a complete
request in time is closed: no client can block the others with open connections.
"""

import asyncio
import logging
import ssl
from typing import Any, Final, NoReturn

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hanse.api.records import STOPPED
from hanse.league.config import Address
from hanse.live.http.responses import RefusedError, internal_error, retry_later
from hanse.security.credentials import Credentials
from hanse.security.identity import peer_certificate

CONNECTIONS_MAX: Final = 1_000
"""Connections in total; above it the answer is 503."""
CONNECTIONS_EACH_MAX: Final = 300
"""Connections of one identity, or of one address without a certificate; above it the answer is 429."""
REQUEST_SECONDS_MAX: Final = 30.0
"""Seconds from the start of a connection to its first request."""
HEAD_BYTES_MAX: Final = 64 << 10
"""Bytes of the first line and the headers of a request."""
HEADERS_MAX: Final = 100
"""Headers of a request."""
HEADER_SEPARATOR_BYTES: Final = 4
"""Bytes of a header besides its name and its value: a colon, a space and the end of the line."""
TOO_LARGE_HEAD: Final = f"the head of a request may have at most {HEAD_BYTES_MAX} bytes"
KEEP_ALIVE_SECONDS: Final = 60
HANDSHAKE_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 2.0
"""Seconds that requests in progress may still take when the daemon stops."""
log: Final = logging.getLogger(__name__)


class BufferedTransport:
    """A transport that can hold the head of an answer until the body follows: both leave as one TLS record in
    one system call, and the client wakes once. All other behaviour is the transport's."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._buffer = b""
        self.hold_next = False
        """True if the next write waits for the one after it; true for one write."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data, or hold it."""
        if self.hold_next:
            self.hold_next, self._buffer = False, data
            return
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        self._transport.write(data)

    def flush(self) -> None:
        """Send the data that is held."""
        if self._buffer:
            self.write(b"")

    def close(self) -> None:
        """Send the data that is held, and close."""
        self.flush()
        self._transport.close()

    def buffered_send(self, send: Send) -> Send:
        """Return a ``send`` that holds a head with a content length, because its body follows at once; the
        body of a stream may follow in an hour."""

        async def send_buffered(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.hold_next = any(name == b"content-length" for name, _ in message["headers"])
            await send(message)
            if message["type"] == "http.response.body":
                self.flush()  # an empty body was not written

        return send_buffered


class PeerProtocol(HttpToolsProtocol):
    """One connection, with the identity of its certificate."""

    connection_counter: "ConnectionCounter"
    """All connections of the server; set by the creator of this object."""
    _key = ""
    _first_request_timer: asyncio.TimerHandle | None = None
    _head_bytes = -1
    """Bytes of the head that is arriving, after its first read: the parser reports nothing of a header
    without end; negative: no head is arriving."""
    _head_parsed = 0
    """Bytes of the same head that the parser has handed over."""
    _flaw = ""
    """The reason to refuse a head that can be parsed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Read the peer's certificate after the handshake."""
        buffered = BufferedTransport(transport)
        super().connection_made(buffered)  # type: ignore[arg-type]  # it does all that uvicorn asks for
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else peer_certificate(tls)
        peer = None if certificate is None else certificate.identity
        self._key = peer.uri if peer is not None else f"address {self.client[0] if self.client else ''}"
        self.app_state = {**self.app_state, "peer": peer, "abort": transport.abort}
        self.app_state["issued"] = 0 if certificate is None else certificate.issued
        self.app_state["gathered"] = buffered
        self.app_state["crowded"] = self.connection_counter.add(self._key)
        self._first_request_timer = self.loop.call_later(REQUEST_SECONDS_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection out."""
        super().connection_lost(exc)
        self.connection_counter.remove(self._key)
        self._cancel_timer()

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser; refuse a head without end."""
        if self.transport.is_closing():
            return  # data after a refused request
        if self._head_bytes >= 0:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response(TOO_LARGE_HEAD)
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Start to count the bytes of a head."""
        self._head_bytes = self._head_parsed = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the URL in the first line."""
        self._count_head_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count and add a header."""
        self._count_head_bytes(len(name) + len(value) + HEADER_SEPARATOR_BYTES)
        if len(self.headers) == HEADERS_MAX:
            self._refuse(f"a request may have at most {HEADERS_MAX} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete head, then handle the request."""
        self._head_bytes = -1
        self._check_head()
        self._cancel_timer()
        super().on_headers_complete()

    def _count_head_bytes(self, size: int) -> None:
        self._head_parsed += size
        if self._head_parsed > HEAD_BYTES_MAX:
            self._refuse(TOO_LARGE_HEAD)

    def _check_head(self) -> None:
        """Refuse a head that proxies and servers are known to read differently (RFC 9112, 3.2 and 6.1)."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            self._refuse("a request must have one Host header")
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
            self._refuse("the only supported transfer coding is 'chunked'")

    def _refuse(self, flaw: str) -> NoReturn:
        """Stop parsing; the parser's caller answers with ``send_400_response``."""
        self._flaw = flaw
        raise ValueError(flaw)

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP in the form of all errors, unless the client would take it as the
        answer to an earlier request."""
        cycle = self.cycle
        if (
            cycle is not None
            and not cycle.response_complete
            and (cycle.response_started or not cycle.more_body)
        ):
            self.transport.close()
            return
        answer = RefusedError(400, "not_http", self._flaw or msg).to_response()
        lines = [b"HTTP/1.1 400 Bad Request", b"connection: close"]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()

    def _cancel_timer(self) -> None:
        if self._first_request_timer is not None:
            self._first_request_timer.cancel()
            self._first_request_timer = None


class ConnectionCounter:
    """The number of connections of a server, by identity or address."""

    def __init__(self) -> None:
        self.total = 0
        self._by_key: dict[str, int] = {}

    def add(self, key: str) -> RefusedError | None:
        """Count a connection in; return the refusal of its requests if there are too many."""
        self.total += 1
        self._by_key[key] = self._by_key.get(key, 0) + 1
        if self._by_key[key] > CONNECTIONS_EACH_MAX:
            return retry_later(429, "too_many", f"you have {CONNECTIONS_EACH_MAX} connections already")
        if self.total > CONNECTIONS_MAX:
            return retry_later(503, "crowded", "this server has too many connections")
        return None

    def remove(self, key: str) -> None:
        """Count a connection out."""
        self.total -= 1
        self._by_key[key] -= 1
        if not self._by_key[key]:
            del self._by_key[key]


class HttpsServer:
    """A server that listens until it is closed."""

    def __init__(self, application: ASGIApp, credentials: Credentials) -> None:
        self._application = application
        self._closing = asyncio.Event()
        """In every request's state: streams end when it is set."""
        self._config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            proxy_headers=False,  # headers about the client's address are not trusted
        )
        self._config.load()
        self._state = ServerState()
        self._connection_counter = ConnectionCounter()
        self._credentials = credentials
        self._context = credentials.server_context(require=False)
        self._server: asyncio.Server | None = None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, unless the connection is one too many."""
        refusal: RefusedError | None = scope["state"]["crowded"]
        if refusal is None:
            await self._answer(scope, receive, send)
            return
        response = refusal.to_response()
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; if it fails before its answer has begun, answer with an error.

        A request that is cancelled (the member stops) may have been done or not: the answer is no 503, on
        which clients go to another broker.
        """
        buffered: BufferedTransport = scope["state"]["gathered"]
        send_buffered = buffered.buffered_send(send)
        started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal started
            started = True
            await send_buffered(message)

        try:
            await self._application(scope, receive, send_noting_start)
            if started:
                return
            failure = internal_error()
            log.error("a request got no answer: %s", scope["path"])
        except asyncio.CancelledError:
            hint = "ask again; a submission with the same client id is not made twice"
            failure = RefusedError(500, STOPPED, "this member stopped before it could answer", hint)
        except Exception:
            log.exception("a request failed: %s", scope["path"])
            failure = internal_error()
        if started:
            buffered.close()  # half an answer must look incomplete
            return
        response = failure.to_response()
        response.headers["Connection"] = "close"
        await response(scope, receive, send_buffered)

    async def listen(self, address: Address) -> int:
        """Start to listen; return the real port."""
        loop = asyncio.get_running_loop()

        def make_protocol() -> Any:
            protocol = PeerProtocol(self._config, self._state, {"closing": self._closing}, loop)
            protocol.connection_counter = self._connection_counter
            return protocol

        self._server = await loop.create_server(
            make_protocol,
            address.host,
            address.port,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
        )
        port = self._server.sockets[0].getsockname()[1]
        assert isinstance(port, int)
        return port

    def reload(self) -> None:
        """Show the renewed certificate on new connections."""
        self._context.load_cert_chain(self._credentials.path)

    async def close(self) -> None:
        """Take no new connections; give requests in progress a short time."""
        self._closing.set()
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.close()
