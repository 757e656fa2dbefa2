"""The metrics of the placements of a broker: what it proposed to clusters, and with which result."""

from typing import Final

from hanse.live.telemetry.prometheus_text import MetricFamily, by_two_labels, counter
from hanse.model.messages import Claim, ClaimReply

CLAIMS_MAX: Final = 10_000
"""Claims without an answer that are tracked, for each cluster."""


class PlacementMetrics:
    """The metrics of the placements of one broker."""

    def __init__(self) -> None:
        self._unanswered_claims: dict[str, dict[int, int]] = {}
        """Cluster -> number of a claim -> its tasks."""
        self._placements: dict[tuple[str, str], int] = {}
        self._conflicts: dict[tuple[str, str], int] = {}
        self._preempted: dict[tuple[str, str], int] = {}

    def on_claim(self, cluster: str, claim: Claim) -> None:
        """Count the tasks of a claim that need no answer, and track the others."""
        claimed = 0
        for batch in claim.batches:
            if batch.lease:
                self._count_placed(cluster, "bound", len(batch.tasks))
            else:
                claimed += len(batch.tasks)
        if claimed:
            claims = self._unanswered_claims.setdefault(cluster, {})
            claims[claim.number] = claimed
            if len(claims) > CLAIMS_MAX:
                del claims[next(iter(claims))]

    def on_claim_reply(self, cluster: str, reply: ClaimReply) -> None:
        """Count the tasks of a claim by what the cluster made of them."""
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

    def on_preemption(self, cluster: str, tenant: str) -> None:
        """Count an attempt that was stopped for more urgent work."""
        key = (cluster, tenant)
        self._preempted[key] = self._preempted.get(key, 0) + 1

    def _count_placed(self, cluster: str, result: str, tasks: int) -> None:
        key = (cluster, result)
        self._placements[key] = self._placements.get(key, 0) + tasks

    def families(self) -> list[MetricFamily]:
        """Return the metrics."""
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
