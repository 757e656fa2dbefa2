"""What each node ranker prefers."""

import pytest

from hanse.policy.node_columns import NodeColumns, full_mask
from hanse.registry import NODE_RANKERS

CAPACITY = [(8_000, 0, 0)] * 5
FREE = [8_000, 1_000, 2_000, 0, 4_000]
ASK = (1_000, 0, 0)


def room() -> NodeColumns:
    made = NodeColumns(CAPACITY)
    for node, cpu in enumerate(FREE):
        made.set_free(node, (cpu, 0, 0))
    return made


def settle(name: str, *proposed: int, start: int = 0, each_max: int = 0) -> list[int]:
    return NODE_RANKERS.get(name)().settle(room(), ASK, full_mask(5), proposed, start, each_max)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first", [0, 0, 0, 0, 0, 0, 0]),
        ("best-fit", [1, 2, 2, 4, 4, 4, 4]),
        ("spread", [0, 0, 0, 0, 0, 4, 0]),
    ],
)
def test_each_chooses_in_its_own_order(name: str, expected: list[int]) -> None:
    assert NODE_RANKERS.get(name)().choose(room(), ASK, full_mask(5), 0, 7, 0) == expected


@pytest.mark.parametrize(("name", "expected"), [("first", 4), ("best-fit", 1), ("spread", 0)])
def test_each_substitutes_by_its_own_preference(name: str, expected: int) -> None:
    assert settle(name, 3, start=3) == [expected]
    assert settle(name, 2, 3, start=3) == [2, expected]
    assert settle(name, -1, 2, start=3) == [expected, 2]


def test_a_substitute_by_rank_leaves_the_proposals_of_the_same_claim_alone() -> None:
    assert settle("best-fit", 3, 1) == [2, 1]
    assert settle("first", 3, 1, start=1) == [1, 2], "task by task"


@pytest.mark.parametrize(("name", "expected"), [("best-fit", [2, 1, 4]), ("spread", [2, 0, 4])])
def test_tasks_that_a_node_was_given_count_for_the_bound(name: str, expected: list[int]) -> None:
    assert settle(name, 2, 2, 2, each_max=1) == expected


@pytest.mark.parametrize("name", ["best-fit", "spread"])
def test_tasks_without_room_get_no_node(name: str) -> None:
    settled = settle(name, *[3] * 17)
    assert settled.count(-1) == 2
    assert settled[15:] == [-1, -1]
    assert settle(name, *[0] * 9, each_max=1).count(-1) == 5
