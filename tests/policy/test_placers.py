"""What each placer prefers."""

import numpy as np
import pytest

from hanse.policy.node_columns import NodeColumns, full_mask, mask_of
from hanse.registry import PLACERS

CAPACITY = [(8_000, 0, 0)] * 5
FREE = [8_000, 1_000, 2_000, 0, 4_000]
ATTRIBUTES = np.array([3, 2, 1, 0, 1], dtype=np.int64)


def room() -> NodeColumns:
    made = NodeColumns(CAPACITY)
    for node, cpu in enumerate(FREE):
        made.set_free(node, (cpu, 0, 0))
    return made


def place(
    name: str, count: int = 1, start: int = 0, each_max: int = 0, mask: tuple[int, ...] = ()
) -> list[int]:
    chosen = mask_of(mask, 5) if mask else full_mask(5)
    return PLACERS.get(name)().place(room(), (1_000, 0, 0), chosen, start, count, each_max, ATTRIBUTES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("best-fit", [1, 2, 2, 4, 4, 4, 4]),
        ("spread", [0, 0, 0, 0, 0, 4, 0]),
        ("random", [0, 0, 0, 0, 0, 0, 0]),
        ("fewest-attributes", [2, 2, 4, 4, 4, 4, 1]),
    ],
)
def test_each_fills_a_cluster_in_its_own_order(name: str, expected: list[int]) -> None:
    assert place(name, 7) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("best-fit", [1, 2, 4, 0]),
        ("spread", [0, 4, 2, 1]),
        ("random", [2, 4, 0, 1]),
        ("fewest-attributes", [2, 4, 1, 0]),
    ],
)
def test_a_bound_per_node_spreads_the_tasks_over_the_next_best(name: str, expected: list[int]) -> None:
    assert place(name, 9, start=2, each_max=1) == expected


@pytest.mark.parametrize("name", PLACERS.shipped)
def test_the_mask_rules_over_every_preference(name: str) -> None:
    assert place(name, 3, mask=(4,)) == [4, 4, 4]
    assert place(name, 3, mask=(3,)) == []


def test_random_goes_where_the_start_says() -> None:
    assert [place("random", start=start)[0] for start in range(5)] == [0, 1, 2, 4, 4]
