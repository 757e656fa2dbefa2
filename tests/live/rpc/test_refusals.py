"""Who is not let in, and what is not taken: no crash, nothing delivered, and a count for every refusal.

With TLS 1.3 a client learns that its certificate was refused only when it reads: connecting succeeds.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.live.rpc.frames import ENVELOPES_MAX, FRAME_BYTES_MAX, decode_frame
from hanse.live.rpc.inbound import InboundConnection
from hanse.live.rpc.peer_permissions import ALLOWED_MESSAGES, Peer
from hanse.live.rpc.transport import Transport
from hanse.live.rpc.wire_version import server_context
from hanse.model import messages as m
from hanse.model.ids import SECOND
from hanse.model.messages import Ack, CancelAttempts, Gossip
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from tests.live.rpc.members import (
    HOST,
    TASK,
    Caller,
    Post,
    envelope,
    fortress,
    frame,
    framed,
    member,
    packed,
    play,
    still_serves,
)
from tests.security.leagues import Clock, PaperLeague, odd_credentials

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


def nobody(league: PaperLeague, tmp_path: Path) -> Credentials:
    """A genuine certificate that names nobody."""
    return odd_credentials(league, tmp_path / "odd", ())


def two_at_once(league: PaperLeague, tmp_path: Path) -> Credentials:
    """A genuine certificate that names two."""
    uris = "spiffe://local/broker/b1", "spiffe://local/broker/b2"
    return odd_credentials(league, tmp_path / "odd", uris)


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
        (nobody, "foreign"),
        (two_at_once, "foreign"),
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
        assert any("found warden c2 of local" in words for words in broker.wire.refusals)
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

        server = await asyncio.start_server(chatter, HOST, 0, ssl=server_context(warden))
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
    "body": frame(GOOD, envelope(2, body=m.RunnerReport((), ()))),
    "vetting": frame(GOOD, envelope(2, body=CancelAttempts((TASK,), ()))),
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
    assert decode_frame(content) == "undecodable"


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
        inlet = next(iter(warden.wire._listener.admitted))
        assert inlet._stall_timer is None, "nothing is outstanding"
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
                st.just(frame(envelope(1), envelope(2, body=Gossip((m.MemberStatus("b1", 1, 1),))))),
                st.integers(0, 80),
                st.binary(max_size=4),
            ),
            st.just(frame(GOOD)),
        ),
        max_size=4,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_bytes_crash_a_reader_or_get_past_the_checks(chunks: list[bytes]) -> None:
    """A reader without sockets: what is not refused is exactly what may be said."""

    async def story() -> None:
        own, peer = (
            Identity("local", role, name) for role, name in ((Role.WARDEN, "c1"), (Role.BROKER, "b1"))
        )
        post = Post()
        wire = Transport(own, Credentials(Path("nowhere")), {"b1": Peer(peer, HOST, 1)}, post)
        inlet = InboundConnection(wire._listener)
        inlet.identity = peer
        for chunk in chunks:
            inlet.data_received(chunk)
        for found in post.all:
            assert (found.source, found.target) == ("b1", "c1")
            assert type(found.body) in ALLOWED_MESSAGES[Role.BROKER, Role.WARDEN]
        refused = [count for key, count in wire.counters.items() if key.startswith("refused_")]
        assert sum(refused) <= 1
        inlet.connection_lost(None)
        await wire.close()

    play(story())
