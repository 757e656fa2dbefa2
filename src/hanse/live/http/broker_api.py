"""The HTTP API of a broker: submit jobs, ask questions, stream events.

The owner of a job answers questions about it. A broker that knows another, living owner redirects the client
(307, with the owner's name in ``X-Hanse-Broker``); with ``?local=1`` it answers from its own replica.
"""

import asyncio
import sqlite3
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from hanse.api.records import (
    CancelAnswer,
    ClusterAnswer,
    DecisionsAnswer,
    Health,
    JobsAnswer,
    Readiness,
    TasksAnswer,
    WhyAnswer,
)
from hanse.api.redaction import shown_to
from hanse.api.rows import JobDetail
from hanse.core.broker.broker import Broker
from hanse.live.disk_space import DiskSpace
from hanse.live.http import operations as op
from hanse.live.http.application import Application, Document, Host
from hanse.live.http.auth_middleware import Call, Handler
from hanse.live.http.cluster_status_stream import ClusterWatch
from hanse.live.http.enrollment_api import Enrolment
from hanse.live.http.event_stream import Events, EventStream, Wanted
from hanse.live.http.league_file_api import LeagueFileDoor
from hanse.live.http.league_status import (
    cluster_answer,
    cluster_facts,
    league_answer,
    nodes_answer,
    until_silent,
)
from hanse.live.http.plan import plan
from hanse.live.http.responses import (
    BROKER_HEADER,
    ElsewhereError,
    RefusedError,
    body_of,
    busy,
    json_answer,
    later,
)
from hanse.live.http.revocation_sync import Revocations
from hanse.live.http.submission import ROOM_SECONDS, SUBMIT_SECONDS_MAX, Submission, flaws
from hanse.live.membership.membership import Membership
from hanse.live.pending_requests import Batch, Requests
from hanse.live.readmodel.explanation import why
from hanse.live.readmodel.feeder import Feed
from hanse.live.shell import JournalledShell
from hanse.model.effects import JobAccepted
from hanse.model.events import CancelRequested
from hanse.model.ids import JobId, parse_job
from hanse.model.job_parser import parse_job_form
from hanse.security.wall_time import wall_now

DECISIONS_MAX: Final = 100
ENDED: Final = ("succeeded", "failed", "cancelled")
AGE_HEADER: Final = "Age"
"""Age of the answer in seconds, as in HTTP; sent only while the disk is full, else the answer is current."""
ROWS_PER_TOKEN: Final = 100
"""Rows of a list that cost as much as one request."""


class BrokerDoor:
    """The operations of one broker."""

    def __init__(
        self,
        host: Host,
        machine: Broker,
        shell: JournalledShell,
        feed: Feed,
        requests: Requests,
        enrolment: Enrolment,
        membership: Membership,
    ) -> None:
        self._host = host
        self._machine = machine
        self._shell = shell
        self._feed = feed
        self._requests = requests
        self._enrolment = enrolment
        self._submission = Submission(shell, feed, requests, DiskSpace(host.home / host.identity.name))
        self.revocations = Revocations(host)
        self.membership = membership
        self._league_file = LeagueFileDoor(membership, self._is_open)
        self.gate = self.revocations.gate()
        self.gate.file_version = host.league.version
        self._events: Events

    def application(self) -> Application:
        """Return the ASGI application."""
        names = tuple(entry.name for entry in self._host.league.serving_clusters)
        clusters = ClusterWatch(names, self._cluster_now, self._until_silent)
        self._events = Events(self._host.identity.name, self._feed, clusters, self._host.fail)
        routes: list[BaseRoute] = [*self.gate.routes(op.BROKER, self.handlers())]
        return Application(self.gate, routes)

    def handlers(self) -> dict[op.Operation, Handler]:
        """Return the handler of each operation. To add one: a line in ``operations`` and one here."""
        return {
            op.HEALTH: self._health,
            op.READY: self._ready,
            op.OPENAPI: Document("broker").answer,
            op.LEAGUE: self._dated(self._league),
            op.NODES: self._nodes,
            op.SUBMIT_JOBS: self._submit,
            op.LIST_JOBS: self._dated(self._jobs),
            op.PLAN: self._dated(self._plan),
            op.GET_JOB: self._dated(self._job),
            op.TASKS: self._dated(self._tasks),
            op.WHY: self._dated(self._why),
            op.DECISIONS: self._dated(self._decisions),
            op.WAIT: self._wait,
            op.CANCEL: self._cancel,
            op.EVENTS: self._watch,
            **self._enrolment.handlers(),
            **self.revocations.handlers(),
            **self._league_file.handlers(),
        }

    def _dated(self, handler: Handler) -> Handler:
        """Wrap a query that is also answered while the disk is full: with the age of the answer, or at once
        with 503 if the data cannot be read."""

        async def answer(call: Call) -> Response:
            try:
                response = await handler(call)
            except sqlite3.OperationalError:
                if not self._feed.full:
                    raise
                raise _no_room("the disk of this broker is full, and its read model cannot be read") from None
            if self._feed.full:
                response.headers[AGE_HEADER] = str(self._feed.age)
            return response

        return answer

    # --- health ---------------------------------------------------------------------------------------------

    async def _health(self, _: Call) -> Response:
        return json_answer(Health(ok=True))

    async def _ready(self, _: Call) -> Response:
        """Answer ready once every cluster was seen: only then can a job larger than the league be refused."""
        unseen = [
            entry.name
            for entry in self._host.league.serving_clusters
            if self._machine.view_state_of(entry.name).snapshot is None
        ]
        ready = not unseen and not self._shell.busy
        response = json_answer(Readiness(ready, tuple(unseen)), 200 if ready else 503)
        if not ready:
            response.headers["Retry-After"] = "1"
        return response

    # --- the league -----------------------------------------------------------------------------------------

    async def _league(self, _: Call) -> Response:
        totals = await self._feed.ask(self._feed.reads.counts)
        now = self._shell.clock.now()
        answer = league_answer(self._host.league, self._host.identity.name, self._machine, now, totals)
        return json_answer(msgspec.structs.replace(answer, **self.membership.told()))

    def _is_open(self, name: str) -> bool:
        """Return whether a cluster takes work, as far as this broker knows."""
        facts = cluster_facts(self._host.league, self._machine, self._shell.clock.now())
        return any(one.name == name and one.nodes and not one.draining for one in facts)

    def _cluster_now(self, name: str) -> ClusterAnswer:
        return cluster_answer(self._host.league.cluster(name), self._machine, self._shell.clock.now())

    def _until_silent(self) -> float | None:
        return until_silent(self._host.league, self._machine, self._shell.clock.now())

    async def _nodes(self, call: Call) -> Response:
        cluster, _, number = call.text("after").rpartition("/")
        behind = (cluster, int(number)) if number else None
        limit = _limit(call)
        return json_answer(
            nodes_answer(self._host.league, self._machine, call.text("cluster"), behind, limit)
        )

    async def _watch(self, call: Call) -> Response:
        wanted = Wanted(
            call.several("topics"),
            call.text("job"),
            call.text("tenant"),
            call.text("Last-Event-ID") or call.text("after"),
        )
        await self._feed.caught_up()  # old events must not be sent as new ones
        return EventStream(self._events.open(wanted))

    # --- submitting -----------------------------------------------------------------------------------------

    async def _submit(self, call: Call) -> Response:
        return json_answer(await self._submission.take(call))

    async def _cancel(self, call: Call) -> Response:
        job = self._named(call)
        self._owner_or_redirect(call, job, await self._detail(job))
        batch = Batch(1)
        number = self._requests.open(batch, 0)
        self._shell.take(CancelRequested(self._shell.clock.now(), call.client, number, job))
        try:
            await batch.wait(SUBMIT_SECONDS_MAX)
        finally:
            self._requests.drop([number], batch)
        answer = batch.answers[0]
        if answer is None:
            raise busy()
        if not isinstance(answer, JobAccepted):
            raise RefusedError(404, "not_found", answer.reason)
        return json_answer(CancelAnswer(call.text("job")))

    # --- questions ------------------------------------------------------------------------------------------

    async def _jobs(self, call: Call) -> Response:
        limit, reads = _limit(call), self._feed.reads
        rows = await self._feed.ask(
            lambda: reads.jobs(
                state=call.text("state") or None,
                tenant=call.text("tenant") or None,
                name=call.text("name") or None,
                limit=limit,
                after=call.text("after") or None,
            )
        )
        return json_answer(JobsAnswer(tuple(rows), rows[-1].cursor if len(rows) == limit else None))

    async def _job(self, call: Call) -> Response:
        job = self._named(call)
        return json_answer(shown_to(call.peer.role, self._owned(call, job, await self._detail(job))))

    async def _tasks(self, call: Call) -> Response:
        job = self._named(call)
        self._owned(call, job, await self._detail(job))
        limit, after, reads = _limit(call), call.optional("after"), self._feed.reads
        state = call.text("state") or None
        rows = await self._feed.ask(lambda: reads.tasks(job, state=state, limit=limit, after=after))
        return json_answer(TasksAnswer(tuple(rows), str(rows[-1].index) if len(rows) == limit else None))

    async def _why(self, call: Call) -> Response:
        job = self._named(call)
        detail = self._owned(call, job, await self._detail(job))
        reads = self._feed.reads
        decisions = await self._feed.ask(lambda: reads.decisions(job, DECISIONS_MAX))
        tasks = await self._feed.ask(lambda: reads.summary(job))
        facts = cluster_facts(self._host.league, self._machine, self._shell.clock.now())
        sentences = why(detail, tasks, decisions, facts, now=wall_now())
        return json_answer(WhyAnswer(tuple(sentences), tuple(decisions)))

    async def _decisions(self, call: Call) -> Response:
        job = self._named(call)
        self._owned(call, job, await self._detail(job))
        limit, after, reads = _limit(call), call.optional("after") or 0, self._feed.reads
        rows = await self._feed.ask(lambda: reads.decisions_after(job, after, limit))
        return json_answer(DecisionsAnswer(tuple(rows), str(rows[-1].serial) if len(rows) == limit else None))

    async def _wait(self, call: Call) -> Response:
        job = self._named(call)
        deadline = asyncio.get_running_loop().time() + call.number("timeout")
        while True:
            with self._feed.watching(job) as ended:
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0 or not self._machine.is_owner_of(job):  # else the job has not ended: no lookup
                    detail = self._owned(call, job, await self._detail(job))
                    if detail.row.state in ENDED or left <= 0:
                        return json_answer(detail.row)
                await asyncio.wait([ended], timeout=left)

    async def _plan(self, call: Call) -> Response:
        spec = parse_job_form(await body_of(call.request, Any))
        if isinstance(spec, tuple):
            refused = RefusedError(
                422, "bad_job", "; ".join(f"{problem.field}: {problem.rule}" for problem in spec)
            )
            refused.problems = flaws(spec)
            raise refused
        facts = cluster_facts(self._host.league, self._machine, self._shell.clock.now())
        return json_answer(await self._feed.ask(lambda: plan(spec, facts, self._feed.reads)))

    # --- whose job it is ------------------------------------------------------------------------------------

    def _named(self, call: Call) -> JobId:
        job = parse_job(call.text("job"))
        if job is None:
            raise self._no_job(call)
        return job

    def _no_job(self, call: Call) -> RefusedError:
        if self._feed.full:
            return _no_room(
                f"the disk of this broker is full: if job {call.text('job')} is new, it cannot be read yet"
            )
        return RefusedError(
            404, "not_found", f"there is no job {call.text('job')} here", "'hanse jobs' lists them"
        )

    async def _detail(self, job: JobId) -> JobDetail | None:
        return await self._feed.ask(lambda: self._feed.reads.job(job))

    def _owned(self, call: Call, job: JobId, detail: JobDetail | None) -> JobDetail:
        """Return the job, or redirect if another broker answers for it."""
        self._owner_or_redirect(call, job, detail)
        assert detail is not None
        return detail

    def _owner_or_redirect(self, call: Call, job: JobId, detail: JobDetail | None) -> None:
        """Redirect to the broker that answers for the job, if that is another one that was not asked
        before."""
        own, league = self._host.identity.name, self._host.league
        speaker = own
        if call.text("local") != "1":
            asked = [name for name in call.text("asked").split(",") if name]
            speaker = self._machine.find_answering_broker(job, asked)
            if not speaker and detail is not None and detail.row.owner not in asked:
                speaker = detail.row.owner  # the file keeps jobs longer than the machine
            if speaker not in (own, "") and self._machine.is_alive(speaker):
                url, path = call.request.url, ",".join([*asked, own])
                query = "&".join([*_without(url.query, "asked"), f"asked={quote(path)}"])
                location = f"https://{league.broker(speaker).door}{url.path}?{query}"
                raise ElsewhereError(BROKER_HEADER, speaker, location, "answers for this job")
        if detail is None:
            raise self._no_job(call)


def _no_room(message: str) -> RefusedError:
    return later(503, "disk_full", message, ROOM_SECONDS)


def _without(query: str, name: str) -> list[str]:
    """Return the parts of a query without one parameter."""
    return [part for part in query.split("&") if part and part.partition("=")[0] != name]


def _limit(call: Call) -> int:
    """Return the number of rows requested, and charge for them."""
    limit = call.number("limit")
    call.charge(limit // ROWS_PER_TOKEN)
    return limit
