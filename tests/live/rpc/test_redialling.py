"""Peers that go, come back, move or take nothing: when they are dialled, and what waits for them."""

import asyncio

import msgspec

from hanse.live.rpc.bounds import TransportBounds
from hanse.live.rpc.peer_permissions import Peer
from hanse.model.messages import Ack, AckEnds, Envelope
from hanse.security.identity import Role
from tests.live.rpc.members import HOST, QUICK, TASK, envelope, member, pair, play
from tests.live.rpc.test_delivery import numbers
from tests.security.leagues import PaperLeague


def test_a_peer_that_comes_back_is_found_again(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        await warden.stop()
        await broker.counters.reach("disconnected")
        broker.wire.send(envelope(2))
        await broker.counters.reach("unreachable", 3)
        broker.wire.send(envelope(3))
        await warden.start({"b1": broker.peer()})
        assert numbers(await warden.post.reach(3)) == [1, 2, 3]
        await broker.stop()
        await warden.stop()

    play(story())


def test_pauses_between_diallings_grow_to_a_bound_and_start_small_again(league: PaperLeague) -> None:
    async def story() -> None:
        broker = member(league, Role.BROKER, "b1")
        nowhere = Peer(league.identity(Role.WARDEN, "c1"), HOST, 1)
        await broker.start({"c1": nowhere}, TransportBounds(redial_first=1.0, redial_most=8.0))
        broker.wire.send(envelope(1))
        outlet = next(iter(broker.wire._senders.values()))
        await broker.counters.reach("unreachable")
        loop = asyncio.get_running_loop()
        spans = []
        for _ in range(6):
            spans.append(outlet._redial_allowed_at - loop.time())
            outlet._delay_redial(loop.time())
        for span, doubled in zip(spans, (1, 2, 4, 8, 8, 8), strict=True):
            assert doubled / 2 - 0.5 < span <= doubled
        assert outlet._redial_timer is not None, "the next dialling is on the clock, not in a loop"
        await broker.stop()

    play(story())


def test_a_dialling_that_took_its_time_is_not_paused_after(league: PaperLeague) -> None:
    """Pauses count from the beginning of the last dialling: a peer that does not answer at all is knocked at
    without a break."""

    async def story() -> None:
        broker = member(league, Role.BROKER, "b1")
        nowhere = Peer(league.identity(Role.WARDEN, "c1"), HOST, 1)
        await broker.start({"c1": nowhere}, TransportBounds(redial_first=600.0, redial_most=600.0))
        broker.wire.send(envelope(1))
        outlet = next(iter(broker.wire._senders.values()))
        await broker.counters.reach("unreachable")
        now = asyncio.get_running_loop().time()
        outlet._delay_redial(now - 600.0)
        assert outlet._redial_allowed_at <= now
        await broker.stop()

    play(story())


def test_a_peer_that_dials_us_is_dialled_at_once(league: PaperLeague) -> None:
    async def story() -> None:
        patient = msgspec.structs.replace(QUICK, redial_first=600.0, redial_most=600.0)
        broker, warden = await pair(league, patient)
        await warden.stop()
        broker.wire.send(envelope(1))
        await broker.counters.reach("unreachable")
        await warden.start({"b1": broker.peer()}, patient)
        assert not warden.post.all, "the next dialling is ten minutes away"
        warden.wire.send(Envelope("c1", "b1", 0, 0, 0, Ack()))
        assert numbers(await warden.post.reach(1)) == [1]
        assert broker.counters["redialled_heard"] == 1
        await broker.stop()
        await warden.stop()

    play(story())


def test_a_connection_that_works_is_kept_when_its_peer_dials_us(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        for number in (1, 2):
            warden.wire.send(Envelope("c1", "b1", 0, 0, 0, Ack()))
            await broker.post.reach(number)
            await warden.wire.reload()  # the next word comes over a new connection
        broker.wire.send(envelope(2))
        assert numbers(await warden.post.reach(2)) == [1, 2]
        assert broker.counters["admitted"] == 2
        assert broker.counters["connected"] == 1
        assert broker.counters["redialled_heard"] == broker.counters["redialled_unheard"] == 0
        await broker.stop()
        await warden.stop()

    play(story())


def test_a_full_outbox_drops_and_counts(league: PaperLeague) -> None:
    async def story() -> None:
        broker = member(league, Role.BROKER, "b1")
        nowhere = Peer(league.identity(Role.WARDEN, "c1"), HOST, 1)
        await broker.start(
            {"c1": nowhere}, TransportBounds(outbox_envelopes=10, redial_first=60.0, redial_most=60.0)
        )
        for number in range(1, 16):
            broker.wire.send(envelope(number))
        await broker.counters.reach("unreachable")
        assert broker.counters["dropped_full"] == 5
        await broker.stop()
        assert broker.counters["dropped_closed"] == 10

    play(story())


def test_what_waits_too_long_for_somebody_unreachable_is_dropped(league: PaperLeague) -> None:
    async def story() -> None:
        broker = member(league, Role.BROKER, "b1")
        nowhere = Peer(league.identity(Role.WARDEN, "c1"), HOST, 1)
        await broker.start({"c1": nowhere}, msgspec.structs.replace(QUICK, outbox_seconds=0.05))
        for number in range(1, 11):
            broker.wire.send(envelope(number))
        await broker.counters.reach("dropped_unreachable")
        assert broker.counters["dropped_unreachable"] == 10
        await broker.stop()

    play(story())


def test_a_peer_that_takes_nothing_is_dialled_anew(league: PaperLeague) -> None:
    async def story() -> None:
        bounds = msgspec.structs.replace(QUICK, write_bytes=1 << 16, write_seconds=0.2, outbox_envelopes=50)
        broker, warden = await pair(league, bounds)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        warden.wire.set_paused(paused=True)
        large = AckEnds((TASK,) * 100_000, (1,) * 100_000)
        for number in range(2, 102):
            broker.wire.send(envelope(number, body=large))
        await broker.counters.reach("stalled")
        assert broker.counters["dropped_full"] == 50
        warden.wire.set_paused(paused=False)
        await broker.counters.reach("connected", 2)
        await broker.stop()
        await warden.stop()

    play(story())
