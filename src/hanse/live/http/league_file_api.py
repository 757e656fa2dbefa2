"""The operations about the league file: show it, apply the next version, vote on it, receive it."""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from starlette.responses import Response

from hanse.api.league_records import (
    ApplyAnswer,
    ApplyRequest,
    BallotAnswer,
    BallotRequest,
    Fence,
    FileStanding,
    LeagueFile,
)
from hanse.live.config.league import League, LeagueError
from hanse.live.config.league_file import parse, text_of
from hanse.live.http import operations as op
from hanse.live.http.auth_middleware import Call, Handler
from hanse.live.http.responses import RefusedError, body_of, json_answer, later
from hanse.live.membership.league_file_diff import change_problem, describe, is_same, joined_by, newly_retired
from hanse.live.membership.membership import BehindError, Membership, NoMajorityError
from hanse.live.membership.retirement import broker_problem, cluster_problem

TELL_SECONDS_MAX: Final = 4.0
"""Seconds that an admin's request waits until the other members have the new file."""
TELL_LOOK_SECONDS: Final = 0.05

log: Final = logging.getLogger(__name__)

Open = Callable[[str], bool]
"""Returns whether a member is a cluster that takes work."""


class LeagueFileDoor:
    """The operations about the league file at one member; only brokers pass ``is_open``."""

    def __init__(self, membership: Membership, is_open: Open | None = None) -> None:
        self._membership = membership
        self._is_open = is_open

    def handlers(self) -> dict[op.Operation, Handler]:
        """Return the handlers for the member's server."""
        heard: dict[op.Operation, Handler] = {op.TELL_LEAGUE_FILE: self._told}
        if self._is_open is not None:
            heard |= {op.LEAGUE_FILE: self._show, op.APPLY_LEAGUE_FILE: self._apply, op.BALLOT: self._vote}
            heard[op.TELL_FENCED] = self._fenced
        return heard

    async def _show(self, call: Call) -> Response:
        own = self._membership
        own.fences.lift(call.peer.name)
        return json_answer(LeagueFile(own.known.version, own.standing.digest, own.text))

    async def _told(self, call: Call) -> Response:
        notice = await body_of(call.request, LeagueFile)
        own = self._membership
        try:
            if notice.text:
                await own.learn(notice.version, notice.text)
        except LeagueError as error:
            raise RefusedError(422, "bad_league_file", str(error)) from None
        except OSError as error:
            raise later(503, "no_league_file", f"the league file could not be written: {error}") from None
        own.compare(call.peer.name, FileStanding(notice.version, notice.digest))
        return json_answer(own.standing)

    async def _fenced(self, call: Call) -> Response:
        fence = await body_of(call.request, Fence)
        self._membership.fences.add(call.peer.name, fence.reason)
        log.error("%s may not act: %s", call.peer.name, fence.reason)
        return json_answer(fence)

    async def _vote(self, call: Call) -> Response:
        question = (await body_of(call.request, BallotRequest)).question
        if question.ballot[1] != call.peer.name:
            raise RefusedError(422, "bad_request", "a ballot must carry the sender's own name")
        try:
            return json_answer(BallotAnswer(await self._membership.vote(question)))
        except OSError as error:
            raise later(503, "no_vote", f"the vote could not be written: {error}") from None

    async def _apply(self, call: Call) -> Response:
        wish = await body_of(call.request, ApplyRequest)
        async with self._membership.changing:
            if self._membership.is_leaving:  # another broker takes the request, nothing is half done
                raise later(503, "starts_again", "this broker restarts with another league file")
            return json_answer(await self._change(wish))

    async def _change(self, wish: ApplyRequest) -> ApplyAnswer:
        """Make a change once, however often the request is repeated: a client whose broker stopped before the
        answer asks the next one, which may know the change by then."""
        own = self._membership
        new = self._parsed(wish)
        if is_same(own.known, new):
            return ApplyAnswer(own.known.version)
        self._refuse_impossible(new)
        old = own.known
        if not wish.force:
            await self._refuse_busy(newly_retired(old, new))
        changes = tuple(describe(old, new))
        if not changes or wish.try_only:
            return ApplyAnswer(old.version + bool(changes), changes)
        try:
            await own.learn(old.version + 1, await own.propose(numbered(wish.text, old, new)))
        except BehindError:
            await own.catch_up()
        except (NoMajorityError, OSError) as error:
            refused = later(503, "no_majority", f"no majority agreed to the change: {error}", 5)
            refused.hint = "check 'hanse league show' before you try again: it may still be agreed"
            raise refused from None
        if not is_same(own.known, new):
            raise _conflict("changed_meanwhile", f"another change came first, as version {own.known.version}")
        return await self._spread(changes)

    async def _spread(self, changes: tuple[str, ...]) -> ApplyAnswer:
        """Wait a limited time until all members have the new file."""
        own = self._membership
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_SECONDS_MAX):
                while own.owed():
                    await asyncio.sleep(TELL_LOOK_SECONDS)  # the task of ``Membership`` tells them
        untold = tuple(one.identity.name for one in own.owed())
        problems = {name: one.problem for name, one in own.standings.items() if one.problem}
        told = tuple(
            name for name in own.known.members() if name not in untold and not own.known.is_retired(name)
        )
        return ApplyAnswer(own.known.version, changes, told, untold, problems)

    def _parsed(self, wish: ApplyRequest) -> League:
        """Return the league of the request; raise a refusal if its text is invalid."""
        try:
            return parse(wish.text.encode(), "the file")
        except LeagueError as error:
            raise RefusedError(422, "bad_league_file", str(error)) from None

    def _refuse_impossible(self, new: League) -> None:
        """Refuse a file that cannot follow the present one."""
        known = self._membership.known
        if new.version != known.version:
            raise _conflict(
                "another_version",
                f"the file was made from version {new.version}, and the league's is version {known.version}",
            )
        problem = change_problem(known, new)
        if problem:
            raise RefusedError(422, "bad_league_file", problem)

    async def _refuse_busy(self, names: list[str]) -> None:
        """Refuse to retire members that have work or data which would be lost."""
        own = self._membership
        clusters = [entry.name for entry in own.known.clusters]
        assert self._is_open is not None, "only brokers are asked"
        for name in names:
            if name in clusters:
                problem = await cluster_problem(own, name, self._is_open)
                advice = f"drain it first with 'hanse drain {name} --wait', or override with --force"
            else:
                problem = await broker_problem(own, name, name == own.name)
                advice = "try again when fewer jobs arrive, or override with --force"
            if problem:
                code = "cluster_in_use" if name in clusters else "broker_in_use"
                raise RefusedError(409, code, problem, advice)


def _conflict(code: str, message: str) -> RefusedError:
    """Return the refusal for a change that came second."""
    return RefusedError(
        409, code, f"{message}. Your change was not made",
        "get the file with 'hanse league show', make your change in it, and apply it again",
    )  # fmt: skip


def numbered(text: str, old: League, new: League) -> str:
    """Return the file as the next version, with comments and order kept where possible."""
    version = old.version + 1
    wanted = msgspec.structs.replace(new, version=version, joined=joined_by(old, new, version))
    pairs = ", ".join(f"{name}: {since}" for name, since in wanted.joined)
    lines = {"joined": f"joined: {{{pairs}}}"} if pairs else {}
    candidate = text
    for key, line in {**lines, "version": f"version: {version}"}.items():
        there = re.compile(rf"^{key}:[^\n]*$", re.MULTILINE)
        found = there.search(candidate)
        candidate = there.sub(line, candidate, count=1) if found else f"{line}\n{candidate}"
    with suppress(LeagueError):
        if parse(candidate.encode(), "the file") == wanted:
            return candidate
    return text_of(wanted)
