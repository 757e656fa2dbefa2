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
from hanse.live.telemetry.trace_context import Parent, parent_of
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
    outer: bool = False
    """True if the span covers the whole job."""


class _Life:
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

    def __init__(self, spec: JobSpec, parent: Parent | None, submitted: int) -> None:
        self.spec = spec
        self.parent = parent
        self.submitted = submitted
        self.accepted = self.claimed = self.started = self.ended = -1
        self.attempts = 0
        self.clusters: dict[str, None] = {}


class SpanMaker:
    """Builds the spans of one broker's jobs. ``offer`` takes the spans of a job and must not wait."""

    def __init__(self, clock: Clock, offer: Callable[[list[Span]], None]) -> None:
        self.untraced = 0
        """Jobs that were not tracked because there were too many."""
        self._clock = clock
        self._offer = offer
        self._submissions: dict[tuple[str, int], _Life] = {}
        self._lives: dict[JobId, _Life] = {}
        self._does: dict[type, Callable[[int, Any], None]] = {
            SendMessage: self._sent,
            JobAccepted: self._accepted,
            RequestRejected: self._rejected,
            JobSettled: self._settled,
        }

    def told(self, event: Event, commands: list[Effect], fresh: bool) -> None:
        """Note a durable event and its effects. ``fresh``: the event is no repeated message."""
        if type(event) is JobSubmitted:
            self._submitted(event)
        elif fresh and type(event) is MessageReceived and type(event.envelope.body) is TaskUpdates:
            self._news(event.at, event.envelope.body)
        for command in commands:
            act = self._does.get(type(command))
            if act is not None:
                act(event.at, command)

    def _submitted(self, event: JobSubmitted) -> None:
        parent = parent_of(event.spec.trace)
        if parent is not None and not parent.sampled:
            return
        if len(self._lives) + len(self._submissions) >= JOBS_MAX:
            self.untraced += 1
            return
        self._submissions[event.client, event.request] = _Life(event.spec, parent, event.at)

    def _accepted(self, _: int, reply: JobAccepted) -> None:
        life = self._submissions.pop((reply.client, reply.request), None)
        if life is not None and reply.job not in self._lives:
            life.accepted = self._clock.now()
            self._lives[reply.job] = life

    def _rejected(self, _: int, reply: RequestRejected) -> None:
        self._submissions.pop((reply.client, reply.request), None)

    def _sent(self, at: int, command: SendMessage) -> None:
        envelope = command.envelope
        if type(envelope.body) is Claim:
            for batch in envelope.body.batches:
                life = self._lives.get(batch.job)
                if life is not None:
                    if life.claimed < 0:
                        life.claimed = at
                    if len(life.clusters) < CLUSTERS_MAX:
                        life.clusters[envelope.target] = None

    def _news(self, at: int, news: TaskUpdates) -> None:
        for task, _, _ in news.started:
            life = self._lives.get(job_of(task))
            if life is not None and life.started < 0:
                life.started = at
        for end in news.ended:
            life = self._lives.get(job_of(end.task))
            if life is not None:
                life.ended = at
                life.attempts += 1

    def _settled(self, at: int, settled: JobSettled) -> None:
        life = self._lives.pop(settled.job, None)
        if life is not None:
            self._offer(self._spans(settled.job, life, settled.outcome, at))

    def _spans(self, job: JobId, life: _Life, outcome: Outcome, settled: int) -> list[Span]:
        shift = wall_now() - self._clock.now()
        trace = life.parent.trace if life.parent is not None else secrets.token_bytes(TRACE_BYTES)
        whole = secrets.token_bytes(SPAN_BYTES)

        def span(name: str, begin: int, end: int) -> Span:
            return Span(
                trace,
                secrets.token_bytes(SPAN_BYTES),
                whole,
                name,
                (begin + shift) * _MICROSECOND,
                (max(begin, end) + shift) * _MICROSECOND,
            )

        moments = [
            ("submit", life.submitted),
            ("queue", life.accepted),
            ("place", life.claimed),
            ("run", life.started),
            ("settle", life.ended),
            ("", settled),
        ]
        known = [(name, at) for name, at in moments if at >= 0]
        parts = [span(name, at, until) for (name, at), (_, until) in pairwise(known)]
        failed = outcome is Outcome.FAILED
        root = Span(
            trace,
            whole,
            life.parent.span if life.parent is not None else b"",
            f"job {life.spec.name}",
            (life.submitted + shift) * _MICROSECOND,
            (settled + shift) * _MICROSECOND,
            _attributes(job, life, outcome),
            failed,
            outer=True,
        )
        return [root, *parts]


def _attributes(job: JobId, life: _Life, outcome: Outcome) -> Attributes:
    """Return the attributes that the conventions for messaging require, and ours."""
    attributes: Attributes = (
        ("messaging.system", "hanse"),
        ("messaging.destination.name", life.spec.tenant),
        ("messaging.message.id", job_text(job)),
        ("hanse.job.tasks", life.spec.tasks),
        ("hanse.job.attempts", life.attempts),
        ("hanse.job.clusters", ",".join(life.clusters)),
        ("hanse.job.outcome", str(outcome)),
    )
    return (*attributes, ("error.type", "failed")) if outcome is Outcome.FAILED else attributes
