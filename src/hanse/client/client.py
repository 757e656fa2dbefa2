"""Typed client of a league over its members' HTTP endpoints, used by commands and the SDK.

Reads of one job go to the broker that owns it; lists are requested from every broker and merged. Every
request may be repeated: a submission carries a client id, and the others change nothing the second time.
"""

from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from hanse.api.rows import JobDetail, JobRow
from hanse.client.backend_queue_status import queue_sentences
from hanse.client.endpoints import (
    BUSY,
    OWNER_HEADER,
    REDIRECTS_MAX,
    Doors,
    decoded,
    refusal,
    refusal_code,
    refused_results,
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
from hanse.client.transport import ANSWER_SECONDS_MAX, Door, Reply, SilentError

ENDED: Final = ("succeeded", "failed", "cancelled")
PAGE_ROWS: Final = 1_000
"""Rows per request; the most that a server returns."""
JOBS_PER_REQUEST: Final = 1_000
SUBMIT_SECONDS_MAX: Final = 45.0
"""Time limit of a submission. A broker answers within 30 s, if only that it is unsure."""
APPLY_SECONDS_MAX: Final = 60.0
"""Time limit of a change of the league file, which waits a few seconds for each absent member."""
RESUBMITS_MAX: Final = 2
"""Repetitions of a submission for which the broker was unsure."""
LOOKED_BACK_ROWS: Final = 200
"""Newest jobs of a broker to search for a submission that was not answered."""
WAIT_SECONDS_MAX: Final = 60
SPARE_SECONDS: Final = 10.0
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


class Listing(NamedTuple):
    """Jobs of all brokers, the newest first."""

    rows: list[JobRow]
    more: bool
    """True if other jobs match."""
    silent: dict[str, str]
    """Brokers that did not answer, and the reasons. Their jobs are shown if other brokers hold copies."""


class Client:
    """Requests of commands to a league."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors

    # --- the league -----------------------------------------------------------------------------------------

    def league(self) -> LeagueAnswer:
        """Return the league as seen by the first broker that answers."""
        return decoded(self.doors.any_broker("GET", "/v1/league"), LeagueAnswer)

    def every_league(self) -> tuple[dict[str, LeagueAnswer], dict[str, str]]:
        """Return every broker's view of the league, and why others gave none; at least one answered."""
        answers: dict[str, LeagueAnswer] = {}
        silent: dict[str, str] = {}
        for name in self.doors.everyone():
            try:
                answers[name] = decoded(self._heard(name, "/v1/league"), LeagueAnswer)
            except SilentError as error:
                silent[name] = str(error)
        if not answers:
            raise self.doors.unreachable(silent)
        return answers, self.doors.missed(silent, answers)

    def _heard(self, broker: str, target: str) -> Reply:
        """Ask one broker, where each is asked; a busy broker counts as silent."""
        reply = self.doors.broker(broker).ask("GET", target)
        if reply.status in BUSY:
            raise SilentError(refusal(reply).message, sent=True)
        return reply

    def nodes(self, cluster: str = "") -> NodesAnswer:
        """Return the nodes as seen by a broker."""
        nodes: tuple[NodeAnswer, ...] = ()
        after: str | None = ""
        while after is not None:
            target = _target("/v1/nodes", {"cluster": cluster, "after": after})
            page = decoded(self.doors.any_broker("GET", target), NodesAnswer)
            nodes, after = nodes + page.nodes, page.next
        return NodesAnswer(nodes)

    def cluster(self, name: str, address: str = "") -> ClusterDetail:
        """Return a cluster as its own warden sees it. Raises ``NoAnswerError`` if it cannot be reached."""
        door = self.doors.cluster(name, address)
        detail = page = decoded(door.ask("GET", "/v1/cluster"), ClusterDetail)
        while page.next is not None:
            page = decoded(door.ask("GET", _target("/v1/cluster", {"after": page.next})), ClusterDetail)
            detail = msgspec.structs.replace(detail, nodes=detail.nodes + page.nodes, next=None)
        return detail

    def drain(
        self, cluster: str, nodes: list[int] | None, drain: bool, reason: str = "", until: int | None = None
    ) -> DrainAnswer:
        """Close nodes of a cluster (None: all of them) to new tasks, or open them again.

        ``until`` (unix microseconds) is when they open automatically.
        """
        wish: dict[str, Any] = {"whole": True} if nodes is None else {"nodes": nodes}
        wish["drain"] = drain
        if reason:
            wish["reason"] = reason
        if until is not None:
            wish["until"] = until
        body = msgspec.json.encode(wish)
        door = self.doors.cluster(cluster)
        try:
            return decoded(door.ask("POST", "/v1/drain", body), DrainAnswer)
        except SilentError as error:
            elsewhere = self.doors.moved_cluster(door)
            with suppress(SilentError):
                if elsewhere is not None:
                    return decoded(elsewhere.ask("POST", "/v1/drain", body), DrainAnswer)
            raise CommandError(
                f"the cluster {cluster} at {door.address} does not answer: {error}",
                ExitCode.UNAVAILABLE,
                "its warden must run; 'hanse up' starts missing members of a league on this machine",
            ) from None

    def league_file(self) -> LeagueFile:
        """Return a broker's copy of the league file."""
        return decoded(self.doors.any_broker("GET", "/v1/league/file"), LeagueFile)

    def apply_league_file(self, text: str, force: bool, try_only: bool) -> ApplyAnswer:
        """Change the league file. Raises ``CommandError`` with the reason if it stays as it is, and
        ``ConflictError`` if the reason is a change by someone else. A repeated change is made once."""
        wish = msgspec.json.encode({"text": text, "force": force, "try_only": try_only})
        reply = self.doors.any_broker("POST", "/v1/league/file", wish, APPLY_SECONDS_MAX)
        if reply.status == ConflictError.STATUS and refusal_code(reply) in ConflictError.CODES:
            error = refusal(reply)
            raise ConflictError(error.message, error.status, error.hint)
        return decoded(reply, ApplyAnswer)

    def revoke(self, name: str = "", serials: tuple[str, ...] = (), own: bool = False) -> RevokeAnswer:
        """Revoke all credentials issued to a name until now, or the access tokens with these serials, in the
        whole league. Raises ``OwnNameError`` for the caller's name, unless ``own``."""
        wish = {"names": [name] if name else [], "serials": serials, **({"own": True} if own else {})}
        reply = self.doors.any_broker("POST", "/v1/access/revoke", msgspec.json.encode(wish))
        if reply.status == OwnNameError.STATUS:
            raise OwnNameError(refusal(reply).message, ExitCode.FAILED, "add '--yes' to revoke it")
        return decoded(reply, RevokeAnswer)

    def people(self) -> tuple[set[str], dict[str, str]]:
        """Return the people that brokers know, and why other brokers gave none; at least one answered."""
        names: set[str] = set()
        silent: dict[str, str] = {}
        heard: list[str] = []
        for broker in self.doors.everyone():
            try:
                reply = self._heard(broker, "/v1/access/people")
            except SilentError as error:
                silent[broker] = str(error)
                continue
            if reply.status == 404:
                silent[broker] = "its version does not support people"
            else:
                names.update(decoded(reply, PeopleAnswer).names)
                heard.append(broker)
        silent = self.doors.missed(silent, heard)
        if self.doors.all_silent(silent):
            raise self.doors.unreachable(silent)
        return names, silent

    # --- lists ----------------------------------------------------------------------------------------------

    def jobs(self, wanted: JobFilter, limit: int | None) -> Listing:
        """Return the newest jobs of all brokers; ``limit`` None: all jobs."""
        found: dict[str, tuple[bool, JobRow]] = {}
        silent: dict[str, str] = {}
        heard: list[str] = []
        more = False
        for name in self.doors.everyone():
            try:
                for state in wanted.states or ("",):
                    rows, cut = self._jobs_at(name, wanted, state, limit)
                    more = more or cut
                    for row in rows:
                        own = row.owner == name
                        if row.id not in found or (own and not found[row.id][0]):
                            found[row.id] = (own, row)
                heard.append(name)
            except SilentError as error:
                silent[name] = str(error)
        silent = self.doors.missed(silent, heard)
        if self.doors.all_silent(silent):
            raise self.doors.unreachable(silent)
        # Of a peer's job a broker knows only what has ended: only the owner knows the state.
        rows = [row for own, row in found.values() if own or not wanted.states or row.owner in (*silent, "")]
        rows.sort(key=_newest)
        if limit is not None and len(rows) > limit:
            return Listing(rows[:limit], True, silent)
        return Listing(rows, more, silent)

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
            answer = decoded(self._heard(broker, _target("/v1/jobs", query)), JobsAnswer)
            rows += answer.jobs
            after = answer.next
        return rows, after is not None

    # --- one job --------------------------------------------------------------------------------------------

    def job(self, job: str) -> JobDetail:
        """Return everything that is known of a job, except its tasks."""
        return decoded(self.about(job), JobDetail)

    def tasks(self, job: str, state: str = "", limit: int = PAGE_ROWS, after: str = "") -> TasksAnswer:
        """Return a page of the job's tasks, by index."""
        query = {"state": state, "limit": str(limit), "after": after}
        return decoded(self.about(job, "/tasks", query), TasksAnswer)

    def why(self, job: str) -> WhyAnswer:
        """Explain why a job waits, runs where it runs, or ended; with the clusters' reasons for waits."""
        answer = decoded(self.about(job, "/why"), WhyAnswer)
        return msgspec.structs.replace(answer, sentences=answer.sentences + queue_sentences(self, job))

    def wait(self, job: str, seconds: int) -> JobRow:
        """Return the job when it has ended, or after this time (at most ``WAIT_SECONDS_MAX``)."""
        query = {"timeout": str(seconds)}
        return decoded(self.about(job, "/wait", query, seconds=seconds + SPARE_SECONDS), JobRow)

    def cancel(self, job: str) -> None:
        """Cancel a job; a job that has ended stays as it is."""
        reply = self.about(job, "/cancel", method="POST", seconds=SUBMIT_SECONDS_MAX)
        if reply.status >= 300:
            raise refusal(reply)

    def about(
        self,
        job: str,
        tail: str = "",
        query: dict[str, str] | None = None,
        method: str = "GET",
        seconds: float = ANSWER_SECONDS_MAX,
    ) -> Reply:
        """Ask the owner of a job.

        The first broker that answers is asked, and its redirection to the owner is followed. If the owner
        does not answer or that broker does not know the job, the other brokers are asked for their copies.
        """
        question = _Question(method, f"/v1/jobs/{quote(job)}{tail}", query or {}, seconds)
        tried = _Tried()
        for name in self.doors.everyone():
            reply = self._asked(name, question, tried)
            if reply is not None:
                return reply
            if name not in tried.silent:
                break  # it answered but has no result: ask the other brokers for copies
        for name in self.doors.everyone():
            if name in tried.silent or name in tried.unknown or name in tried.busy:
                continue
            reply = self._asked(name, question.local(), tried)
            if reply is not None:
                return reply
        if tried.busy:
            raise refusal(next(iter(tried.busy.values())))
        if self.doors.all_silent(tried.silent):
            raise self.doors.unreachable(tried.silent)
        if tried.silent:
            raise CommandError(
                f"no answering broker has the job {job}, and {', '.join(tried.silent)} does not answer",
                ExitCode.UNAVAILABLE,
                "try again in a moment: another broker takes over the jobs of a lost broker",
            )
        raise CommandError(
            f"there is no job {job}", ExitCode.JOB_NOT_FOUND, "'hanse jobs' lists the newest jobs"
        )

    def _asked(self, name: str, question: "_Question", tried: "_Tried") -> Reply | None:
        """Ask one broker and follow redirections; None, with the reason noted, if another must be asked."""
        door, owner, target = self.doors.broker(name), name, question.target()
        for _ in range(1 + REDIRECTS_MAX):
            try:
                reply = door.ask(question.method, target, seconds=question.seconds)
            except SilentError as error:
                tried.silent[owner] = str(error)
                return None
            if reply.status == 404:
                tried.unknown[owner] = True
                return None
            if reply.status in BUSY:
                tried.busy[owner] = reply
                return None
            if reply.status != 307:
                self.doors.good(name)
                return reply
            door, owner, target = self._elsewhere(reply, name)
        return None

    def _elsewhere(self, reply: Reply, name: str) -> tuple[Door, str, str]:
        """Return the target of a redirection: the owner's endpoint and the path there."""
        owner, location = reply.headers.get(OWNER_HEADER, ""), urlsplit(reply.headers.get("location", ""))
        if not owner or not location.netloc:
            raise CommandError(f"{name} redirects nowhere", ExitCode.UNAVAILABLE, "try again in a moment")
        target = f"{location.path}?{location.query}" if location.query else location.path
        return self.doors.broker(owner, location.netloc), owner, target

    # --- submitting -----------------------------------------------------------------------------------------

    def submit(self, jobs: list[dict[str, object]]) -> list[SubmitResult]:
        """Submit jobs in the form of ``model.job_parser``, each with a ``client_id``; return all results."""
        assert all(job.get("client_id") for job in jobs), "only a job with a client id may be repeated"
        results: list[SubmitResult] = []
        for first in range(0, len(jobs), JOBS_PER_REQUEST):
            results += self._submit_some(jobs[first : first + JOBS_PER_REQUEST])
        return results

    def _submit_some(self, jobs: list[dict[str, object]]) -> list[SubmitResult]:
        """Submit the jobs of one request. A job for which a broker was unsure goes to no other broker."""
        results: dict[int, SubmitResult] = {}
        silent: dict[str, str] = {}
        sent = False
        busy: Reply | None = None
        for name in self.doors.everyone():
            try:
                busy = self._submit_at(name, jobs, results) or busy
            except SilentError as error:
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
            raise refusal(busy)
        raise self.doors.unreachable(silent)

    def _submit_at(
        self, name: str, jobs: list[dict[str, object]], results: dict[int, SubmitResult]
    ) -> Reply | None:
        """Submit the unsettled jobs to one broker; return its reply if it is busy."""
        for _ in range(1 + RESUBMITS_MAX):
            left = [index for index in range(len(jobs)) if _unsettled(results.get(index))]
            if not left:
                break
            body = msgspec.json.encode({"jobs": [jobs[index] for index in left]})
            reply = self.doors.broker(name).ask("POST", "/v1/jobs", body, SUBMIT_SECONDS_MAX)
            if reply.status in BUSY:
                return reply
            answer = _submitted(reply)
            assert len(answer.results) == len(left), f"{len(answer.results)} results of {len(left)} jobs"
            results.update(zip(left, answer.results, strict=True))
            self.doors.good(name)
        return None

    def _find_lost(
        self, jobs: list[dict[str, object]], results: dict[int, SubmitResult], silent: str
    ) -> None:
        """Search other brokers' copies for jobs whose submission was not answered.

        A broker replicates a job before it confirms it; this shows whether the broker got that far.
        """
        lost = {
            str(job["client_id"]): index for index, job in enumerate(jobs) if _unsettled(results.get(index))
        }
        for name in self.doors.order():
            if name == silent:
                continue
            try:
                rows, _ = self._jobs_at(name, JobFilter(), "", LOOKED_BACK_ROWS)
            except SilentError:
                continue
            for row in rows:
                if row.client_id in lost:
                    results[lost[row.client_id]] = SubmitResult(job=row.id)

    def plan(self, job: dict[str, object]) -> PlanAnswer:
        """Return what would happen to a job if it were submitted now."""
        return decoded(self.doors.any_broker("POST", "/v1/plan", msgspec.json.encode(job)), PlanAnswer)


class _Question(NamedTuple):
    """Request about one job."""

    method: str
    path: str
    query: dict[str, str]
    seconds: float

    def target(self) -> str:
        return _target(self.path, self.query)

    def local(self) -> "_Question":
        """Return the request to be answered from the receiver's own copy."""
        return self._replace(query={**self.query, "local": "1"})


class _Tried:
    """Brokers that could not answer a request."""

    def __init__(self) -> None:
        self.silent: dict[str, str] = {}
        """Brokers that did not answer, and the reasons."""
        self.unknown: dict[str, bool] = {}
        """Brokers that do not know the job."""
        self.busy: dict[str, Reply] = {}
        """Brokers that are busy now."""


def _submitted(reply: Reply) -> SubmitAnswer:
    """Decode the result of each job, also if the whole request was refused because some are invalid."""
    if reply.status == 422:
        results = refused_results(reply)
        if results:
            return SubmitAnswer(results)
    return decoded(reply, SubmitAnswer)


def _unsettled(result: SubmitResult | None) -> bool:
    return result is None or result.unsure


def _target(path: str, query: dict[str, str]) -> str:
    """Build a path with the parameters that have a value."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def _newest(row: JobRow) -> tuple[float, list[int]]:
    """Return a sort key: newest first, without a submission time last, ties by descending number."""
    when = -row.submitted if row.submitted is not None else float("inf")
    return when, [-int(part) for part in row.id.split("-")]
