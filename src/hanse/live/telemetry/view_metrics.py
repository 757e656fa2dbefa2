"""The metrics of the views of a broker: what it believes of clusters and of other brokers."""

from collections.abc import Callable

from hanse.core.broker.broker import Broker
from hanse.live.http.league_status import SILENT_AFTER
from hanse.live.telemetry.prometheus_text import MetricFamily, Sample, by_label, gauge, resource_samples
from hanse.model.ids import SECOND, Instant
from hanse.model.resources import Vector


class ViewMetrics:
    """The metrics of the views of one broker."""

    def __init__(self, machine: Broker, now: Callable[[], Instant]) -> None:
        self._machine = machine
        self._now = now

    def families(self) -> list[MetricFamily]:
        """Return the metrics."""
        machine, now = self._machine, self._now()
        up: dict[str, float] = {}
        stale: dict[str, float] = {}
        standing: dict[str, float] = {}
        free: list[Sample] = []
        for cluster in machine.config.clusters:
            view = machine.view_state_of(cluster)
            snapshot = view.snapshot
            up[cluster] = int(snapshot is not None and now - view.renewed_at < SILENT_AFTER)
            standing[cluster] = view.standing / 1_000
            if snapshot is not None:
                stale[cluster] = max(now - max(view.seen_at, view.renewed_at), 0) / SECOND
                free += resource_samples(cluster, snapshot.dimensions, sum_vectors(view.free))
        peers = {name: int(machine.is_alive(name)) for name in machine.config.brokers if name != machine.name}
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


def sum_vectors(vectors: list[Vector]) -> Vector:
    """Return the sum over all nodes, by column."""
    return tuple(sum(column) for column in zip(*vectors, strict=True))
