"""The spans of a job: submit, queue, place, run, settle, under one span for the job.

They are built from events and effects when the job has ended, and handed to an exporter that never waits. A
job that was interrupted by a restart of its broker has no spans.
"""

import secrets
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import msgspec

from hanse.live.clock import Clock
from hanse.live.telemetry.trace_context import TraceParent, parse_traceparent
from hanse.model.effects import Effect, JobAccepted, JobSettled, RequestRejected, SendMessage
from hanse.model.events import Event, JobSubmitted, MessageReceived
from hanse.model.ids import JobId, job_of, job_text
from hanse.model.job import JobSpec
from hanse.model.messages import Claim, Outcome, TaskUpdates
from hanse.security.wall_time import wall_now

JOBS_MAX: Final = 10_000
"""Jobs that are tracked at the same time; further ones have no spans, and are counted."""
CLUSTERS_MAX: Final = 16
"""Clusters of a job that its span names."""
TRACE_BYTES: Final = 16
SPAN_BYTES: Final = 8
_MICROSECOND: Final = 1_000
"""Nanoseconds in a microsecond."""

Attributes = tuple[tuple[str, str | int], ...]


class Span(msgspec.Struct, frozen=True):
    """One span, ready for export. Times in unix nanoseconds."""

    trace: bytes
    span: bytes
    parent: bytes
    """Empty: it is the root."""
    name: str
    begin: int
    end: int
    attributes: Attributes = ()
    failed: bool = False
    is_job: bool = False
    """True if the span covers the whole job."""


class _JobTimeline:
    """The times of a job so far. Instants of the broker's clock; -1: not yet."""

    __slots__ = (
        "accepted",
        "attempts",
        "claimed",
        "clusters",
        "ended",
        "parent",
        "spec",
        "started",
        "submitted",
    )

    def __init__(self, spec: JobSpec, parent: TraceParent | None, submitted: int) -> None:
        self.spec = spec
        self.parent = parent
        self.submitted = submitted
        self.accepted = self.claimed = self.started = self.ended = -1
        self.attempts = 0
        self.clusters: dict[str, None] = {}


class SpanBuilder:
    """Builds the spans of one broker's jobs. ``offer`` takes the spans of a job and must not wait."""

    def __init__(self, clock: Clock, offer: Callable[[list[Span]], None]) -> None:
        self.untraced = 0
        """Jobs that were not tracked because there were too many."""
        self._clock = clock
        self._offer = offer
        self._submissions: dict[tuple[str, int], _JobTimeline] = {}
        self._timelines: dict[JobId, _JobTimeline] = {}
        self._effect_handlers: dict[type, Callable[[int, Any], None]] = {
            SendMessage: self._on_message_sent,
            JobAccepted: self._on_job_accepted,
            RequestRejected: self._on_request_rejected,
            JobSettled: self._on_job_settled,
        }

    def on_event_durable(self, event: Event, effects: list[Effect], fresh: bool) -> None:
        """Note a durable event and its effects. ``fresh``: the event is no repeated message."""
        if type(event) is JobSubmitted:
            self._on_job_submitted(event)
        elif fresh and type(event) is MessageReceived and type(event.envelope.body) is TaskUpdates:
            self._on_task_updates(event.at, event.envelope.body)
        for effect in effects:
            handler = self._effect_handlers.get(type(effect))
            if handler is not None:
                handler(event.at, effect)

    def _on_job_submitted(self, event: JobSubmitted) -> None:
        parent = parse_traceparent(event.spec.trace)
        if parent is not None and not parent.sampled:
            return
        if len(self._timelines) + len(self._submissions) >= JOBS_MAX:
            self.untraced += 1
            return
        self._submissions[event.client, event.request] = _JobTimeline(event.spec, parent, event.at)

    def _on_job_accepted(self, _: int, reply: JobAccepted) -> None:
        timeline = self._submissions.pop((reply.client, reply.request), None)
        if timeline is not None and reply.job not in self._timelines:
            timeline.accepted = self._clock.now()
            self._timelines[reply.job] = timeline

    def _on_request_rejected(self, _: int, reply: RequestRejected) -> None:
        self._submissions.pop((reply.client, reply.request), None)

    def _on_message_sent(self, at: int, effect: SendMessage) -> None:
        envelope = effect.envelope
        if type(envelope.body) is Claim:
            for batch in envelope.body.batches:
                timeline = self._timelines.get(batch.job)
                if timeline is not None:
                    if timeline.claimed < 0:
                        timeline.claimed = at
                    if len(timeline.clusters) < CLUSTERS_MAX:
                        timeline.clusters[envelope.target] = None

    def _on_task_updates(self, at: int, updates: TaskUpdates) -> None:
        for task, _, _ in updates.started:
            timeline = self._timelines.get(job_of(task))
            if timeline is not None and timeline.started < 0:
                timeline.started = at
        for end in updates.ended:
            timeline = self._timelines.get(job_of(end.task))
            if timeline is not None:
                timeline.ended = at
                timeline.attempts += 1

    def _on_job_settled(self, at: int, settled: JobSettled) -> None:
        timeline = self._timelines.pop(settled.job, None)
        if timeline is not None:
            self._offer(self._build_spans(settled.job, timeline, settled.outcome, at))

    def _build_spans(self, job: JobId, timeline: _JobTimeline, outcome: Outcome, settled: int) -> list[Span]:
        clock_shift = wall_now() - self._clock.now()
        trace = timeline.parent.trace if timeline.parent is not None else secrets.token_bytes(TRACE_BYTES)
        root_id = secrets.token_bytes(SPAN_BYTES)

        def span(name: str, begin: int, end: int) -> Span:
            return Span(
                trace,
                secrets.token_bytes(SPAN_BYTES),
                root_id,
                name,
                (begin + clock_shift) * _MICROSECOND,
                (max(begin, end) + clock_shift) * _MICROSECOND,
            )

        moments = [
            ("submit", timeline.submitted),
            ("queue", timeline.accepted),
            ("place", timeline.claimed),
            ("run", timeline.started),
            ("settle", timeline.ended),
            ("", settled),
        ]
        known = [(name, at) for name, at in moments if at >= 0]
        parts = [span(name, at, until) for (name, at), (_, until) in pairwise(known)]
        failed = outcome is Outcome.FAILED
        root = Span(
            trace,
            root_id,
            timeline.parent.span if timeline.parent is not None else b"",
            f"job {timeline.spec.name}",
            (timeline.submitted + clock_shift) * _MICROSECOND,
            (settled + clock_shift) * _MICROSECOND,
            _attributes(job, timeline, outcome),
            failed,
            is_job=True,
        )
        return [root, *parts]


def _attributes(job: JobId, timeline: _JobTimeline, outcome: Outcome) -> Attributes:
    """Return the attributes that the conventions for messaging require, and ours."""
    attributes: Attributes = (
        ("messaging.system", "hanse"),
        ("messaging.destination.name", timeline.spec.tenant),
        ("messaging.message.id", job_text(job)),
        ("hanse.job.tasks", timeline.spec.task_count),
        ("hanse.job.attempts", timeline.attempts),
        ("hanse.job.clusters", ",".join(timeline.clusters)),
        ("hanse.job.outcome", str(outcome)),
    )
    return (*attributes, ("error.type", "failed")) if outcome is Outcome.FAILED else attributes
