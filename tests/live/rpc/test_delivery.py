"""What is said arrives: in order, in batches, after restarts, with renewed certificates, within bounds."""

import asyncio
import ssl
from collections import deque
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.live.rpc.bounds import TransportBounds
from hanse.live.rpc.frames import ENVELOPES_MAX, FRAME_BYTES_MAX, FRAME_BYTES_TARGET, decode_frame, pop_frame
from hanse.live.rpc.outbound import OutboundConnection
from hanse.live.rpc.peer_permissions import Peer
from hanse.model.messages import Ack, AckEnds, Envelope, RunnerReport
from hanse.security.certificate_parser import read_certificate
from hanse.security.identity import Role
from tests.live.rpc.members import HOST, QUICK, TASK, Member, envelope, member, pair, play
from tests.security.leagues import PaperLeague

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy host is no finding."""


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [each.seq for each in envelopes]


def test_delivery_is_whole_and_in_order(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        for number in range(1, 5_001):
            broker.wire.send(envelope(number))
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        assert await warden.post.reach(5_000) == [envelope(number) for number in range(1, 5_001)]
        assert broker.counters["sent"] == warden.counters["received"] == 5_000
        assert broker.counters["bytes_sent"] == warden.counters["bytes_received"]
        assert broker.counters["connected"] == warden.counters["admitted"] == 1
        await broker.stop()
        await warden.stop()

    play(story())


def test_both_ways_over_a_connection_each(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        warden.wire.send(Envelope("c1", "b1", 0, 0, 1, Ack()))
        assert await broker.post.reach(1) == [Envelope("c1", "b1", 0, 0, 1, Ack())]
        for one in (broker, warden):
            assert one.counters["connected"] == one.counters["admitted"] == 1
            assert not one.counters.refused()
        await broker.stop()
        await warden.stop()

    play(story())


def test_one_turn_of_the_loop_is_one_frame(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        for number in range(2, 102):
            broker.wire.send(envelope(number))
        await warden.post.reach(101)
        assert [len(frame) for frame in warden.post.frames] == [1, 100]
        await broker.stop()
        await warden.stop()

    play(story())


def test_what_is_flushed_leaves_in_the_same_turn_and_once(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.flush()  # nothing was said to anybody
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        for number in (2, 3):
            broker.wire.send(envelope(number))
        assert broker.counters["sent"] == 1
        broker.wire.flush()
        assert broker.counters["sent"] == 3
        broker.wire.send(envelope(4))
        assert numbers(await warden.post.reach(4)) == [1, 2, 3, 4]
        assert [len(frame) for frame in warden.post.frames] == [1, 2, 1]
        await broker.stop()
        await warden.stop()

    play(story())


def test_large_batches_leave_as_several_frames(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        large = AckEnds((TASK,) * 10_000, (1,) * 10_000)  # about 100 kB
        for number in range(1, 21):
            broker.wire.send(envelope(number, body=large))
        assert numbers(await warden.post.reach(20)) == list(range(1, 21))
        assert 1 < warden.counters["frames_received"] < 20
        await broker.stop()
        await warden.stop()

    play(story())


def test_an_envelope_beyond_the_bound_is_dropped_and_what_follows_goes(league: PaperLeague) -> None:
    async def story() -> None:
        bounds = msgspec.structs.replace(QUICK, frame_bytes=1 << 16)
        broker, warden = await pair(league, bounds)
        broker.wire.send(envelope(1))
        broker.wire.send(envelope(2, body=AckEnds((TASK,) * 10_000, (1,) * 10_000)))
        broker.wire.send(envelope(3))
        assert numbers(await warden.post.reach(2)) == [1, 3]
        assert broker.counters["dropped_oversize"] == 1
        await broker.stop()
        await warden.stop()

    play(story())


@UNHURRIED
@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=20), st.integers(100, 400_000))
def test_frames_hold_what_was_taken_and_keep_to_the_limit(sizes: list[int], limit: int) -> None:
    envelopes = [
        envelope(number, body=AckEnds((TASK,) * size, (1,) * size)) for number, size in enumerate(sizes, 1)
    ]
    outbox, arrived, dropped = deque(envelopes), [], 0
    while outbox:
        before = len(outbox)
        frame, count = pop_frame(outbox, limit)
        assert count == before - len(outbox) > 0
        if frame is None:
            dropped += 1
            continue
        assert len(frame) <= limit + 4
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        content = decode_frame(frame[4:])
        assert not isinstance(content, str)
        arrived += content
    assert len(arrived) + dropped == len(envelopes)
    assert arrived == [each for each in envelopes if len(msgspec.msgpack.encode(each)) + 5 <= limit]


def test_a_frame_has_no_more_envelopes_than_a_reader_takes() -> None:
    outbox = deque(envelope(number) for number in range(1, ENVELOPES_MAX + 100))
    frame, count = pop_frame(outbox)
    assert frame is not None
    assert count == ENVELOPES_MAX or len(frame) >= FRAME_BYTES_TARGET
    assert len(decode_frame(frame[4:])) == count <= ENVELOPES_MAX


def test_nothing_is_dialled_before_there_is_something_to_say(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        assert not broker.wire.is_connected("c1")
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        assert broker.wire.is_connected("c1")
        assert not warden.wire.is_connected("b1")
        assert not warden.wire.is_connected("nobody")
        await broker.stop()
        await warden.stop()

    play(story())


# --- members that are not there, and the end -------------------------------------------------------------


def test_the_unknown_are_not_sent_to(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1, target="stranger"))
        broker.wire.send(envelope(1, target="b1"))
        assert broker.counters["dropped_unknown"] == 2
        await broker.stop()
        await warden.stop()

    play(story())


def test_a_closed_wire_takes_nothing_and_closes_twice(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        wire = broker.wire
        await broker.stop()
        wire.send(envelope(1))
        assert broker.counters["dropped_closed"] == 1
        await wire.close()
        await warden.stop()

    play(story())


def test_last_words_are_said(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        for number in range(2, 1_000):
            broker.wire.send(envelope(number))
        await broker.stop()
        assert numbers(await warden.post.reach(999)) == list(range(1, 1_000))
        await warden.stop()

    play(story())


# --- changes while running -------------------------------------------------------------------------------


def test_a_renewed_certificate_is_used_without_losing_what_is_queued(tmp_path: Path) -> None:
    async def story() -> None:
        league = PaperLeague(tmp_path)
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        before = seen_by(warden)
        league.renew(broker.credentials, Role.BROKER, "b1")
        for number in range(2, 102):
            broker.wire.send(envelope(number))
        await broker.wire.reload()
        for number in range(102, 202):
            broker.wire.send(envelope(number))
        assert sorted(numbers(await warden.post.reach(201))) == list(range(1, 202))
        assert broker.counters["connected"] == 2
        assert seen_by(warden) != before
        assert not warden.counters.refused()
        await broker.stop()
        await warden.stop()

    play(story())


def seen_by(one: Member) -> object:
    """The serial number of the certificate that the youngest connection showed."""
    inlet = list(one.wire._listener.admitted)[-1]
    assert inlet._transport is not None
    return inlet._transport.get_extra_info("peercert")["serialNumber"]


def test_newcomers_are_shown_the_renewed_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        league = PaperLeague(tmp_path)
        broker, warden = await pair(league)
        league.renew(warden.credentials, Role.WARDEN, "c1")
        await warden.wire.reload()
        shown = warden.credentials.certificate()
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        outlet = next(iter(broker.wire._senders.values()))
        assert outlet._connection is not None
        assert outlet._connection._transport is not None
        der = outlet._connection._transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert read_certificate(ssl.DER_cert_to_PEM_cert(der)).fingerprint == shown.fingerprint
        await broker.stop()
        await warden.stop()

    play(story())


def test_who_leaves_the_book_is_cut_off_and_who_moves_is_found(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        warden.wire.update_book({})
        assert warden.counters["refused_unknown"] == 1
        await broker.counters.reach("disconnected")
        await warden.stop()
        warden.port = 0
        await warden.start({"b1": broker.peer()})
        broker.wire.send(envelope(2))
        broker.wire.update_book({"c1": warden.peer()})
        assert numbers(await warden.post.reach(2)) == [1, 2]
        broker.wire.update_book({})
        broker.wire.send(envelope(3))
        assert broker.counters["dropped_unknown"] == 1
        await broker.stop()
        await warden.stop()

    play(story())


def test_a_warden_speaks_for_the_runner_in_its_daemon(league: PaperLeague) -> None:
    async def story() -> None:
        host, warden = member(league, Role.WARDEN, "c2"), member(league, Role.WARDEN, "c1")
        await host.start({})
        runner = Peer(host.identity, HOST, host.port, Role.RUNNER)
        await warden.start({"c2/runner": runner, "c2": host.peer()})
        host.wire.update_book({"c1": warden.peer(), "c2/runner": runner})
        report = Envelope("c2/runner", "c1", 0, 1, 0, RunnerReport(((TASK, 1),), ()))
        host.wire.send(report)
        assert await warden.post.reach(1) == [report]
        host.wire.send(Envelope("c2", "c1", 0, 1, 0, RunnerReport(((TASK, 1),), ())))
        await warden.counters.reach("refused_body")
        assert warden.post.all == [report]
        await host.stop()
        await warden.stop()

    play(story())


def test_a_hushed_member_reads_nothing_until_it_may(league: PaperLeague) -> None:
    async def story() -> None:
        bounds = msgspec.structs.replace(QUICK, write_bytes=1 << 16)
        broker, warden = await pair(league, bounds)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        warden.wire.set_paused(paused=True)
        large = AckEnds((TASK,) * 100_000, (1,) * 100_000)  # about 1 MB
        for number in range(2, 42):
            broker.wire.send(envelope(number, body=large))
        stream = next(iter(broker.wire._senders.values()))._connection
        assert stream is not None
        while stream.writable:
            await asyncio.sleep(0)
        assert broker.counters["sent"] < 41
        warden.wire.set_paused(paused=False)
        assert numbers(await warden.post.reach(41)) == list(range(1, 42))
        await broker.stop()
        await warden.stop()

    play(story())


def test_a_stop_in_the_turn_in_which_a_connection_is_made_ends_it(
    league: PaperLeague, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dial is cancelled then, and asyncio closes the transport once more."""

    async def story() -> None:
        broker, warden = await pair(league, QUICK)
        warden.wire.set_paused(paused=True)  # it says no goodbye, so that the close takes too long
        stops: list[asyncio.Task[None]] = []
        on_made = OutboundConnection.connection_made

        def connection_made(connection: OutboundConnection, transport: asyncio.BaseTransport) -> None:
            on_made(connection, transport)
            stops.append(asyncio.get_running_loop().create_task(broker.stop()))

        monkeypatch.setattr(OutboundConnection, "connection_made", connection_made)
        broker.wire.send(envelope(1))
        await broker.counters.reach("connected")
        await asyncio.gather(*stops)
        await warden.stop()

    play(story())


def test_the_bound_of_a_frame_is_what_the_design_says() -> None:
    assert FRAME_BYTES_MAX == 16 << 20
    assert TransportBounds().frame_bytes == FRAME_BYTES_MAX
