"""The submission of jobs at a broker: check all, submit all or none, answer when each is safe."""

import asyncio
import hashlib
from collections import deque
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from hanse.api.records import JOBS_PER_REQUEST_MAX, Flaw, SubmitAnswer, SubmitResult
from hanse.live.disk_space import DiskSpaceCheck
from hanse.live.http.admitted_request import AdmittedRequest
from hanse.live.http.responses import RefusedError, busy_error, read_body, retry_later
from hanse.live.pending_requests import PendingRequests, RequestBatch
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.shell import JournalledShell
from hanse.live.telemetry.trace_context import add_trace
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.events import JobSubmitted
from hanse.model.ids import job_text
from hanse.model.job import JobSpec
from hanse.model.job_parser import parse_job_form
from hanse.model.problem import Problem

CHUNK_JOBS: Final = 100
"""Jobs of one request that are submitted before other requests get their turn."""
CHUNKS_IN_FLIGHT_MAX: Final = 20
"""Chunks of one request that are on their way to the standby at the same time: while the disks write them,
this broker submits the next one."""
JOBS_PARSED_PER_YIELD: Final = 50
"""Jobs that are parsed before other requests get their turn."""
JOBS_PER_TOKEN: Final = 20
"""Jobs that cost as much as one request."""
DISK_FULL_RETRY_SECONDS: Final = 10
"""Seconds after which to retry at a broker whose disk is nearly full."""
SUBMIT_SECONDS_MAX: Final = 30.0
"""Seconds that a submission waits to be safe with the standby before the client is told to ask again."""
KEY_HEADER: Final = "Idempotency-Key"
_NOT_SUBMITTED: Final = "not submitted: other jobs of the request have problems"
_UNSURE: Final = "the job is not yet safe with a second broker; submit it again with the same client id"


class _RawSubmitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``SubmitRequest`` of ``api.job_schemas`` with undecoded jobs: ``parse_job_form`` describes problems
    better."""

    jobs: Annotated[list[Any], Meta(min_length=1, max_length=JOBS_PER_REQUEST_MAX)]


class _Chunk(NamedTuple):
    """Some jobs of a request, on their way."""

    batch: RequestBatch
    numbers: list[int]
    deadline: float
    """Time until which the chunk is waited for, on the loop's clock."""


class SubmissionHandler:
    """The submission of jobs to one broker."""

    def __init__(
        self,
        shell: JournalledShell,
        feeder: ReadModelFeeder,
        requests: PendingRequests,
        space: DiskSpaceCheck,
    ) -> None:
        self._shell = shell
        self._space = space
        self._feeder = feeder
        self._requests = requests

    async def submit(self, call: AdmittedRequest) -> SubmitAnswer:
        """Submit the jobs of a request; raise a refusal if any is invalid."""
        if self._shell.disk_full or self._space.is_low():
            raise retry_later(
                503,
                "disk_full",
                "the disk of this broker is nearly full: it takes no new jobs, and continues with the others",
                DISK_FULL_RETRY_SECONDS,
            )
        if self._shell.is_busy or self._feeder.is_busy or self._requests.is_full:
            raise busy_error()
        body = await read_body(call.request, _RawSubmitRequest)
        call.charge(len(body.jobs) / JOBS_PER_TOKEN)
        jobs = add_trace(call.request.headers, body.jobs)
        specs = await _parse_jobs(_with_client_ids(jobs, call))
        return SubmitAnswer(tuple(await self._submit_specs(specs, call.client)))

    async def _submit_specs(self, specs: list[JobSpec], client: str) -> list[SubmitResult]:
        """Submit jobs, some at a time, and wait until each is safe or refused."""
        results: list[SubmitResult] = []
        chunks: deque[_Chunk] = deque()
        try:
            for at in range(0, len(specs), CHUNK_JOBS):
                if len(chunks) == CHUNKS_IN_FLIGHT_MAX:
                    results += await self._await_oldest(chunks)
                elif chunks:
                    await asyncio.sleep(0)  # the last chunk goes to the disk now
                chunks.append(self._submit_chunk(specs[at : at + CHUNK_JOBS], client))
            while chunks:
                results += await self._await_oldest(chunks)
        finally:
            for chunk in chunks:
                self._requests.drop(chunk.numbers, chunk.batch)
        return results

    def _submit_chunk(self, specs: list[JobSpec], client: str) -> "_Chunk":
        batch = RequestBatch(len(specs))
        numbers: list[int] = []
        for index, spec in enumerate(specs):
            number = self._requests.join(batch, index, spec.client_id) if spec.client_id else None
            if number is None:
                number = self._requests.open(batch, index, spec.client_id)
                self._shell.handle(JobSubmitted(self._shell.clock.now(), client, number, spec))
            numbers.append(number)
        return _Chunk(batch, numbers, asyncio.get_running_loop().time() + SUBMIT_SECONDS_MAX)

    async def _await_oldest(self, chunks: deque[_Chunk]) -> list[SubmitResult]:
        """Wait for the oldest chunk, remove it, and return its results."""
        first = chunks[0]
        await first.batch.wait(max(first.deadline - asyncio.get_running_loop().time(), 0.0))
        self._requests.drop(first.numbers, first.batch)
        chunks.popleft()
        return [_result(answer) for answer in first.batch.replies]


def _with_client_ids(jobs: list[Any], call: AdmittedRequest) -> list[Any]:
    """Return the jobs, each with a client id if it has none and the request has a key: made of the key, of
    the client (two people may use one key) and of the job's index in the request."""
    key = call.text(KEY_HEADER)
    if not key:
        return jobs
    digest = hashlib.sha256(f"{call.peer.uri}\n{key}".encode()).hexdigest()[:32]
    return [
        {**job, "client_id": f"key-{digest}-{index}"}
        if isinstance(job, dict) and job.get("client_id") in (None, "")
        else job
        for index, job in enumerate(jobs)
    ]


async def _parse_jobs(jobs: list[Any]) -> list[JobSpec]:
    """Return the jobs as records; raise 422 with the problems if any job is invalid."""
    parsed: list[JobSpec | tuple[Problem, ...]] = []
    for index, data in enumerate(jobs):
        if index % JOBS_PARSED_PER_YIELD == JOBS_PARSED_PER_YIELD - 1:
            await asyncio.sleep(0)  # thousands take a second: let others run in between
        parsed.append(parse_job_form(data))
    bad = [index for index, spec in enumerate(parsed) if isinstance(spec, tuple)]
    if bad:
        refused = RefusedError(
            422,
            "bad_jobs",
            _bad_jobs_message(bad, len(parsed)),
            "correct the fields in 'results' and submit again",
        )
        refused.results = tuple(_flawed_result(spec) for spec in parsed)
        raise refused
    return [spec for spec in parsed if isinstance(spec, JobSpec)]


def _bad_jobs_message(bad: list[int], count: int) -> str:
    if count == 1:
        return "invalid job specification; nothing was submitted"
    failing = f"{len(bad)} of {count} jobs (the first is number {bad[0]})"
    return f"{failing} are invalid; nothing was submitted"


def _flawed_result(spec: JobSpec | tuple[Problem, ...]) -> SubmitResult:
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
