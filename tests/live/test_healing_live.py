"""A network that was cut and is whole again is used at once, not when the kernel next tries.

Two members on hosts of their own talk over the real wire; beside them a plain connection of the kernel lives
through the same cut. Nothing is timed: what is asserted is which mechanism brought the members together
again, and that they talked before the plain connection did. On a machine so busy that the kernel's next try
comes first all the same, the cut is made again and longer, which doubles the time that the kernel waits.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from hanse.live.rpc.peer_permissions import Peer
from hanse.live.rpc.socket_options import is_silent
from hanse.live.rpc.transport import Transport
from hanse.model.messages import Ack, Envelope
from hanse.security.identity import Role
from tests.live.namespaces import Network, network, unavailable
from tests.security.leagues import PaperLeague

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

PORT, PLAIN_PORT = 7401, 7499
BEAT_SECONDS = 0.25
UNTIL_SECONDS_MAX = 120.0
REPEATED = (6, 7, 8)
"""After the sixth vain repetition, 13 seconds into a cut, the kernel waits for 13 seconds more; after the
eighth for 51."""


class Talker(threading.Thread):
    """A broker on a host, which says something to the other one with every beat."""

    def __init__(self, net: Network, league: PaperLeague, me: str, other: str) -> None:
        super().__init__(name=me)
        self.net, self.league, self.me, self.other = net, league, me, other
        self.heard = 0
        """Envelopes that have arrived."""
        self.wire: Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()

    def count(self, name: str) -> int:
        """What the wire has counted."""
        return self.wire.counters[name] if self.wire is not None else 0

    def run(self) -> None:
        with self.net.inside(self.me):
            asyncio.run(self._talk())

    async def _talk(self) -> None:
        self._loop = asyncio.get_running_loop()
        identity = self.league.identity(Role.BROKER, self.other)
        book = {self.other: Peer(identity, self.net.address(self.other), PORT)}
        credentials = self.league.credentials(Role.BROKER, self.me)
        wire = Transport(self.league.identity(Role.BROKER, self.me), credentials, book, self._take)
        await wire.listen(self.net.address(self.me), PORT)
        self.wire = wire
        while not self._over.is_set():
            wire.send(Envelope(self.me, self.other, 0, 0, 0, Ack()))
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._over.wait()
            except TimeoutError:
                continue
        await wire.close()

    def _take(self, envelopes: list[Envelope]) -> None:
        self.heard += len(envelopes)

    def finish(self) -> None:
        """End the talk."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self.join()


@contextmanager
def talking(directory: Path) -> Iterator[tuple[Network, Talker, Talker]]:
    """Two members that hear each other."""
    league = PaperLeague(directory)
    with network(("a", "b")) as net, ExitStack() as held:
        talkers = Talker(net, league, "a", "b"), Talker(net, league, "b", "a")
        for talker in talkers:
            talker.start()
            held.callback(talker.finish)
        _until(lambda: all(talker.heard for talker in talkers))
        yield net, *talkers


@contextmanager
def plain(net: Network) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection as the kernel alone keeps it: the ends at a and at b."""
    with ExitStack() as held:
        with net.inside("b"):
            listening = held.enter_context(socket.create_server((net.address("b"), PLAIN_PORT)))
        with net.inside("a"):
            near = held.enter_context(socket.create_connection((net.address("b"), PLAIN_PORT)))
        far = held.enter_context(listening.accept()[0])
        far.setblocking(False)
        yield near, far


@pytest.mark.parametrize("both", [True, False])
def test_a_healed_network_is_used_before_the_kernel_would(tmp_path: Path, both: bool) -> None:
    with talking(tmp_path) as (net, a, b):
        assert any(_is_used_first(net, a, b, both, repeated) for repeated in REPEATED)


def _is_used_first(net: Network, a: Talker, b: Talker, both: bool, repeated: int) -> bool:
    """Cut the network for so many vain repetitions of the kernel, and heal it; whether the members talked
    again before the plain connection did."""
    with plain(net) as (near, far):
        net.cut("a", "b")
        if both:
            net.cut("b", "a")
        near.sendall(b"x")
        begun = [(one.count("redialled_unheard"), one.count("connected")) for one in (a, b)]

        def is_past(at: int, name: str) -> bool:
            return all(one.count(name) > before[at] for one, before in zip((a, b), begun, strict=True))

        _until(lambda: is_past(0, "redialled_unheard"))
        count = max(repeated, _repeated(near) + 1)
        _until(lambda: is_silent(near, count, 0.0))  # it has just tried, and waits longer than ever
        assert [one.count("connected") for one in (a, b)] == [connected for _, connected in begun]
        net.heal()
        _until(lambda: is_past(1, "connected"))
        before = a.heard, b.heard
        _until(lambda: a.heard > before[0] and b.heard > before[1])
        try:
            far.recv(1)
        except BlockingIOError:
            _until(lambda: not is_silent(near, 1, 0.0))
            assert far.recv(1) == b"x", "the plain connection lived through the same cut, only longer"
            return True
        return False


def test_a_peer_that_is_only_busy_is_not_taken_for_gone(tmp_path: Path) -> None:
    """Its kernel acknowledges what it does not take: that is no cut."""
    with talking(tmp_path) as (net, _, _), plain(net) as (near, _):
        near.setblocking(False)
        chunk = bytes(1 << 16)
        with suppress(BlockingIOError):
            while near.send(chunk):
                pass
        carried = net.carried["b", "a"]
        _until(lambda: net.carried["b", "a"] > carried + 20)
        assert not is_silent(near, 1, 0.0)


def _repeated(connection: socket.socket) -> int:
    """How often the kernel has repeated in vain what was said over a connection."""
    return next(count for count in range(256) if not is_silent(connection, count + 1, 0.0))


def _until(condition: Callable[[], bool]) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + UNTIL_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)  # there is nothing to await
