"""HTTPS endpoint of one member, as a client uses it: requests over TLS to a known identity.

It uses plain ``http.client``, because a command must start fast. A connection is kept for the next request.
If the other side has closed it meanwhile, the request is repeated over a new one (every request of the
interface may be repeated).
"""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from hanse.api.records import STOPPED, ErrorAnswer
from hanse.client.access_token import AccessToken
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

CONNECT_SECONDS_MAX: Final = 3.0
"""Time limit for connecting and the handshake: a slower member counts as gone."""
FILE_VERSION_HEADER: Final = "x-hanse-league-file"
"""Header with the version of a broker's league file."""
ANSWER_SECONDS_MAX: Final = 15.0
"""Time limit of an answer that is not held back."""
RETRY_AFTER_SECONDS_MAX: Final = 5
"""Longest pause that a server may request."""
RETRY_AFTER_TRIES_MAX: Final = 4
ANSWER_BYTES_MAX: Final = 256 << 20
PIECE_BYTES_MAX: Final = 64 << 10
"""Largest piece of output that is passed on."""


class NoAnswerError(Exception):
    """Missing answer of a member. ``sent``: True if it may have received the request."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class HttpReply(NamedTuple):
    """Answer with any status."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: bytes


class SingleRecordConnection(http.client.HTTPSConnection):
    """Connection that sends each request in one TLS record, head and body, so that the other side wakes once.
    ``http.client`` alone sends two."""

    _parts: list[bytes] | None = None

    def request(self, *arguments: Any, **named: Any) -> None:
        """Send a request as ``http.client`` does; bodies are bytes."""
        parts: list[bytes] = []
        self._parts = parts
        try:
            super().request(*arguments, **named)
        finally:
            self._parts = None
        super().send(b"".join(parts))

    def send(self, data: Any) -> None:
        """Keep a part back until the request is complete."""
        if self._parts is None:
            super().send(data)
        else:
            self._parts.append(data)


class MemberEndpoint:
    """HTTPS endpoint of one member; use it from one thread."""

    def __init__(
        self, address: str, server: Identity, credentials: Path, token: AccessToken | None = None
    ) -> None:
        self.address = address
        self.server = server
        self._credentials = credentials
        self._token = token
        """Token used instead of the certificate."""
        self.tried = self.answered = False
        """``tried``: a request was made; ``answered``: an answer came."""
        self.file_version = 0
        """Version of its league file, if known."""
        self._connection: http.client.HTTPSConnection | None = None
        self._socket: socket.socket | None = None
        """Socket of the connection; ``http.client`` forgets it when the answer ends the connection."""

    def request(
        self, method: str, target: str, body: bytes | None = None, seconds: float = ANSWER_SECONDS_MAX
    ) -> HttpReply:
        """Make a request and read the whole answer. Raises ``NoAnswerError`` if none comes.

        After a refusal for too many requests (429) it is repeated at the requested time, a few times.
        """
        for _ in range(RETRY_AFTER_TRIES_MAX):
            reply = self._request_once(method, target, body, seconds)
            wait = _retry_after(reply)
            if not wait:
                break
            time.sleep(wait)  # the server requested this pause
        return reply

    def _request_once(self, method: str, target: str, body: bytes | None, seconds: float) -> HttpReply:
        response = self._send_request(method, target, body, seconds)
        try:
            data = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswerError(failure_text(error), sent=True) from None
        if len(data) > ANSWER_BYTES_MAX:
            self.close()
            raise NoAnswerError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes", sent=True)
        if response.will_close:
            self.close()
        return self._check_reply(HttpReply(response.status, _headers(response), data))

    def stream(self, target: str, seconds: float | None) -> "tuple[HttpReply, Iterator[bytes]]":
        """Request an output. Return the head of the answer and, with status 200, its pieces as they come.

        ``seconds``: time limit of a piece; None: no limit, because a task may write nothing.
        """
        response = self._send_request("GET", target, None, ANSWER_SECONDS_MAX)
        if response.status != 200:
            data = response.read(PIECE_BYTES_MAX)
            self.close()
            return self._check_reply(HttpReply(response.status, _headers(response), data)), iter(())
        assert self._socket is not None
        self._socket.settimeout(seconds)
        return HttpReply(response.status, _headers(response), b""), self._pieces(response)

    def _check_reply(self, reply: HttpReply) -> HttpReply:
        """Return the answer. Raises if the server refuses our token, since no other would accept it, or if
        the member stopped during the request."""
        if reply.status not in (401, 500):
            return reply
        try:
            error = msgspec.json.decode(reply.body, type=ErrorAnswer).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = ErrorAnswer().error
        if reply.status == 500 and error.code == STOPPED:
            raise NoAnswerError("it stopped", sent=True)
        if reply.status == 500 or self._token is None:
            return reply
        raise self._token.refusal_error(error.code, error.message or f"{self.server.name} refused the token")

    def _pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        promised = response.length  # None: the end is marked, and http.client checks that it came
        received = 0
        try:
            while promised is None or received < promised:
                piece = response.read1(PIECE_BYTES_MAX)
                if not piece and promised is not None:
                    raise NoAnswerError("it closed the connection", sent=True)
                if not piece:
                    return
                received += len(piece)
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(failure_text(error), sent=True) from None
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._socket = None

    def _send_request(
        self, method: str, target: str, body: bytes | None, seconds: float
    ) -> http.client.HTTPResponse:
        """Send a request and read the head of its answer."""
        self.tried = True
        if self._connection is not None:
            try:
                return self._send_and_receive(method, target, body, seconds)
            except TimeoutError as error:
                self.close()
                raise NoAnswerError(failure_text(error), sent=True) from None
            except (OSError, http.client.HTTPException):
                self.close()  # it was closed while it was idle
        self._connect()
        try:
            return self._send_and_receive(method, target, body, seconds)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswerError(failure_text(error), sent=True) from None

    def _send_and_receive(
        self, method: str, target: str, body: bytes | None, seconds: float
    ) -> http.client.HTTPResponse:
        connection = self._connection
        assert connection is not None
        assert self._socket is not None
        self._socket.settimeout(seconds)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.text()}"
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        self.answered = True
        version = response.headers.get(FILE_VERSION_HEADER, "")
        self.file_version = int(version) if version.isascii() and version.isdigit() else self.file_version
        return response

    def _connect(self) -> None:
        host, port = host_and_port(self.address)
        connection = SingleRecordConnection(
            host, port, timeout=CONNECT_SECONDS_MAX, context=self._ssl_context()
        )
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswerError(failure_text(error), sent=False) from None
        self._connection, self._socket = connection, connection.sock

    def _ssl_context(self) -> ssl.SSLContext:
        """Make the TLS context for each connection, because the certificate may have been renewed."""
        try:
            return Credentials(self._credentials).client_context(self.server, show=self._token is None)
        except (OSError, ValueError) as error:
            hint = "run 'hanse up' again if the league is on this machine, or join it with 'hanse join'"
            what = "certificate"
            if self._token is not None:
                what, hint = "certificate of the league's authority", "see 'hanse config set --help'"
            raise CommandError(
                f"the {what} in {self._credentials} cannot be used: {failure_text(error)}",
                ExitCode.CONFIG,
                hint,
            ) from None


def _retry_after(reply: HttpReply) -> int:
    """Return the seconds to wait before a repetition; 0: none requested, or too many."""
    text = reply.headers.get("retry-after", "") if reply.status == 429 else ""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= RETRY_AFTER_SECONDS_MAX else 0


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def is_address(text: str) -> bool:
    """Return True if the text is a ``host:port``."""
    try:
        host_and_port(text)
    except CommandError:
        return False
    return True


def host_and_port(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[host]:port``."""
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:  # a port that is no number
        pass
    raise CommandError(
        f"'{address}' is not an address such as host:7402",
        ExitCode.CONFIG,
        "see 'hanse config view'",
    )


def failure_text(error: Exception) -> str:
    """Describe in a few words why there is no answer."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "it closed the connection"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message if error.errno else error.args[0]}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def build_target(path: str, query: dict[str, str]) -> str:
    """Build a path with the parameters that have a value."""
    filled = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(filled)}" if filled else path
