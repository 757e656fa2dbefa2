"""Requests about one job: they go to the broker that owns it, or to brokers with a copy of it."""

from typing import NamedTuple
from urllib.parse import quote, urlsplit

from hanse.client.endpoints import BUSY, OWNER_HEADER, REDIRECTS_MAX, Endpoints, refusal_error
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.transport import HttpReply, MemberEndpoint, NoAnswerError, build_target


class JobRequest(NamedTuple):
    """Request about one job."""

    method: str
    job: str
    tail: str
    """Rest of the path after the job."""
    query: dict[str, str]
    seconds: float
    """Time limit of each answer."""

    def target(self) -> str:
        """Return the path with the parameters."""
        return build_target(f"/v1/jobs/{quote(self.job)}{self.tail}", self.query)

    def with_local_answer(self) -> "JobRequest":
        """Return the request to be answered from the receiver's own copy."""
        return self._replace(query={**self.query, "local": "1"})


class _FailedBrokers:
    """Brokers that could not answer a request."""

    def __init__(self) -> None:
        self.silent: dict[str, str] = {}
        """Brokers that did not answer, and the reasons."""
        self.unknown: dict[str, bool] = {}
        """Brokers that do not know the job."""
        self.busy: dict[str, HttpReply] = {}
        """Brokers that are busy now."""


def ask_job_owner(endpoints: Endpoints, request: JobRequest) -> HttpReply:
    """Ask the owner of a job.

    The first broker that answers is asked, and its redirection to the owner is followed. If the owner
    does not answer or that broker does not know the job, the other brokers are asked for their copies.
    """
    failures = _FailedBrokers()
    for name in endpoints.iterate_brokers():
        reply = _try_broker(endpoints, name, request, failures)
        if reply is not None:
            return reply
        if name not in failures.silent:
            break  # it answered but has no result: ask the other brokers for copies
    for name in endpoints.iterate_brokers():
        if name in failures.silent or name in failures.unknown or name in failures.busy:
            continue
        reply = _try_broker(endpoints, name, request.with_local_answer(), failures)
        if reply is not None:
            return reply
    if failures.busy:
        raise refusal_error(next(iter(failures.busy.values())))
    if endpoints.is_all_silent(failures.silent):
        raise endpoints.unreachable_error(failures.silent)
    if failures.silent:
        raise CommandError(
            f"no answering broker has the job {request.job}, and "
            f"{', '.join(failures.silent)} does not answer",
            ExitCode.UNAVAILABLE,
            "try again in a moment: another broker takes over the jobs of a lost broker",
        )
    raise CommandError(
        f"there is no job {request.job}", ExitCode.JOB_NOT_FOUND, "'hanse jobs' lists the newest jobs"
    )


def _try_broker(
    endpoints: Endpoints, name: str, request: JobRequest, failures: _FailedBrokers
) -> HttpReply | None:
    """Ask one broker and follow redirections; None, with the reason noted, if another must be asked."""
    endpoint, owner, target = endpoints.broker(name), name, request.target()
    for _ in range(1 + REDIRECTS_MAX):
        try:
            reply = endpoint.request(request.method, target, seconds=request.seconds)
        except NoAnswerError as error:
            failures.silent[owner] = str(error)
            return None
        if reply.status == 404:
            failures.unknown[owner] = True
            return None
        if reply.status in BUSY:
            failures.busy[owner] = reply
            return None
        if reply.status != 307:
            endpoints.remember_broker(name)
            return reply
        endpoint, owner, target = _follow_redirect(endpoints, reply, name)
    return None


def _follow_redirect(endpoints: Endpoints, reply: HttpReply, name: str) -> tuple[MemberEndpoint, str, str]:
    """Return the target of a redirection: the owner's endpoint and the path there."""
    owner, location = reply.headers.get(OWNER_HEADER, ""), urlsplit(reply.headers.get("location", ""))
    if not owner or not location.netloc:
        raise CommandError(f"{name} redirects nowhere", ExitCode.UNAVAILABLE, "try again in a moment")
    target = f"{location.path}?{location.query}" if location.query else location.path
    return endpoints.broker(owner, location.netloc), owner, target
