"""The metrics of a warden: its cluster's room, running tasks, grants, refusals, and start latency; and those
of a runner on a machine of its own."""

from collections.abc import Callable
from typing import Any, Final

from hanse.core.warden.warden import Warden
from hanse.league.config import ClusterEntry
from hanse.live.journal.journal import Journal
from hanse.live.telemetry.member_metrics import JournalMetrics, MemberMetrics, ObservedDaemon
from hanse.live.telemetry.prometheus_text import (
    Histogram,
    MetricFamily,
    by_label,
    counter,
    gauge,
    histogram,
    resource_samples,
    tally,
    unlabelled_sample,
)
from hanse.model.effects import Effect, SendMessage
from hanse.model.events import Event, MessageReceived
from hanse.model.ids import SECOND, TaskId
from hanse.model.messages import (
    ClaimReply,
    Envelope,
    OpenSession,
    Outcome,
    RunnerOrders,
    RunnerReport,
    TaskUpdates,
)
from hanse.model.resources import Resources, dimensions_of

ENDS: Final = tuple(str(outcome) for outcome in Outcome)
_NOTHING: Final = Resources()


ORDERS_MAX: Final = 10_000
"""Orders to runners, without a report of the last start, that are tracked; the oldest are dropped first."""


class BackendCounts:
    """Counts of the starts and ends that a runner reports."""

    def __init__(self) -> None:
        self.started = 0
        self.ended: dict[str, int] = dict.fromkeys(ENDS, 0)

    def add(self, report: RunnerReport) -> None:
        """Count the starts and ends of a report."""
        self.started += len(report.started)
        tally(self.ended, [end.outcome for end in report.ended])

    def families(self) -> list[MetricFamily]:
        """Return the backend's metrics."""
        return [
            counter(
                "hanse_backend_starts_total",
                "Attempts that runners have started.",
                unlabelled_sample(self.started),
            ),
            counter(
                "hanse_backend_ends_total",
                "Attempts that ended at runners, by outcome.",
                by_label("outcome", self.ended),
            ),
        ]


class WardenMetrics(MemberMetrics):
    """The metrics of one warden."""

    def __init__(
        self, daemon: ObservedDaemon, machine: Warden, entry: ClusterEntry, journal: Journal
    ) -> None:
        super().__init__(daemon)
        self.journal = JournalMetrics(journal)
        self._machine = machine
        self._entry = entry
        self._dimensions = dimensions_of(tuple(node.capacity for node in entry.nodes))
        self._backend = BackendCounts()
        self._ordered_at: dict[TaskId, int] = {}
        """Time at which the last task of each order was ordered. One task per order: a table of all running
        tasks would cost more than all other counts here."""
        self._withheld: dict[int, Resources] = {}
        """Resources of each node that its backend withholds from the league, as reported by runners."""
        self._grants = 0
        self._stops = 0
        self._refused: dict[str, float] = {}
        self._start_seconds = Histogram()
        self._sent_handlers: dict[type, Callable[[int, Any], None]] = {
            RunnerOrders: self._on_orders_sent, TaskUpdates: self._on_task_updates_sent,
            ClaimReply: self._on_claim_reply_sent,
        }  # fmt: skip

    def on_event_durable(self, position: int, event: Event, effects: list[Effect]) -> None:
        """Count a durable event and its performed effects."""
        del position
        if type(event) is MessageReceived:
            envelope = event.envelope
            if self.links.note_received(envelope):
                body = envelope.body
                if type(body) is RunnerReport:
                    self._on_runner_report(event.at, body)
                elif type(body) is OpenSession:
                    self._withheld.update({**dict.fromkeys(body.nodes, _NOTHING), **dict(body.withheld)})
        for effect in effects:
            if type(effect) is SendMessage and self.links.note_sent(effect.envelope):
                handler = self._sent_handlers.get(type(effect.envelope.body))
                if handler is not None:
                    handler(event.at, effect.envelope.body)

    def _on_orders_sent(self, at: int, orders: RunnerOrders) -> None:
        self._stops += len(orders.stops)
        if orders.starts:
            ordered = self._ordered_at
            ordered[orders.starts[-1].task] = at
            if len(ordered) > ORDERS_MAX:
                del ordered[next(iter(ordered))]

    def _on_runner_report(self, at: int, report: RunnerReport) -> None:
        self._backend.add(report)
        self._withheld.update(report.withheld)
        ordered = self._ordered_at
        for task in [task for task, _ in report.started if task in ordered]:
            self._start_seconds.observe((at - ordered.pop(task)) / SECOND)

    def _on_task_updates_sent(self, _: int, updates: TaskUpdates) -> None:
        self._grants += len(updates.offers)

    def _on_claim_reply_sent(self, _: int, reply: ClaimReply) -> None:
        for entry in reply.refused:
            self._refused[entry.reason] = self._refused.get(entry.reason, 0) + 1

    # --- scraping ------------------------------------------------------------------------------------------

    async def own_families(self) -> list[MetricFamily]:
        """Return a warden's metrics."""
        return [
            *self._room_families(),
            *self._node_families(),
            *self._backend.families(),
            gauge(
                "hanse_tasks_running",
                "Attempts that were ordered and have not ended.",
                unlabelled_sample(self._machine.attempt_count),
            ),
            histogram(
                "hanse_start_latency_seconds",
                "Time from an order to a runner to its report that the last task of the order has started.",
                [((), self._start_seconds)],
            ),
            counter("hanse_grants_total", "Grants of resources to brokers.", unlabelled_sample(self._grants)),
            counter(
                "hanse_stops_total", "Orders to runners to stop an attempt.", unlabelled_sample(self._stops)
            ),
            counter(
                "hanse_claims_refused_total",
                "Tasks that brokers claimed and this warden refused, by reason.",
                by_label("reason", self._refused),
            ),
            *self.journal.families(),
            counter(
                "hanse_rare_branches_total",
                "How often the machine took each of its rare branches, to find unusual behaviour.",
                by_label("branch", dict(self._machine.marks)),
            ),
        ]

    def _room_families(self) -> list[MetricFamily]:
        name, dimensions = self._entry.name, self._dimensions
        capacity = _NOTHING
        for node in self._entry.nodes:
            capacity = capacity.plus(node.capacity)
        allocated = _NOTHING
        for held in self._machine.resources_in_use():
            allocated = allocated.plus(held)
        withheld = _NOTHING
        for amount in self._withheld.values():
            withheld = withheld.plus(amount)
        return [
            gauge(
                "hanse_cluster_capacity",
                "Resources of the cluster's nodes: cores, bytes, GPUs, units.",
                resource_samples(name, dimensions, capacity.vector(dimensions) or ()),
            ),
            gauge(
                "hanse_cluster_allocated",
                "Resources that attempts and grants hold: cores, bytes, GPUs, units.",
                resource_samples(name, dimensions, allocated.vector(dimensions) or ()),
            ),
            gauge(
                "hanse_cluster_withheld",
                "Resources that the backend withholds, as others use them or they are closed: cores, bytes, "
                "GPUs, units.",
                resource_samples(name, dimensions, withheld.vector(dimensions) or ()),
            ),
        ]

    def _node_families(self) -> list[MetricFamily]:
        states = {"down": 0, "draining": 0, "open": 0}
        for up, draining, _ in self._machine.states():
            states["down" if not up else "draining" if draining else "open"] += 1
        return [gauge("hanse_cluster_nodes", "Nodes of the cluster by state.", by_label("state", states))]


class RunnerMetrics(MemberMetrics):
    """The metrics of a runner on a machine of its own, from its messages to its warden."""

    def __init__(self, daemon: ObservedDaemon, send: Callable[[Envelope], None]) -> None:
        super().__init__(daemon)
        self._send = send
        self._backend = BackendCounts()

    def send(self, envelope: Envelope) -> None:
        """Count and send an envelope of the runner."""
        if self.links.note_sent(envelope) and type(envelope.body) is RunnerReport:
            self._backend.add(envelope.body)
        self._send(envelope)

    async def own_families(self) -> list[MetricFamily]:
        """Return a runner's metrics."""
        return self._backend.families()
