"""A broker's door: jobs in, questions answered.

Questions about one job are answered by its owner. A broker that knows another, living owner sends the asker
there (307, with the owner's name in ``X-Hanse-Broker``); with ``?local=1`` it answers from its own replica.
"""

import asyncio
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hanse.core.broker import Broker
from hanse.live.clock import wall_now
from hanse.live.door.answers import (
    ANYBODY,
    BROKER_HEADER,
    SUBMIT,
    VIEW,
    ElsewhereError,
    RefusedError,
    body_of,
    guarded,
    json_answer,
    number_of,
)
from hanse.live.door.enrolment import Enrolment
from hanse.live.door.league_facts import cluster_facts, league_answer, nodes_answer
from hanse.live.door.planning import plan
from hanse.live.feed import Feed
from hanse.live.identity.identity import Identity
from hanse.live.league import League
from hanse.live.reads.rows import JobDetail
from hanse.live.reads.why import why
from hanse.live.requests import Batch, Requests
from hanse.live.shell import JournalledShell
from hanse.model.check import job_from_data
from hanse.model.commands import Accepted, Rejected
from hanse.model.events import CancelRequested, Submitted
from hanse.model.ids import JobId, broker_number, job_text, parse_job
from hanse.model.problem import Problem

JOBS_PER_REQUEST_MAX: Final = 10_000
JOBS_AT_ONCE_MAX: Final = 1_000
"""Jobs of one request that are on their way to the heir at the same time."""
SUBMIT_SECONDS_MAX: Final = 30.0
"""How long a submission waits to be safe with the heir before the client is told to ask again."""
WAIT_SECONDS_MAX: Final = 60
ROWS_MAX: Final = 1_000
DECISIONS_MAX: Final = 100
ENDED: Final = ("succeeded", "failed", "cancelled")


class Host(Protocol):
    """What a door needs of its daemon."""

    league: League
    identity: Identity
    counters: dict[str, int]

    def count(self, what: str) -> None:
        """Count an occurrence."""
        ...


class BrokerDoor:
    """The routes of one broker."""

    def __init__(
        self,
        host: Host,
        machine: Broker,
        shell: JournalledShell,
        feed: Feed,
        requests: Requests,
        enrolment: Enrolment,
    ) -> None:
        self._host = host
        self._machine = machine
        self._shell = shell
        self._feed = feed
        self._requests = requests
        self._enrolment = enrolment

    def application(self) -> Starlette:
        """The ASGI application. Whatever is not listed here does not exist."""
        count = self._host.count
        routes = [
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            Route("/v1/league", guarded(ANYBODY, self._league, count)),
            Route("/v1/nodes", guarded(VIEW, self._nodes, count)),
            Route("/v1/jobs", guarded(SUBMIT, self._submit, count), methods=["POST"]),
            Route("/v1/jobs", guarded(VIEW, self._jobs, count)),
            Route("/v1/plan", guarded(VIEW, self._plan, count), methods=["POST"]),
            Route("/v1/jobs/{job}", guarded(VIEW, self._job, count)),
            Route("/v1/jobs/{job}/tasks", guarded(VIEW, self._tasks, count)),
            Route("/v1/jobs/{job}/why", guarded(VIEW, self._why, count)),
            Route("/v1/jobs/{job}/wait", guarded(VIEW, self._wait, count)),
            Route("/v1/jobs/{job}/cancel", guarded(SUBMIT, self._cancel, count), methods=["POST"]),
            *self._enrolment.routes(),
        ]
        return Starlette(routes=routes)

    # --- health ---------------------------------------------------------------------------------------------

    async def _health(self, _: Request) -> Response:
        return json_answer({"ok": True})

    async def _ready(self, _: Request) -> Response:
        """Ready when every cluster has shown itself once, so that a job larger than the league is refused."""
        unseen = [
            entry.name
            for entry in self._host.league.clusters
            if self._machine.sight_of(entry.name).snapshot is None
        ]
        ready = not unseen and not self._shell.busy
        return json_answer({"ok": ready, "unseen": unseen}, 200 if ready else 503)

    # --- the league -----------------------------------------------------------------------------------------

    async def _league(self, _: Request, __: Identity) -> Response:
        totals = await self._feed.ask(self._feed.reads.counts)
        now = self._shell.clock.now()
        return json_answer(
            league_answer(self._host.league, self._host.identity.name, self._machine, now, totals)
        )

    async def _nodes(self, request: Request, _: Identity) -> Response:
        wanted = request.query_params.get("cluster", "")
        return json_answer(nodes_answer(self._host.league, self._machine, wanted))

    # --- submitting -----------------------------------------------------------------------------------------

    async def _submit(self, request: Request, peer: Identity) -> Response:
        if self._shell.busy or self._feed.busy or self._requests.full:
            raise RefusedError(503, "busy", "this broker is behind with its work", "try again in a moment")
        body = await body_of(request)
        jobs = body.get("jobs") if isinstance(body, dict) else None
        if not isinstance(jobs, list) or not 1 <= len(jobs) <= JOBS_PER_REQUEST_MAX:
            rule = f'the body is {{"jobs": [...]}} with 1 to {JOBS_PER_REQUEST_MAX} jobs'
            raise RefusedError(422, "bad_request", rule)
        results: list[dict[str, Any]] = []
        for at in range(0, len(jobs), JOBS_AT_ONCE_MAX):
            results += await self._take_jobs(jobs[at : at + JOBS_AT_ONCE_MAX], f"{peer.role}/{peer.name}")
        return json_answer({"results": results})

    async def _take_jobs(self, jobs: list[Any], client: str) -> list[dict[str, Any]]:
        """Hand some jobs in and wait until each is safe or refused."""
        results: list[dict[str, Any] | None] = [None] * len(jobs)
        batch = Batch(len(jobs))
        numbers: list[int] = []
        for index, data in enumerate(jobs):
            spec = job_from_data(data)
            if isinstance(spec, tuple):
                results[index] = {"problems": [_problem(problem) for problem in spec]}
                batch.settle(index, Rejected(client, 0, ""))
                continue
            number = self._requests.open(batch, index)
            numbers.append(number)
            self._shell.take(Submitted(self._shell.clock.now(), client, number, spec))
        if not await batch.wait(SUBMIT_SECONDS_MAX):
            self._requests.drop(numbers)
        return [result or _result(batch.answers[index]) for index, result in enumerate(results)]

    async def _cancel(self, request: Request, peer: Identity) -> Response:
        job = self._named(request)
        self._owner_or_redirect(request, job, await self._detail(job))
        batch = Batch(1)
        number = self._requests.open(batch, 0)
        client = f"{peer.role}/{peer.name}"
        self._shell.take(CancelRequested(self._shell.clock.now(), client, number, job))
        await batch.wait(SUBMIT_SECONDS_MAX)
        answer = batch.answers[0]
        if isinstance(answer, Accepted):
            return json_answer({"job": request.path_params["job"]})
        self._requests.drop([number])
        if answer is None:
            raise RefusedError(503, "busy", "this broker is behind with its work", "try again in a moment")
        raise RefusedError(404, "not_found", answer.reason)

    # --- questions ------------------------------------------------------------------------------------------

    async def _jobs(self, request: Request, _: Identity) -> Response:
        query = request.query_params
        limit = number_of(request, "limit", 50, 1, ROWS_MAX)
        reads = self._feed.reads
        rows = await self._feed.ask(
            lambda: reads.jobs(
                state=query.get("state") or None,
                tenant=query.get("tenant") or None,
                name=query.get("name") or None,
                limit=limit,
                after=query.get("after") or None,
            )
        )
        return json_answer({"jobs": rows, "next": rows[-1].cursor if len(rows) == limit else None})

    async def _job(self, request: Request, _: Identity) -> Response:
        job = self._named(request)
        return json_answer(self._owned(request, job, await self._detail(job)))

    async def _tasks(self, request: Request, _: Identity) -> Response:
        job = self._named(request)
        self._owned(request, job, await self._detail(job))
        limit = number_of(request, "limit", 100, 1, ROWS_MAX)
        after = number_of(request, "after", 0, 0, 1 << 40) if "after" in request.query_params else None
        state = request.query_params.get("state") or None
        reads = self._feed.reads
        rows = await self._feed.ask(lambda: reads.tasks(job, state=state, limit=limit, after=after))
        return json_answer({"tasks": rows, "next": str(rows[-1].index) if len(rows) == limit else None})

    async def _why(self, request: Request, _: Identity) -> Response:
        job = self._named(request)
        detail = self._owned(request, job, await self._detail(job))
        reads = self._feed.reads
        decisions = await self._feed.ask(lambda: reads.decisions(job, DECISIONS_MAX))
        tasks = await self._feed.ask(lambda: reads.summary(job))
        facts = cluster_facts(self._host.league, self._machine, self._shell.clock.now())
        sentences = why(detail, tasks, decisions, facts, now=wall_now())
        return json_answer({"sentences": sentences, "decisions": decisions})

    async def _wait(self, request: Request, _: Identity) -> Response:
        job = self._named(request)
        deadline = asyncio.get_running_loop().time() + number_of(request, "timeout", 30, 0, WAIT_SECONDS_MAX)
        while True:
            with self._feed.watching(job) as ended:
                detail = self._owned(request, job, await self._detail(job))
                left = deadline - asyncio.get_running_loop().time()
                if detail.row.state in ENDED or left <= 0:
                    return json_answer(detail.row)
                await asyncio.wait([ended], timeout=left)

    async def _plan(self, request: Request, _: Identity) -> Response:
        spec = job_from_data(await body_of(request))
        if isinstance(spec, tuple):
            raise RefusedError(
                422, "bad_job", "; ".join(f"{problem.field}: {problem.rule}" for problem in spec)
            )
        facts = cluster_facts(self._host.league, self._machine, self._shell.clock.now())
        return json_answer(await self._feed.ask(lambda: plan(spec, facts, self._feed.reads)))

    # --- whose job it is ------------------------------------------------------------------------------------

    def _named(self, request: Request) -> JobId:
        text = request.path_params["job"]
        job = parse_job(text)
        if job is None:
            raise RefusedError(422, "bad_job_id", f"{text!r} is no job; one looks like 1-7")
        return job

    async def _detail(self, job: JobId) -> JobDetail | None:
        return await self._feed.ask(lambda: self._feed.reads.job(job))

    def _owned(self, request: Request, job: JobId, detail: JobDetail | None) -> JobDetail:
        """The job, if it is for this broker to speak of it."""
        self._owner_or_redirect(request, job, detail)
        assert detail is not None
        return detail

    def _owner_or_redirect(self, request: Request, job: JobId, detail: JobDetail | None) -> None:
        own = self._host.identity.name
        local = request.query_params.get("local") == "1"
        league = self._host.league
        if detail is not None:
            owner = detail.row.owner
            if owner == own or local or not self._machine.alive(owner):
                return
        else:
            number = broker_number(job)
            owner = league.brokers[number - 1].name if number <= len(league.brokers) else ""
            if local or owner in (own, "") or not self._machine.alive(owner):
                text = request.path_params["job"]
                raise RefusedError(
                    404, "not_found", f"there is no job {text} here", "'hanse jobs' lists them"
                )
        location = f"https://{league.broker(owner).door}{request.url.path}?{request.url.query}"
        raise ElsewhereError(BROKER_HEADER, owner, location, "speaks for this job")


def _problem(problem: Problem) -> dict[str, str]:
    return {"field": problem.field, "rule": problem.rule}


def _result(answer: Accepted | Rejected | None) -> dict[str, Any]:
    if answer is None:
        return {
            "refused": "the job is not yet safe with a second broker; submit it again with the same "
            "client id",
            "unsure": True,
        }
    if isinstance(answer, Rejected):
        return {"refused": answer.reason}
    return {"job": job_text(answer.job)}
