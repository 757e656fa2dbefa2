"""The operations about the league file: show it, apply the next version, vote on it, receive it."""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from starlette.responses import Response

from hanse.api.league_file_records import (
    ApplyAnswer,
    ApplyRequest,
    BallotAnswer,
    BallotRequest,
    Fence,
    FileStanding,
    LeagueFile,
)
from hanse.league.config import LeagueConfig, LeagueError
from hanse.league.file import league_to_text, parse
from hanse.live.http import operation_table as op
from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.operation_record import Operation
from hanse.live.http.responses import RefusedError, json_answer, read_body, retry_later
from hanse.live.membership.league_file_diff import (
    change_problem,
    describe_changes,
    extend_drained,
    extend_joined,
    find_newly_retired,
    is_same,
)
from hanse.live.membership.league_file_sync import BehindError, LeagueFileSync, NoMajorityError
from hanse.live.membership.retirement_check import broker_retirement_problem, cluster_retirement_problem

TELL_SECONDS_MAX: Final = 4.0
"""Seconds that an admin's request waits until the other members have the new file."""
TELL_POLL_SECONDS: Final = 0.05

log: Final = logging.getLogger(__name__)

IsOpen = Callable[[str], bool]
"""Returns whether a member is a cluster that takes work."""


class LeagueFileApi:
    """The operations about the league file at one member; only brokers pass ``is_open``."""

    def __init__(self, membership: LeagueFileSync, is_open: IsOpen | None = None) -> None:
        self._membership = membership
        self._is_open = is_open

    def handlers(self) -> dict[Operation, Handler]:
        """Return the handlers for the member's server."""
        table: dict[Operation, Handler] = {op.TELL_LEAGUE_FILE: self._on_league_file}
        if self._is_open is not None:
            table |= {op.LEAGUE_FILE: self._show, op.APPLY_LEAGUE_FILE: self._apply, op.BALLOT: self._vote}
            table[op.TELL_FENCED] = self._on_fence
        return table

    async def _show(self, call: AdmittedRequest) -> Response:
        membership = self._membership
        membership.fenced_members.remove(call.peer.name)
        return json_answer(LeagueFile(membership.newest.version, membership.standing.digest, membership.text))

    async def _on_league_file(self, call: AdmittedRequest) -> Response:
        notice = await read_body(call.request, LeagueFile)
        membership = self._membership
        try:
            if notice.text:
                await membership.learn(notice.version, notice.text)
        except LeagueError as error:
            raise RefusedError(422, "bad_league_file", str(error)) from None
        except OSError as error:
            raise retry_later(
                503, "no_league_file", f"the league file could not be written: {error}"
            ) from None
        membership.record_standing(call.peer.name, FileStanding(notice.version, notice.digest))
        return json_answer(membership.standing)

    async def _on_fence(self, call: AdmittedRequest) -> Response:
        fence = await read_body(call.request, Fence)
        self._membership.fenced_members.add(call.peer.name, fence.reason)
        log.error("%s may not act: %s", call.peer.name, fence.reason)
        return json_answer(fence)

    async def _vote(self, call: AdmittedRequest) -> Response:
        question = (await read_body(call.request, BallotRequest)).question
        if question.ballot[1] != call.peer.name:
            raise RefusedError(422, "bad_request", "a ballot must carry the sender's own name")
        try:
            return json_answer(BallotAnswer(await self._membership.vote(question)))
        except OSError as error:
            raise retry_later(503, "no_vote", f"the vote could not be written: {error}") from None

    async def _apply(self, call: AdmittedRequest) -> Response:
        body = await read_body(call.request, ApplyRequest)
        async with self._membership.change_lock:
            if self._membership.is_restarting:  # another broker takes the request, nothing is half done
                raise retry_later(503, "starts_again", "this broker restarts with another league file")
            return json_answer(await self._change(body))

    async def _change(self, body: ApplyRequest) -> ApplyAnswer:
        """Make a change once, however often the request is repeated: a client whose broker stopped before the
        answer asks the next one, which may know the change by then."""
        membership = self._membership
        new = self._parse_request(body)
        if is_same(membership.newest, new):
            return ApplyAnswer(membership.newest.version)
        self._refuse_impossible(new)
        old = membership.newest
        if not body.force:
            await self._refuse_busy(find_newly_retired(old, new))
        changes = tuple(describe_changes(old, new))
        if not changes or body.try_only:
            return ApplyAnswer(old.version + bool(changes), changes)
        try:
            await membership.learn(
                old.version + 1, await membership.propose(next_version_text(body.text, old, new, body.force))
            )
        except BehindError:
            await membership.catch_up()
        except (NoMajorityError, OSError) as error:
            refused = retry_later(503, "no_majority", f"no majority agreed to the change: {error}", 5)
            refused.hint = "check 'hanse league show' before you try again: it may still be agreed"
            raise refused from None
        if not is_same(membership.newest, new):
            raise _conflict(
                "changed_meanwhile", f"another change came first, as version {membership.newest.version}"
            )
        return await self._await_members(changes)

    async def _await_members(self, changes: tuple[str, ...]) -> ApplyAnswer:
        """Wait a limited time until all members have the new file."""
        membership = self._membership
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_SECONDS_MAX):
                while membership.find_targets():
                    await asyncio.sleep(TELL_POLL_SECONDS)  # the task of ``Membership`` tells them
        pending = tuple(one.identity.name for one in membership.find_targets())
        problems = {name: one.problem for name, one in membership.standings.items() if one.problem}
        informed = tuple(
            name
            for name in membership.newest.members()
            if name not in pending and not membership.newest.is_retired(name)
        )
        return ApplyAnswer(membership.newest.version, changes, informed, pending, problems)

    def _parse_request(self, body: ApplyRequest) -> LeagueConfig:
        """Return the league of the request; raise a refusal if its text is invalid."""
        try:
            return parse(body.text.encode(), "the file")
        except LeagueError as error:
            raise RefusedError(422, "bad_league_file", str(error)) from None

    def _refuse_impossible(self, new: LeagueConfig) -> None:
        """Refuse a file that cannot follow the present one."""
        known = self._membership.newest
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
        membership = self._membership
        clusters = [entry.name for entry in membership.newest.clusters]
        assert self._is_open is not None, "only brokers are asked"
        for name in names:
            if name in clusters:
                problem = await cluster_retirement_problem(membership, name, self._is_open)
                hint = f"drain it first with 'hanse drain {name} --wait', or override with --force"
            else:
                problem = await broker_retirement_problem(membership, name, name == membership.name)
                hint = "try again when fewer jobs arrive, or override with --force"
            if problem:
                code = "cluster_in_use" if name in clusters else "broker_in_use"
                raise RefusedError(409, code, problem, hint)


def _conflict(code: str, message: str) -> RefusedError:
    """Return the refusal for a change that came second."""
    return RefusedError(
        409, code, f"{message}. Your change was not made",
        "get the file with 'hanse league show', make your change in it, and apply it again",
    )  # fmt: skip


def next_version_text(text: str, old: LeagueConfig, new: LeagueConfig, is_forced: bool = False) -> str:
    """Return the file as the next version, with comments and order kept where possible."""
    version = old.version + 1
    joined, drained = extend_joined(old, new, version), extend_drained(old, new, is_forced)
    wanted = msgspec.structs.replace(new, version=version, joined=joined, drained=drained)
    pairs = ", ".join(f"{name}: {since}" for name, since in joined)
    lines = {"drained": f"drained: [{', '.join(drained)}]"} if drained else {}
    lines |= {"joined": f"joined: {{{pairs}}}"} if pairs else {}
    candidate = text
    for key, line in {**lines, "version": f"version: {version}"}.items():
        there = re.compile(rf"^{key}:[^\n]*$", re.MULTILINE)
        found = there.search(candidate)
        candidate = there.sub(line, candidate, count=1) if found else f"{line}\n{candidate}"
    with suppress(LeagueError):
        if parse(candidate.encode(), "the file") == wanted:
            return candidate
    return league_to_text(wanted)
