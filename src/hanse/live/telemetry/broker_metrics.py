"""The metrics of a broker: jobs, their waiting times, their placements, and the age of its views.

Counts come from events and effects as the shell has performed them (``on_event_durable``); present state
(views, jobs by state) is queried at a scrape. Counters start at zero with every start of the process, as
Prometheus expects.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hanse.api.rows import JobRow, Totals
from hanse.core.broker.broker import Broker
from hanse.live.clock import Clock
from hanse.live.http.league_status import SILENT_AFTER
from hanse.live.journal.journal import Journal
from hanse.live.readmodel.feeder import Feed
from hanse.live.readmodel.read_model import Reads
from hanse.live.telemetry.member_metrics import Daemonic, JournalWatch, MemberWatch
from hanse.live.telemetry.prometheus_text import (
    LONG_SECONDS,
    OTHER,
    Family,
    Histogram,
    Labels,
    Sample,
    Values,
    amounts,
    by,
    by_two,
    counter,
    gauge,
    histogram,
    plain,
    tally,
)
from hanse.model.decision import DecisionKind
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    RecordDecision,
    RequestRejected,
    SendMessage,
    TaskSettled,
    TasksSettled,
)
from hanse.model.events import Event, JobSubmitted, MessageReceived
from hanse.model.ids import INDEX_BITS, SECOND, JobId, broker_number, job_of, parse_job
from hanse.model.messages import (
    Claim,
    ClaimReply,
    Outcome,
    OwnershipTransferred,
    ReplicateJobs,
    ReplicaUpdate,
    TaskUpdates,
)
from hanse.model.resources import Vector

if TYPE_CHECKING:
    from hanse.live.telemetry.otlp import Exporter
    from hanse.live.telemetry.spans import SpanMaker

JOBS_MAX: Final = 200_000
"""Jobs that are tracked: twice what a broker takes, because it keeps copies of a peer's too. Beyond it the
oldest are no longer tracked: they are counted without a tenant when they end."""
SUBMISSIONS_MAX: Final = 100_000
"""Submissions without an answer that are tracked; the oldest are dropped first."""
CLAIMS_MAX: Final = 10_000
"""Claims without an answer that are tracked, for each cluster."""
MANY_COMMANDS: Final = 16
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that turn on traces, see ``otlp``."""
ROWS_AT_ONCE: Final = 1_000
RECOVERED: Final = "recovered"
"""Reason of a waiting job without a decision since this broker's start."""
_REASONS: Final = {
    DecisionKind.BLOCKED: "other_work",
    DecisionKind.WAITING: "no_room",
    DecisionKind.MOVED: "moved",
    DecisionKind.RETRIED: "retried",
}
"""Reason to wait by the latest decision; the other kinds are no reasons to wait."""


class _Job:
    """A job that has not ended."""

    __slots__ = ("claimed", "started", "submitted", "tenant", "waits")

    def __init__(self, tenant: str, submitted: int) -> None:
        self.tenant = tenant
        self.submitted = submitted
        self.claimed = False
        self.started = False
        self.waits = ""
        """Reason to wait, as counted in ``_pending``; empty: it is not counted there."""


class BrokerWatch(MemberWatch):
    """The metrics of one broker."""

    def __init__(
        self,
        daemon: Daemonic,
        machine: Broker,
        clock: Clock,
        journal: Journal,
        feed: Feed,
    ) -> None:
        super().__init__(daemon)
        self.journal = JournalWatch(journal)
        self._machine = machine
        self._now = clock.now
        self._feed = feed
        self._exporter: Exporter | None = None
        self._spans: SpanMaker | None = None
        self._trace_if_asked(clock)
        self._tenants = Values()
        self._jobs: dict[JobId, _Job] = {}
        self._newest = -1
        """The highest number of a job accepted so far: a repeated submission gets a lower one."""
        self._submissions: dict[tuple[str, int], tuple[str, int]] = {}
        """Client and request -> tenant, and time of arrival."""
        self._claims: dict[str, dict[int, int]] = {}
        self._submitted: dict[str, int] = {}
        self._rejected = 0
        self._finished: dict[tuple[str, str], int] = {}
        self._tasks: dict[str, int] = dict.fromkeys((str(outcome) for outcome in Outcome), 0)
        self._pending: dict[tuple[str, str], int] = {}
        self._placements: dict[tuple[str, str], int] = {}
        self._conflicts: dict[tuple[str, str], int] = {}
        self._preempted: dict[tuple[str, str], int] = {}
        self._submit_seconds = Histogram()
        self._wait_seconds: dict[str, Histogram] = {}
        self._place_seconds: dict[str, Histogram] = {}
        self._takes: dict[type, Callable[[int, str, Any], None]] = {
            TaskUpdates: self._news, ClaimReply: self._answered, ReplicateJobs: self._replicated,
            ReplicaUpdate: self._progress, OwnershipTransferred: self._taken,
        }  # fmt: skip
        self._does: dict[type, Callable[[int, Any], None]] = {
            SendMessage: self._sent,
            RecordDecision: self._decided,
            JobAccepted: self._accepted,
            RequestRejected: self._refused,
            TaskSettled: self._task_settled,
            TasksSettled: self._tasks_settled,
            JobSettled: self._job_settled,
        }

    def _trace_if_asked(self, clock: Clock) -> None:
        if any(name in os.environ for name in ENDPOINTS):
            from hanse.live.telemetry.otlp import exporter_of  # noqa: PLC0415  memory that most leagues need not pay
            from hanse.live.telemetry.spans import SpanMaker  # noqa: PLC0415  as above

            self._exporter = exporter_of(self.daemon.identity)
            if self._exporter is not None:
                self._spans = SpanMaker(clock, self._exporter.offer)

    # --- what happens --------------------------------------------------------------------------------------

    def told(self, position: int, event: Event, commands: list[Effect]) -> None:
        """Count a durable event and its performed effects."""
        self._feed.told(position, event, commands)
        at, fresh = event.at, True
        if type(event) is MessageReceived:
            envelope = event.envelope
            fresh = self.links.takes(envelope)
            handler = self._takes.get(type(envelope.body))
            if fresh and handler is not None:
                handler(at, envelope.source, envelope.body)
        elif type(event) is JobSubmitted:
            self._submissions[event.client, event.request] = (self._tenants.of(event.spec.tenant), at)
            if len(self._submissions) > SUBMISSIONS_MAX:
                del self._submissions[next(iter(self._submissions))]
        if len(commands) > MANY_COMMANDS:  # then most of them are ends of tasks
            tally(self._tasks, [command.outcome for command in commands if type(command) is TaskSettled])
            commands = [command for command in commands if type(command) is not TaskSettled]
        does = self._does
        for command in commands:
            act = does.get(type(command))
            if act is not None:
                act(at, command)
        if self._spans is not None:
            self._spans.told(event, commands, fresh)

    def close(self) -> None:
        """Close the exporter of traces."""
        if self._exporter is not None:
            self._exporter.close()

    def know(self, rows: list[JobRow]) -> None:
        """Track the jobs that were there when this process started."""
        for row in rows:
            job = parse_job(row.id)
            assert job is not None, f"a row with the id {row.id}"
            known = _Job(self._tenants.of(row.tenant), -1)
            known.started = row.started is not None
            known.claimed = known.started or row.state == "placed"
            self._follow(job, known)
            if broker_number(job) == self._machine.config.number:
                self._newest = max(self._newest, job)
            if row.owner == self._machine.name and row.state in ("blocked", "queued"):
                self._wait_for(known, RECOVERED)

    def _follow(self, job: JobId, known: _Job) -> None:
        jobs = self._jobs
        if job not in jobs:
            jobs[job] = known
            if len(jobs) > JOBS_MAX:
                self._leave(next(iter(jobs)))

    def _leave(self, job: JobId) -> _Job | None:
        known = self._jobs.pop(job, None)
        if known is not None and known.waits:
            self._wait_for(known, "")
        return known

    def _wait_for(self, job: _Job, reason: str) -> None:
        """Count a job under another reason to wait; empty: under none."""
        pending = self._pending
        if job.waits:
            pending[job.tenant, job.waits] -= 1
        job.waits = reason
        if reason:
            pending[job.tenant, reason] = pending.get((job.tenant, reason), 0) + 1

    # --- commands ------------------------------------------------------------------------------------------

    def _accepted(self, _: int, reply: JobAccepted) -> None:
        found = self._submissions.pop((reply.client, reply.request), None)
        if found is None:
            return  # a request to cancel
        tenant, at = found
        self._submit_seconds.observe((self._now() - at) / SECOND)
        if reply.job not in self._jobs and reply.job > self._newest:  # else it was submitted twice
            self._newest = reply.job
            self._submitted[tenant] = self._submitted.get(tenant, 0) + 1
            self._follow(reply.job, _Job(tenant, at))

    def _refused(self, _: int, reply: RequestRejected) -> None:
        if self._submissions.pop((reply.client, reply.request), None) is not None:
            self._rejected += 1

    def _decided(self, _: int, record: RecordDecision) -> None:
        decision = record.decision
        job = self._jobs.get(decision.job)
        if job is not None:
            reason = _REASONS.get(decision.kind, "")
            if reason != job.waits:
                self._wait_for(job, reason)

    def _task_settled(self, _: int, settled: TaskSettled) -> None:
        self._tasks[settled.outcome] += 1

    def _tasks_settled(self, _: int, settled: TasksSettled) -> None:
        self._tasks[settled.outcome] += settled.count

    def _job_settled(self, _: int, settled: JobSettled) -> None:
        job = self._leave(settled.job)
        key = (OTHER if job is None else job.tenant, str(settled.outcome))
        self._finished[key] = self._finished.get(key, 0) + 1

    def _sent(self, at: int, command: SendMessage) -> None:
        envelope = command.envelope
        if not self.links.sends(envelope) or type(envelope.body) is not Claim:
            return
        cluster, claim = envelope.target, envelope.body
        asked = 0
        for batch in claim.batches:
            if batch.lease:
                self._placed(cluster, "bound", len(batch.tasks))
            else:
                asked += len(batch.tasks)
            job = self._jobs.get(batch.job)
            if job is not None and not job.claimed:
                job.claimed = True
                if job.submitted >= 0:
                    _observe(self._place_seconds, job.tenant, at - job.submitted)
        if asked:
            claims = self._claims.setdefault(cluster, {})
            claims[claim.number] = asked
            if len(claims) > CLAIMS_MAX:
                del claims[next(iter(claims))]

    def _placed(self, cluster: str, result: str, tasks: int) -> None:
        key = (cluster, result)
        self._placements[key] = self._placements.get(key, 0) + tasks

    # --- messages ------------------------------------------------------------------------------------------

    def _answered(self, _: int, cluster: str, answer: ClaimReply) -> None:
        asked = self._claims.get(cluster, {}).pop(answer.number, 0)
        refused, moved = len(answer.refused), len(answer.substituted)
        if asked > refused + moved:
            self._placed(cluster, "accepted", asked - refused - moved)
        if moved:
            self._placed(cluster, "substituted", moved)
        for entry in answer.refused:
            self._placed(cluster, "refused", 1)
            key = (cluster, str(entry.reason))
            self._conflicts[key] = self._conflicts.get(key, 0) + 1

    def _news(self, at: int, cluster: str, news: TaskUpdates) -> None:
        jobs = self._jobs
        for number in dict.fromkeys([task >> INDEX_BITS for task, _, _ in news.started]):
            job = jobs.get(JobId(number))
            if job is not None and not job.started:
                job.started = True
                if job.submitted >= 0:
                    _observe(self._wait_seconds, job.tenant, at - job.submitted)
        for task in [end.task for end in news.ended if end.outcome is Outcome.PREEMPTED]:
            job = jobs.get(job_of(task))
            key = (cluster, OTHER if job is None else job.tenant)
            self._preempted[key] = self._preempted.get(key, 0) + 1

    def _replicated(self, at: int, _: str, body: ReplicateJobs) -> None:
        for replica in body.jobs:
            self._follow(replica.job, _Job(self._tenants.of(replica.spec.tenant), at - replica.age))

    def _progress(self, _: int, __: str, body: ReplicaUpdate) -> None:
        for job in body.forget:
            self._leave(job)

    def _taken(self, _: int, __: str, body: OwnershipTransferred) -> None:
        for job in body.jobs:
            known = self._jobs.get(job)
            if known is not None:
                self._wait_for(known, "")  # the new owner counts it

    # --- scraping ------------------------------------------------------------------------------------------

    async def own_families(self) -> list[Family]:
        """Return a broker's metrics."""
        return [
            *self._job_families(await self._feed.ask(self._feed.reads.counts)),
            *self._duration_families(),
            *self._placement_families(),
            *self._view_families(),
            *self.journal.families(),
            *(self._exporter.families() if self._exporter is not None else ()),
            gauge(
                "hanse_reads_behind_events",
                "Events that are in the journal and not yet in the read model.",
                plain(self._feed.lag),
            ),
            counter(
                "hanse_rare_branches_total",
                "How often the machine took each of its rare branches, to find unusual behaviour.",
                by("branch", dict(self._machine.marks)),
            ),
        ]

    def _job_families(self, totals: list[Totals]) -> list[Family]:
        jobs: dict[tuple[str, str], float] = {}
        for total in totals:
            for state, count in total.jobs.items():
                key = (self._tenants.of(total.tenant), state)
                jobs[key] = jobs.get(key, 0) + count
        return [
            gauge(
                "hanse_jobs",
                "Jobs that this broker acts for, by tenant and state; ended ones while it remembers them.",
                by_two(("tenant", "state"), jobs),
            ),
            counter(
                "hanse_jobs_submitted_total", "Jobs accepted here, by tenant.", by("tenant", self._submitted)
            ),
            counter(
                "hanse_jobs_rejected_total",
                "Valid jobs that were not accepted.",
                plain(self._rejected),
            ),
            counter(
                "hanse_jobs_finished_total",
                "Jobs that reached their end, by tenant and outcome.",
                by_two(("tenant", "outcome"), self._finished),
            ),
            counter(
                "hanse_tasks_finished_total",
                "Tasks that reached their end, by outcome.",
                by("outcome", self._tasks),
            ),
            gauge(
                "hanse_pending_jobs",
                "Jobs whose latest answer is that they wait, by tenant and reason.",
                by_two(("tenant", "reason"), self._pending),
            ),
        ]

    def _duration_families(self) -> list[Family]:
        return [
            histogram(
                "hanse_submit_duration_seconds",
                "Time from a job's arrival to its acknowledgement: safe on disk and with the standby.",
                [((), self._submit_seconds)],
            ),
            histogram(
                "hanse_placement_wait_seconds",
                "Time from a job's arrival to the first claim for it, by tenant.",
                _by_tenant(self._place_seconds),
            ),
            histogram(
                "hanse_queue_wait_seconds",
                "Time from a job's arrival to the start of its first task, by tenant.",
                _by_tenant(self._wait_seconds),
            ),
        ]

    def _placement_families(self) -> list[Family]:
        return [
            counter(
                "hanse_placements_total",
                "Tasks proposed to a cluster, by result: accepted, substituted (another node), refused, or "
                "bound to room that it had granted.",
                by_two(("cluster", "result"), self._placements),
            ),
            counter(
                "hanse_claim_conflicts_total",
                "Tasks that a cluster refused because this broker's view was out of date, by reason.",
                by_two(("cluster", "reason"), self._conflicts),
            ),
            counter(
                "hanse_preemptions_total",
                "Attempts that were stopped for more urgent work, by cluster and tenant.",
                by_two(("cluster", "tenant"), self._preempted),
            ),
        ]

    def _view_families(self) -> list[Family]:
        up: dict[str, float] = {}
        stale: dict[str, float] = {}
        standing: dict[str, float] = {}
        free: list[Sample] = []
        now = self._now()
        for cluster in self._machine.config.clusters:
            sight = self._machine.view_state_of(cluster)
            snapshot = sight.snapshot
            up[cluster] = int(snapshot is not None and now - sight.renewed_at < SILENT_AFTER)
            standing[cluster] = sight.standing / 1_000
            if snapshot is not None:
                stale[cluster] = max(now - max(sight.seen_at, sight.renewed_at), 0) / SECOND
                free += amounts(cluster, snapshot.dimensions, sum_of(sight.free))
        peers = {
            name: int(self._machine.is_alive(name))
            for name in self._machine.config.brokers
            if name != self._machine.name
        }
        return [
            gauge("hanse_cluster_up", "1 if this broker hears from a cluster.", by("cluster", up)),
            gauge("hanse_peer_up", "1 if this broker considers another one alive.", by("peer", peers)),
            gauge(
                "hanse_view_staleness_seconds",
                "Time since this broker last heard from a cluster.",
                by("cluster", stale),
            ),
            gauge(
                "hanse_cluster_standing_ratio",
                "This broker's trust in a cluster, 0 to 1: lower after accepted claims that did not start.",
                by("cluster", standing),
            ),
            gauge(
                "hanse_view_free",
                "Resources that this broker believes to be free: cores, bytes, GPUs, units.",
                free,
            ),
        ]


def living(reads: Reads) -> list[JobRow]:
    """Return the jobs that have not ended, from the read model of a restarted broker."""
    rows: list[JobRow] = []
    for state in ("blocked", "queued", "placed", "running"):
        after: str | None = None
        while len(rows) < JOBS_MAX:
            page = reads.jobs(state=state, limit=ROWS_AT_ONCE, after=after)
            rows += page
            if len(page) < ROWS_AT_ONCE:
                break
            after = page[-1].cursor
    return rows


def sum_of(vectors: list[Vector]) -> Vector:
    """Return the sum over all nodes, by column."""
    return tuple(sum(column) for column in zip(*vectors, strict=True))


def _observe(parts: dict[str, Histogram], tenant: str, microseconds: int) -> None:
    found = parts.get(tenant)
    if found is None:
        found = parts[tenant] = Histogram(LONG_SECONDS)
    found.observe(microseconds / SECOND)


def _by_tenant(parts: dict[str, Histogram]) -> list[tuple[Labels, Histogram]]:
    return [((("tenant", tenant),), parts[tenant]) for tenant in sorted(parts)]
