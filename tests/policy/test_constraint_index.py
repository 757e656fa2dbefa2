"""Compiled constraints mean what ``is_satisfied`` says, for every node and every shape of cluster."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.constraints import (
    AllOf,
    AnyOf,
    Attributes,
    Compare,
    ComparisonOperator,
    Constraint,
    Has,
    In,
    Is,
    Not,
    is_satisfied,
)
from hanse.policy import constraint_index
from hanse.policy.constraint_index import AttributeIndex
from tests.model.drawn import constraints, nodes

clusters = st.tuples(st.lists(nodes, max_size=6), st.integers(0, 60)).map(
    # Repeats fill words of 64 and cross their borders without drawing hundreds of nodes.
    lambda drawn: (drawn[0] * (drawn[1] // 3 + 1))[:200]
)


def bits(table: AttributeIndex, constraint: Constraint | None) -> list[bool]:
    """Every bit of the mask, also those beyond the last node."""
    mask = table.compile(constraint)
    return [bool(int(word) >> bit & 1) for word in mask for bit in range(64)]


@given(clusters, st.lists(constraints, min_size=1, max_size=3))
def test_a_bit_is_what_holds_says(cluster: list[Attributes], asked: list[Constraint]) -> None:
    table = AttributeIndex(cluster)
    words = -(-len(cluster) // 64)
    for constraint in asked * 2:  # the second time from the compiled ones
        mask = table.compile(constraint)
        assert mask.dtype == np.uint64
        assert mask.shape == (words,)
        expected = [is_satisfied(constraint, node) for node in cluster]
        assert bits(table, constraint) == expected + [False] * (words * 64 - len(cluster))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 1_000])
def test_large_clusters_with_rare_and_common_values(count: int) -> None:
    cluster: list[Attributes] = [
        {"host": f"h{row}", "even": row % 2 == 0, "row": row, "rack": row // 40} for row in range(count)
    ]
    table = AttributeIndex(cluster)
    asked: list[Constraint] = [
        Is("host", "h64"),
        Is("even", True),
        Is("row", 0),
        In("rack", (1, 24)),
        Compare("row", ">=", 63),
        Compare("row", "<", 64),
        Not(Has("host")),
        AllOf((Compare("row", ">", 10), Compare("row", "<=", 700), Is("even", False))),
        AnyOf((Is("host", "h0"), Is("host", "h999"))),
    ]
    for constraint in asked:
        assert bits(table, constraint)[:count] == [is_satisfied(constraint, node) for node in cluster]
        assert not any(bits(table, constraint)[count:])
    assert sum(bits(table, None)) == count == table.nodes


@pytest.mark.parametrize("count", [3, 300])
def test_comparisons_at_their_borders(count: int) -> None:
    cluster: list[Attributes] = [{"row": row % 3} for row in range(count)]
    table = AttributeIndex(cluster)
    orders: tuple[ComparisonOperator, ...] = ("<", "<=", ">", ">=")
    for order in orders:
        for bound in (-1, 0, 1, 2, 3):
            constraint = Compare("row", order, bound)
            assert bits(table, constraint)[:count] == [is_satisfied(constraint, node) for node in cluster]


def test_true_and_one_are_compiled_apart() -> None:
    table = AttributeIndex([{"x": True}, {"x": 1}, {"x": "1"}])
    assert bits(table, Is("x", True))[:3] == [True, False, False]
    assert bits(table, Is("x", 1))[:3] == [False, True, False]
    assert bits(table, In("x", ("1", 1)))[:3] == [False, True, True]
    assert bits(table, Compare("x", ">=", 0))[:3] == [False, True, False]


def test_masks_are_shared_and_cannot_be_spoilt() -> None:
    table = AttributeIndex([{"x": 1}])
    mask = table.compile(Has("x"))
    assert table.compile(Has("x")) is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        table.compile(None)[0] = 0


def test_the_oldest_compiled_constraint_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint_index, "COMPILED_MAX", 2)
    table = AttributeIndex([{"a": 1}])
    first, second = table.compile(Has("a")), table.compile(Has("b"))
    third = table.compile(Has("c"))
    assert table.compile(Has("b")) is second
    assert table.compile(Has("c")) is third
    again = table.compile(Has("a"))
    assert again is not first
    assert again.tolist() == first.tolist()
    assert table.compile(Has("c")) is third


def test_the_count_of_attributes() -> None:
    table = AttributeIndex([{"a": 1, "b": 2}, {}, {"a": 1}])
    assert table.attribute_counts.tolist() == [2, 0, 1]
    assert table.attribute_counts.dtype == np.int64
