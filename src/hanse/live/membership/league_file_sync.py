"""Synchronization of one member's league file with the file of all others.

Brokers agree on each next version (``paxos``), then send it to every member's HTTPS server until it was
received, as with revocations. A member that learns of a higher version stores it and restarts with it, each
at its own time, so that some are always up. A machine takes new settings only where it recovers
(``live.config.config_history``). Tasks go on meanwhile. Members accept files only from brokers.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from hanse.api.league_file_records import (
    BallotAnswer,
    BallotRequest,
    FileStanding,
    LeagueFile,
    Vote,
    VoteReply,
    VoteRequest,
)
from hanse.league.config import LeagueConfig, LeagueError
from hanse.league.file import parse
from hanse.live.http import operation_table as op
from hanse.live.http.peer_client import send_request
from hanse.live.http.revocation_sync import PeerServer, peer_servers
from hanse.live.membership.fenced_members import FencedMembers
from hanse.live.membership.league_file_diff import change_problem
from hanse.live.membership.paxos import Acceptor, VoteCount
from hanse.live.membership.restart_turns import restart_turn
from hanse.security import atomic_files
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

VOTE_FILE: Final = "vote.json"
ROUNDS_MAX: Final = 5
"""Rounds that a broker holds for one change before it gives up."""
ROUND_PAUSE_SECONDS: Final = 0.3
"""Seconds before the next round, times the broker's place, so that two brokers get out of step."""
PAUSE_SECONDS_FIRST: Final = 0.5
PAUSE_SECONDS_MAX: Final = 60.0
"""Longest pause between two requests to a member that does not answer."""
CONCURRENT_MAX: Final = 8
"""Members that are contacted at the same time."""
SETTINGS_RETRY_SECONDS: Final = 5.0
"""Seconds between two checks of a machine whose state does not fit the new file yet."""
ANSWER_SECONDS: Final = 0.2
"""Seconds for the answer to leave, before a broker restarts that was asked for a change."""
log: Final = logging.getLogger(__name__)
T = TypeVar("T")


class LeagueFileHost(Protocol):
    """Daemon, as far as ``LeagueFileSync`` needs it."""

    league: LeagueConfig
    identity: Identity
    credentials: Credentials
    home: Path

    def count(self, what: str) -> None:
        """Count an occurrence."""
        ...

    def start_again(self, why: str) -> None:
        """End in good order, and start with the league file as it is now."""
        ...


class NoMajorityError(Exception):
    """Too few brokers answered, or they could not agree in time."""


class BehindError(Exception):
    """A broker was asked for a change, and another broker has a later version."""


class LeagueFileSync:
    """League file of one member.

    ``settings_problem`` returns why the member's machine cannot go on with another league; empty: it can.
    ``count_unfinished`` counts the attempts of a warden, or records that only this broker has;
    ``standby_terms`` returns the terms known to a warden, ``is_drained`` whether all its nodes are drained.
    """

    def __init__(
        self,
        host: LeagueFileHost,
        settings_problem: Callable[[LeagueConfig], str],
        count_unfinished: Callable[[], int] = lambda: 0,
        standby_terms: Callable[[], dict[str, int]] = dict,
        is_drained: Callable[[], bool] = lambda: False,
    ) -> None:
        self._host = host
        self._settings_problem = settings_problem
        self._count_unfinished = count_unfinished
        self._standby_terms = standby_terms
        self._is_drained = is_drained
        self._file = Home(host.home).league_file
        self.text = self._file.read_text(encoding="utf-8")
        self._digest = digest_of(self.text)
        self.newest = parse(self.text.encode(), str(self._file))
        """Newest file of this member; it uses ``host.league`` until it has restarted."""
        self.problem = ""
        """Reason why this member cannot use that file yet."""
        self.standings: dict[str, FileStanding] = {}
        """Latest known file of each other member."""
        self.fenced_members = FencedMembers()
        """Members that reported that they may not act."""
        self._targets_changed = asyncio.Event()
        """Set when a member must be contacted."""
        self._newer_file = asyncio.Event()
        """Set for good when there is a file that this member does not use yet."""
        self._is_broker = host.identity.role is Role.BROKER
        self._vote_file = host.home / host.identity.name / VOTE_FILE
        self._acceptor = Acceptor(self._read_vote(), self._write_vote) if self._is_broker else None
        self.change_lock = asyncio.Lock()
        """Held while a request for a change is answered."""
        self.is_restarting = False
        """True if the daemon is about to restart: a change would be interrupted."""
        self._vote_lock = asyncio.Lock()

    @property
    def name(self) -> str:
        """Name of the member."""
        return self._host.identity.name

    @property
    def standing(self) -> FileStanding:
        """File of this member."""
        return FileStanding(
            self.newest.version,
            self._digest,
            self.problem,
            self._count_unfinished(),
            self._standby_terms(),
            self._is_drained(),
        )

    def summary(self) -> dict[str, object]:
        """Return fields of ``LeagueAnswer`` about the file."""
        own, others = self.standing, {}
        for name, theirs in self.standings.items():
            if theirs.problem:
                others[name] = theirs.problem
            elif theirs.version != own.version:
                others[name] = f"it has version {theirs.version}"
            elif theirs.digest != own.digest:
                others[name] = f"it has another file of the same version {own.version}"
        fenced = self.fenced_members.reasons(self.newest)
        return {"file_version": own.version, "other_files": others, "fenced": fenced}

    def monitoring_summary(self) -> tuple[int, list[str], list[str]]:
        """Return the version, the members with another file or a problem, and the fenced members."""
        others = self.summary()["other_files"]
        assert isinstance(others, dict), "members by name"
        return self.newest.version, sorted(others), list(self.fenced_members.reasons(self.newest))

    def find_targets(self) -> list[PeerServer]:
        """Return members to contact. A broker: all not known to have its file. Others: every broker, until
        one has answered."""
        own = self._host.identity.name
        if not self._is_broker:
            return (
                [] if self.standings else [one for one in peer_servers(self.newest, own) if _is_broker(one)]
            )
        everybody = {  # including members that were just retired
            one.identity.name: one
            for league in (self._host.league, self.newest)
            for one in peer_servers(league, own)
        }
        return [one for name, one in everybody.items() if not self._is_current(name)]

    async def run(self) -> None:
        """Contact members, and restart when it is due, for as long as the daemon lives."""
        restart = asyncio.create_task(self._start_again_when_due())
        try:
            await self._keep_distributing()
        finally:
            restart.cancel()
            await asyncio.wait([restart])

    # --- the file ---------------------------------------------------------------------------------------

    async def learn(self, version: int, text: str) -> None:
        """Store a higher version; raise ``LeagueError`` if it is invalid or cannot follow the present one."""
        if version <= self.newest.version:
            return
        league = parse(text.encode(), f"version {version} of the league file")
        problem = f"it calls itself version {league.version}" if league.version != version else ""
        problem = problem or change_problem(self.newest, league)
        if problem:
            raise LeagueError(
                f"version {version} of the league file cannot follow {self.newest.version}: {problem}"
            )
        await asyncio.to_thread(self._write_file, text, version)
        self.newest, self.text, self._digest = league, text, digest_of(text)
        self._host.count("league_files_learned")
        log.warning("the league file has changed: version %d", version)
        self._targets_changed.set()
        self._newer_file.set()

    def record_standing(self, name: str, theirs: FileStanding) -> None:
        """Record the file of another member."""
        self.standings[name] = theirs
        self.fenced_members.remove(name)
        own = self.standing
        if theirs.version == own.version and theirs.digest != own.digest:
            self._host.count("league_file_differs")
            log.error(
                "%s has another league file of the same version %d: one was edited by hand. Put the right "
                "one in both places, or apply it again with 'hanse league apply'", name, own.version,
            )  # fmt: skip

    def _is_current(self, name: str) -> bool:
        theirs, own = self.standings.get(name), self.standing
        if theirs is None or theirs.problem:
            return False
        return theirs.version > own.version or (theirs.version, theirs.digest) == (own.version, own.digest)

    def _write_file(self, text: str, version: int) -> None:
        """Write the file into the home, unless it has a newer one from another member of this machine."""
        with suppress(LeagueError, OSError):
            if parse(self._file.read_bytes(), str(self._file)).version >= version:
                return
        atomic_files.replace(self._file, text.encode(), atomic_files.PUBLIC)

    # --- restarting -------------------------------------------------------------------------------------

    async def _start_again_when_due(self) -> None:
        if self.newest.version <= self._host.league.version:
            await self._newer_file.wait()
        name = self._host.identity.name
        while not self.newest.is_retired(name):
            self.problem = self._settings_problem(self.newest)
            if not self.problem:
                break
            log.error("%s cannot use the new league file yet: %s", name, self.problem)
            await asyncio.sleep(SETTINGS_RETRY_SECONDS)
        async with restart_turn(self.newest, name, self.change_lock):
            self.is_restarting = True
            await asyncio.sleep(ANSWER_SECONDS)
        self._host.start_again(f"the league file is version {self.newest.version} now")

    # --- distribution -----------------------------------------------------------------------------------

    async def _keep_distributing(self) -> None:
        pause = PAUSE_SECONDS_FIRST
        while True:
            self._targets_changed.clear()
            targets = self.find_targets()
            for first in range(0, len(targets), CONCURRENT_MAX):
                await asyncio.gather(*map(self._exchange_files, targets[first : first + CONCURRENT_MAX]))
            fewer = len(self.find_targets()) < len(targets)
            pause = PAUSE_SECONDS_FIRST if fewer else min(PAUSE_SECONDS_MAX, 2 * pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if self.find_targets() else None):
                    await self._targets_changed.wait()

    async def ask_standing(self, name: str) -> FileStanding:
        """Return the file state that a member reports now; raise ``OSError`` if it does not answer."""
        neighbour = next(
            one for one in peer_servers(self.newest, self._host.identity.name) if one.identity.name == name
        )
        own = self.standing
        notice = LeagueFile(own.version, own.digest)
        return await self._request(neighbour, "POST", op.TELL_LEAGUE_FILE.path, notice, FileStanding)

    async def _exchange_files(self, one: PeerServer) -> None:
        """Exchange files with another member."""
        name = one.identity.name
        try:
            if not self._is_broker:
                file = await self._request(one, "GET", op.LEAGUE_FILE.path, None, LeagueFile)
                self.record_standing(name, FileStanding(file.version, file.digest))
                await self.learn(file.version, file.text)
                return
            own = self.standing
            notice = LeagueFile(own.version, own.digest)
            theirs = await self._request(one, "POST", op.TELL_LEAGUE_FILE.path, notice, FileStanding)
            if theirs.version < own.version:
                notice = msgspec.structs.replace(notice, text=self.text)
                theirs = await self._request(one, "POST", op.TELL_LEAGUE_FILE.path, notice, FileStanding)
            self.record_standing(name, theirs)
        except (OSError, ValueError, msgspec.DecodeError, LeagueError) as error:
            log.info("the league file was not exchanged with %s: %s", name, error)

    async def _request(self, one: PeerServer, verb: str, path: str, body: object, kind: type[T]) -> T:
        context = self._host.credentials.client_context(one.identity)
        data = b"" if body is None else msgspec.json.encode(body)
        status, answer = await send_request(one.address, context, verb, path, data)
        if status != 200:
            raise OSError(f"it answered with status {status}")
        return msgspec.json.decode(answer, type=kind)

    # --- agreement ------------------------------------------------------------------------------------------

    async def vote(self, question: VoteRequest) -> VoteReply:
        """Vote for a broker, this one included. ``OSError``: the vote was not written, and not cast."""
        async with self._vote_lock:
            return await asyncio.to_thread(self._vote, question)

    def _vote(self, question: VoteRequest) -> VoteReply:
        """Reject an invalid file, else vote."""
        assert self._acceptor is not None, "only brokers vote"
        if question.text:
            try:
                league = parse(question.text.encode(), "the proposed league file")
            except LeagueError:
                return VoteReply(False, self.newest.version, Vote(question.version))
            if league.version != question.version or change_problem(self.newest, league):
                return VoteReply(False, self.newest.version, Vote(question.version))
        return self._acceptor.answer(question, self.newest.version)

    async def propose(self, text: str) -> str:
        """Have the brokers agree on the next version; return the agreed text, perhaps another broker's. Raise
        ``BehindError`` if another broker has that version already."""
        assert self.change_lock.locked(), "two changes at one broker are made one after the other"
        version = self.newest.version + 1
        voters = [one for one in peer_servers(self.newest, self._host.identity.name) if _is_broker(one)]
        place = [entry.name for entry in self.newest.brokers].index(self._host.identity.name)
        round_number = 0
        for _ in range(ROUNDS_MAX):
            ballot = (round_number + 1, self._host.identity.name)
            count = await self._poll(VoteRequest(version, ballot), voters)
            round_number = max(round_number + 1, count.highest_ballot[0])
            if count.highest_version >= version:
                raise BehindError
            if count.is_won:
                chosen = count.text_to_propose or text
                count = await self._poll(VoteRequest(version, ballot, chosen), voters)
                if count.is_won:
                    return chosen
                round_number = max(round_number, count.highest_ballot[0])
            await asyncio.sleep(ROUND_PAUSE_SECONDS * (place + 1))
        raise NoMajorityError(f"a majority of the {len(voters) + 1} brokers must agree, and too few did")

    async def catch_up(self) -> None:
        """Learn the newest file of the other brokers. A broker that does not answer is skipped."""
        for one in peer_servers(self.newest, self._host.identity.name):
            if _is_broker(one):
                with suppress(OSError, ValueError, msgspec.DecodeError, LeagueError):
                    file = await self._request(one, "GET", op.LEAGUE_FILE.path, None, LeagueFile)
                    await self.learn(file.version, file.text)

    async def _poll(self, question: VoteRequest, voters: list[PeerServer]) -> VoteCount:
        count = VoteCount(len(voters) + 1)
        count.add(await self.vote(question))

        async def ask(one: PeerServer) -> None:
            try:
                answer = await self._request(
                    one, "POST", op.BALLOT.path, BallotRequest(question), BallotAnswer
                )
            except (OSError, ValueError, msgspec.DecodeError) as error:
                log.info("%s did not vote: %s", one.identity.name, error)
                return
            count.add(answer.reply)

        await asyncio.gather(*map(ask, voters))
        return count

    def _read_vote(self) -> Vote:
        try:
            return msgspec.json.decode(self._vote_file.read_bytes(), type=Vote)
        except FileNotFoundError:
            return Vote(0)
        except msgspec.MsgspecError as error:
            raise LeagueError(
                f"{self._vote_file} is damaged: {error}. Delete it only if no "
                "change of the league file is under way"
            ) from None

    def _write_vote(self, vote: Vote) -> None:
        atomic_files.replace(self._vote_file, msgspec.json.encode(vote), atomic_files.PRIVATE)


def digest_of(text: str) -> str:
    """Return a hash that tells two files apart."""
    return hashlib.sha256(text.encode()).hexdigest()


def _is_broker(one: PeerServer) -> bool:
    return one.identity.role is Role.BROKER
