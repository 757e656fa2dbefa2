"""How fast envelopes travel between two members of one process over the loopback interface.

``python bench/wire.py --json FILE`` writes what it prints. Sender and receiver are real transports with
mutual TLS 1.3, sharing one event loop, so that a figure counts the work of both ends: encoding, encryption,
decryption, decoding, the checks of names and roles, and vetting. Small envelopes are acknowledgements and
cancellations said 100 at a time; large ones are claims of 100 tasks. Beside them, in the same run and with
the same payload, the plain way: asyncio's streams with a length before every envelope, one write and one
awaited read each, with TLS and without, decoded and not checked. ``path`` is decoding and vetting alone,
without a network. Rates are per second of CPU time of this process, the best of several repeats.
"""

import asyncio
import platform
import ssl
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from figures import as_program

from hanse.core.config import NodeConfig, WardenConfig
from hanse.live.rpc.frames import decode_frame, pop_frame
from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.transport import Transport
from hanse.live.rpc.validation import validate_frame
from hanse.live.rpc.validation_context import ValidationContext, warden_validation_context
from hanse.model.ids import JobId, TaskId
from hanse.model.messages import Ack, CancelAttempts, Claim, Envelope, Shape, TaskBatch, TaskTemplate
from hanse.model.resources import Resources
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.enrollment import accept, certificate_request, new_key
from hanse.security.identity import Identity, Role

HOST = "127.0.0.1"
NODES = 10_000
LOT_TASKS = 100
BATCH = 100
"""Envelopes said in one turn of the loop."""
SMALL, LARGE = 50_000, 2_000
"""Envelopes of one measurement."""
REPEATS = 5
ASK = Resources(cpu=1_000, memory=1 << 30)
BROKER, WARDEN = (Identity("bench", role, name) for role, name in ((Role.BROKER, "b1"), (Role.WARDEN, "c1")))


def small() -> list[Envelope]:
    """Acknowledgements and cancellations, in turn."""
    cancel = CancelAttempts((TaskId(1 << 52),), (1,))
    pair = (Envelope("b1", "c1", 0, 1, 0, cancel), Envelope("b1", "c1", 0, -1, 0, Ack()))
    return [pair[number % 2] for number in range(SMALL)]


def large() -> list[Envelope]:
    """Claims of many tasks."""
    brief = TaskTemplate(Shape(ASK), "b1#1", b"x" * 100)
    lot = TaskBatch(
        JobId(1 << 32),
        0,
        brief,
        tuple(range(LOT_TASKS)),
        (1,) * LOT_TASKS,
        tuple(range(0, NODES, NODES // LOT_TASKS)),
        ASK,
    )
    return [Envelope("b1", "c1", 0, 1, 0, Claim(1, (("b1#1", 1),), 0, (lot,)))] * LARGE


def credentials_in(directory: Path) -> dict[Identity, Credentials]:
    """A league of two."""
    authority = Authority.create(directory / "ca", "bench")
    made = {}
    for identity in (BROKER, WARDEN):
        made[identity] = Credentials(directory / identity.name)
        key = new_key()
        issued = authority.issue(identity, certificate_request(key))
        assert isinstance(issued, str)
        accept(made[identity], key, issued, authority.certificate)
    return made


def limits() -> ValidationContext:
    """Those of a warden of a large cluster."""
    nodes = (NodeConfig(Resources(cpu=16_000, memory=64 << 30), (), "r1"),) * NODES
    return warden_validation_context(WardenConfig("c1", nodes, ("b1",)))


async def over_wire(made: dict[Identity, Credentials], envelopes: list[Envelope]) -> float:
    """CPU seconds for these envelopes from transport to transport."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = len(envelopes) + 1

    def deliver(arrived: list[Envelope]) -> None:
        nonlocal left
        left -= len(arrived)
        if not left:
            done.set_result(None)

    warden = Transport(
        WARDEN, made[WARDEN], {"b1": Peer(BROKER, HOST, 1)}, deliver, contexts={"c1": limits()}
    )
    port = await warden.listen(HOST, 0)
    broker = Transport(BROKER, made[BROKER], {"c1": Peer(WARDEN, HOST, port)}, lambda _: None)
    broker.send(envelopes[0])  # the handshake is not part of it
    while not broker.is_connected("c1"):
        await asyncio.sleep(0)
    begin = time.process_time()
    for at in range(0, len(envelopes), BATCH):
        for envelope in envelopes[at : at + BATCH]:
            broker.send(envelope)
        await asyncio.sleep(0)
    await done
    spent = time.process_time() - begin
    assert not broker.counters["dropped_full"]
    await broker.close()
    await warden.close()
    return spent


async def over_streams(made: dict[Identity, Credentials], envelopes: list[Envelope], tls: bool) -> float:
    """The same envelopes, one by one, over asyncio's streams."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    decoder = msgspec.msgpack.Decoder(Envelope)
    encoder = msgspec.msgpack.Encoder()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in envelopes:
            size = int.from_bytes(await reader.readexactly(4), "big")
            decoder.decode(await reader.readexactly(size))
        writer.close()
        done.set_result(None)

    server_context: ssl.SSLContext | None = made[WARDEN].server_context() if tls else None
    client_context: ssl.SSLContext | None = made[BROKER].client_context(WARDEN) if tls else None
    server = await asyncio.start_server(receive, HOST, 0, ssl=server_context)
    port = server.sockets[0].getsockname()[1]
    name = "hanse" if tls else None
    _, writer = await asyncio.open_connection(HOST, port, ssl=client_context, server_hostname=name)
    begin = time.process_time()
    for envelope in envelopes:
        content = encoder.encode(envelope)
        writer.write(len(content).to_bytes(4, "big") + content)
        await writer.drain()
    await done
    spent = time.process_time() - begin
    writer.close()
    server.close()
    await server.wait_closed()
    return spent


def path(envelopes: list[Envelope]) -> float:
    """CPU seconds to decode and vet these, without a network."""
    frames = []
    outbox = deque(envelopes)
    while outbox:
        frame, _ = pop_frame(outbox)
        assert frame is not None
        frames.append(bytes(frame[4:]))
    judge = limits()
    begin = time.process_time()
    for content in frames:
        found = decode_frame(content)
        assert not isinstance(found, str)
        _, _, reason = validate_frame(found, lambda _: judge)
        assert not reason, reason
    return time.process_time() - begin


def run() -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory() as directory:
        made = credentials_in(Path(directory))
        few, many = small(), large()
        tasks = LARGE * LOT_TASKS
        small_path, large_path = _best(lambda: path(few)), _best(lambda: path(many))
        return {
            "python": platform.python_version(),
            "small envelopes a second": {
                "wire": round(SMALL / _loop(lambda: over_wire(made, few))),
                "streams with TLS": round(SMALL / _loop(lambda: over_streams(made, few, True))),
                "streams without TLS": round(SMALL / _loop(lambda: over_streams(made, few, False))),
            },
            "tasks in claims of 100 a second": {
                "wire": round(tasks / _loop(lambda: over_wire(made, many))),
                "streams with TLS": round(tasks / _loop(lambda: over_streams(made, many, True))),
                "streams without TLS": round(tasks / _loop(lambda: over_streams(made, many, False))),
            },
            "path": {
                "microseconds a small envelope": round(small_path / SMALL * 1e6, 2),
                "microseconds a task": round(large_path / tasks * 1e6, 3),
            },
        }


def _loop(story: Callable[[], Awaitable[float]]) -> float:
    async def played() -> float:
        return await story()

    return _best(lambda: asyncio.run(played()))


def _best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(REPEATS))


if __name__ == "__main__":
    as_program(run, "Envelopes over mutual TLS on the loopback interface.")
