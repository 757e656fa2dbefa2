"""Typed client of a league over its members' HTTP endpoints, used by commands and the SDK.

Requests about one job go to the broker that owns it (``job_owner``); lists are requested from every broker
and merged (``job_listing``). Every request may be repeated: a submission carries a client id, and the others
change nothing the second time.
"""

from contextlib import suppress
from typing import Any, Final

import msgspec

from hanse.api.league_file_records import ApplyAnswer, LeagueFile
from hanse.api.plan_records import PlanAnswer
from hanse.api.records import (
    ClusterDetail,
    DrainAnswer,
    LeagueAnswer,
    NodeAnswer,
    NodesAnswer,
    PeopleAnswer,
    RevokeAnswer,
    SubmitResult,
    TasksAnswer,
    WhyAnswer,
)
from hanse.api.row_records import JobDetail, JobRow
from hanse.client.backend_queue_status import describe_queue_waits
from hanse.client.endpoints import Endpoints, decode_reply, refusal_code, refusal_error
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.job_listing import PAGE_ROWS, JobFilter, JobListing, list_jobs
from hanse.client.job_owner import JobRequest, ask_job_owner
from hanse.client.job_submission import SUBMIT_SECONDS_MAX, submit_jobs
from hanse.client.transport import ANSWER_SECONDS_MAX, HttpReply, NoAnswerError, build_target

ENDED_STATES: Final = ("succeeded", "failed", "cancelled")
APPLY_SECONDS_MAX: Final = 60.0
"""Time limit of a change of the league file, which waits a few seconds for each absent member."""
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
                answers[name] = decode_reply(self.endpoints.ask_broker(name, "/v1/league"), LeagueAnswer)
            except NoAnswerError as error:
                silent[name] = str(error)
        if not answers:
            raise self.endpoints.unreachable_error(silent)
        return answers, self.endpoints.find_unanswered(silent, answers)

    def nodes(self, cluster: str = "") -> NodesAnswer:
        """Return the nodes as seen by a broker."""
        nodes: tuple[NodeAnswer, ...] = ()
        after: str | None = ""
        while after is not None:
            target = build_target("/v1/nodes", {"cluster": cluster, "after": after})
            page = decode_reply(self.endpoints.ask_any_broker("GET", target), NodesAnswer)
            nodes, after = nodes + page.nodes, page.next
        return NodesAnswer(nodes)

    def cluster(self, name: str, address: str = "") -> ClusterDetail:
        """Return a cluster as its own warden sees it. Raises ``NoAnswerError`` if it cannot be reached."""
        endpoint = self.endpoints.cluster(name, address)
        detail = page = decode_reply(endpoint.request("GET", "/v1/cluster"), ClusterDetail)
        while page.next is not None:
            page = decode_reply(
                endpoint.request("GET", build_target("/v1/cluster", {"after": page.next})), ClusterDetail
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
                reply = self.endpoints.ask_broker(broker, "/v1/access/people")
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
        return list_jobs(self.endpoints, wanted, limit)

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
        """Ask the owner of a job, or brokers with a copy of it; see ``job_owner``."""
        return ask_job_owner(self.endpoints, JobRequest(method, job, tail, query or {}, seconds))

    # --- submitting -----------------------------------------------------------------------------------------

    def submit(self, jobs: list[dict[str, object]]) -> list[SubmitResult]:
        """Submit jobs in the form of ``model.job_parser``, each with a ``client_id``; return all results."""
        return submit_jobs(self.endpoints, jobs)

    def plan(self, job: dict[str, object]) -> PlanAnswer:
        """Return what would happen to a job if it were submitted now."""
        return decode_reply(
            self.endpoints.ask_any_broker("POST", "/v1/plan", msgspec.json.encode(job)), PlanAnswer
        )
