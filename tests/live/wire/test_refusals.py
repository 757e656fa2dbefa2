"""Who is not let in, and what is not taken: no crash, nothing delivered, and a count for every refusal.

With TLS 1.3 a client learns that its certificate was refused only when it reads: connecting succeeds.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.live.identity.authority import Authority
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import Identity, Role
from hanse.live.wire.bounds import Bounds
from hanse.live.wire.frames import ENVELOPES_MAX, FRAME_BYTES_MAX, decode
from hanse.live.wire.incoming import Inlet
from hanse.live.wire.peers import MAY_SAY, Book, Peer
from hanse.model import messages as m
from hanse.model.ids import SECOND
from hanse.model.messages import Ack, Cancel, Gossip, Sequenced, Soft
from tests.live.identity.leagues import Clock, PaperLeague
from tests.live.wire.members import (
    HOST,
    QUICK,
    TASK,
    Caller,
    Member,
    envelope,
    frame,
    framed,
    member,
    packed,
    pair,
    play,
)

MEMBERS = (Role.BROKER, Role.WARDEN, Role.RUNNER)


async def fortress(league: PaperLeague, bounds: Bounds = QUICK, clock: Clock | None = None) -> Member:
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


# --- who --------------------------------------------------------------------------------------------------


def nameless(league: PaperLeague) -> ssl.SSLContext:
    """Trusts the league and shows nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=league.authority.certificate)
    return context


def test_no_certificate(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = Caller(
            *await asyncio.open_connection(HOST, warden.port, ssl=nameless(league), server_hostname="x")
        )
        caller.say(frame(envelope(1)))
        assert await caller.heard() == b""
        await caller.hang_up()
        await warden.counters.reach("refused_no_certificate")
        await still_serves(league, warden, {"refused_no_certificate": 1})

    play(story())


def stranger(league: PaperLeague, tmp_path: Path) -> Credentials:
    """A certificate for b1 of local, by another authority of the same name."""
    theirs = PaperLeague(tmp_path / "theirs").credentials(Role.BROKER, "b1")
    theirs.authority_path.write_text(league.authority.certificate, encoding="ascii")
    return theirs


def expired(league: PaperLeague, tmp_path: Path) -> Credentials:
    """A genuine certificate of last year."""
    old = Authority.open(league.directory / "authority", Clock(1_700_000_000 * SECOND))
    return PaperLeague.credentials(elsewhere(league, tmp_path), Role.BROKER, "b1", authority=old)


def person(league: PaperLeague, tmp_path: Path) -> Credentials:
    """Somebody who may administer the league, and is no member of it."""
    return elsewhere(league, tmp_path).credentials(Role.ADMIN, "b1")


def unlisted(league: PaperLeague, tmp_path: Path) -> Credentials:
    """A member whom the book does not have."""
    return elsewhere(league, tmp_path).credentials(Role.BROKER, "b9")


def other_role(league: PaperLeague, tmp_path: Path) -> Credentials:
    """A member of the right name in another role."""
    return elsewhere(league, tmp_path).credentials(Role.RUNNER, "b1")


def oneself(league: PaperLeague, tmp_path: Path) -> Credentials:
    """The warden's own certificate: nobody talks to itself over the wire."""
    return elsewhere(league, tmp_path).credentials(Role.WARDEN, "c1")


def other_league(league: PaperLeague, tmp_path: Path) -> Credentials:
    """Signed by our authority, for a league of another name."""
    double = elsewhere(league, tmp_path)
    double.name = "other"
    authority = Authority.open(league.directory / "authority")
    authority.league = "other"
    return double.credentials(Role.BROKER, "b1", authority=authority)


def elsewhere(league: PaperLeague, directory: Path) -> PaperLeague:
    """The same league, with another place for its credentials."""
    double = PaperLeague.__new__(PaperLeague)
    double.directory, double.name, double.authority = directory, league.name, league.authority
    return double


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        (stranger, "certificate"),
        (expired, "expired"),
        (person, "role"),
        (unlisted, "unknown"),
        (other_role, "unknown"),
        (oneself, "unknown"),
        (other_league, "league"),
    ],
)
def test_the_wrong_certificate(
    league: PaperLeague, tmp_path: Path, who: Callable[[PaperLeague, Path], Credentials], reason: str
) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, who(league, tmp_path))
        caller.say(frame(envelope(1)))
        assert await caller.heard() == b""
        await caller.hang_up()
        await warden.counters.reach(f"refused_{reason}")
        await still_serves(league, warden, {f"refused_{reason}": 1})

    play(story())


def test_a_certificate_that_ends_ends_its_connection(league: PaperLeague) -> None:
    async def story() -> None:
        clock = Clock(0)
        warden = await fortress(league, clock=clock)
        clock.now = league.credentials(Role.BROKER, "b1").certificate().not_after - SECOND // 100
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        assert await caller.heard() == b""
        await caller.hang_up()
        assert warden.counters.refused() == {"refused_expired": 1}
        await warden.stop()

    play(story())


def test_bytes_that_are_no_handshake(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, None)
        caller.say(b"GET / HTTP/1.1\r\n\r\n")
        await caller.heard()
        await caller.hang_up()
        await warden.counters.reach("refused_handshake")
        await still_serves(league, warden, {"refused_handshake": 1})

    play(story())


def test_a_dialler_says_nothing_to_the_wrong_one(league: PaperLeague) -> None:
    async def story() -> None:
        broker, impostor = member(league, Role.BROKER, "b1"), member(league, Role.WARDEN, "c2")
        await impostor.start({"b1": Peer(broker.identity, HOST, 1)})
        expected = Peer(league.identity(Role.WARDEN, "c1"), HOST, impostor.port)
        await broker.start({"c1": expected})
        broker.wire.send(envelope(1))
        await broker.counters.reach("refused_peer", 2)
        assert broker.counters["sent"] == impostor.counters["received"] == 0
        assert broker.counters["unreachable"] >= 2
        assert any("warden c2 of local is there" in words for words in broker.wire.refusals)
        await broker.stop()
        await impostor.stop()

    play(story())


def test_who_is_dialled_must_not_talk_back(league: PaperLeague) -> None:
    async def story() -> None:
        broker = member(league, Role.BROKER, "b1")
        warden = league.credentials(Role.WARDEN, "c1")

        async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(frame(envelope(1, "c1", "b1", Ack())))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(chatter, HOST, 0, ssl=warden.server_context())
        port = server.sockets[0].getsockname()[1]
        await broker.start({"c1": Peer(league.identity(Role.WARDEN, "c1"), HOST, port)})
        broker.wire.send(envelope(1))
        await broker.counters.reach("refused_talk_back")
        assert broker.post.frames == []
        await broker.stop()
        server.close()
        await server.wait_closed()

    play(story())


# --- what -------------------------------------------------------------------------------------------------

GOOD = envelope(1)
BAD_FRAMES = {
    "source": frame(GOOD, envelope(2, source="b2")),
    "target": frame(GOOD, envelope(2, target="c2")),
    "body": frame(GOOD, envelope(2, body=m.Report((), ()))),
    "vetting": frame(GOOD, envelope(2, body=Cancel((TASK,), ()))),
    "oversize": (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
    "crowded": packed([["b1", "c1", 0, 0, 0, ["ack"]]] * (ENVELOPES_MAX + 1)),
    "undecodable": framed(b"\x91\xc1"),
}
UNDECODABLE = [
    b"",
    b"\x00",
    b"\xc1",
    b"\x90\x00",
    b"\xdd\xff\xff",
    b"\xdc\x00",
    msgspec.msgpack.encode({"source": "b1"}),
    msgspec.msgpack.encode([None]),
    msgspec.msgpack.encode([["b1", "c1", 0, 0, 0]]),
    msgspec.msgpack.encode([["b1", "c1", 0, 0, 0, ["no such kind"]]]),
    msgspec.msgpack.encode([["b1", "c1", 0, 0, 0, ["cancel", [1], ["x"]]]]),
    msgspec.msgpack.encode([["b1", "c1", 0, 0, True, ["ack"]]]),
    msgspec.msgpack.encode([["b1", "c1", 0, 0, 1 << 63, None]]),
    msgspec.msgpack.encode([["b1", "c1", 0, 0, 0, ["ack"]]]) + b"\x00",
    b"\x91\x96\xa2b\xff\xa2c1\x00\x00\x00\x91\xa3ack",
    b"\x91" * 100_000,
]


@pytest.mark.parametrize("reason", BAD_FRAMES)
def test_a_bad_frame_ends_the_connection_and_nothing_of_it_is_delivered(
    league: PaperLeague, reason: str
) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        caller.say(BAD_FRAMES[reason] + frame(GOOD))
        assert await caller.heard() == b""
        await caller.hang_up()
        await still_serves(league, warden, {f"refused_{reason}": 1})

    play(story())


@pytest.mark.parametrize("content", UNDECODABLE, ids=range(len(UNDECODABLE)))
def test_what_is_no_array_of_envelopes_is_undecodable(content: bytes) -> None:
    assert decode(content) == "undecodable"


def test_good_frames_before_a_bad_one_are_delivered(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        caller.say(frame(GOOD) + framed(b"\xc1") + frame(envelope(2)))
        assert await caller.heard() == b""
        await caller.hang_up()
        assert warden.post.all == [GOOD]
        await warden.stop()

    play(story())


@pytest.mark.parametrize("pieces", [1, 3, 4, 5, 50])
def test_frames_may_arrive_in_any_pieces(league: PaperLeague, pieces: int) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        data = frame(envelope(1), envelope(2)) + frame(envelope(3)) + frame(envelope(4))
        for at in range(0, len(data), pieces):
            caller.say(data[at : at + pieces])
            await caller.writer.drain()
            await asyncio.sleep(0)
        assert [each.seq for each in await warden.post.reach(4)] == [1, 2, 3, 4]
        inlet = next(iter(warden.wire._gate.inlets))
        assert inlet._stall is None, "nothing is outstanding"
        await caller.hang_up()
        await warden.stop()

    play(story())


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=64),
            st.binary(max_size=64).map(framed),
            st.builds(
                lambda data, at, more: data[:at] + more + data[at + len(more) :],
                st.just(frame(envelope(1), envelope(2, body=Gossip((m.Member("b1", 1, 1),))))),
                st.integers(0, 80),
                st.binary(max_size=4),
            ),
            st.just(frame(GOOD)),
        ),
        max_size=4,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_bytes_crash_a_reader_or_get_past_the_checks(league: PaperLeague, chunks: list[bytes]) -> None:
    """Many readers of one member, without sockets: what is not refused is exactly what may be said."""

    async def story() -> None:
        warden = await fortress(league)
        inlet = Inlet(warden.wire._gate)
        inlet.identity = league.identity(Role.BROKER, "b1")
        for chunk in chunks:
            inlet.data_received(chunk)
        for found in warden.post.all:
            assert (found.source, found.target) == ("b1", "c1")
            assert type(found.body) in MAY_SAY[Role.BROKER, Role.WARDEN]
        assert sum(warden.counters.refused().values()) <= 1
        inlet.connection_lost(None)
        await warden.stop()

    play(story())


# --- how much, and how slowly -----------------------------------------------------------------------------


def test_a_frame_that_stalls(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league, msgspec.structs.replace(QUICK, frame_seconds=0.1))
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        caller.say(frame(GOOD)[:-1])
        assert await caller.heard() == b""
        await caller.hang_up()
        await still_serves(league, warden, {"refused_stalled": 1})

    play(story())


def test_the_time_of_a_frame_counts_from_its_first_byte(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await Caller.dial(warden, league.credentials(Role.BROKER, "b1"))
        caller.say(frame(GOOD))
        await warden.post.reach(1)
        inlet = next(iter(warden.wire._gate.inlets))
        data = frame(envelope(2))
        timers = []
        for part in (data[:5], data[5:6], data[6:] + data[:3], data[3:]):
            inlet.data_received(part)
            timers.append(inlet._stall)
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
        broker.wire.update({"c1": Peer(warden.identity, HOST, await tap.start())})
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
        broker.wire.update({"c1": Peer(warden.identity, HOST, await tap.start())})
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


# --- the table of roles -----------------------------------------------------------------------------------

SAID: dict[str, tuple[str, tuple[type, ...]]] = {
    "broker to warden": (
        "bw",
        (m.Claim, m.Demand, m.Cancel, m.Settle, m.Register, m.Adopt, m.Return, m.BeatReply, m.Sync),
    ),
    "warden to broker": ("wb", (m.Answer, m.Offers, m.News, m.Estate, m.Beat, m.Snapshot, m.Change)),
    "broker to broker": ("bb", (m.Replicate, m.Progress, m.Taken, m.Watch, m.Watched, m.Gossip)),
    "warden to runner": ("wr", (m.Orders, m.RunnerLease, m.Rejoin)),
    "runner to warden": ("rw", (m.Report, m.Hello, m.RunnerBeat)),
}
"""The protocol's sections, written down a second time: the table must say the same."""
LETTERS = {"b": Role.BROKER, "w": Role.WARDEN, "r": Role.RUNNER}
BODIES = (*get_args(Sequenced), *get_args(Soft))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("receiver", Role)
@pytest.mark.parametrize("sender", Role)
def test_every_role_says_only_what_is_its_to_say(sender: Role, receiver: Role, body: type) -> None:
    own = Identity("local", receiver, "me")
    other = Identity("local", sender, "you")
    book = Book(own, {"you": Peer(other, HOST, 1)})
    allowed = book.may_say(other, "you", "me")
    assert not isinstance(allowed, str)
    expected = any(
        (LETTERS[pair[0]], LETTERS[pair[1]]) == (sender, receiver) and body in (*bodies, Ack)
        for pair, bodies in SAID.values()
    )
    assert (body in allowed) is expected


def test_every_kind_of_message_has_a_sender() -> None:
    said = {body for bodies in MAY_SAY.values() for body in bodies}
    assert said == set(BODIES)


def test_names_belong_to_identities() -> None:
    own, broker = Identity("local", Role.WARDEN, "c1"), Identity("local", Role.BROKER, "b1")
    thief = Identity("local", Role.BROKER, "b2")
    book = Book(own, {"b1": Peer(broker, HOST, 1), "b2": Peer(thief, HOST, 2)})
    assert book.may_say(thief, "b1", "c1") == "source"
    assert book.may_say(thief, "nobody", "c1") == "source"
    assert book.may_say(thief, "b2", "b1") == "target"
    assert book.may_say(thief, "b2", "nobody") == "target"
    assert book.may_say(thief, "c1", "c1") == "source"
    assert m.Claim in book.may_say(broker, "b1", "c1")
