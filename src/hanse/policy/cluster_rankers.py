"""Cluster rankings: in which clusters a broker looks for room first."""

from typing import Final

from hanse.policy.interface import ClusterFacts, ClusterRanker


class RotatingRanker:
    """A random start, then in turn: brokers spread out. Clusters that hold the job's data come first, in
    its order."""

    name = "rotate"

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Data first, then circular order from ``start``."""
        count = len(clusters)
        return sorted(range(count), key=lambda i: _place(clusters[i], i, start, count))


class BestStandingRanker:
    """Clusters that start what they accept come first, ties in circular order; data first as in
    ``RotatingRanker``."""

    name = "best-standing"

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Data, standing, then circular order from ``start``."""
        count = len(clusters)

        def key(i: int) -> tuple[bool, int, int, int]:
            elsewhere, data, turn = _place(clusters[i], i, start, count)
            return (elsewhere, data, -clusters[i].standing, turn)

        return sorted(range(count), key=key)


def _place(facts: ClusterFacts, index: int, start: int, count: int) -> tuple[bool, int, int]:
    """Clusters with the data first, in the job's order; then the others, in circular order."""
    return (facts.data < 0, facts.data, (index - start) % count)


CLUSTER_RANKERS: Final[dict[str, type[ClusterRanker]]] = {
    rank.name: rank for rank in (RotatingRanker, BestStandingRanker)
}
"""Every cluster ranking by its name."""
