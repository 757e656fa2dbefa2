"""Members with real sockets on the loopback interface, for tests of the wire.

Nothing waits for time to pass: tests wait for counts to be reached and for envelopes to be delivered, and
fail when that takes beyond reason.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from hanse.live.rpc.bounds import TransportBounds
from hanse.live.rpc.frames import pop_frame
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.transport import Transport
from hanse.live.rpc.validation_context import ValidationContext
from hanse.live.rpc.wire_version import client_context
from hanse.model.ids import TaskId
from hanse.model.messages import CancelAttempts, Envelope, Message
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from tests.security.leagues import Clock, PaperLeague

HOST = "127.0.0.1"
PATIENCE = 60.0
"""Seconds after which a test has failed; none needs more than a few."""
TASK = TaskId(1 << 52)
QUICK = TransportBounds(redial_first=0.001, redial_most=0.01, close_seconds=0.5)
"""Back-off in milliseconds, so that tests of it are short."""


class Counted(Counter[str]):
    """A counter that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, value)
        for name, least, future in list(self._waiting):
            if name == key and value >= least and not future.done():
                future.set_result(None)

    async def reach(self, key: str, least: int = 1) -> None:
        """Wait until something was counted so often."""
        if self[key] < least:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((key, least, future))
            await future

    def refused(self) -> dict[str, int]:
        """All refusals."""
        return {key: count for key, count in self.items() if key.startswith("refused_")}


class Post:
    """What was delivered."""

    def __init__(self) -> None:
        self.frames: list[list[Envelope]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __call__(self, envelopes: list[Envelope]) -> None:
        self.frames.append(envelopes)
        for least, future in list(self._waiting):
            if len(self.all) >= least and not future.done():
                future.set_result(None)

    @property
    def all(self) -> list[Envelope]:
        return [envelope for frame in self.frames for envelope in frame]

    async def reach(self, least: int) -> list[Envelope]:
        """Wait until so many envelopes were delivered."""
        if len(self.all) < least:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((least, future))
            await future
        return self.all


class Member:
    """One member: its transport, its mail, and where it listens."""

    def __init__(self, identity: Identity, credentials: Credentials) -> None:
        self.identity = identity
        self.credentials = credentials
        self.post = Post()
        self.counters = Counted()
        self.port = 0
        self.transport: Transport | None = None

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def wire(self) -> Transport:
        assert self.transport is not None
        return self.transport

    def peer(self) -> Peer:
        return Peer(self.identity, HOST, self.port)

    async def start(
        self,
        book: dict[str, Peer],
        bounds: TransportBounds = QUICK,
        limits: dict[str, ValidationContext] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Come up (again), on the same port if it had one."""
        more = {} if clock is None else {"clock": clock}
        self.transport = Transport(
            self.identity, self.credentials, book, self.post,
            contexts=limits, bounds=bounds, random=Random(1), **more,
        )  # fmt: skip
        self.transport.counters = self.transport._shared.counters = self.counters
        self.port = await self.transport.listen(HOST, self.port)

    async def stop(self) -> None:
        if self.transport is not None:
            await self.transport.close()
            self.transport = None


def member(league: PaperLeague, role: Role, name: str) -> Member:
    return Member(league.identity(role, name), league.credentials(role, name))


async def pair(league: PaperLeague, bounds: TransportBounds = QUICK) -> tuple[Member, Member]:
    """A broker b1 and a warden c1 that know each other."""
    broker, warden = member(league, Role.BROKER, "b1"), member(league, Role.WARDEN, "c1")
    await broker.start({}, bounds)
    await warden.start({"b1": broker.peer()}, bounds)
    broker.wire.update_book({"c1": warden.peer()})
    return broker, warden


def envelope(
    number: int = 1, source: str = "b1", target: str = "c1", body: Message | None = None
) -> Envelope:
    """A message from broker to warden, with a number."""
    if body is None:
        body = CancelAttempts((TASK,), (number,))
    return Envelope(source, target, 0, number, 0, body)


def frame(*envelopes: Envelope) -> bytes:
    """A frame as the wire writes it."""
    made, _ = pop_frame(deque(envelopes))
    assert made is not None
    return bytes(made)


def framed(content: bytes) -> bytes:
    """Any content, with its length before it."""
    return len(content).to_bytes(4, "big") + content


def packed(value: object) -> bytes:
    return framed(msgspec.msgpack.encode(value))


class Caller:
    """Somebody who speaks TLS (or not) to a member, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, to: Member, credentials: Credentials | None) -> "Caller":
        context = None if credentials is None else client_context(credentials, to.identity)
        name = None if context is None else "hanse"
        return cls(*await asyncio.open_connection(HOST, to.port, ssl=context, server_hostname=name))

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hang_up(self) -> None:
        self.writer.close()
        with suppress(OSError):  # the other end may have hung up the hard way
            await self.writer.wait_closed()

    async def heard(self) -> bytes:
        """All that comes until the other end hangs up, one way or another."""
        try:
            return await self.reader.read()
        except OSError:
            return b""


def play(story: Coroutine[Any, Any, None]) -> None:
    """Run a test's story; what the loop complains about fails it too."""

    async def watched() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(PATIENCE):
            await story
        assert not complaints, complaints

    asyncio.run(watched())


async def fortress(
    league: PaperLeague, bounds: TransportBounds = QUICK, clock: Clock | None = None
) -> Member:
    """A warden c1 that knows the broker b1."""
    warden = member(league, Role.WARDEN, "c1")
    book = {"b1": Peer(league.identity(Role.BROKER, "b1"), HOST, 1)}
    await warden.start(book, bounds, clock=clock)
    return warden


async def still_serves(league: PaperLeague, warden: Member, before: dict[str, int]) -> None:
    """After an attack: nothing was delivered, exactly this was refused, and honest mail gets through."""
    assert warden.post.frames == []
    assert warden.counters.refused() == before
    friend = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
    friend.say(frame(envelope(7)))
    assert await warden.post.reach(1) == [envelope(7)]
    await friend.hang_up()
    await warden.stop()
