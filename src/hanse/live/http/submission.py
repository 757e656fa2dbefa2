"""The submission of jobs at a broker: check all, submit all or none, answer when each is safe."""

import asyncio
import hashlib
from collections import deque
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from hanse.api.records import JOBS_PER_REQUEST_MAX, Flaw, SubmitAnswer, SubmitResult
from hanse.live.disk_space import DiskSpace
from hanse.live.http.auth_middleware import Call
from hanse.live.http.responses import RefusedError, body_of, busy, later
from hanse.live.pending_requests import Batch, Requests
from hanse.live.readmodel.feeder import Feed
from hanse.live.shell import JournalledShell
from hanse.live.telemetry.trace_context import traced
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.events import JobSubmitted
from hanse.model.ids import job_text
from hanse.model.job import JobSpec
from hanse.model.job_parser import parse_job_form
from hanse.model.problem import Problem

LUMP_JOBS: Final = 100
"""Jobs of one request that are submitted before other requests get their turn."""
LUMPS_AT_ONCE_MAX: Final = 20
"""Chunks of one request that are on their way to the standby at the same time: while the disks write them,
this broker submits the next one."""
JOBS_CHECKED_AT_ONCE: Final = 50
"""Jobs that are parsed before other requests get their turn."""
JOBS_PER_TOKEN: Final = 20
"""Jobs that cost as much as one request."""
ROOM_SECONDS: Final = 10
"""Seconds after which to retry at a broker whose disk is nearly full."""
SUBMIT_SECONDS_MAX: Final = 30.0
"""Seconds that a submission waits to be safe with the standby before the client is told to ask again."""
KEY_HEADER: Final = "Idempotency-Key"
_NOT_SUBMITTED: Final = "not submitted: other jobs of the request have problems"
_UNSURE: Final = "the job is not yet safe with a second broker; submit it again with the same client id"


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``records.SubmitRequest`` with undecoded jobs: ``parse_job_form`` describes problems better."""

    jobs: Annotated[list[Any], Meta(min_length=1, max_length=JOBS_PER_REQUEST_MAX)]


class _Lump(NamedTuple):
    """Some jobs of a request, on their way."""

    batch: Batch
    numbers: list[int]
    deadline: float
    """Time until which the chunk is waited for, on the loop's clock."""


class Submission:
    """The submission of jobs to one broker."""

    def __init__(self, shell: JournalledShell, feed: Feed, requests: Requests, space: DiskSpace) -> None:
        self._shell = shell
        self._space = space
        self._feed = feed
        self._requests = requests

    async def take(self, call: Call) -> SubmitAnswer:
        """Submit the jobs of a request; raise a refusal if any is invalid."""
        if self._shell.disk_full or self._space.is_low():
            raise later(
                503,
                "disk_full",
                "the disk of this broker is nearly full: it takes no new jobs, and continues with the others",
                ROOM_SECONDS,
            )
        if self._shell.busy or self._feed.busy or self._requests.full:
            raise busy()
        form = await body_of(call.request, _Form)
        call.charge(len(form.jobs) / JOBS_PER_TOKEN)
        jobs = traced(call.request.headers, form.jobs)
        specs = await _checked(_keyed(jobs, call))
        return SubmitAnswer(tuple(await self._hand_in(specs, call.client)))

    async def _hand_in(self, specs: list[JobSpec], client: str) -> list[SubmitResult]:
        """Submit jobs, some at a time, and wait until each is safe or refused."""
        results: list[SubmitResult] = []
        lumps: deque[_Lump] = deque()
        try:
            for at in range(0, len(specs), LUMP_JOBS):
                if len(lumps) == LUMPS_AT_ONCE_MAX:
                    results += await self._answers(lumps)
                elif lumps:
                    await asyncio.sleep(0)  # the last chunk goes to the disk now
                lumps.append(self._begin(specs[at : at + LUMP_JOBS], client))
            while lumps:
                results += await self._answers(lumps)
        finally:
            for lump in lumps:
                self._requests.drop(lump.numbers, lump.batch)
        return results

    def _begin(self, specs: list[JobSpec], client: str) -> "_Lump":
        batch = Batch(len(specs))
        numbers: list[int] = []
        for index, spec in enumerate(specs):
            number = self._requests.share(batch, index, spec.client_id) if spec.client_id else None
            if number is None:
                number = self._requests.open(batch, index, spec.client_id)
                self._shell.take(JobSubmitted(self._shell.clock.now(), client, number, spec))
            numbers.append(number)
        return _Lump(batch, numbers, asyncio.get_running_loop().time() + SUBMIT_SECONDS_MAX)

    async def _answers(self, lumps: deque[_Lump]) -> list[SubmitResult]:
        """Wait for the oldest chunk, remove it, and return its results."""
        first = lumps[0]
        await first.batch.wait(max(first.deadline - asyncio.get_running_loop().time(), 0.0))
        self._requests.drop(first.numbers, first.batch)
        lumps.popleft()
        return [_result(answer) for answer in first.batch.answers]


def _keyed(jobs: list[Any], call: Call) -> list[Any]:
    """Return the jobs, each with a client id if it has none and the request has a key: made of the key, of
    the client (two people may use one key) and of the job's index in the request."""
    key = call.text(KEY_HEADER)
    if not key:
        return jobs
    mark = hashlib.sha256(f"{call.peer.uri}\n{key}".encode()).hexdigest()[:32]
    return [
        {**job, "client_id": f"key-{mark}-{index}"}
        if isinstance(job, dict) and job.get("client_id") in (None, "")
        else job
        for index, job in enumerate(jobs)
    ]


async def _checked(jobs: list[Any]) -> list[JobSpec]:
    """Return the jobs as records; raise 422 with the problems if any job is invalid."""
    found: list[JobSpec | tuple[Problem, ...]] = []
    for index, data in enumerate(jobs):
        if index % JOBS_CHECKED_AT_ONCE == JOBS_CHECKED_AT_ONCE - 1:
            await asyncio.sleep(0)  # thousands take a second: let others run in between
        found.append(parse_job_form(data))
    bad = [index for index, spec in enumerate(found) if isinstance(spec, tuple)]
    if bad:
        refused = RefusedError(
            422, "bad_jobs", _bad_jobs(bad, len(found)), "correct the fields in 'results' and submit again"
        )
        refused.results = tuple(_flawed(spec) for spec in found)
        raise refused
    return [spec for spec in found if isinstance(spec, JobSpec)]


def _bad_jobs(bad: list[int], count: int) -> str:
    if count == 1:
        return "invalid job specification; nothing was submitted"
    which = f"{len(bad)} of {count} jobs (the first is number {bad[0]})"
    return f"{which} are invalid; nothing was submitted"


def _flawed(spec: JobSpec | tuple[Problem, ...]) -> SubmitResult:
    if isinstance(spec, JobSpec):
        return SubmitResult(refused=_NOT_SUBMITTED)
    return SubmitResult(problems=flaws(spec))


def flaws(problems: tuple[Problem, ...]) -> tuple[Flaw, ...]:
    """Return the problems of a job in the form of the HTTP interface."""
    return tuple(Flaw(problem.field, problem.rule) for problem in problems)


def _result(answer: JobAccepted | RequestRejected | None) -> SubmitResult:
    if answer is None:
        return SubmitResult(refused=_UNSURE, unsure=True)
    if isinstance(answer, RequestRejected):
        return SubmitResult(refused=answer.reason)
    return SubmitResult(job=job_text(answer.job))
