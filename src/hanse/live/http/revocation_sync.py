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
from hanse.live.config.league import Address, League
from hanse.live.http import operations as op
from hanse.live.http.application import Host
from hanse.live.http.auth_middleware import Call, Gate, Handler
from hanse.live.http.peer_client import asked
from hanse.live.http.responses import RefusedError, body_of, json_answer, later
from hanse.security import atomic_files
from hanse.security.access_tokens import AccessBook
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
from hanse.security.known_people import people_of
from hanse.security.revocation_list import (
    ACCESS_DAYS_MAX,
    CLOCKS_APART,
    DAY,
    REVOKED_FILE,
    Revoked,
    RevokedError,
    read_revoked,
)
from hanse.security.wall_time import wall_now

PATH: Final = op.EXCHANGE.path
PAUSE_SECONDS_FIRST: Final = 0.5
PAUSE_SECONDS_MAX: Final = 60.0
"""Seconds between two attempts to reach a server that does not answer."""
AT_ONCE_MAX: Final = 8
"""Servers that are told at the same time."""
ROUND_SECONDS_MAX: Final = 4.0
"""Seconds that an admin's request waits until the others have the revocation."""
log: Final = logging.getLogger(__name__)


class Neighbour(NamedTuple):
    """The server of another member."""

    identity: Identity
    door: Address


class Revocations:
    """The revocations known to one member, and their exchange with other members."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._path = host.home / host.identity.name / REVOKED_FILE
        self.book = AccessBook(host.league.name, host.credentials.authority(), host.home / REVOKED_FILE)
        try:
            self.book.told = read_revoked(self._path)
        except RevokedError as error:
            self.book.told = None
            log.warning("all access tokens and people's certificates are refused: %s", error)
        self.book.on_change = self._home_changed
        self._gate: Gate | None = None
        self._broker = host.identity.role is Role.BROKER
        self._neighbours = neighbours(host.league, host.identity.name)
        self._heard: dict[str, bytes] = {}
        """Peer -> the digest of the list that the peer is known to have."""
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        """Set when every peer was tried since the last change."""

    def gate(self) -> Gate:
        """Return the auth middleware of the server: it checks people against this list."""
        self._gate = Gate(self._host.league.name, self.book, self._host.count)
        return self._gate

    def handlers(self) -> dict[op.Operation, Handler]:
        """Return the handlers for the member's server."""
        own: dict[op.Operation, Handler] = {op.EXCHANGE: self._exchange}
        if self._broker:
            own |= {op.REVOKE: self._revoke, op.REVOCATIONS: self._list, op.LIST_PEOPLE: self._people}
        return own

    async def keep(self) -> None:
        """Exchange lists with the peers, for as long as the daemon lives."""
        pause = PAUSE_SECONDS_FIRST
        owed = self._owed()
        while True:
            self._changed.clear()
            told = await self._tell(owed)
            owed = self._owed()
            if not self._changed.is_set():
                self._settled.set()
            pause = PAUSE_SECONDS_FIRST if told else min(PAUSE_SECONDS_MAX, 2 * pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if owed else None):
                    await self._changed.wait()
            owed = self._owed()

    # --- what is known --------------------------------------------------------------------------------------

    def known(self) -> Revoked:
        """Return all revocations that this member knows."""
        told = self.book.told or Revoked()
        try:
            return self.book.listed().joined(told, wall_now())
        except RevokedError:  # people are refused here; others go on
            return told

    async def learn(self, news: Revoked) -> bool:
        """Add a list to the known one; return whether it was new. ``OSError``: it could not be written, and
        counts until the daemon ends. ``ValueError``: it is invalid."""
        told = self.book.told
        if told is None:
            raise OSError("the revocations of other members cannot be read")
        before = self.known()
        joined = told.joined(news, wall_now())
        problem = joined.problem()
        if problem is not None:
            raise ValueError(problem)
        self.book.told = joined
        new = self.known() != before
        if new:
            self._recheck()  # at once: it counts even if the write fails
        if joined != told:
            await asyncio.to_thread(
                atomic_files.replace, self._path, msgspec.json.encode(joined), atomic_files.PRIVATE
            )
        if new:
            self._host.count("revocations_learned")
            self._changed_here()
        return new

    def _home_changed(self) -> None:
        self._changed_here()
        self._recheck()

    def _changed_here(self) -> None:
        self._settled.clear()
        self._changed.set()

    def _recheck(self) -> None:
        """Abort the long-lived requests of people who are revoked now."""
        if self._gate is not None:
            self._gate.recheck()

    # --- the way to the others ------------------------------------------------------------------------------

    def _owed(self) -> list[Neighbour]:
        """Return the peers to contact. For a broker: all that may not have its list. For other members: a
        broker, until one has answered since the start."""
        if not self._broker:
            return [] if self._heard else [one for one in self._neighbours if _is_broker(one)]
        known = self.known()
        mark = _mark(known)
        empty = not known.serials and not known.names
        return [
            one
            for one in self._neighbours
            if self._heard.get(one.identity.name) != mark
            and not (empty and (not _is_broker(one) or one.identity.name in self._heard))
        ]

    async def _tell(self, owed: Sequence[Neighbour]) -> bool:
        """Contact these servers; return whether any answered."""
        answered = False
        for first in range(0, len(owed), AT_ONCE_MAX):
            some = owed[first : first + AT_ONCE_MAX]
            results = await asyncio.gather(*(self._tell_one(one) for one in some))
            answered = answered or any(results)
            if answered and not self._broker:
                break
        return answered

    async def _tell_one(self, one: Neighbour) -> bool:
        known = self.known()
        try:
            heard = await self._talk(one, known)
            if _is_broker(one):
                await self.learn(Revoked(heard.serials, heard.names))
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self._host.count("revocations_untold")
            log.info("%s did not get the revocations: %s", one.identity.name, error)
            return False
        self._heard[one.identity.name] = _mark(known)
        self._host.count("revocations_told")
        return True

    async def _talk(self, one: Neighbour, known: Revoked) -> RevocationList:
        """Return the list of a peer; a broker sends its own list with the request."""
        context = self._host.credentials.client_context(one.identity)
        if self._broker:
            body = msgspec.json.encode(RevocationList(known.serials, known.names))
            status, answer = await asked(one.door, context, "POST", PATH, body)
        else:
            status, answer = await asked(one.door, context, "GET", PATH)
        if status != 200:
            raise OSError(f"it answered with status {status}")
        return msgspec.json.decode(answer, type=RevocationList)

    # --- operations -----------------------------------------------------------------------------------------

    async def _list(self, _: Call) -> Response:
        known = self.known()
        return json_answer(RevocationList(known.serials, known.names))

    async def _people(self, _: Call) -> Response:
        names = await asyncio.to_thread(people_of, Home(self._host.home))
        seen = self._gate.seen if self._gate is not None else ()
        return json_answer(PeopleAnswer(tuple(sorted({*names, *seen, *self.known().names}))))

    async def _exchange(self, call: Call) -> Response:
        news = await body_of(call.request, RevocationList)
        theirs = Revoked(news.serials, news.names)
        await self._learned(theirs)
        self._host.count("revocations_heard")
        if self.known() == theirs.joined(theirs, wall_now()):
            self._heard[call.peer.name] = _mark(self.known())  # the peer need not be told its own list
        return await self._list(call)

    async def _revoke(self, call: Call) -> Response:
        wish = await body_of(call.request, RevokeRequest)
        if call.peer.name in wish.names and not wish.own:
            raise _own_name(call)
        now = wall_now()
        serials = dict.fromkeys(wish.serials, now + ACCESS_DAYS_MAX * DAY)
        await self._learned(Revoked(serials, dict.fromkeys(wish.names, now + CLOCKS_APART)))
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS_MAX):
                await self._settled.wait()
        owed = [one.identity.name for one in self._owed()]
        told = [one.identity.name for one in self._neighbours if one.identity.name not in owed]
        return json_answer(RevokeAnswer((self._host.identity.name, *told), tuple(owed)))

    async def _learned(self, news: Revoked) -> None:
        try:
            await self.learn(news)
        except ValueError as error:
            raise RefusedError(422, "bad_request", str(error)) from None
        except OSError as error:
            log.warning("a revocation could not be stored: %s", error)
            raise later(503, "no_revocations", f"the revocation could not be stored: {error}") from None


def _own_name(call: Call) -> RefusedError:
    shown = "access token" if call.by_token else "certificate"
    return RefusedError(
        409,
        "own_name",
        f"this would revoke your own {shown}: your name is {call.peer.name}",
        "override with 'own'; in the home of a broker, 'hanse renew --anew' makes a new certificate",
    )


def neighbours(league: League, own: str) -> tuple[Neighbour, ...]:
    """Return the servers of all other members, the brokers first, in the order of the league file."""
    clusters = league.serving_clusters
    found = [
        *((Role.BROKER, entry.name, entry.door) for entry in league.serving_brokers),
        *((Role.WARDEN, entry.name, entry.door) for entry in clusters),
        *((Role.RUNNER, runner.name, runner.door) for entry in clusters for runner in entry.runners),
    ]
    return tuple(
        Neighbour(Identity(league.name, role, name), door) for role, name, door in found if name != own
    )


def _is_broker(one: Neighbour) -> bool:
    return one.identity.role is Role.BROKER


def _mark(known: Revoked) -> bytes:
    """Return a digest, equal for equal lists. It changes at an expiry; then the list is sent once more."""
    return hashlib.sha256(msgspec.json.encode(known, order="sorted")).digest()
