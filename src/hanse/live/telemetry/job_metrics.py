"""The metrics of the jobs of a broker: how many, how they end, how long and why they wait.

Counts come from events and effects as the shell has performed them.
"""

from collections.abc import Callable
from typing import Final

from hanse.api.row_records import JobRow, TenantTotals
from hanse.core.config import BrokerConfig
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.telemetry.prometheus_text import (
    LONG_SECONDS,
    OTHER,
    Histogram,
    Labels,
    LabelValues,
    MetricFamily,
    by_label,
    by_two_labels,
    counter,
    gauge,
    histogram,
    tally,
    unlabelled_sample,
)
from hanse.model.decision_record import DecisionKind
from hanse.model.effects import (
    JobAccepted,
    JobSettled,
    RecordDecision,
    RequestRejected,
    TaskSettled,
    TasksSettled,
)
from hanse.model.events import JobSubmitted
from hanse.model.ids import INDEX_BITS, SECOND, Instant, JobId, TaskId, broker_number, parse_job
from hanse.model.messages import Claim, Outcome, OwnershipTransferred, ReplicateJobs, ReplicaUpdate

JOBS_MAX: Final = 200_000
"""Jobs that are tracked: twice what a broker takes, because it keeps copies of a peer's too. Beyond it the
oldest are no longer tracked: they are counted without a tenant when they end."""
SUBMISSIONS_MAX: Final = 100_000
"""Submissions without an answer that are tracked; the oldest are dropped first."""
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


class TrackedJob:
    """A job that has not ended."""

    __slots__ = ("claimed", "started", "submitted", "tenant", "waits")

    def __init__(self, tenant: str, submitted: int) -> None:
        self.tenant = tenant
        self.submitted = submitted
        self.claimed = False
        self.started = False
        self.waits = ""
        """Reason to wait, as counted in ``_pending``; empty: it is not counted there."""


class JobMetrics:
    """The metrics of the jobs of one broker."""

    def __init__(self, config: BrokerConfig, now: Callable[[], Instant]) -> None:
        self._config = config
        self._now = now
        self._tenants = LabelValues()
        self._jobs: dict[JobId, TrackedJob] = {}
        self._newest = -1
        """The highest number of a job accepted so far: a repeated submission gets a lower one."""
        self._submissions: dict[tuple[str, int], tuple[str, int]] = {}
        """Client and request -> tenant, and time of arrival."""
        self._submitted: dict[str, int] = {}
        self._rejected = 0
        self._finished: dict[tuple[str, str], int] = {}
        self._tasks: dict[str, int] = dict.fromkeys((str(outcome) for outcome in Outcome), 0)
        self._pending: dict[tuple[str, str], int] = {}
        self._submit_seconds = Histogram()
        self._wait_seconds: dict[str, Histogram] = {}
        self._place_seconds: dict[str, Histogram] = {}

    def tenant_of(self, job: JobId) -> str:
        """Return the tenant of a job as a label."""
        tracked = self._jobs.get(job)
        return OTHER if tracked is None else tracked.tenant

    def add_recovered(self, rows: list[JobRow]) -> None:
        """Track the jobs that were there when this process started."""
        for row in rows:
            job = parse_job(row.id)
            assert job is not None, f"a row with the id {row.id}"
            tracked = TrackedJob(self._tenants.value_of(row.tenant), -1)
            tracked.started = row.started is not None
            tracked.claimed = tracked.started or row.state == "placed"
            self._track(job, tracked)
            if broker_number(job) == self._config.number:
                self._newest = max(self._newest, job)
            if row.owner == self._config.name and row.state in ("blocked", "queued"):
                self._set_wait_reason(tracked, RECOVERED)

    def _track(self, job: JobId, tracked: TrackedJob) -> None:
        jobs = self._jobs
        if job not in jobs:
            jobs[job] = tracked
            if len(jobs) > JOBS_MAX:
                self._untrack(next(iter(jobs)))

    def _untrack(self, job: JobId) -> TrackedJob | None:
        tracked = self._jobs.pop(job, None)
        if tracked is not None and tracked.waits:
            self._set_wait_reason(tracked, "")
        return tracked

    def _set_wait_reason(self, job: TrackedJob, reason: str) -> None:
        """Count a job under another reason to wait; empty: under none."""
        pending = self._pending
        if job.waits:
            pending[job.tenant, job.waits] -= 1
        job.waits = reason
        if reason:
            pending[job.tenant, reason] = pending.get((job.tenant, reason), 0) + 1

    # --- what happens --------------------------------------------------------------------------------------

    def on_job_submitted(self, event: JobSubmitted) -> None:
        """Track a submission until its answer."""
        self._submissions[event.client, event.request] = (self._tenants.value_of(event.spec.tenant), event.at)
        if len(self._submissions) > SUBMISSIONS_MAX:
            del self._submissions[next(iter(self._submissions))]

    def on_job_accepted(self, reply: JobAccepted) -> None:
        """Track a job that was accepted, and observe how long its submission took."""
        submission = self._submissions.pop((reply.client, reply.request), None)
        if submission is None:
            return  # a request to cancel
        tenant, at = submission
        self._submit_seconds.observe((self._now() - at) / SECOND)
        if reply.job not in self._jobs and reply.job > self._newest:  # else it was submitted twice
            self._newest = reply.job
            self._submitted[tenant] = self._submitted.get(tenant, 0) + 1
            self._track(reply.job, TrackedJob(tenant, at))

    def on_request_rejected(self, reply: RequestRejected) -> None:
        """Count a submission that was rejected."""
        if self._submissions.pop((reply.client, reply.request), None) is not None:
            self._rejected += 1

    def on_decision(self, record: RecordDecision) -> None:
        """Count a job under its new reason to wait."""
        decision = record.decision
        job = self._jobs.get(decision.job)
        if job is not None:
            reason = _REASONS.get(decision.kind, "")
            if reason != job.waits:
                self._set_wait_reason(job, reason)

    def on_task_settled(self, settled: TaskSettled) -> None:
        """Count the end of a task."""
        self._tasks[settled.outcome] += 1

    def on_tasks_settled(self, settled: TasksSettled) -> None:
        """Count the ends of tasks."""
        self._tasks[settled.outcome] += settled.count

    def count_task_ends(self, outcomes: list[str]) -> None:
        """Count the ends of many tasks at once."""
        tally(self._tasks, outcomes)

    def on_job_settled(self, settled: JobSettled) -> None:
        """Count the end of a job."""
        job = self._untrack(settled.job)
        key = (OTHER if job is None else job.tenant, str(settled.outcome))
        self._finished[key] = self._finished.get(key, 0) + 1

    def on_claim(self, at: Instant, claim: Claim) -> None:
        """Observe how long jobs waited for the first claim for them."""
        for batch in claim.batches:
            job = self._jobs.get(batch.job)
            if job is not None and not job.claimed:
                job.claimed = True
                if job.submitted >= 0:
                    _observe(self._place_seconds, job.tenant, at - job.submitted)

    def on_tasks_started(self, at: Instant, tasks: list[TaskId]) -> None:
        """Observe how long jobs waited for the start of their first task."""
        for number in dict.fromkeys([task >> INDEX_BITS for task in tasks]):
            job = self._jobs.get(JobId(number))
            if job is not None and not job.started:
                job.started = True
                if job.submitted >= 0:
                    _observe(self._wait_seconds, job.tenant, at - job.submitted)

    def on_replicate_jobs(self, at: Instant, body: ReplicateJobs) -> None:
        """Track the jobs of a peer, whose end may come here."""
        for replica in body.jobs:
            self._track(
                replica.job, TrackedJob(self._tenants.value_of(replica.spec.tenant), at - replica.age)
            )

    def on_replica_update(self, body: ReplicaUpdate) -> None:
        """Forget jobs of a peer."""
        for job in body.forget:
            self._untrack(job)

    def on_ownership_transferred(self, body: OwnershipTransferred) -> None:
        """Count no reasons to wait of jobs that a peer owns now."""
        for job in body.jobs:
            tracked = self._jobs.get(job)
            if tracked is not None:
                self._set_wait_reason(tracked, "")  # the new owner counts it

    # --- scraping ------------------------------------------------------------------------------------------

    def families(self, totals: list[TenantTotals]) -> list[MetricFamily]:
        """Return the metrics. ``totals``: the jobs in the read model."""
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
                unlabelled_sample(self._rejected),
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
            *self._duration_families(),
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


def _observe(parts: dict[str, Histogram], tenant: str, microseconds: int) -> None:
    found = parts.get(tenant)
    if found is None:
        found = parts[tenant] = Histogram(LONG_SECONDS)
    found.observe(microseconds / SECOND)


def _by_tenant(parts: dict[str, Histogram]) -> list[tuple[Labels, Histogram]]:
    return [((("tenant", tenant),), parts[tenant]) for tenant in sorted(parts)]
