"""One member's door as a client sees it: requests over TLS to somebody whose identity is known.

Plain ``http.client``: a command line that runs once must start fast. A connection is kept for the next
request; if the other side has closed it meanwhile, the request is made once more over a new one (every
request of the interface may be repeated).
"""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hanse.api.records import STOPPED, ErrorAnswer
from hanse.client.access_token import Token
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

CONNECT_SECONDS_MAX: Final = 3.0
"""For connecting and the handshake: whoever takes longer is treated as gone."""
FILE_VERSION_HEADER: Final = "x-hanse-league-file"
"""With which a broker says which version of the league file it lives by."""
ANSWER_SECONDS_MAX: Final = 15.0
"""For an answer that nobody has to wait for."""
PATIENCE_SECONDS_MAX: Final = 5
"""The longest pause that a door may ask for."""
PATIENCE_TRIES_MAX: Final = 4
ANSWER_BYTES_MAX: Final = 256 << 20
PIECE_BYTES_MAX: Final = 64 << 10
"""The most of an output that is passed on at once."""


class SilentError(Exception):
    """A member did not answer. ``sent``: whether it may have got the request all the same."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Reply(NamedTuple):
    """An answer, whatever it says."""

    status: int
    headers: Mapping[str, str]
    """By name, in small letters."""
    body: bytes


class OnePiece(http.client.HTTPSConnection):
    """A connection whose requests leave whole: head and body in one TLS record, so that the other side wakes
    once for each. ``http.client`` by itself sends two."""

    _held: list[bytes] | None = None

    def request(self, *arguments: Any, **named: Any) -> None:
        """As ``http.client``'s; bodies are bytes."""
        held: list[bytes] = []
        self._held = held
        try:
            super().request(*arguments, **named)
        finally:
            self._held = None
        super().send(b"".join(held))

    def send(self, data: Any) -> None:
        """Keep a part back until the request is whole."""
        if self._held is None:
            super().send(data)
        else:
            self._held.append(data)


class Door:
    """The door of one member; use it from one thread."""

    def __init__(self, address: str, server: Identity, credentials: Path, token: Token | None = None) -> None:
        self.address = address
        self.server = server
        self._credentials = credentials
        self._token = token
        """Shown instead of the certificate."""
        self.tried = self.answered = False
        """Whether it was ever asked, and has ever said anything."""
        self.file_version = 0
        """Of the league file that it lives by, as far as it said."""
        self._connection: http.client.HTTPSConnection | None = None
        self._socket: socket.socket | None = None
        """Of the connection; kept because ``http.client`` forgets it when the answer will end with it."""

    def ask(
        self, method: str, target: str, body: bytes | None = None, seconds: float = ANSWER_SECONDS_MAX
    ) -> Reply:
        """Make a request and read the whole answer. Raises ``SilentError`` if none comes.

        A door that says that we ask too often (429) is asked again when it says, a few times.
        """
        for _ in range(PATIENCE_TRIES_MAX):
            reply = self._ask(method, target, body, seconds)
            wait = _asked_to_wait(reply)
            if not wait:
                break
            time.sleep(wait)  # the door named the moment: there is nothing else to wait for
        return reply

    def _ask(self, method: str, target: str, body: bytes | None, seconds: float) -> Reply:
        response = self._begin(method, target, body, seconds)
        try:
            data = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise SilentError(reason(error), sent=True) from None
        if len(data) > ANSWER_BYTES_MAX:
            self.close()
            raise SilentError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes", sent=True)
        if response.will_close:
            self.close()
        return self._believed(Reply(response.status, _headers(response), data))

    def stream(self, target: str, seconds: float | None) -> "tuple[Reply, Iterator[bytes]]":
        """Ask for an output. The answer's beginning and, if its status is 200, its pieces as they come.

        ``seconds``: how long a piece may take; None: for ever, because a task may be silent.
        """
        response = self._begin("GET", target, None, ANSWER_SECONDS_MAX)
        if response.status != 200:
            data = response.read(PIECE_BYTES_MAX)
            self.close()
            return self._believed(Reply(response.status, _headers(response), data)), iter(())
        assert self._socket is not None
        self._socket.settimeout(seconds)
        return Reply(response.status, _headers(response), b""), self._pieces(response)

    def _believed(self, reply: Reply) -> Reply:
        """The same answer. Raises if it is that our token is not believed, where no other door would help, or
        that the member stopped under way, which is no answer."""
        if reply.status not in (401, 500):
            return reply
        try:
            error = msgspec.json.decode(reply.body, type=ErrorAnswer).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = ErrorAnswer().error
        if reply.status == 500 and error.code == STOPPED:
            raise SilentError("it stopped", sent=True)
        if reply.status == 500 or self._token is None:
            return reply
        raise self._token.refused(error.code, error.message or f"{self.server.name} does not know us")

    def _pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        promised = response.length  # None: the end is marked, and http.client misses it by itself
        received = 0
        try:
            while promised is None or received < promised:
                piece = response.read1(PIECE_BYTES_MAX)
                if not piece and promised is not None:
                    raise SilentError("it hung up", sent=True)
                if not piece:
                    return
                received += len(piece)
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise SilentError(reason(error), sent=True) from None
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._socket = None

    def _begin(
        self, method: str, target: str, body: bytes | None, seconds: float
    ) -> http.client.HTTPResponse:
        """Send a request and read the head of its answer."""
        self.tried = True
        if self._connection is not None:
            try:
                return self._exchange(method, target, body, seconds)
            except TimeoutError as error:
                self.close()
                raise SilentError(reason(error), sent=True) from None
            except (OSError, http.client.HTTPException):
                self.close()  # it was closed while nobody used it
        self._connect()
        try:
            return self._exchange(method, target, body, seconds)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise SilentError(reason(error), sent=True) from None

    def _exchange(
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
        connection = OnePiece(host, port, timeout=CONNECT_SECONDS_MAX, context=self._context())
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise SilentError(reason(error), sent=False) from None
        self._connection, self._socket = connection, connection.sock

    def _context(self) -> ssl.SSLContext:
        """Made anew for every connection, because the certificate may have been renewed."""
        try:
            return Credentials(self._credentials).client_context(self.server, show=self._token is None)
        except (OSError, ValueError) as error:
            hint = "run 'hanse up' again if the league is on this machine, or join it with 'hanse join'"
            what = "certificate"
            if self._token is not None:
                what, hint = "certificate of the league's authority", "see 'hanse config set --help'"
            raise CommandError(
                f"the {what} in {self._credentials} cannot be used: {reason(error)}",
                ExitCode.CONFIG,
                hint,
            ) from None


def _asked_to_wait(reply: Reply) -> int:
    """Seconds after which a door that is asked too often wants to be asked again; 0: it is no such answer, or
    that is too long to wait."""
    text = reply.headers.get("retry-after", "") if reply.status == 429 else ""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= PATIENCE_SECONDS_MAX else 0


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def is_address(text: str) -> bool:
    """Whether a door could be there."""
    try:
        host_and_port(text)
    except CommandError:
        return False
    return True


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``host:port`` or ``[host]:port``."""
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:  # a port that is no number
        pass
    raise CommandError(
        f"'{address}' is no address; one looks like host:7402",
        ExitCode.CONFIG,
        "see 'hanse config view'",
    )


def reason(error: Exception) -> str:
    """Why there is no answer, in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "it hung up"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"not who it should be: {error.verify_message if error.errno else error.args[0]}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
