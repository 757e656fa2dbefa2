"""Submission of jobs: at most one broker takes each, although brokers may fail without an answer."""

from typing import Final

import msgspec

from hanse.api.records import SubmitAnswer, SubmitResult
from hanse.client.endpoints import BUSY, Endpoints, decode_refused_results, decode_reply, refusal_error
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.job_listing import JobFilter, list_jobs_at
from hanse.client.transport import HttpReply, NoAnswerError

JOBS_PER_REQUEST: Final = 1_000
SUBMIT_SECONDS_MAX: Final = 45.0
"""Time limit of a submission. A broker answers within 30 s, if only that it is unsure."""
RESUBMITS_MAX: Final = 2
"""Repetitions of a submission for which the broker was unsure."""
LOST_SEARCH_ROWS: Final = 200
"""Newest jobs of a broker to search for a submission that was not answered."""


def submit_jobs(endpoints: Endpoints, jobs: list[dict[str, object]]) -> list[SubmitResult]:
    """Submit jobs in the form of ``model.job_parser``, each with a ``client_id``; return all results."""
    assert all(job.get("client_id") for job in jobs), "only a job with a client id may be repeated"
    results: list[SubmitResult] = []
    for first in range(0, len(jobs), JOBS_PER_REQUEST):
        results += _submit_request(endpoints, jobs[first : first + JOBS_PER_REQUEST])
    return results


def _submit_request(endpoints: Endpoints, jobs: list[dict[str, object]]) -> list[SubmitResult]:
    """Submit the jobs of one request. A job for which a broker was unsure goes to no other broker."""
    results: dict[int, SubmitResult] = {}
    silent: dict[str, str] = {}
    sent = False
    busy: HttpReply | None = None
    for name in endpoints.iterate_brokers():
        try:
            busy = _submit_at(endpoints, name, jobs, results) or busy
        except NoAnswerError as error:
            silent[name] = str(error)
            if error.sent:  # it may have taken them: a second broker must not take them again
                sent = True
                _find_lost(endpoints, jobs, results, name)
        if len(results) == len(jobs):
            return [results[index] for index in range(len(jobs))]
    if sent:
        raise CommandError(
            f"{', '.join(silent)} did not confirm whether the league has the job",
            ExitCode.UNSURE,
            "look for it with 'hanse jobs', or submit it again with the same --client-id: "
            f"{jobs[0]['client_id']}",
        )
    if busy is not None:
        raise refusal_error(busy)
    raise endpoints.unreachable_error(silent)


def _submit_at(
    endpoints: Endpoints, name: str, jobs: list[dict[str, object]], results: dict[int, SubmitResult]
) -> HttpReply | None:
    """Submit the unsettled jobs to one broker; return its reply if it is busy."""
    for _ in range(1 + RESUBMITS_MAX):
        left = [index for index in range(len(jobs)) if _is_unsettled(results.get(index))]
        if not left:
            break
        body = msgspec.json.encode({"jobs": [jobs[index] for index in left]})
        reply = endpoints.broker(name).request("POST", "/v1/jobs", body, SUBMIT_SECONDS_MAX)
        if reply.status in BUSY:
            return reply
        answer = _decode_submit(reply)
        assert len(answer.results) == len(left), f"{len(answer.results)} results of {len(left)} jobs"
        results.update(zip(left, answer.results, strict=True))
        endpoints.remember_broker(name)
    return None


def _find_lost(
    endpoints: Endpoints, jobs: list[dict[str, object]], results: dict[int, SubmitResult], silent: str
) -> None:
    """Search other brokers' copies for jobs whose submission was not answered.

    A broker replicates a job before it confirms it; this shows whether the broker got that far.
    """
    lost = {
        str(job["client_id"]): index for index, job in enumerate(jobs) if _is_unsettled(results.get(index))
    }
    for name in endpoints.broker_order():
        if name == silent:
            continue
        try:
            rows, _ = list_jobs_at(endpoints, name, JobFilter(), "", LOST_SEARCH_ROWS)
        except NoAnswerError:
            continue
        for row in rows:
            if row.client_id in lost:
                results[lost[row.client_id]] = SubmitResult(job=row.id)


def _decode_submit(reply: HttpReply) -> SubmitAnswer:
    """Decode the result of each job, also if the whole request was refused because some are invalid."""
    if reply.status == 422:
        results = decode_refused_results(reply)
        if results:
            return SubmitAnswer(results)
    return decode_reply(reply, SubmitAnswer)


def _is_unsettled(result: SubmitResult | None) -> bool:
    return result is None or result.unsure
