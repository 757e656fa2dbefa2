"""What each cluster ranking prefers."""

from hanse.policy.cluster_rankers import BestStandingRanker, RotatingRanker
from hanse.policy.interface import ClusterFacts

KNOWN = [
    ClusterFacts("c0", 300, -1),
    ClusterFacts("c1", 1_000, -1),
    ClusterFacts("c2", 300, 1),
    ClusterFacts("c3", 900, 0),
]


def test_rotate_puts_data_first_and_then_goes_round() -> None:
    assert RotatingRanker().rank(KNOWN, 0) == [3, 2, 0, 1]
    assert RotatingRanker().rank(KNOWN, 1) == [3, 2, 1, 0]


def test_best_standing_puts_data_first_and_then_goes_by_outcome() -> None:
    assert BestStandingRanker().rank(KNOWN, 0) == [3, 2, 1, 0]
    assert BestStandingRanker().rank([ClusterFacts(f"c{n}", 500, -1) for n in range(3)], 2) == [2, 0, 1]
