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
from hanse.api.redaction import redact
from hanse.api.row_records import JobDetail
from hanse.core.broker.broker import Broker
from hanse.live.disk_space import DiskSpaceCheck
from hanse.live.http import operation_table as op
from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.application import ApiApplication, DaemonContext, OpenApiDocument
from hanse.live.http.cluster_status_stream import ClusterStatusTracker
from hanse.live.http.enrollment_api import EnrollmentApi
from hanse.live.http.event_stream import EventBroadcaster, EventStream, Subscription
from hanse.live.http.job_plan import plan
from hanse.live.http.league_file_api import LeagueFileApi
from hanse.live.http.league_status import (
    cluster_answer,
    cluster_facts,
    league_answer,
    nodes_answer,
    seconds_until_silent,
)
from hanse.live.http.operation_record import Operation
from hanse.live.http.responses import (
    BROKER_HEADER,
    RedirectError,
    RefusedError,
    busy_error,
    json_answer,
    read_body,
    retry_later,
)
from hanse.live.http.revocation_sync import RevocationSync
from hanse.live.http.submission import DISK_FULL_RETRY_SECONDS, SUBMIT_SECONDS_MAX, SubmissionHandler, flaws
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.pending_requests import PendingRequests, RequestBatch
from hanse.live.readmodel.explanation import explain
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.shell import JournalledShell
from hanse.model.effects import JobAccepted
from hanse.model.events import CancelRequested
from hanse.model.ids import JobId, parse_job
from hanse.model.job_parser import parse_job_form
from hanse.security.wall_time import wall_now

DECISIONS_MAX: Final = 100
FINAL_STATES: Final = ("succeeded", "failed", "cancelled")
AGE_HEADER: Final = "Age"
"""Age of the answer in seconds, as in HTTP; sent only while the disk is full, else the answer is current."""
ROWS_PER_TOKEN: Final = 100
"""Rows of a list that cost as much as one request."""


class BrokerApi:
    """The operations of one broker."""

    def __init__(
        self,
        daemon: DaemonContext,
        machine: Broker,
        shell: JournalledShell,
        feeder: ReadModelFeeder,
        requests: PendingRequests,
        enrollment: EnrollmentApi,
        membership: LeagueFileSync,
    ) -> None:
        self._daemon = daemon
        self._machine = machine
        self._shell = shell
        self._feeder = feeder
        self._requests = requests
        self._enrollment = enrollment
        self._submission = SubmissionHandler(
            shell, feeder, requests, DiskSpaceCheck(daemon.home / daemon.identity.name)
        )
        self.revocations = RevocationSync(daemon)
        self.membership = membership
        self._league_file = LeagueFileApi(membership, self._is_open)
        self.auth = self.revocations.create_auth()
        self.auth.file_version = daemon.league.version
        self._events: EventBroadcaster

    def application(self) -> ApiApplication:
        """Return the ASGI application."""
        names = tuple(entry.name for entry in self._daemon.league.serving_clusters)
        clusters = ClusterStatusTracker(names, self._cluster_status, self._seconds_until_silent)
        self._events = EventBroadcaster(self._daemon.identity.name, self._feeder, clusters, self._daemon.fail)
        routes: list[BaseRoute] = [*self.auth.routes(op.BROKER, self.handlers())]
        return ApiApplication(self.auth, routes)

    def handlers(self) -> dict[Operation, Handler]:
        """Return the handler of each operation. To add one: a line in ``operation_table`` and one here."""
        return {
            op.HEALTH: self._health,
            op.READY: self._ready,
            op.OPENAPI: OpenApiDocument("broker").answer,
            op.LEAGUE: self._with_age(self._league),
            op.NODES: self._nodes,
            op.SUBMIT_JOBS: self._submit,
            op.LIST_JOBS: self._with_age(self._jobs),
            op.PLAN: self._with_age(self._plan),
            op.GET_JOB: self._with_age(self._job),
            op.TASKS: self._with_age(self._tasks),
            op.WHY: self._with_age(self._why),
            op.DECISIONS: self._with_age(self._decisions),
            op.WAIT: self._wait,
            op.CANCEL: self._cancel,
            op.EVENTS: self._watch,
            **self._enrollment.handlers(),
            **self.revocations.handlers(),
            **self._league_file.handlers(),
        }

    def _with_age(self, handler: Handler) -> Handler:
        """Wrap a query that is also answered while the disk is full: with the age of the answer, or at once
        with 503 if the data cannot be read."""

        async def answer(call: AdmittedRequest) -> Response:
            try:
                response = await handler(call)
            except sqlite3.OperationalError:
                if not self._feeder.disk_full:
                    raise
                raise _disk_full(
                    "the disk of this broker is full, and its read model cannot be read"
                ) from None
            if self._feeder.disk_full:
                response.headers[AGE_HEADER] = str(self._feeder.age)
            return response

        return answer

    # --- health ---------------------------------------------------------------------------------------------

    async def _health(self, _: AdmittedRequest) -> Response:
        return json_answer(Health(ok=True))

    async def _ready(self, _: AdmittedRequest) -> Response:
        """Answer ready once every cluster was seen: only then can a job larger than the league be refused."""
        unseen = [
            entry.name
            for entry in self._daemon.league.serving_clusters
            if self._machine.view_state_of(entry.name).snapshot is None
        ]
        ready = not unseen and not self._shell.is_busy
        response = json_answer(Readiness(ready, tuple(unseen)), 200 if ready else 503)
        if not ready:
            response.headers["Retry-After"] = "1"
        return response

    # --- the league -----------------------------------------------------------------------------------------

    async def _league(self, _: AdmittedRequest) -> Response:
        totals = await self._feeder.query(self._feeder.read_model.tenant_totals)
        now = self._shell.clock.now()
        answer = league_answer(self._daemon.league, self._daemon.identity.name, self._machine, now, totals)
        return json_answer(msgspec.structs.replace(answer, **self.membership.summary()))

    def _is_open(self, name: str) -> bool:
        """Return whether a cluster takes work, as far as this broker knows."""
        facts = cluster_facts(self._daemon.league, self._machine, self._shell.clock.now())
        return any(one.name == name and one.nodes and not one.draining for one in facts)

    def _cluster_status(self, name: str) -> ClusterAnswer:
        return cluster_answer(self._daemon.league.cluster(name), self._machine, self._shell.clock.now())

    def _seconds_until_silent(self) -> float | None:
        return seconds_until_silent(self._daemon.league, self._machine, self._shell.clock.now())

    async def _nodes(self, call: AdmittedRequest) -> Response:
        cluster, _, number = call.text("after").rpartition("/")
        after = (cluster, int(number)) if number else None
        limit = _paid_limit(call)
        return json_answer(
            nodes_answer(self._daemon.league, self._machine, call.text("cluster"), after, limit)
        )

    async def _watch(self, call: AdmittedRequest) -> Response:
        subscription = Subscription(
            call.texts("topics"),
            call.text("job"),
            call.text("tenant"),
            call.text("Last-Event-ID") or call.text("after"),
        )
        await self._feeder.wait_until_caught_up()  # old events must not be sent as new ones
        return EventStream(self._events.open(subscription))

    # --- submitting -----------------------------------------------------------------------------------------

    async def _submit(self, call: AdmittedRequest) -> Response:
        return json_answer(await self._submission.submit(call))

    async def _cancel(self, call: AdmittedRequest) -> Response:
        job = self._job_id(call)
        self._redirect_to_owner(call, job, await self._detail(job))
        batch = RequestBatch(1)
        number = self._requests.open(batch, 0)
        self._shell.handle(CancelRequested(self._shell.clock.now(), call.client, number, job))
        try:
            await batch.wait(SUBMIT_SECONDS_MAX)
        finally:
            self._requests.drop([number], batch)
        answer = batch.replies[0]
        if answer is None:
            raise busy_error()
        if not isinstance(answer, JobAccepted):
            raise RefusedError(404, "not_found", answer.reason)
        return json_answer(CancelAnswer(call.text("job")))

    # --- questions ------------------------------------------------------------------------------------------

    async def _jobs(self, call: AdmittedRequest) -> Response:
        limit, read_model = _paid_limit(call), self._feeder.read_model
        rows = await self._feeder.query(
            lambda: read_model.jobs(
                state=call.text("state") or None,
                tenant=call.text("tenant") or None,
                name=call.text("name") or None,
                limit=limit,
                after=call.text("after") or None,
            )
        )
        return json_answer(JobsAnswer(tuple(rows), rows[-1].cursor if len(rows) == limit else None))

    async def _job(self, call: AdmittedRequest) -> Response:
        job = self._job_id(call)
        return json_answer(redact(call.peer.role, self._detail_as_owner(call, job, await self._detail(job))))

    async def _tasks(self, call: AdmittedRequest) -> Response:
        job = self._job_id(call)
        self._detail_as_owner(call, job, await self._detail(job))
        limit, after, read_model = _paid_limit(call), call.optional_number("after"), self._feeder.read_model
        state = call.text("state") or None
        rows = await self._feeder.query(lambda: read_model.tasks(job, state=state, limit=limit, after=after))
        return json_answer(TasksAnswer(tuple(rows), str(rows[-1].index) if len(rows) == limit else None))

    async def _why(self, call: AdmittedRequest) -> Response:
        job = self._job_id(call)
        detail = self._detail_as_owner(call, job, await self._detail(job))
        read_model = self._feeder.read_model
        decisions = await self._feeder.query(lambda: read_model.decisions(job, DECISIONS_MAX))
        tasks = await self._feeder.query(lambda: read_model.task_summary(job))
        facts = cluster_facts(self._daemon.league, self._machine, self._shell.clock.now())
        sentences = explain(detail, tasks, decisions, facts, now=wall_now())
        return json_answer(WhyAnswer(tuple(sentences), tuple(decisions)))

    async def _decisions(self, call: AdmittedRequest) -> Response:
        job = self._job_id(call)
        self._detail_as_owner(call, job, await self._detail(job))
        limit, after, read_model = (
            _paid_limit(call),
            call.optional_number("after") or 0,
            self._feeder.read_model,
        )
        rows = await self._feeder.query(lambda: read_model.decisions_after(job, after, limit))
        return json_answer(DecisionsAnswer(tuple(rows), str(rows[-1].serial) if len(rows) == limit else None))

    async def _wait(self, call: AdmittedRequest) -> Response:
        job = self._job_id(call)
        deadline = asyncio.get_running_loop().time() + call.number("timeout")
        while True:
            with self._feeder.watch_job(job) as ended:
                remaining = deadline - asyncio.get_running_loop().time()
                if remaining <= 0 or not self._machine.is_owner_of(
                    job
                ):  # else the job has not ended: no lookup
                    detail = self._detail_as_owner(call, job, await self._detail(job))
                    if detail.row.state in FINAL_STATES or remaining <= 0:
                        return json_answer(detail.row)
                await asyncio.wait([ended], timeout=remaining)

    async def _plan(self, call: AdmittedRequest) -> Response:
        spec = parse_job_form(await read_body(call.request, Any))
        if isinstance(spec, tuple):
            refused = RefusedError(
                422, "bad_job", "; ".join(f"{problem.field}: {problem.rule}" for problem in spec)
            )
            refused.problems = flaws(spec)
            raise refused
        facts = cluster_facts(self._daemon.league, self._machine, self._shell.clock.now())
        return json_answer(await self._feeder.query(lambda: plan(spec, facts, self._feeder.read_model)))

    # --- whose job it is ------------------------------------------------------------------------------------

    def _job_id(self, call: AdmittedRequest) -> JobId:
        job = parse_job(call.text("job"))
        if job is None:
            raise self._no_job(call)
        return job

    def _no_job(self, call: AdmittedRequest) -> RefusedError:
        if self._feeder.disk_full:
            return _disk_full(
                f"the disk of this broker is full: if job {call.text('job')} is new, it cannot be read yet"
            )
        return RefusedError(
            404, "not_found", f"there is no job {call.text('job')} here", "'hanse jobs' lists them"
        )

    async def _detail(self, job: JobId) -> JobDetail | None:
        return await self._feeder.query(lambda: self._feeder.read_model.job(job))

    def _detail_as_owner(self, call: AdmittedRequest, job: JobId, detail: JobDetail | None) -> JobDetail:
        """Return the job, or redirect if another broker answers for it."""
        self._redirect_to_owner(call, job, detail)
        assert detail is not None
        return detail

    def _redirect_to_owner(self, call: AdmittedRequest, job: JobId, detail: JobDetail | None) -> None:
        """Redirect to the broker that answers for the job, if that is another one that was not asked
        before."""
        own, league = self._daemon.identity.name, self._daemon.league
        answering = own
        if call.text("local") != "1":
            asked_brokers = [name for name in call.text("asked").split(",") if name]
            answering = self._machine.find_answering_broker(job, asked_brokers)
            if not answering and detail is not None and detail.row.owner not in asked_brokers:
                answering = detail.row.owner  # the file keeps jobs longer than the machine
            if answering not in (own, "") and self._machine.is_alive(answering):
                url, path = call.request.url, ",".join([*asked_brokers, own])
                query = "&".join([*_query_without(url.query, "asked"), f"asked={quote(path)}"])
                location = f"https://{league.broker(answering).door}{url.path}?{query}"
                raise RedirectError(BROKER_HEADER, answering, location, "answers for this job")
        if detail is None:
            raise self._no_job(call)


def _disk_full(message: str) -> RefusedError:
    return retry_later(503, "disk_full", message, DISK_FULL_RETRY_SECONDS)


def _query_without(query: str, name: str) -> list[str]:
    """Return the parts of a query without one parameter."""
    return [part for part in query.split("&") if part and part.partition("=")[0] != name]


def _paid_limit(call: AdmittedRequest) -> int:
    """Return the number of rows requested, and charge for them."""
    limit = call.number("limit")
    call.charge(limit // ROWS_PER_TOKEN)
    return limit
