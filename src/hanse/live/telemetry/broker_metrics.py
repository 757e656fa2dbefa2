"""The metrics of a broker: jobs, their waiting times, their placements, and the age of its views.

Counts come from events and effects as the shell has performed them (``on_event_durable``); present state
(views, jobs by state) is queried at a scrape. Counters start at zero with every start of the process, as
Prometheus expects.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hanse.api.rows import JobRow, TenantTotals
from hanse.core.broker.broker import Broker
from hanse.live.clock import Clock
from hanse.live.http.league_status import SILENT_AFTER
from hanse.live.journal.journal import Journal
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.telemetry.member_metrics import JournalMetrics, MemberMetrics, ObservedDaemon
from hanse.live.telemetry.prometheus_text import (
    LONG_SECONDS,
    OTHER,
    Histogram,
    Labels,
    LabelValues,
    MetricFamily,
    Sample,
    by_label,
    by_two_labels,
    counter,
    gauge,
    histogram,
    resource_samples,
    tally,
    unlabelled,
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
    from hanse.live.telemetry.otlp import SpanExporter
    from hanse.live.telemetry.spans import SpanBuilder

JOBS_MAX: Final = 200_000
"""Jobs that are tracked: twice what a broker takes, because it keeps copies of a peer's too. Beyond it the
oldest are no longer tracked: they are counted without a tenant when they end."""
SUBMISSIONS_MAX: Final = 100_000
"""Submissions without an answer that are tracked; the oldest are dropped first."""
CLAIMS_MAX: Final = 10_000
"""Claims without an answer that are tracked, for each cluster."""
MANY_EFFECTS: Final = 16
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that turn on traces, see ``otlp``."""
PAGE_ROWS: Final = 1_000
RECOVERED: Final = "recovered"
"""Reason of a waiting job without a decision since this broker's start."""
_REASONS: Final = {
    DecisionKind.BLOCKED: "other_work",
    DecisionKind.WAITING: "no_room",
    DecisionKind.MOVED: "moved",
    DecisionKind.RETRIED: "retried",
}
"""Reason to wait by the latest decision; the other kinds are no reasons to wait."""


class _TrackedJob:
    """A job that has not ended."""

    __slots__ = ("claimed", "started", "submitted", "tenant", "waits")

    def __init__(self, tenant: str, submitted: int) -> None:
        self.tenant = tenant
        self.submitted = submitted
        self.claimed = False
        self.started = False
        self.waits = ""
        """Reason to wait, as counted in ``_pending``; empty: it is not counted there."""


class BrokerMetrics(MemberMetrics):
    """The metrics of one broker."""

    def __init__(
        self,
        daemon: ObservedDaemon,
        machine: Broker,
        clock: Clock,
        journal: Journal,
        feeder: ReadModelFeeder,
    ) -> None:
        super().__init__(daemon)
        self.journal = JournalMetrics(journal)
        self._machine = machine
        self._now = clock.now
        self._feeder = feeder
        self._exporter: SpanExporter | None = None
        self._spans: SpanBuilder | None = None
        self._start_tracing(clock)
        self._tenants = LabelValues()
        self._jobs: dict[JobId, _TrackedJob] = {}
        self._newest = -1
        """The highest number of a job accepted so far: a repeated submission gets a lower one."""
        self._submissions: dict[tuple[str, int], tuple[str, int]] = {}
        """Client and request -> tenant, and time of arrival."""
        self._unanswered_claims: dict[str, dict[int, int]] = {}
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
        self._message_handlers: dict[type, Callable[[int, str, Any], None]] = {
            TaskUpdates: self._on_task_updates, ClaimReply: self._on_claim_reply,
            ReplicateJobs: self._on_replicate_jobs,
            ReplicaUpdate: self._on_replica_update, OwnershipTransferred: self._on_ownership_transferred,
        }  # fmt: skip
        self._effect_handlers: dict[type, Callable[[int, Any], None]] = {
            SendMessage: self._on_message_sent,
            RecordDecision: self._on_decision,
            JobAccepted: self._on_job_accepted,
            RequestRejected: self._on_request_rejected,
            TaskSettled: self._on_task_settled,
            TasksSettled: self._on_tasks_settled,
            JobSettled: self._on_job_settled,
        }

    def _start_tracing(self, clock: Clock) -> None:
        if any(name in os.environ for name in ENDPOINT_VARIABLES):
            from hanse.live.telemetry.otlp import create_exporter  # noqa: PLC0415  memory that most leagues need not pay
            from hanse.live.telemetry.spans import SpanBuilder  # noqa: PLC0415  as above

            self._exporter = create_exporter(self.daemon.identity)
            if self._exporter is not None:
                self._spans = SpanBuilder(clock, self._exporter.offer)

    # --- what happens --------------------------------------------------------------------------------------

    def on_event_durable(self, position: int, event: Event, effects: list[Effect]) -> None:
        """Count a durable event and its performed effects."""
        self._feeder.on_event_durable(position, event, effects)
        at, fresh = event.at, True
        if type(event) is MessageReceived:
            envelope = event.envelope
            fresh = self.links.note_received(envelope)
            handler = self._message_handlers.get(type(envelope.body))
            if fresh and handler is not None:
                handler(at, envelope.source, envelope.body)
        elif type(event) is JobSubmitted:
            self._submissions[event.client, event.request] = (self._tenants.value_of(event.spec.tenant), at)
            if len(self._submissions) > SUBMISSIONS_MAX:
                del self._submissions[next(iter(self._submissions))]
        if len(effects) > MANY_EFFECTS:  # then most of them are ends of tasks
            tally(self._tasks, [effect.outcome for effect in effects if type(effect) is TaskSettled])
            effects = [effect for effect in effects if type(effect) is not TaskSettled]
        effect_handlers = self._effect_handlers
        for effect in effects:
            effect_handler = effect_handlers.get(type(effect))
            if effect_handler is not None:
                effect_handler(at, effect)
        if self._spans is not None:
            self._spans.on_event_durable(event, effects, fresh)

    def close(self) -> None:
        """Close the exporter of traces."""
        if self._exporter is not None:
            self._exporter.close()

    def add_recovered(self, rows: list[JobRow]) -> None:
        """Track the jobs that were there when this process started."""
        for row in rows:
            job = parse_job(row.id)
            assert job is not None, f"a row with the id {row.id}"
            tracked = _TrackedJob(self._tenants.value_of(row.tenant), -1)
            tracked.started = row.started is not None
            tracked.claimed = tracked.started or row.state == "placed"
            self._track(job, tracked)
            if broker_number(job) == self._machine.config.number:
                self._newest = max(self._newest, job)
            if row.owner == self._machine.name and row.state in ("blocked", "queued"):
                self._set_wait_reason(tracked, RECOVERED)

    def _track(self, job: JobId, tracked: _TrackedJob) -> None:
        jobs = self._jobs
        if job not in jobs:
            jobs[job] = tracked
            if len(jobs) > JOBS_MAX:
                self._untrack(next(iter(jobs)))

    def _untrack(self, job: JobId) -> _TrackedJob | None:
        tracked = self._jobs.pop(job, None)
        if tracked is not None and tracked.waits:
            self._set_wait_reason(tracked, "")
        return tracked

    def _set_wait_reason(self, job: _TrackedJob, reason: str) -> None:
        """Count a job under another reason to wait; empty: under none."""
        pending = self._pending
        if job.waits:
            pending[job.tenant, job.waits] -= 1
        job.waits = reason
        if reason:
            pending[job.tenant, reason] = pending.get((job.tenant, reason), 0) + 1

    # --- commands ------------------------------------------------------------------------------------------

    def _on_job_accepted(self, _: int, reply: JobAccepted) -> None:
        submission = self._submissions.pop((reply.client, reply.request), None)
        if submission is None:
            return  # a request to cancel
        tenant, at = submission
        self._submit_seconds.observe((self._now() - at) / SECOND)
        if reply.job not in self._jobs and reply.job > self._newest:  # else it was submitted twice
            self._newest = reply.job
            self._submitted[tenant] = self._submitted.get(tenant, 0) + 1
            self._track(reply.job, _TrackedJob(tenant, at))

    def _on_request_rejected(self, _: int, reply: RequestRejected) -> None:
        if self._submissions.pop((reply.client, reply.request), None) is not None:
            self._rejected += 1

    def _on_decision(self, _: int, record: RecordDecision) -> None:
        decision = record.decision
        job = self._jobs.get(decision.job)
        if job is not None:
            reason = _REASONS.get(decision.kind, "")
            if reason != job.waits:
                self._set_wait_reason(job, reason)

    def _on_task_settled(self, _: int, settled: TaskSettled) -> None:
        self._tasks[settled.outcome] += 1

    def _on_tasks_settled(self, _: int, settled: TasksSettled) -> None:
        self._tasks[settled.outcome] += settled.count

    def _on_job_settled(self, _: int, settled: JobSettled) -> None:
        job = self._untrack(settled.job)
        key = (OTHER if job is None else job.tenant, str(settled.outcome))
        self._finished[key] = self._finished.get(key, 0) + 1

    def _on_message_sent(self, at: int, effect: SendMessage) -> None:
        envelope = effect.envelope
        if not self.links.note_sent(envelope) or type(envelope.body) is not Claim:
            return
        cluster, claim = envelope.target, envelope.body
        claimed = 0
        for batch in claim.batches:
            if batch.lease:
                self._count_placed(cluster, "bound", len(batch.tasks))
            else:
                claimed += len(batch.tasks)
            job = self._jobs.get(batch.job)
            if job is not None and not job.claimed:
                job.claimed = True
                if job.submitted >= 0:
                    _observe(self._place_seconds, job.tenant, at - job.submitted)
        if claimed:
            claims = self._unanswered_claims.setdefault(cluster, {})
            claims[claim.number] = claimed
            if len(claims) > CLAIMS_MAX:
                del claims[next(iter(claims))]

    def _count_placed(self, cluster: str, result: str, tasks: int) -> None:
        key = (cluster, result)
        self._placements[key] = self._placements.get(key, 0) + tasks

    # --- messages ------------------------------------------------------------------------------------------

    def _on_claim_reply(self, _: int, cluster: str, reply: ClaimReply) -> None:
        claimed = self._unanswered_claims.get(cluster, {}).pop(reply.number, 0)
        refused, moved = len(reply.refused), len(reply.substituted)
        if claimed > refused + moved:
            self._count_placed(cluster, "accepted", claimed - refused - moved)
        if moved:
            self._count_placed(cluster, "substituted", moved)
        for entry in reply.refused:
            self._count_placed(cluster, "refused", 1)
            key = (cluster, str(entry.reason))
            self._conflicts[key] = self._conflicts.get(key, 0) + 1

    def _on_task_updates(self, at: int, cluster: str, updates: TaskUpdates) -> None:
        jobs = self._jobs
        for number in dict.fromkeys([task >> INDEX_BITS for task, _, _ in updates.started]):
            job = jobs.get(JobId(number))
            if job is not None and not job.started:
                job.started = True
                if job.submitted >= 0:
                    _observe(self._wait_seconds, job.tenant, at - job.submitted)
        for task in [end.task for end in updates.ended if end.outcome is Outcome.PREEMPTED]:
            job = jobs.get(job_of(task))
            key = (cluster, OTHER if job is None else job.tenant)
            self._preempted[key] = self._preempted.get(key, 0) + 1

    def _on_replicate_jobs(self, at: int, _: str, body: ReplicateJobs) -> None:
        for replica in body.jobs:
            self._track(
                replica.job, _TrackedJob(self._tenants.value_of(replica.spec.tenant), at - replica.age)
            )

    def _on_replica_update(self, _: int, __: str, body: ReplicaUpdate) -> None:
        for job in body.forget:
            self._untrack(job)

    def _on_ownership_transferred(self, _: int, __: str, body: OwnershipTransferred) -> None:
        for job in body.jobs:
            tracked = self._jobs.get(job)
            if tracked is not None:
                self._set_wait_reason(tracked, "")  # the new owner counts it

    # --- scraping ------------------------------------------------------------------------------------------

    async def own_families(self) -> list[MetricFamily]:
        """Return a broker's metrics."""
        return [
            *self._job_families(await self._feeder.query(self._feeder.read_model.tenant_totals)),
            *self._duration_families(),
            *self._placement_families(),
            *self._view_families(),
            *self.journal.families(),
            *(self._exporter.families() if self._exporter is not None else ()),
            gauge(
                "hanse_reads_behind_events",
                "Events that are in the journal and not yet in the read model.",
                unlabelled(self._feeder.lag),
            ),
            counter(
                "hanse_rare_branches_total",
                "How often the machine took each of its rare branches, to find unusual behaviour.",
                by_label("branch", dict(self._machine.marks)),
            ),
        ]

    def _job_families(self, totals: list[TenantTotals]) -> list[MetricFamily]:
        jobs: dict[tuple[str, str], float] = {}
        for total in totals:
            for state, count in total.jobs.items():
                key = (self._tenants.value_of(total.tenant), state)
                jobs[key] = jobs.get(key, 0) + count
        return [
            gauge(
                "hanse_jobs",
                "Jobs that this broker acts for, by tenant and state; ended ones while it remembers them.",
                by_two_labels(("tenant", "state"), jobs),
            ),
            counter(
                "hanse_jobs_submitted_total",
                "Jobs accepted here, by tenant.",
                by_label("tenant", self._submitted),
            ),
            counter(
                "hanse_jobs_rejected_total",
                "Valid jobs that were not accepted.",
                unlabelled(self._rejected),
            ),
            counter(
                "hanse_jobs_finished_total",
                "Jobs that reached their end, by tenant and outcome.",
                by_two_labels(("tenant", "outcome"), self._finished),
            ),
            counter(
                "hanse_tasks_finished_total",
                "Tasks that reached their end, by outcome.",
                by_label("outcome", self._tasks),
            ),
            gauge(
                "hanse_pending_jobs",
                "Jobs whose latest answer is that they wait, by tenant and reason.",
                by_two_labels(("tenant", "reason"), self._pending),
            ),
        ]

    def _duration_families(self) -> list[MetricFamily]:
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

    def _placement_families(self) -> list[MetricFamily]:
        return [
            counter(
                "hanse_placements_total",
                "Tasks proposed to a cluster, by result: accepted, substituted (another node), refused, or "
                "bound to room that it had granted.",
                by_two_labels(("cluster", "result"), self._placements),
            ),
            counter(
                "hanse_claim_conflicts_total",
                "Tasks that a cluster refused because this broker's view was out of date, by reason.",
                by_two_labels(("cluster", "reason"), self._conflicts),
            ),
            counter(
                "hanse_preemptions_total",
                "Attempts that were stopped for more urgent work, by cluster and tenant.",
                by_two_labels(("cluster", "tenant"), self._preempted),
            ),
        ]

    def _view_families(self) -> list[MetricFamily]:
        up: dict[str, float] = {}
        stale: dict[str, float] = {}
        standing: dict[str, float] = {}
        free: list[Sample] = []
        now = self._now()
        for cluster in self._machine.config.clusters:
            view = self._machine.view_state_of(cluster)
            snapshot = view.snapshot
            up[cluster] = int(snapshot is not None and now - view.renewed_at < SILENT_AFTER)
            standing[cluster] = view.standing / 1_000
            if snapshot is not None:
                stale[cluster] = max(now - max(view.seen_at, view.renewed_at), 0) / SECOND
                free += resource_samples(cluster, snapshot.dimensions, sum_vectors(view.free))
        peers = {
            name: int(self._machine.is_alive(name))
            for name in self._machine.config.brokers
            if name != self._machine.name
        }
        return [
            gauge("hanse_cluster_up", "1 if this broker hears from a cluster.", by_label("cluster", up)),
            gauge("hanse_peer_up", "1 if this broker considers another one alive.", by_label("peer", peers)),
            gauge(
                "hanse_view_staleness_seconds",
                "Time since this broker last heard from a cluster.",
                by_label("cluster", stale),
            ),
            gauge(
                "hanse_cluster_standing_ratio",
                "This broker's trust in a cluster, 0 to 1: lower after accepted claims that did not start.",
                by_label("cluster", standing),
            ),
            gauge(
                "hanse_view_free",
                "Resources that this broker believes to be free: cores, bytes, GPUs, units.",
                free,
            ),
        ]


def unfinished_jobs(read_model: ReadModel) -> list[JobRow]:
    """Return the jobs that have not ended, from the read model of a restarted broker."""
    rows: list[JobRow] = []
    for state in ("blocked", "queued", "placed", "running"):
        after: str | None = None
        while len(rows) < JOBS_MAX:
            page = read_model.jobs(state=state, limit=PAGE_ROWS, after=after)
            rows += page
            if len(page) < PAGE_ROWS:
                break
            after = page[-1].cursor
    return rows


def sum_vectors(vectors: list[Vector]) -> Vector:
    """Return the sum over all nodes, by column."""
    return tuple(sum(column) for column in zip(*vectors, strict=True))


def _observe(parts: dict[str, Histogram], tenant: str, microseconds: int) -> None:
    found = parts.get(tenant)
    if found is None:
        found = parts[tenant] = Histogram(LONG_SECONDS)
    found.observe(microseconds / SECOND)


def _by_tenant(parts: dict[str, Histogram]) -> list[tuple[Labels, Histogram]]:
    return [((("tenant", tenant),), parts[tenant]) for tenant in sorted(parts)]
