"""Typed client of a league over its members' HTTP endpoints, used by commands and the SDK.

Reads of one job go to the broker that owns it; lists are requested from every broker and merged. Every
request may be repeated: a submission carries a client id, and the others change nothing the second time.
"""

from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from hanse.api.rows import JobDetail, JobRow
from hanse.client.backend_queue_status import describe_queue_waits
from hanse.client.endpoints import (
    BUSY,
    OWNER_HEADER,
    REDIRECTS_MAX,
    Endpoints,
    decode_refused_results,
    decode_reply,
    refusal_code,
    refusal_error,
)
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.responses import (
    ApplyAnswer,
    ClusterDetail,
    DrainAnswer,
    JobsAnswer,
    LeagueAnswer,
    LeagueFile,
    NodeAnswer,
    NodesAnswer,
    PeopleAnswer,
    PlanAnswer,
    RevokeAnswer,
    SubmitAnswer,
    SubmitResult,
    TasksAnswer,
    WhyAnswer,
)
from hanse.client.transport import ANSWER_SECONDS_MAX, HttpReply, MemberEndpoint, NoAnswerError

ENDED_STATES: Final = ("succeeded", "failed", "cancelled")
PAGE_ROWS: Final = 1_000
"""Rows per request; the most that a server returns."""
JOBS_PER_REQUEST: Final = 1_000
SUBMIT_SECONDS_MAX: Final = 45.0
"""Time limit of a submission. A broker answers within 30 s, if only that it is unsure."""
APPLY_SECONDS_MAX: Final = 60.0
"""Time limit of a change of the league file, which waits a few seconds for each absent member."""
RESUBMITS_MAX: Final = 2
"""Repetitions of a submission for which the broker was unsure."""
LOST_SEARCH_ROWS: Final = 200
"""Newest jobs of a broker to search for a submission that was not answered."""
WAIT_SECONDS_MAX: Final = 60
EXTRA_SECONDS: Final = 10.0
"""Delay of an answer after the promised time that is tolerated."""


class OwnNameError(CommandError):
    """Refusal to revoke the caller's own name."""

    STATUS: Final = 409


class ConflictError(CommandError):
    """Change of the league file that is based on a version other than the present one."""

    STATUS: Final = 409
    CODES: Final = ("another_version", "changed_meanwhile")


class JobFilter(NamedTuple):
    """Filter of jobs; empty: all."""

    states: tuple[str, ...] = ()
    tenant: str = ""
    name: str = ""


class JobListing(NamedTuple):
    """Jobs of all brokers, the newest first."""

    rows: list[JobRow]
    more: bool
    """True if other jobs match."""
    silent: dict[str, str]
    """Brokers that did not answer, and the reasons. Their jobs are shown if other brokers hold copies."""


class LeagueClient:
    """Requests of commands to a league."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints

    # --- the league -----------------------------------------------------------------------------------------

    def league(self) -> LeagueAnswer:
        """Return the league as seen by the first broker that answers."""
        return decode_reply(self.endpoints.ask_any_broker("GET", "/v1/league"), LeagueAnswer)

    def all_league_views(self) -> tuple[dict[str, LeagueAnswer], dict[str, str]]:
        """Return every broker's view of the league, and why others gave none; at least one answered."""
        answers: dict[str, LeagueAnswer] = {}
        silent: dict[str, str] = {}
        for name in self.endpoints.iterate_brokers():
            try:
                answers[name] = decode_reply(self._ask_broker(name, "/v1/league"), LeagueAnswer)
            except NoAnswerError as error:
                silent[name] = str(error)
        if not answers:
            raise self.endpoints.unreachable_error(silent)
        return answers, self.endpoints.find_unanswered(silent, answers)

    def _ask_broker(self, broker: str, target: str) -> HttpReply:
        """Ask one broker, where each is asked; a busy broker counts as silent."""
        reply = self.endpoints.broker(broker).request("GET", target)
        if reply.status in BUSY:
            raise NoAnswerError(refusal_error(reply).message, sent=True)
        return reply

    def nodes(self, cluster: str = "") -> NodesAnswer:
        """Return the nodes as seen by a broker."""
        nodes: tuple[NodeAnswer, ...] = ()
        after: str | None = ""
        while after is not None:
            target = _build_target("/v1/nodes", {"cluster": cluster, "after": after})
            page = decode_reply(self.endpoints.ask_any_broker("GET", target), NodesAnswer)
            nodes, after = nodes + page.nodes, page.next
        return NodesAnswer(nodes)

    def cluster(self, name: str, address: str = "") -> ClusterDetail:
        """Return a cluster as its own warden sees it. Raises ``NoAnswerError`` if it cannot be reached."""
        endpoint = self.endpoints.cluster(name, address)
        detail = page = decode_reply(endpoint.request("GET", "/v1/cluster"), ClusterDetail)
        while page.next is not None:
            page = decode_reply(
                endpoint.request("GET", _build_target("/v1/cluster", {"after": page.next})), ClusterDetail
            )
            detail = msgspec.structs.replace(detail, nodes=detail.nodes + page.nodes, next=None)
        return detail

    def drain(
        self, cluster: str, nodes: list[int] | None, drain: bool, reason: str = "", until: int | None = None
    ) -> DrainAnswer:
        """Close nodes of a cluster (None: all of them) to new tasks, or open them again.

        ``until`` (unix microseconds) is when they open automatically.
        """
        request: dict[str, Any] = {"whole": True} if nodes is None else {"nodes": nodes}
        request["drain"] = drain
        if reason:
            request["reason"] = reason
        if until is not None:
            request["until"] = until
        body = msgspec.json.encode(request)
        endpoint = self.endpoints.cluster(cluster)
        try:
            return decode_reply(endpoint.request("POST", "/v1/drain", body), DrainAnswer)
        except NoAnswerError as error:
            moved = self.endpoints.find_moved_cluster(endpoint)
            with suppress(NoAnswerError):
                if moved is not None:
                    return decode_reply(moved.request("POST", "/v1/drain", body), DrainAnswer)
            raise CommandError(
                f"the cluster {cluster} at {endpoint.address} does not answer: {error}",
                ExitCode.UNAVAILABLE,
                "its warden must run; 'hanse up' starts missing members of a league on this machine",
            ) from None

    def league_file(self) -> LeagueFile:
        """Return a broker's copy of the league file."""
        return decode_reply(self.endpoints.ask_any_broker("GET", "/v1/league/file"), LeagueFile)

    def apply_league_file(self, text: str, force: bool, try_only: bool) -> ApplyAnswer:
        """Change the league file. Raises ``CommandError`` with the reason if it stays as it is, and
        ``ConflictError`` if the reason is a change by someone else. A repeated change is made once."""
        body = msgspec.json.encode({"text": text, "force": force, "try_only": try_only})
        reply = self.endpoints.ask_any_broker("POST", "/v1/league/file", body, APPLY_SECONDS_MAX)
        if reply.status == ConflictError.STATUS and refusal_code(reply) in ConflictError.CODES:
            error = refusal_error(reply)
            raise ConflictError(error.message, error.status, error.hint)
        return decode_reply(reply, ApplyAnswer)

    def revoke(self, name: str = "", serials: tuple[str, ...] = (), own: bool = False) -> RevokeAnswer:
        """Revoke all credentials issued to a name until now, or the access tokens with these serials, in the
        whole league. Raises ``OwnNameError`` for the caller's name, unless ``own``."""
        request = {"names": [name] if name else [], "serials": serials, **({"own": True} if own else {})}
        reply = self.endpoints.ask_any_broker("POST", "/v1/access/revoke", msgspec.json.encode(request))
        if reply.status == OwnNameError.STATUS:
            raise OwnNameError(refusal_error(reply).message, ExitCode.FAILED, "add '--yes' to revoke it")
        return decode_reply(reply, RevokeAnswer)

    def people(self) -> tuple[set[str], dict[str, str]]:
        """Return the people that brokers know, and why other brokers gave none; at least one answered."""
        names: set[str] = set()
        silent: dict[str, str] = {}
        answered: list[str] = []
        for broker in self.endpoints.iterate_brokers():
            try:
                reply = self._ask_broker(broker, "/v1/access/people")
            except NoAnswerError as error:
                silent[broker] = str(error)
                continue
            if reply.status == 404:
                silent[broker] = "its version does not support people"
            else:
                names.update(decode_reply(reply, PeopleAnswer).names)
                answered.append(broker)
        silent = self.endpoints.find_unanswered(silent, answered)
        if self.endpoints.is_all_silent(silent):
            raise self.endpoints.unreachable_error(silent)
        return names, silent

    # --- lists ----------------------------------------------------------------------------------------------

    def jobs(self, wanted: JobFilter, limit: int | None) -> JobListing:
        """Return the newest jobs of all brokers; ``limit`` None: all jobs."""
        found: dict[str, tuple[bool, JobRow]] = {}
        silent: dict[str, str] = {}
        answered: list[str] = []
        more = False
        for name in self.endpoints.iterate_brokers():
            try:
                for state in wanted.states or ("",):
                    rows, cut = self._jobs_at(name, wanted, state, limit)
                    more = more or cut
                    for row in rows:
                        own = row.owner == name
                        if row.id not in found or (own and not found[row.id][0]):
                            found[row.id] = (own, row)
                answered.append(name)
            except NoAnswerError as error:
                silent[name] = str(error)
        silent = self.endpoints.find_unanswered(silent, answered)
        if self.endpoints.is_all_silent(silent):
            raise self.endpoints.unreachable_error(silent)
        # Of a peer's job a broker knows only what has ended: only the owner knows the state.
        rows = [row for own, row in found.values() if own or not wanted.states or row.owner in (*silent, "")]
        rows.sort(key=_newest_first_key)
        if limit is not None and len(rows) > limit:
            return JobListing(rows[:limit], True, silent)
        return JobListing(rows, more, silent)

    def _jobs_at(
        self, broker: str, wanted: JobFilter, state: str, limit: int | None
    ) -> tuple[list[JobRow], bool]:
        """Return one broker's jobs in one state, and True if it has more of them."""
        rows: list[JobRow] = []
        after: str | None = ""
        while after is not None and (limit is None or len(rows) < limit):
            size = PAGE_ROWS if limit is None else min(PAGE_ROWS, limit - len(rows))
            query = {"state": state, "tenant": wanted.tenant, "name": wanted.name, "after": after}
            query["limit"] = str(size)
            answer = decode_reply(self._ask_broker(broker, _build_target("/v1/jobs", query)), JobsAnswer)
            rows += answer.jobs
            after = answer.next
        return rows, after is not None

    # --- one job --------------------------------------------------------------------------------------------

    def job(self, job: str) -> JobDetail:
        """Return everything that is known of a job, except its tasks."""
        return decode_reply(self.ask_about_job(job), JobDetail)

    def tasks(self, job: str, state: str = "", limit: int = PAGE_ROWS, after: str = "") -> TasksAnswer:
        """Return a page of the job's tasks, by index."""
        query = {"state": state, "limit": str(limit), "after": after}
        return decode_reply(self.ask_about_job(job, "/tasks", query), TasksAnswer)

    def why(self, job: str) -> WhyAnswer:
        """Explain why a job waits, runs where it runs, or ended; with the clusters' reasons for waits."""
        answer = decode_reply(self.ask_about_job(job, "/why"), WhyAnswer)
        return msgspec.structs.replace(answer, sentences=answer.sentences + describe_queue_waits(self, job))

    def wait(self, job: str, seconds: int) -> JobRow:
        """Return the job when it has ended, or after this time (at most ``WAIT_SECONDS_MAX``)."""
        query = {"timeout": str(seconds)}
        return decode_reply(self.ask_about_job(job, "/wait", query, seconds=seconds + EXTRA_SECONDS), JobRow)

    def cancel(self, job: str) -> None:
        """Cancel a job; a job that has ended stays as it is."""
        reply = self.ask_about_job(job, "/cancel", method="POST", seconds=SUBMIT_SECONDS_MAX)
        if reply.status >= 300:
            raise refusal_error(reply)

    def ask_about_job(
        self,
        job: str,
        tail: str = "",
        query: dict[str, str] | None = None,
        method: str = "GET",
        seconds: float = ANSWER_SECONDS_MAX,
    ) -> HttpReply:
        """Ask the owner of a job.

        The first broker that answers is asked, and its redirection to the owner is followed. If the owner
        does not answer or that broker does not know the job, the other brokers are asked for their copies.
        """
        request = _JobRequest(method, f"/v1/jobs/{quote(job)}{tail}", query or {}, seconds)
        failures = _FailedBrokers()
        for name in self.endpoints.iterate_brokers():
            reply = self._try_broker(name, request, failures)
            if reply is not None:
                return reply
            if name not in failures.silent:
                break  # it answered but has no result: ask the other brokers for copies
        for name in self.endpoints.iterate_brokers():
            if name in failures.silent or name in failures.unknown or name in failures.busy:
                continue
            reply = self._try_broker(name, request.local(), failures)
            if reply is not None:
                return reply
        if failures.busy:
            raise refusal_error(next(iter(failures.busy.values())))
        if self.endpoints.is_all_silent(failures.silent):
            raise self.endpoints.unreachable_error(failures.silent)
        if failures.silent:
            raise CommandError(
                f"no answering broker has the job {job}, and {', '.join(failures.silent)} does not answer",
                ExitCode.UNAVAILABLE,
                "try again in a moment: another broker takes over the jobs of a lost broker",
            )
        raise CommandError(
            f"there is no job {job}", ExitCode.JOB_NOT_FOUND, "'hanse jobs' lists the newest jobs"
        )

    def _try_broker(self, name: str, request: "_JobRequest", failures: "_FailedBrokers") -> HttpReply | None:
        """Ask one broker and follow redirections; None, with the reason noted, if another must be asked."""
        endpoint, owner, target = self.endpoints.broker(name), name, request.target()
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
                self.endpoints.remember_broker(name)
                return reply
            endpoint, owner, target = self._follow_redirect(reply, name)
        return None

    def _follow_redirect(self, reply: HttpReply, name: str) -> tuple[MemberEndpoint, str, str]:
        """Return the target of a redirection: the owner's endpoint and the path there."""
        owner, location = reply.headers.get(OWNER_HEADER, ""), urlsplit(reply.headers.get("location", ""))
        if not owner or not location.netloc:
            raise CommandError(f"{name} redirects nowhere", ExitCode.UNAVAILABLE, "try again in a moment")
        target = f"{location.path}?{location.query}" if location.query else location.path
        return self.endpoints.broker(owner, location.netloc), owner, target

    # --- submitting -----------------------------------------------------------------------------------------

    def submit(self, jobs: list[dict[str, object]]) -> list[SubmitResult]:
        """Submit jobs in the form of ``model.job_parser``, each with a ``client_id``; return all results."""
        assert all(job.get("client_id") for job in jobs), "only a job with a client id may be repeated"
        results: list[SubmitResult] = []
        for first in range(0, len(jobs), JOBS_PER_REQUEST):
            results += self._submit_request(jobs[first : first + JOBS_PER_REQUEST])
        return results

    def _submit_request(self, jobs: list[dict[str, object]]) -> list[SubmitResult]:
        """Submit the jobs of one request. A job for which a broker was unsure goes to no other broker."""
        results: dict[int, SubmitResult] = {}
        silent: dict[str, str] = {}
        sent = False
        busy: HttpReply | None = None
        for name in self.endpoints.iterate_brokers():
            try:
                busy = self._submit_at(name, jobs, results) or busy
            except NoAnswerError as error:
                silent[name] = str(error)
                if error.sent:  # it may have taken them: a second broker must not take them again
                    sent = True
                    self._find_lost(jobs, results, name)
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
        raise self.endpoints.unreachable_error(silent)

    def _submit_at(
        self, name: str, jobs: list[dict[str, object]], results: dict[int, SubmitResult]
    ) -> HttpReply | None:
        """Submit the unsettled jobs to one broker; return its reply if it is busy."""
        for _ in range(1 + RESUBMITS_MAX):
            left = [index for index in range(len(jobs)) if _is_unsettled(results.get(index))]
            if not left:
                break
            body = msgspec.json.encode({"jobs": [jobs[index] for index in left]})
            reply = self.endpoints.broker(name).request("POST", "/v1/jobs", body, SUBMIT_SECONDS_MAX)
            if reply.status in BUSY:
                return reply
            answer = _decode_submit(reply)
            assert len(answer.results) == len(left), f"{len(answer.results)} results of {len(left)} jobs"
            results.update(zip(left, answer.results, strict=True))
            self.endpoints.remember_broker(name)
        return None

    def _find_lost(
        self, jobs: list[dict[str, object]], results: dict[int, SubmitResult], silent: str
    ) -> None:
        """Search other brokers' copies for jobs whose submission was not answered.

        A broker replicates a job before it confirms it; this shows whether the broker got that far.
        """
        lost = {
            str(job["client_id"]): index
            for index, job in enumerate(jobs)
            if _is_unsettled(results.get(index))
        }
        for name in self.endpoints.broker_order():
            if name == silent:
                continue
            try:
                rows, _ = self._jobs_at(name, JobFilter(), "", LOST_SEARCH_ROWS)
            except NoAnswerError:
                continue
            for row in rows:
                if row.client_id in lost:
                    results[lost[row.client_id]] = SubmitResult(job=row.id)

    def plan(self, job: dict[str, object]) -> PlanAnswer:
        """Return what would happen to a job if it were submitted now."""
        return decode_reply(
            self.endpoints.ask_any_broker("POST", "/v1/plan", msgspec.json.encode(job)), PlanAnswer
        )


class _JobRequest(NamedTuple):
    """Request about one job."""

    method: str
    path: str
    query: dict[str, str]
    seconds: float

    def target(self) -> str:
        return _build_target(self.path, self.query)

    def local(self) -> "_JobRequest":
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


def _decode_submit(reply: HttpReply) -> SubmitAnswer:
    """Decode the result of each job, also if the whole request was refused because some are invalid."""
    if reply.status == 422:
        results = decode_refused_results(reply)
        if results:
            return SubmitAnswer(results)
    return decode_reply(reply, SubmitAnswer)


def _is_unsettled(result: SubmitResult | None) -> bool:
    return result is None or result.unsure


def _build_target(path: str, query: dict[str, str]) -> str:
    """Build a path with the parameters that have a value."""
    filled = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(filled)}" if filled else path


def _newest_first_key(row: JobRow) -> tuple[float, list[int]]:
    """Return a sort key: newest first, without a submission time last, ties by descending number."""
    when = -row.submitted if row.submitted is not None else float("inf")
    return when, [-int(part) for part in row.id.split("-")]
