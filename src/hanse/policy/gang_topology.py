"""Nodes of a gang by topology: within one node, rack or cluster, and spread over the values of an attribute.

The same rules choose nodes at a warden and count what a broker's view can hold. A *part* is what ``together``
names: all nodes, the nodes of one rack, or one node. The part with the least room that fits is taken, so that
larger ones stay whole; ties go to the first name, and of nodes to the lowest number. Inside a part a spread
gang is dealt out over the values of the attribute: each further task to a value that has the fewest, ties by
the value's text, as long as the value has room and less than ``spread_max``.

A node without the attribute ``rack`` is in no rack, and one without the spread attribute takes no task.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hanse.model.job import Together
from hanse.model.messages import Shape
from hanse.model.resources import Vector
from hanse.policy.constraint_index import AttributeIndex
from hanse.policy.node_columns import Column, MaskWords, NodeColumns, mask_flags, pack_flags

RACK: Final = "rack"
"""Attribute of a node that names its rack."""

Choose = Callable[[MaskWords, int], list[int]]
"""Finds room for up to so many tasks in a mask: returns their nodes, debited."""


class Parts(NamedTuple):
    """Parts of a cluster with the largest gang that fits into each."""

    usable: NDArray[np.bool_]
    """Nodes that count: in the mask, in a part and, for a spread, with its attribute."""
    part_of: Column
    """Part of each node."""
    value_of: Column
    """Value of the spread attribute of each node; zeros without a spread."""
    room: Column
    """Tasks that fit on each node."""
    fits: Column
    """Largest gang of each part."""


def has_topology(shape: Shape) -> bool:
    """True if the nodes of a gang depend on each other."""
    return shape.gang > 0 and (shape.together is not Together.CLUSTER or bool(shape.spread))


def slots_per_node(columns: Column, ask: Vector, each_max: int) -> Column:
    """Return how many tasks fit on each node with these amounts; at most ``each_max`` (0: no bound)."""
    rows = [columns[row] // amount for row, amount in enumerate(ask) if amount]
    slots: Column = np.where(columns.min(axis=0) < 0, 0, np.min(rows, axis=0))
    return np.minimum(slots, each_max) if each_max else slots


def measure_parts(shape: Shape, slots: Column, mask: MaskWords, index: AttributeIndex) -> Parts:
    """Measure the parts of a cluster. ``slots``: the tasks that fit on each node."""
    count = len(slots)
    usable = mask_flags(mask, count)
    number, part_of = 1, np.zeros(count, dtype=np.int64)
    value_of = part_of
    if shape.together is Together.NODE:
        number, part_of = count, np.arange(count, dtype=np.int64)
    elif shape.together is Together.RACK:
        names, part_of = index.labels(RACK)
        number, usable = len(names), usable & (part_of >= 0)
    if shape.spread:
        _, value_of = index.labels(shape.spread)
        usable = usable & (value_of >= 0)
    room = np.where(usable, slots, 0)
    pairs, pair_of = np.unique((part_of * (count + 1) + value_of)[usable], return_inverse=True)
    sizes = _sums(pair_of, room[usable], len(pairs))
    if shape.spread_max and shape.spread:
        sizes = np.minimum(sizes, shape.spread_max)
    return Parts(usable, part_of, value_of, room, _sums(pairs // (count + 1), sizes, number))


def _sums(groups: NDArray[np.int64], amounts: Column, count: int) -> Column:
    """Return the sum of the amounts of each group. Doubles are exact for sums of that size."""
    return np.bincount(groups, weights=amounts, minlength=count).astype(np.int64)


def find_largest(
    shape: Shape, columns: Column, ask: Vector, mask: MaskWords, index: AttributeIndex
) -> tuple[int, str]:
    """Return the largest gang of a shape that fits into these columns, and the name of the part that has the
    room (a rack, or a node's number); ties go to the first part."""
    if not columns.shape[1]:
        return 0, ""
    fits = measure_parts(shape, slots_per_node(columns, ask, shape.max_per_node), mask, index).fits
    if not len(fits) or not fits.max():
        return 0, ""
    best = int(fits.argmax())
    name = index.labels(RACK)[0][best] if shape.together is Together.RACK else str(best)
    return int(fits[best]), "" if shape.together is Together.CLUSTER else name


def choose_gang(
    shape: Shape, room: NodeColumns, ask: Vector, mask: MaskWords, count: int, index: AttributeIndex,
    choose: Choose,
) -> list[int]:  # fmt: skip
    """Return the node of each task of a gang, debited; empty: there is no room for all of it. ``choose``
    finds nodes inside the part, and among those of each value of a spread."""
    parts = measure_parts(shape, slots_per_node(room.free, ask, shape.max_per_node), mask, index)
    fitting = np.flatnonzero(parts.fits >= count)
    if not len(fitting):
        return []
    best = fitting[parts.fits[fitting].argmin()]  # the first of equals
    within = parts.usable & (parts.part_of == best)
    if not shape.spread:
        nodes = choose(pack_flags(within), count)
    else:
        nodes = []
        values = np.unique(parts.value_of[within])
        sizes = [int(parts.room[within & (parts.value_of == value)].sum()) for value in values]
        for value, number in zip(values, deal_out(count, sizes, shape.spread_max), strict=True):
            nodes += choose(pack_flags(within & (parts.value_of == value)), number) if number else []
    assert len(nodes) == count, f"room for {count} was counted, and {len(nodes)} found"
    return nodes


def deal_out(count: int, sizes: Sequence[int], most: int) -> list[int]:
    """Return how many of ``count`` tasks each value takes: as evenly as the sizes allow, at most ``most``
    each (0: no bound); of equals the first ones take one more. There must be room for all."""
    limits = [min(size, most) if most else size for size in sizes]
    dealt = [0] * len(sizes)
    while left := count - sum(dealt):
        short = [at for at, limit in enumerate(limits) if dealt[at] < limit]
        step = min(left // len(short), *[limits[at] - dealt[at] for at in short])
        for at in short if step else short[:left]:
            dealt[at] += step or 1
    return dealt


def group_by_node(nodes: list[int]) -> list[int]:
    """Return the nodes with equal ones side by side, in the order in which each first occurs."""
    counts: dict[int, int] = {}
    for node in nodes:
        counts[node] = counts.get(node, 0) + 1
    return [node for node, number in counts.items() for _ in range(number)]


def choose_hold(
    shape: Shape, room: NodeColumns, ask: Vector, mask: MaskWords, index: AttributeIndex
) -> list[int]:
    """Return nodes to keep back for a gang: enough to hold it when they are empty, of the part that is
    nearest to fitting, and of that the nodes with the most room; the values of a spread take turns. Ties go
    to the lowest number. Empty: no part could ever hold it."""
    empty = measure_parts(shape, slots_per_node(room.capacity, ask, shape.max_per_node), mask, index)
    slots = slots_per_node(room.free, ask, shape.max_per_node)
    fits = np.where(empty.fits >= shape.gang, measure_parts(shape, slots, mask, index).fits, -1)
    if not len(fits) or fits.max() < 0:
        return []
    within = np.flatnonzero(empty.usable & (empty.part_of == fits.argmax()))
    most = shape.spread_max or shape.gang
    turns: dict[int, int] = {}
    order: list[tuple[int, int, int]] = []
    for node in sorted(within.tolist(), key=lambda node: (-slots[node], node)):
        value = int(empty.value_of[node]) if shape.spread else node
        turn = turns[value] = turns.get(value, 0) + 1
        order.append((turn, -int(slots[node]), node))
    held: list[int] = []
    given: dict[int, int] = {}
    needed = shape.gang
    for _, _, node in sorted(order):
        value = int(empty.value_of[node]) if shape.spread else node
        more = min(int(empty.room[node]), needed, most - given.get(value, 0))
        if more > 0:
            held.append(node)
            given[value] = given.get(value, 0) + more
            needed -= more
    return held
