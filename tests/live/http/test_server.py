"""A door over a real socket: how it reads requests, how it answers, and what it does not put up with."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hanse.api.records import ErrorAnswer
from hanse.league.config import Address
from hanse.live.http import server as server_module
from hanse.live.http.responses import RefusedError, json_answer, read_body
from hanse.live.http.server import BufferedTransport, HttpsServer, PeerProtocol
from hanse.security.identity import Role
from tests.security.leagues import PaperLeague

GET = b"GET /%b HTTP/1.1\r\nhost: door\r\n\r\n"


class Answer:
    """An answer as it came."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("ascii").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = dict(line.split(": ", 1) for line in lines)
        self.body = body


class Caller:
    """One connection to the door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self, head_only: bool = False) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
        found = Answer(head, b"")
        if found.headers.get("transfer-encoding") == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
                found.body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        elif not head_only and found.status >= 200:
            found.body = await self.reader.readexactly(int(found.headers.get("content-length", "0")))
        return found

    async def over(self) -> bytes:
        """What still comes until the door hangs up."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


def play(
    path: Path,
    application: ASGIApp,
    story: Callable[[Callable[[], Awaitable[Caller]], HttpsServer], Awaitable[None]],
) -> None:
    """Open a door for an application, and call at it."""
    league = PaperLeague(path)

    async def all_of_it() -> None:
        door = HttpsServer(application, league.credentials(Role.BROKER, "b1"))
        port = await door.listen(Address("127.0.0.1", 0))
        context = league.credentials(Role.VIEWER, "ann").client_context(league.identity(Role.BROKER, "b1"))
        writers: list[asyncio.StreamWriter] = []

        async def call() -> Caller:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="hanse"
            )
            writers.append(writer)
            return Caller(reader, writer)

        try:
            await story(call, door)
        finally:
            await door.close()
            for writer in writers:
                writer.transport.abort()
            while door._state.connections:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(all_of_it(), 60))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell who asked for what, with which body."""
    request = Request(scope, receive)
    peer = scope["state"]["peer"]
    try:
        body: Any = await read_body(request, Any) if scope["method"] == "POST" else None
    except RefusedError as refused:
        await refused.to_response()(scope, receive, send)
        return
    answer = {"path": scope["path"], "query": scope["query_string"].decode(), "body": body, "who": peer.name}
    await json_answer(answer)(scope, receive, send)


def post(path: str, body: bytes, *more: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: door\r\ncontent-length: {len(body)}\r\n".encode()
    return head + b"".join(line + b"\r\n" for line in more) + b"\r\n"


def test_requests_on_one_connection_are_answered_in_order_and_one_at_a_time(tmp_path: Path) -> None:
    under_way = most = 0

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        await echo(scope, receive, send)

    async def story(call: Callable[[], Awaitable[Caller]], _: HttpsServer) -> None:
        caller = await call()
        requests = [
            post(f"/{number}", b"5") + b"5" if number % 2 else GET % b"%d" % number for number in range(9)
        ]
        caller.say(*requests)
        for number in range(9):
            assert f'"/{number}"'.encode() in (await caller.answer()).body
        assert most == 1

    play(tmp_path, slow, story)


class Plug(asyncio.Transport):
    """A transport that keeps what is written, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.over = True


def test_an_answer_that_says_its_length_leaves_in_one_piece_and_a_stream_at_once() -> None:
    plug = Plug()
    gathered = BufferedTransport(plug)

    async def send(message: Message) -> None:
        """As uvicorn does it: the head is one write, and so is every part of a body that is there."""
        if message["type"] == "http.response.start":
            gathered.write(b"head ")
        elif message["body"]:
            gathered.write(message["body"])

    async def answer(headers: list[tuple[bytes, bytes]], *bodies: bytes) -> list[list[bytes]]:
        """What has left after each message."""
        plug.pieces.clear()
        seen = []
        told = gathered.buffered_send(send)
        messages: list[Message] = [{"type": "http.response.start", "headers": headers}]
        for message in messages + [{"type": "http.response.body", "body": body} for body in bodies]:
            await told(message)
            seen.append(list(plug.pieces))
        return seen

    length = [(b"content-type", b"text/plain"), (b"content-length", b"6")]
    assert asyncio.run(answer(length, b"abc", b"def")) == [[], [b"head abc"], [b"head abc", b"def"]]
    assert asyncio.run(answer(length, b"")) == [[], [b"head "]]  # to HEAD
    assert asyncio.run(answer([], b"abc")) == [[b"head "], [b"head ", b"abc"]]


def test_a_door_answers_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    made = PeerProtocol.connection_made

    class Noting(BufferedTransport):
        """A connection that also keeps what leaves over it, piece by piece."""

        def write(self, data: bytes) -> None:
            pieces.append(data)
            self._transport.write(data)

    def connected(protocol: PeerProtocol, transport: asyncio.Transport) -> None:
        made(protocol, Noting(transport))  # type: ignore[arg-type]  # it is a transport in all but name

    monkeypatch.setattr(PeerProtocol, "connection_made", connected)

    async def story(call: Callable[[], Awaitable[Caller]], _: HttpsServer) -> None:
        caller = await call()
        for number in range(2):
            caller.say(GET % b"%d" % number)
            assert (await caller.answer()).status == 200

    play(tmp_path, echo, story)
    assert [piece.startswith(b"HTTP/1.1 200") and piece.endswith(b"}") for piece in pieces] == [True, True]


def test_what_is_held_leaves_before_the_connection_closes() -> None:
    plug = Plug()
    gathered = BufferedTransport(plug)
    gathered.hold_next = True
    gathered.write(b"head")
    gathered.close()
    gathered.close()
    assert (plug.pieces, plug.over) == ([b"head"], True)


HOST = b"host: door\r\n"
NOT_TAKEN = {
    "a long header": (b"GET / HTTP/1.1\r\n" + HOST + b"x: " + b"y" * 70_000 + b"\r\n\r\n", "65536 bytes"),
    "a long address": (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", "65536 bytes"),
    "many small headers": (b"GET / HTTP/1.1\r\n" + HOST + b"x: y\r\n" * 10_000 + b"\r\n", "100 headers"),
    "one header more": (b"GET / HTTP/1.1\r\n" + HOST + b"x: y\r\n" * 100 + b"\r\n", "100 headers"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", "Host"),
    "two hosts": (b"GET / HTTP/1.1\r\n" + HOST * 2 + b"\r\n", "Host"),
    "another coding": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n1\r\n5\r\n0\r\n\r\n",
        "'chunked'",
    ),
    "two codings": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n" * 2 + b"\r\n1\r\n5\r\n0\r\n\r\n",
        "Invalid",
    ),
}


@pytest.mark.parametrize("what", NOT_TAKEN)
@pytest.mark.parametrize("before", [0, 1])
def test_heads_that_are_not_taken(tmp_path: Path, what: str, before: int) -> None:
    sent, rule = NOT_TAKEN[what]

    async def story(call: Callable[[], Awaitable[Caller]], _: HttpsServer) -> None:
        caller = await call()
        for number in range(before):
            caller.say(GET % b"%d" % number)
            assert (await caller.answer()).status == 200
        caller.say(sent)
        said = await caller.answer()
        error = msgspec.json.decode(said.body, type=ErrorAnswer).error
        assert (said.status, said.headers["content-type"]) == (400, "application/json")
        assert (error.code, rule in error.message) == ("not_http", True), error
        assert await caller.over() == b""

    play(tmp_path, echo, story)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n" + HOST + b"x: y\r\n" * 99 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"x: " + b"y" * 65_000 + b"\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: Chunked\r\n\r\n1\r\n5\r\n0\r\n\r\n",
    ],
    ids=["headers", "bytes", "version", "coding"],
)
def test_heads_at_the_bounds_are_taken(tmp_path: Path, sent: bytes) -> None:
    async def story(call: Callable[[], Awaitable[Caller]], _: HttpsServer) -> None:
        caller = await call()
        caller.say(sent)
        assert (await caller.answer()).status == 200

    play(tmp_path, echo, story)


def test_a_bad_head_behind_a_request_is_not_the_answer_to_that(tmp_path: Path) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def story(call: Callable[[], Awaitable[Caller]], _: HttpsServer) -> None:
        caller = await call()
        caller.say(GET % b"1", b"GET / HTTP/1.1\r\n\r\n")
        assert await caller.over() == b""

    play(tmp_path, never, story)


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise OSError(28, "No space left on device")


async def mute(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive, send


@pytest.mark.parametrize("application", [failing, mute])
def test_what_nobody_has_thought_of_is_told_as_an_error(tmp_path: Path, application: ASGIApp) -> None:
    async def story(call: Callable[[], Awaitable[Caller]], _: HttpsServer) -> None:
        caller = await call()
        caller.say(GET % b"1")
        said = await caller.answer()
        assert (said.status, said.headers["content-type"]) == (500, "application/json")
        assert msgspec.json.decode(said.body, type=ErrorAnswer).error.code == "bug"
        assert await caller.over() == b""

    play(tmp_path, application, story)


def test_a_request_under_way_when_the_member_stops_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLOSE_SECONDS_MAX", 0.0)
    asked = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def story(call: Callable[[], Awaitable[Caller]], door: HttpsServer) -> None:
        caller = await call()
        caller.say(GET % b"1")
        await asked.wait()
        await door.close()
        said = await caller.answer()
        assert (said.status, said.headers["content-type"]) == (500, "application/json")
        assert msgspec.json.decode(said.body, type=ErrorAnswer).error.code == "stopped"

    play(tmp_path, slow, story)


@pytest.mark.parametrize("parts", [1, 9])
def test_a_head_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(server_module, "HEAD_BYTES_MAX", 5_000)

    async def story(call: Callable[[], Awaitable[Caller]], door: HttpsServer) -> None:
        caller = await call()
        caller.say(b"GET / HTTP/1.1\r\nhost: door\r\nx: ")
        connections = door._state.connections
        while not any(isinstance(one, PeerProtocol) and one._head_bytes == 0 for one in connections):
            await asyncio.sleep(0)  # what the first read brings is not counted
        for _ in range(parts):
            caller.say(b"y" * (9_000 // parts))
        said = await caller.answer()
        assert said.status == 400
        assert b"not_http" in said.body
        assert await caller.over() == b""

    play(tmp_path, echo, story)
