"""Cluster rankings: order of the clusters in which a broker looks for room."""

from hanse.policy.interface import ClusterFacts


class RotatingRanker:
    """Ranking from a random start, in turn: brokers spread out. Clusters that hold the job's data come
    first."""

    name = "rotate"
    follows_estimates = False

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Return clusters with the data first, then circular order from ``start``."""
        count = len(clusters)
        return sorted(range(count), key=lambda i: _sort_key(clusters[i], i, start, count))


class BestStandingRanker:
    """Ranking by standing: clusters that start what they accept come first, ties in circular order; data
    first as in ``RotatingRanker``."""

    name = "best-standing"
    follows_estimates = False

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Return order by data, standing, then circular order from ``start``."""
        count = len(clusters)

        def key(i: int) -> tuple[bool, int, int, int]:
            elsewhere, data, turn = _sort_key(clusters[i], i, start, count)
            return (elsewhere, data, -clusters[i].standing, turn)

        return sorted(range(count), key=key)


class EarliestFinishRanker:
    """Ranking of the node classes of all clusters by estimated finish; ties as in ``BestStandingRanker``. For
    work that is not estimated all are ties."""

    name = "earliest-finish"
    follows_estimates = True

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Return order by finish, data, standing, then circular order from ``start``."""
        count = len(clusters)

        def key(i: int) -> tuple[int, bool, int, int, int]:
            elsewhere, data, turn = _sort_key(clusters[i], i, start, count)
            return (clusters[i].finish, elsewhere, data, -clusters[i].standing, turn)

        return sorted(range(count), key=key)


def _sort_key(facts: ClusterFacts, index: int, start: int, count: int) -> tuple[bool, int, int]:
    """Return a key: clusters with the data first, in the job's order; then the others, in circular order."""
    return (facts.data < 0, facts.data, (index - start) % count)
