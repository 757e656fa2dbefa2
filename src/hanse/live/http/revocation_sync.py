"""The way of a revocation from the broker where it was made to every other server.

A broker that learns something new (from an admin, from the file that ``hanse access revoke`` writes, from
another broker) sends its list to the servers of all others, and gets their lists as answers. A member that
cannot be reached is tried again after growing pauses until it answers; nothing is sent while all members have
the list. A member that restarts asks on its own, because it cannot know what it missed. Only brokers are
trusted about revocations: another cluster's warden could otherwise lock people out everywhere.

A member keeps the list that it received in a file of its own directory, of which it is the only writer.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from hanse.api.records import PeopleAnswer, RevocationList, RevokeAnswer, RevokeRequest
from hanse.league.config import Address, LeagueConfig
from hanse.live.http import operation_table as op
from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.application import DaemonContext
from hanse.live.http.auth_middleware import AuthMiddleware
from hanse.live.http.operation_record import Operation
from hanse.live.http.peer_client import send_request
from hanse.live.http.responses import RefusedError, json_answer, read_body, retry_later
from hanse.security import atomic_files
from hanse.security.access_tokens import AccessTokenVerifier
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
from hanse.security.known_people import known_people
from hanse.security.revocation_list import (
    ACCESS_DAYS_MAX,
    CLOCK_SKEW,
    DAY,
    REVOKED_FILE,
    RevocationListError,
    RevocationSet,
    read_revocations,
)
from hanse.security.wall_time import wall_now

EXCHANGE_PATH: Final = op.EXCHANGE.path
PAUSE_SECONDS_FIRST: Final = 0.5
PAUSE_SECONDS_MAX: Final = 60.0
"""Seconds between two attempts to reach a server that does not answer."""
CONCURRENT_MAX: Final = 8
"""Servers that are told at the same time."""
ROUND_SECONDS_MAX: Final = 4.0
"""Seconds that an admin's request waits until the others have the revocation."""
log: Final = logging.getLogger(__name__)


class PeerServer(NamedTuple):
    """The server of another member."""

    identity: Identity
    address: Address


class RevocationSync:
    """The revocations known to one member, and their exchange with other members."""

    def __init__(self, daemon: DaemonContext) -> None:
        self._daemon = daemon
        self._path = daemon.home / daemon.identity.name / REVOKED_FILE
        self.verifier = AccessTokenVerifier(
            daemon.league.name, daemon.credentials.authority(), daemon.home / REVOKED_FILE
        )
        try:
            self.verifier.peer_revocations = read_revocations(self._path)
        except RevocationListError as error:
            self.verifier.peer_revocations = None
            log.warning("all access tokens and people's certificates are refused: %s", error)
        self.verifier.on_change = self._on_home_change
        self._auth: AuthMiddleware | None = None
        self._is_broker = daemon.identity.role is Role.BROKER
        self._peers = peer_servers(daemon.league, daemon.identity.name)
        self._acknowledged: dict[str, bytes] = {}
        """Peer -> the digest of the list that the peer is known to have."""
        self._changed = asyncio.Event()
        self._synced = asyncio.Event()
        """Set when every peer was tried since the last change."""

    def create_auth(self) -> AuthMiddleware:
        """Return the auth middleware of the server: it checks people against this list."""
        self._auth = AuthMiddleware(self._daemon.league.name, self.verifier, self._daemon.count)
        return self._auth

    def handlers(self) -> dict[Operation, Handler]:
        """Return the handlers for the member's server."""
        table: dict[Operation, Handler] = {op.EXCHANGE: self._exchange}
        if self._is_broker:
            table |= {op.REVOKE: self._revoke, op.REVOCATIONS: self._list, op.LIST_PEOPLE: self._people}
        return table

    async def run(self) -> None:
        """Exchange lists with the peers, for as long as the daemon lives."""
        pause = PAUSE_SECONDS_FIRST
        peers = self._peers_to_tell()
        while True:
            self._changed.clear()
            answered = await self._tell(peers)
            peers = self._peers_to_tell()
            if not self._changed.is_set():
                self._synced.set()
            pause = PAUSE_SECONDS_FIRST if answered else min(PAUSE_SECONDS_MAX, 2 * pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if peers else None):
                    await self._changed.wait()
            peers = self._peers_to_tell()

    # --- what is known --------------------------------------------------------------------------------------

    def known_revocations(self) -> RevocationSet:
        """Return all revocations that this member knows."""
        from_peers = self.verifier.peer_revocations or RevocationSet()
        try:
            return self.verifier.home_list().merge(from_peers, wall_now())
        except RevocationListError:  # people are refused here; others go on
            return from_peers

    async def learn(self, news: RevocationSet) -> bool:
        """Add a list to the known one; return whether it was new. ``OSError``: it could not be written, and
        counts until the daemon ends. ``ValueError``: it is invalid."""
        from_peers = self.verifier.peer_revocations
        if from_peers is None:
            raise OSError("the revocations of other members cannot be read")
        before = self.known_revocations()
        joined = from_peers.merge(news, wall_now())
        problem = joined.problem()
        if problem is not None:
            raise ValueError(problem)
        self.verifier.peer_revocations = joined
        new = self.known_revocations() != before
        if new:
            self._abort_revoked()  # at once: it counts even if the write fails
        if joined != from_peers:
            await asyncio.to_thread(
                atomic_files.replace, self._path, msgspec.json.encode(joined), atomic_files.PRIVATE
            )
        if new:
            self._daemon.count("revocations_learned")
            self._mark_changed()
        return new

    def _on_home_change(self) -> None:
        self._mark_changed()
        self._abort_revoked()

    def _mark_changed(self) -> None:
        self._synced.clear()
        self._changed.set()

    def _abort_revoked(self) -> None:
        """Abort the long-lived requests of people who are revoked now."""
        if self._auth is not None:
            self._auth.abort_revoked()

    # --- the way to the others ------------------------------------------------------------------------------

    def _peers_to_tell(self) -> list[PeerServer]:
        """Return the peers to contact. For a broker: all that may not have its list. For other members: a
        broker, until one has answered since the start."""
        if not self._is_broker:
            return [] if self._acknowledged else [peer for peer in self._peers if _is_broker(peer)]
        known = self.known_revocations()
        digest = _digest(known)
        empty = not known.serials and not known.names
        return [
            peer
            for peer in self._peers
            if self._acknowledged.get(peer.identity.name) != digest
            and not (empty and (not _is_broker(peer) or peer.identity.name in self._acknowledged))
        ]

    async def _tell(self, peers: Sequence[PeerServer]) -> bool:
        """Contact these servers; return whether any answered."""
        answered = False
        for first in range(0, len(peers), CONCURRENT_MAX):
            group = peers[first : first + CONCURRENT_MAX]
            results = await asyncio.gather(*(self._tell_one(peer) for peer in group))
            answered = answered or any(results)
            if answered and not self._is_broker:
                break
        return answered

    async def _tell_one(self, peer: PeerServer) -> bool:
        known = self.known_revocations()
        try:
            answer = await self._exchange_with(peer, known)
            if _is_broker(peer):
                await self.learn(RevocationSet(answer.serials, answer.names))
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self._daemon.count("revocations_untold")
            log.info("%s did not get the revocations: %s", peer.identity.name, error)
            return False
        self._acknowledged[peer.identity.name] = _digest(known)
        self._daemon.count("revocations_told")
        return True

    async def _exchange_with(self, peer: PeerServer, known: RevocationSet) -> RevocationList:
        """Return the list of a peer; a broker sends its own list with the request."""
        context = self._daemon.credentials.client_context(peer.identity)
        if self._is_broker:
            body = msgspec.json.encode(RevocationList(known.serials, known.names))
            status, answer = await send_request(peer.address, context, "POST", EXCHANGE_PATH, body)
        else:
            status, answer = await send_request(peer.address, context, "GET", EXCHANGE_PATH)
        if status != 200:
            raise OSError(f"it answered with status {status}")
        return msgspec.json.decode(answer, type=RevocationList)

    # --- operations -----------------------------------------------------------------------------------------

    async def _list(self, _: AdmittedRequest) -> Response:
        known = self.known_revocations()
        return json_answer(RevocationList(known.serials, known.names))

    async def _people(self, _: AdmittedRequest) -> Response:
        names = await asyncio.to_thread(known_people, Home(self._daemon.home))
        people_seen = self._auth.people_seen if self._auth is not None else ()
        return json_answer(
            PeopleAnswer(tuple(sorted({*names, *people_seen, *self.known_revocations().names})))
        )

    async def _exchange(self, call: AdmittedRequest) -> Response:
        news = await read_body(call.request, RevocationList)
        theirs = RevocationSet(news.serials, news.names)
        await self._learn_or_refuse(theirs)
        self._daemon.count("revocations_heard")
        if self.known_revocations() == theirs.merge(theirs, wall_now()):
            self._acknowledged[call.peer.name] = _digest(
                self.known_revocations()
            )  # the peer need not be told its own list
        return await self._list(call)

    async def _revoke(self, call: AdmittedRequest) -> Response:
        body = await read_body(call.request, RevokeRequest)
        if call.peer.name in body.names and not body.own:
            raise _own_name_error(call)
        now = wall_now()
        serials = dict.fromkeys(body.serials, now + ACCESS_DAYS_MAX * DAY)
        await self._learn_or_refuse(RevocationSet(serials, dict.fromkeys(body.names, now + CLOCK_SKEW)))
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS_MAX):
                await self._synced.wait()
        pending = [peer.identity.name for peer in self._peers_to_tell()]
        informed = [peer.identity.name for peer in self._peers if peer.identity.name not in pending]
        return json_answer(RevokeAnswer((self._daemon.identity.name, *informed), tuple(pending)))

    async def _learn_or_refuse(self, news: RevocationSet) -> None:
        try:
            await self.learn(news)
        except ValueError as error:
            raise RefusedError(422, "bad_request", str(error)) from None
        except OSError as error:
            log.warning("a revocation could not be stored: %s", error)
            raise retry_later(503, "no_revocations", f"the revocation could not be stored: {error}") from None


def _own_name_error(call: AdmittedRequest) -> RefusedError:
    shown = "access token" if call.has_token else "certificate"
    return RefusedError(
        409,
        "own_name",
        f"this would revoke your own {shown}: your name is {call.peer.name}",
        "override with 'own'; in the home of a broker, 'hanse renew --anew' makes a new certificate",
    )


def peer_servers(league: LeagueConfig, own: str) -> tuple[PeerServer, ...]:
    """Return the servers of all other members, the brokers first, in the order of the league file."""
    clusters = league.serving_clusters
    members = [
        *((Role.BROKER, entry.name, entry.door) for entry in league.serving_brokers),
        *((Role.WARDEN, entry.name, entry.door) for entry in clusters),
        *((Role.RUNNER, runner.name, runner.door) for entry in clusters for runner in entry.runners),
    ]
    return tuple(
        PeerServer(Identity(league.name, role, name), address)
        for role, name, address in members
        if name != own
    )


def _is_broker(peer: PeerServer) -> bool:
    return peer.identity.role is Role.BROKER


def _digest(known: RevocationSet) -> bytes:
    """Return a digest, equal for equal lists. It changes at an expiry; then the list is sent once more."""
    return hashlib.sha256(msgspec.json.encode(known, order="sorted")).digest()
