"""The metrics of a broker: jobs, their waiting times, their placements, and the age of its views.

Counts come from events and effects as the shell has performed them (``on_event_durable``); present state
(views, jobs by state) is queried at a scrape. Counters start at zero with every start of the process, as
Prometheus expects.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hanse.api.row_records import JobRow
from hanse.core.broker.broker import Broker
from hanse.live.clock import Clock
from hanse.live.journal.journal import Journal
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.telemetry.job_metrics import JobMetrics
from hanse.live.telemetry.member_metrics import JournalMetrics, MemberMetrics, ObservedDaemon
from hanse.live.telemetry.placement_metrics import PlacementMetrics
from hanse.live.telemetry.prometheus_text import MetricFamily, by_label, counter, gauge, unlabelled_sample
from hanse.live.telemetry.view_metrics import ViewMetrics
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
from hanse.model.ids import Instant, job_of
from hanse.model.messages import (
    Claim,
    ClaimReply,
    Outcome,
    OwnershipTransferred,
    ReplicateJobs,
    ReplicaUpdate,
    TaskUpdates,
)

if TYPE_CHECKING:
    from hanse.live.telemetry.otlp import SpanExporter
    from hanse.live.telemetry.spans import SpanBuilder

MANY_EFFECTS: Final = 16
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that turn on traces, see ``otlp``."""


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
        self._feeder = feeder
        self._exporter: SpanExporter | None = None
        self._spans: SpanBuilder | None = None
        self._start_tracing(clock)
        self._jobs = jobs = JobMetrics(machine.config, clock.now)
        self._placements = PlacementMetrics()
        self._views = ViewMetrics(machine, clock.now)
        self._message_handlers: dict[type, Callable[[Instant, str, Any], None]] = {
            TaskUpdates: self._on_task_updates,
            ClaimReply: lambda _, cluster, reply: self._placements.on_claim_reply(cluster, reply),
            ReplicateJobs: lambda at, _, body: jobs.on_replicate_jobs(at, body),
            ReplicaUpdate: lambda _, __, body: jobs.on_replica_update(body),
            OwnershipTransferred: lambda _, __, body: jobs.on_ownership_transferred(body),
        }
        self._effect_handlers: dict[type, Callable[[Any], None]] = {
            RecordDecision: jobs.on_decision,
            JobAccepted: jobs.on_job_accepted,
            RequestRejected: jobs.on_request_rejected,
            TaskSettled: jobs.on_task_settled,
            TasksSettled: jobs.on_tasks_settled,
            JobSettled: jobs.on_job_settled,
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
            self._jobs.on_job_submitted(event)
        if len(effects) > MANY_EFFECTS:  # then most of them are ends of tasks
            self._jobs.count_task_ends([effect.outcome for effect in effects if type(effect) is TaskSettled])
            effects = [effect for effect in effects if type(effect) is not TaskSettled]
        effect_handlers = self._effect_handlers
        for effect in effects:
            if type(effect) is SendMessage:
                self._on_message_sent(at, effect)
                continue
            effect_handler = effect_handlers.get(type(effect))
            if effect_handler is not None:
                effect_handler(effect)
        if self._spans is not None:
            self._spans.on_event_durable(event, effects, fresh)

    def close(self) -> None:
        """Close the exporter of traces."""
        if self._exporter is not None:
            self._exporter.close()

    def add_recovered(self, rows: list[JobRow]) -> None:
        """Track the jobs that were there when this process started."""
        self._jobs.add_recovered(rows)

    def _on_message_sent(self, at: Instant, effect: SendMessage) -> None:
        envelope = effect.envelope
        if self.links.note_sent(envelope) and type(envelope.body) is Claim:
            self._placements.on_claim(envelope.target, envelope.body)
            self._jobs.on_claim(at, envelope.body)

    def _on_task_updates(self, at: Instant, cluster: str, updates: TaskUpdates) -> None:
        self._jobs.on_tasks_started(at, [task for task, _, _ in updates.started])
        for task in [end.task for end in updates.ended if end.outcome is Outcome.PREEMPTED]:
            self._placements.on_preemption(cluster, self._jobs.tenant_of(job_of(task)))

    # --- scraping ------------------------------------------------------------------------------------------

    async def own_families(self) -> list[MetricFamily]:
        """Return a broker's metrics."""
        return [
            *self._jobs.families(await self._feeder.query(self._feeder.read_model.tenant_totals)),
            *self._placements.families(),
            *self._views.families(),
            *self.journal.families(),
            *(self._exporter.families() if self._exporter is not None else ()),
            gauge(
                "hanse_reads_behind_events",
                "Events that are in the journal and not yet in the read model.",
                unlabelled_sample(self._feeder.lag),
            ),
            counter(
                "hanse_rare_branches_total",
                "How often the machine took each of its rare branches, to find unusual behaviour.",
                by_label("branch", dict(self._machine.marks)),
            ),
        ]
