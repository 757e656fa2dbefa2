"""Fenced members, which may not act: such a member does not run, so it reports to the brokers, which show it.

A member that has lost records, or whose peers remember more of it than its journal does, ends at once. Before
that it reports to every broker, and brokers show it to the operators and to monitoring.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from hanse.api.league_file_records import FENCE_CHARACTERS_MAX, Fence
from hanse.league.config import LeagueConfig
from hanse.live.http import operation_table as op
from hanse.live.http.peer_client import send_request
from hanse.live.http.revocation_sync import PeerServer, peer_servers
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role

FENCE_SECONDS: Final = 3_600.0
"""Seconds that a broker keeps a report, unless it is repeated: services restart a member that has ended."""


class FencingHost(Protocol):
    """Daemon, as far as ``report_fenced`` needs it."""

    league: LeagueConfig
    identity: Identity
    credentials: Credentials


class FencedMembers:
    """Members that reported that they may not act, at one broker."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, str]] = {}

    def add(self, name: str, reason: str = "") -> None:
        """Record that a member may not act, and why."""
        self._since[name] = (asyncio.get_running_loop().time(), reason)

    def remove(self, name: str) -> None:
        """Remove a member that takes part again."""
        self._since.pop(name, None)

    def reasons(self, league: LeagueConfig) -> dict[str, str]:
        """Return the reasons of fenced members that have not retired, by name."""
        now = asyncio.get_running_loop().time()
        return {
            name: reason
            for name, (since, reason) in sorted(self._since.items())
            if now - since < FENCE_SECONDS and not league.is_retired(name)
        }


async def report_fenced(host: FencingHost, reason: str) -> None:
    """Report to every broker that answers."""
    body = msgspec.json.encode(Fence(reason[:FENCE_CHARACTERS_MAX]))

    async def report(broker: PeerServer) -> None:
        with suppress(OSError, ValueError):  # an absent broker gets no report
            context = host.credentials.client_context(broker.identity)
            await send_request(broker.address, context, op.TELL_FENCED.verb, op.TELL_FENCED.path, body)

    brokers = [
        broker
        for broker in peer_servers(host.league, host.identity.name)
        if broker.identity.role is Role.BROKER
    ]
    await asyncio.gather(*map(report, brokers))
