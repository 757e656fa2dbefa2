"""Members say nothing to each other unless they have a version of the wire in common."""

import asyncio
import logging
import ssl

import pytest

from hanse.live.rpc import wire_version
from hanse.live.rpc.peer_permissions import Peer
from hanse.security.identity import Role
from tests.live.rpc.members import HOST, Caller, Member, envelope, fortress, frame, member, pair, play
from tests.security.leagues import PaperLeague

MARKED = ["hanse-wire/3", "hanse-wire"]
"""What a member of the next version offers."""


async def dial(league: PaperLeague, warden: Member, offers: list[str]) -> Caller:
    """Connect as b1, with these versions; none: as a member from before there were any."""
    context = league.credentials(Role.BROKER, "b1").client_context(warden.identity)
    if offers:
        context.set_alpn_protocols(offers)
    return Caller(*await asyncio.open_connection(HOST, warden.port, ssl=context, server_hostname="hanse"))


def chosen_by(caller: Caller) -> str | None:
    connection = caller.writer.get_extra_info("ssl_object")
    assert isinstance(connection, ssl.SSLObject)
    return connection.selected_alpn_protocol()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "offers",
    [["hanse-wire/2"], ["hanse-wire/2", "hanse-wire"], ["hanse-wire/3", "hanse-wire/2", "hanse-wire"]],
    ids=["same", "marked", "newer and same"],
)
def test_who_has_a_version_in_common_is_understood(league: PaperLeague, offers: list[str]) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await dial(league, warden, offers)
        caller.say(frame(envelope(1)))
        assert await warden.post.reach(1) == [envelope(1)]
        assert chosen_by(caller) == "hanse-wire/2"
        assert warden.counters.refused() == {}
        await caller.hang_up()
        await warden.stop()

    play(story())


@pytest.mark.parametrize(
    "offers",
    [[], ["hanse-wire/1", "hanse-wire"], ["hanse-wire/3"], MARKED, ["hanse-wire/7", "hanse-wire/6"]],
    ids=["before", "1 marked", "3", "3 marked", "7 and 6"],
)
def test_who_speaks_other_versions_only_is_refused_and_named_once(
    league: PaperLeague, offers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        warden = await fortress(league)
        for _ in range(3):
            caller = await dial(league, warden, offers)
            caller.say(frame(envelope(1)))
            assert await caller.heard() == b""
            await caller.hang_up()
        assert warden.post.frames == []
        assert warden.counters.refused() == {"refused_version": 3}
        assert warden.counters["admitted"] == 0
        assert all("version: broker b1 of local: it speaks" in words for words in warden.wire.refusals)
        sentences = told(caplog)
        assert len(sentences) == 1
        assert "broker b1 of local is refused" in sentences[0]
        assert "hanse-wire/2 only" in sentences[0]
        assert "docs/operator/upgrades.md" in sentences[0]

        again = await dial(league, warden, ["hanse-wire/2"])  # it was upgraded, and downgraded later
        again.say(frame(envelope(2)))
        assert await warden.post.reach(1) == [envelope(2)]
        await again.hang_up()
        late = await dial(league, warden, offers)
        assert await late.heard() == b""
        await late.hang_up()
        assert len(told(caplog)) == 2
        await warden.stop()

    play(story())


def test_both_sides_know_that_there_is_none_in_common(league: PaperLeague) -> None:
    async def story() -> None:
        warden = await fortress(league)
        caller = await dial(league, warden, MARKED)
        assert chosen_by(caller) == wire_version.ALPN_MARKER
        await caller.hang_up()
        await warden.stop()

    play(story())


@pytest.mark.parametrize("offers", [MARKED, ["hanse-wire/1", "hanse-wire"], []], ids=["3", "1", "before"])
def test_a_dialler_says_nothing_to_a_member_of_another_version(
    league: PaperLeague, offers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        broker = member(league, Role.BROKER, "b1")
        context = league.credentials(Role.WARDEN, "c1").server_context()
        if offers:
            context.set_alpn_protocols(offers)
        said = bytearray()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            said.extend(await reader.read())
            writer.close()

        server = await asyncio.start_server(listen, HOST, 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        await broker.start({"c1": Peer(league.identity(Role.WARDEN, "c1"), HOST, port)})
        broker.wire.send(envelope(1))
        await broker.counters.reach("refused_version", 3)
        assert broker.counters["unreachable"] >= 2
        assert broker.counters["sent"] == broker.counters["connected"] == 0
        assert not broker.wire.is_connected("c1")
        assert [words for words in told(caplog) if "warden c1 of local is refused" in words] == told(caplog)
        assert len(told(caplog)) == 1
        await broker.stop()
        server.close()
        await server.wait_closed()
        assert not said

    play(story())


def test_members_agree_on_the_version_also_with_a_new_certificate(league: PaperLeague) -> None:
    async def story() -> None:
        broker, warden = await pair(league)
        broker.wire.send(envelope(1))
        await warden.post.reach(1)
        league.renew(warden.credentials, Role.WARDEN, "c1")
        await warden.wire.reload()
        caller = await dial(league, warden, MARKED)
        assert await caller.heard() == b""
        await caller.hang_up()
        await warden.counters.reach("refused_version")
        await broker.stop()
        await warden.stop()

    play(story())
