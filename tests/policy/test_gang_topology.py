"""Nodes of gangs by topology: what is chosen, held and counted, against a plain search."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.live.readmodel.gang_fit import find_largest_gang
from hanse.model.job import Together
from hanse.model.messages import Shape
from hanse.model.resources import Resources
from hanse.policy.constraint_index import AttributeIndex
from hanse.policy.gang_topology import (
    choose_gang,
    choose_hold,
    deal_out,
    find_largest,
    group_by_node,
    slots_per_node,
)
from hanse.policy.node_columns import MaskWords, NodeColumns, has_bit, mask_of
from hanse.policy.node_rankers import BestFitNodeRanker, FirstNodeRanker, SpreadNodeRanker

RANKERS = (FirstNodeRanker(), BestFitNodeRanker(), SpreadNodeRanker())
ASK = (1_000, 0, 0)


class Draw:
    """A cluster, a gang, and the nodes that are open to it."""

    def __init__(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, 70) | st.integers(1, 6), label="nodes")
        nodes: list[dict[str, Any]] = data.draw(
            st.lists(
                st.fixed_dictionaries(
                    {}, optional={"rack": st.sampled_from("abc"), "zone": st.sampled_from((1, 2, "x"))}
                ),
                min_size=count,
                max_size=count,
            )
        )
        self.attributes = nodes
        self.index = AttributeIndex(nodes)
        capacity = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
        used = [data.draw(st.integers(0, most)) for most in capacity]
        self.room = NodeColumns([(most * 1_000, 0, 0) for most in capacity])
        for node, amount in enumerate(used):
            self.room.debit(node, (amount * 1_000, 0, 0))
        self.mask = mask_of([node for node in range(count) if data.draw(st.booleans())], count)
        together = data.draw(st.sampled_from(tuple(Together)))
        spread = data.draw(st.sampled_from(("", "zone")))
        self.shape = Shape(
            Resources(cpu=1_000),
            gang=data.draw(st.integers(1, 9)),
            together=together,
            spread=spread,
            spread_max=data.draw(st.integers(0, 3)) if spread else 0,
        )

    def slots(self, columns: Any) -> list[tuple[int, dict[str, object], int]]:
        """Node, attributes and slots of every open node."""
        slots = slots_per_node(columns, ASK, 0).tolist()
        every = enumerate(zip(self.attributes, slots, strict=True))
        return [(node, attributes, fits) for node, (attributes, fits) in every if has_bit(self.mask, node)]

    def part(self, node: int) -> object:
        if self.shape.together is Together.CLUSTER:
            return ""
        return node if self.shape.together is Together.NODE else self.attributes[node].get("rack")


@given(st.data(), st.sampled_from(RANKERS))
@settings(deadline=None, max_examples=300)
def test_a_gang_gets_one_part_and_its_spread_or_nothing(data: st.DataObject, ranker: Any) -> None:
    draw = Draw(data)
    shape, before = draw.shape, draw.room.free.copy()

    def choose(part: MaskWords, number: int) -> list[int]:
        return ranker.choose(draw.room, ASK, part, 0, number, 0)  # type: ignore[no-any-return]

    fits, _ = find_largest_gang(shape, draw.slots(draw.room.free))
    nodes = choose_gang(shape, draw.room, ASK, draw.mask, shape.gang, draw.index, choose)
    assert len(nodes) == (shape.gang if fits >= shape.gang else 0)
    taken = np.bincount(nodes, minlength=draw.room.nodes) * 1_000
    assert (before[0] - draw.room.free[0] == taken).all(), "exactly the chosen nodes are debited"
    assert all(has_bit(draw.mask, node) for node in nodes)
    assert len({draw.part(node) for node in nodes}) <= 1
    assert None not in map(draw.part, nodes)
    if shape.spread:
        values = [str(draw.attributes[node]["zone"]) for node in nodes]
        counts = {value: values.count(value) for value in values}
        assert max(counts.values(), default=0) <= (shape.spread_max or shape.gang)
        within = [
            entry for entry in draw.slots(before) if nodes and draw.part(entry[0]) == draw.part(nodes[0])
        ]
        for _, attributes, slots in within:  # as even as the room allows
            value = str(attributes.get("zone", "none"))
            room = sum(fits for _, other, fits in within if str(other.get("zone", "none")) == value)
            full = counts.get(value, 0) >= min(room, shape.spread_max or room)
            assert "zone" not in attributes or not slots or full or (
                counts.get(value, 0) >= max(counts.values()) - 1
            )  # fmt: skip


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_what_is_counted_is_what_explanations_count(data: st.DataObject) -> None:
    draw = Draw(data)
    for columns in (draw.room.free, draw.room.capacity):
        counted = find_largest(draw.shape, columns, ASK, draw.mask, draw.index)
        assert counted == find_largest_gang(draw.shape, draw.slots(columns))


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_held_nodes_can_take_the_gang_when_they_are_empty(data: st.DataObject) -> None:
    draw = Draw(data)
    largest, _ = find_largest_gang(draw.shape, draw.slots(draw.room.capacity))
    held = choose_hold(draw.shape, draw.room, ASK, draw.mask, draw.index)
    if largest < draw.shape.gang:
        assert held == []
        return
    draw.mask = mask_of(held, draw.room.nodes)
    fits, _ = find_largest_gang(draw.shape, draw.slots(draw.room.capacity))
    assert fits >= draw.shape.gang
    assert len({draw.part(node) for node in held}) == 1


def test_the_smallest_part_that_fits_is_taken() -> None:
    index = AttributeIndex([{"rack": rack} for rack in "bbaacc"])
    room = NodeColumns([(slots * 1_000, 0, 0) for slots in (4, 4, 2, 2, 2, 2)])
    shape = Shape(Resources(cpu=1_000), gang=3, together=Together.RACK)
    choose = lambda part, number: RANKERS[0].choose(room, ASK, part, 0, number, 0)  # noqa: E731  a one-off
    mask = mask_of(range(6), 6)
    assert choose_gang(shape, room, ASK, mask, 3, index, choose) == [2, 2, 3], "of equals the first name"
    assert choose_gang(shape, room, ASK, mask, 3, index, choose) == [4, 4, 5]
    assert choose_gang(shape, room, ASK, mask, 3, index, choose) == [0, 0, 0]


@pytest.mark.parametrize(
    ("count", "sizes", "most", "dealt"),
    [
        (8, [10, 10, 1], 0, [4, 3, 1]),
        (5, [2, 2, 2], 2, [2, 2, 1]),
        (4, [9, 9], 2, [2, 2]),
        (0, [], 0, []),
        (1, [0, 3], 1, [0, 1]),
    ],
)
def test_tasks_are_dealt_out_evenly(count: int, sizes: list[int], most: int, dealt: list[int]) -> None:
    assert deal_out(count, sizes, most) == dealt


def test_equal_nodes_come_side_by_side() -> None:
    assert group_by_node([3, 1, 3, 2, 1]) == [3, 3, 1, 1, 2]
