"""Too much, too slowly, and from the middle of the way: bounded, counted, and survived."""

import asyncio

import msgspec
import pytest

from hanse.live.rpc.peer_permissions import Peer
from hanse.security.identity import Role
from tests.live.rpc.members import (
    HOST,
    QUICK,
    Caller,
    envelope,
    fortress,
    frame,
    pair,
    play,
    still_serves,
)
from tests.security.leagues import PaperLeague

# --- how much, and how slowly -----------------------------------------------------------------------------


def test_a_frame_that_stalls(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league, msgspec.structs.replace(QUICK, frame_seconds=0.1))
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        caller.say(frame(envelope(1))[:-1])
        assert await caller.heard() == b""
        await caller.hang_up()
        await still_serves(league, warden, {"refused_stalled": 1})

    play(story())


def test_the_time_of_a_frame_counts_from_its_first_byte(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        caller.say(frame(envelope(1)))
        await warden.post.reach(1)
        inlet = next(iter(warden.wire._listener.admitted))
        data = frame(envelope(2))
        timers = []
        for part in (data[:5], data[5:6], data[6:] + data[:3], data[3:]):
            inlet.data_received(part)
            timers.append(inlet._stall_timer)
        assert timers[0] is not None
        assert timers[1] is timers[0], "a byte now and then buys no time"
        assert timers[2] not in (None, timers[0]), "the next frame has its own"
        assert timers[3] is None
        assert len(warden.post.all) == 3
        await caller.hang_up()
        await warden.stop()

    play(story())


def test_silent_newcomers_are_bounded_and_turned_away_in_time(league: PaperLeague) -> None:
    async def story() -> None:
        bounds = msgspec.structs.replace(QUICK, handshakes=4, handshake_seconds=0.3)
        warden = await fortress(league, bounds)
        crowd = [await Caller.dial(warden, None) for _ in range(10)]
        await warden.counters.reach("refused_crowded", 6)
        await warden.counters.reach("refused_slow_handshake", 4)
        for caller in crowd:
            assert await caller.heard() == b""
            await caller.hang_up()
        assert not warden.wire._listener._handshakes
        await still_serves(league, warden, {"refused_crowded": 6, "refused_slow_handshake": 4})

    play(story())


def test_one_host_does_not_keep_all_others_out(league: PaperLeague) -> None:
    async def story() -> None:
        bounds = msgspec.structs.replace(QUICK, handshakes_per_host=2, handshake_seconds=0.3)
        warden = await fortress(league, bounds)
        crowd = [await Caller.dial(warden, None) for _ in range(5)]
        await warden.counters.reach("refused_crowded", 3)
        await warden.counters.reach("refused_slow_handshake", 2)
        for caller in crowd:
            await caller.hang_up()
        await still_serves(league, warden, {"refused_crowded": 3, "refused_slow_handshake": 2})

    play(story())


def test_connections_are_bounded_in_total(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league, msgspec.structs.replace(QUICK, connections=3))
        credentials = league.credentials(Role.BROKER, "b1")
        friends = [await Caller.dial(warden, credentials) for _ in range(3)]
        await warden.counters.reach("admitted", 3)
        assert not warden.counters.refused(), "nobody counts twice"
        with pytest.raises(OSError, match=r".*"):
            await Caller.dial(warden, credentials)
        assert warden.counters.refused() == {"refused_crowded": 1}
        for friend in friends:
            await friend.hang_up()
        await warden.stop()

    play(story())


def test_a_peer_has_few_connections_and_the_newest_count(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league, msgspec.structs.replace(QUICK, connections_per_peer=2))
        credentials = league.credentials(Role.BROKER, "b1")
        callers = []
        for number in range(1, 6):
            callers.append(await Caller.dial(warden, credentials))
            await warden.counters.reach("admitted", number)
        for oldest in callers[:3]:
            assert await oldest.heard() == b""
        assert warden.counters.refused() == {"refused_superseded": 3}
        callers[3].say(frame(envelope(1)))
        callers[4].say(frame(envelope(2)))
        assert sorted(each.seq for each in await warden.post.reach(2)) == [1, 2]
        for caller in callers:
            await caller.hang_up()
        await warden.stop()

    play(story())


# --- on the way -------------------------------------------------------------------------------------------


class Wiretap:
    """Somebody between broker and warden who keeps what the broker sends, and may send some of it twice."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard = bytearray()
        self.doubles = False
        self.server: asyncio.Server | None = None
        self.lines: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._relay, HOST, 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self.port)
        self.lines += [writer, far_writer]

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, keep: bool) -> None:
            try:
                while data := await source.read(1 << 16):
                    if keep:
                        self.heard += data
                    target.write(data * 2 if keep and self.doubles else data)
            except OSError:
                pass
            target.close()

        await asyncio.gather(pump(reader, far_writer, True), pump(far_reader, writer, False))

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        for line in self.lines:
            line.close()
        await asyncio.gather(*(line.wait_closed() for line in self.lines), return_exceptions=True)
        await self.server.wait_closed()


def test_a_recorded_conversation_cannot_be_played_again(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        tap = Wiretap(warden.port)
        broker.wire.update_book({"c1": Peer(warden.identity, HOST, await tap.start())})
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        replay = await Caller.dial(warden, None)
        replay.say(bytes(tap.heard))
        await replay.heard()
        await replay.hang_up()
        await warden.counters.reach("refused_handshake")
        assert warden.post.all == [envelope(1)]
        assert warden.counters.refused() == {"refused_handshake": 1}
        await broker.stop()
        await warden.stop()
        await tap.stop()

    play(story())


def test_a_frame_doubled_on_the_way_is_not_delivered_twice(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        tap = Wiretap(warden.port)
        broker.wire.update_book({"c1": Peer(warden.identity, HOST, await tap.start())})
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        tap.doubles = True
        broker.wire.send(envelope(2))
        await warden.counters.reach("refused_tampered")
        assert warden.post.all in ([envelope(1)], [envelope(1), envelope(2)])  # TLS may drop both
        await broker.stop()
        await warden.stop()
        await tap.stop()

    play(story())
