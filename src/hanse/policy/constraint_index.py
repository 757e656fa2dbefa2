"""Nodes that satisfy a constraint, as bit masks: Megha's match over an index of attribute values.

The index is built once per cluster: for every attribute and value, the nodes that have it. A term is then a
dictionary look-up, ``and``, ``or`` and ``not`` are operations on words of 64 nodes, and a constraint compiled
before is one look-up. The meaning is that of ``constraints.is_satisfied``, node by node.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

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
    Value,
    value_key,
)
from hanse.policy.node_columns import Column, MaskWords, empty_mask, full_mask, mask_flags, pack_flags

COMPILED_MAX: Final = 1_024
"""Compiled constraints kept; the one compiled longest ago goes first. At 100,000 nodes each takes 12.5 kB."""

LABELS_MAX: Final = 64
"""Attributes of which the position of each node's value is kept; above this number all are dropped."""

_FEW_ROWS: Final = 64
_Key = tuple[int, Value]
_Rows = NDArray[np.int32]
Labels = tuple[tuple[str, ...], Column]
"""Texts of an attribute's values, and the position of each node's value among them."""


class AttributeIndex:
    """Index of the attributes of a cluster's nodes. It never changes: other nodes need another index."""

    def __init__(self, nodes: Sequence[Attributes]) -> None:
        self._nodes = len(nodes)
        self._compiled: dict[Constraint, MaskWords] = {}
        self._labels: dict[str, Labels] = {}
        self._all = _freeze(full_mask(self._nodes))
        with_attribute: dict[str, list[int]] = {}
        equal: dict[str, dict[_Key, list[int]]] = {}
        for row, attributes in enumerate(nodes):
            for name, value in attributes.items():
                with_attribute.setdefault(name, []).append(row)
                equal.setdefault(name, {}).setdefault(value_key(value), []).append(row)
        self._with_attribute = {name: _NodeSet(rows, self._nodes) for name, rows in with_attribute.items()}
        self._equal = {
            name: {key: _NodeSet(rows, self._nodes) for key, rows in values.items()}
            for name, values in equal.items()
        }
        self._numbers = {name: _NumberIndex(values) for name, values in equal.items()}
        self.attribute_counts: Column = np.array([len(attributes) for attributes in nodes], dtype=np.int64)
        """Number of attributes of each node: suitable nodes with the fewest should go first (Megha)."""
        self.attribute_counts.flags.writeable = False

    @property
    def nodes(self) -> int:
        """Number of nodes in the index."""
        return self._nodes

    def compile(self, constraint: Constraint | None) -> MaskWords:
        """Return the mask of nodes that satisfy a constraint (None: all); it is shared, so read-only."""
        if constraint is None:
            return self._all
        compiled = self._compiled.get(constraint)
        if compiled is not None:
            return compiled
        mask = _freeze(self._evaluate(constraint))
        if len(self._compiled) >= COMPILED_MAX:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[constraint] = mask
        return mask

    def labels(self, attribute: str) -> Labels:
        """Return the texts of an attribute's values in their order, and the position of each node's value
        among them; -1: the node has none. Values with the same text count as one."""
        found = self._labels.get(attribute)
        if found is None:
            if len(self._labels) >= LABELS_MAX:
                self._labels.clear()
            values = self._equal.get(attribute, {})
            texts = tuple(sorted({str(value): None for _, value in values}))
            positions = {text: at for at, text in enumerate(texts)}
            labels = np.full(self._nodes, -1, dtype=np.int64)
            for (_, value), nodes in values.items():
                mask = empty_mask(self._nodes)
                nodes.add_to(mask)
                labels[mask_flags(mask, self._nodes)] = positions[str(value)]
            labels.flags.writeable = False
            found = self._labels[attribute] = texts, labels
        return found

    def _evaluate(self, constraint: Constraint) -> MaskWords:
        """Return a new mask, which the caller may change."""
        mask = empty_mask(self._nodes)
        match constraint:
            case Is(attribute, value):
                self._add_equal(mask, attribute, (value,))
            case In(attribute, values):
                self._add_equal(mask, attribute, values)
            case Has(attribute):
                if attribute in self._with_attribute:
                    self._with_attribute[attribute].add_to(mask)
            case Compare(attribute, order, bound):
                if attribute in self._numbers:
                    _add_rows(mask, self._numbers[attribute].rows(order, bound))
            case Not(term):
                np.bitwise_and(self._all, ~self._evaluate(term), out=mask)
            case AllOf(terms):
                mask |= self._all
                for term in terms:
                    mask &= self._evaluate(term)
            case AnyOf(terms):
                for term in terms:
                    mask |= self._evaluate(term)
            case _:
                assert_never(constraint)
        return mask

    def _add_equal(self, mask: MaskWords, attribute: str, values: tuple[Value, ...]) -> None:
        index = self._equal.get(attribute)
        if index is None:
            return
        for value in values:
            nodes = index.get(value_key(value))
            if nodes is not None:
                nodes.add_to(mask)


class _NodeSet:
    """Set of nodes, as a mask or as a list of rows, whichever is smaller.

    Masks alone would take the square of the nodes for an attribute such as a host name.
    """

    __slots__ = ("_mask", "_rows")

    def __init__(self, rows: list[int], nodes: int) -> None:
        self._rows: _Rows = np.array(rows, dtype=np.int32)
        self._mask: MaskWords | None = None
        mask = empty_mask(nodes)
        if self._rows.nbytes > mask.nbytes:
            _add_rows(mask, self._rows)
            self._mask = _freeze(mask)
            self._rows = np.empty(0, dtype=np.int32)

    def add_to(self, mask: MaskWords) -> None:
        """Add these nodes to the mask."""
        if self._mask is not None:
            mask |= self._mask
        else:
            _add_rows(mask, self._rows)


class _NumberIndex:
    """Nodes whose value of one attribute is a whole number, in rising order of it."""

    __slots__ = ("_rows", "_values")

    def __init__(self, values: dict[_Key, list[int]]) -> None:
        pairs = sorted(
            (key[1], row)
            for key, rows in values.items()
            if isinstance(key[1], int) and not isinstance(key[1], bool)
            for row in rows
        )
        self._values = [value for value, _ in pairs]
        self._rows: _Rows = np.array([row for _, row in pairs], dtype=np.int32)

    def rows(self, order: ComparisonOperator, bound: int) -> _Rows:
        """Return the nodes whose number is on this side of ``bound``."""
        if order == "<":
            return self._rows[: bisect_left(self._values, bound)]
        if order == "<=":
            return self._rows[: bisect_right(self._values, bound)]
        if order == ">":
            return self._rows[bisect_right(self._values, bound) :]
        return self._rows[bisect_left(self._values, bound) :]


def _add_rows(mask: MaskWords, rows: _Rows) -> None:
    """Add nodes to a mask: bit by bit if they are few, else by one flag per node, which is faster."""
    if len(mask) == 1:  # one word: NumPy's calls would cost ten times the work
        word = mask.item(0)
        for row in rows.tolist():
            word |= 1 << row
        mask[0] = word
        return
    if len(rows) <= _FEW_ROWS:
        np.bitwise_or.at(mask, rows >> 6, np.left_shift(np.uint64(1), (rows & 63).astype(np.uint64)))
        return
    flags = np.zeros(len(mask) * 64, dtype=np.bool_)
    flags[rows] = True
    mask |= pack_flags(flags)


def _freeze(mask: MaskWords) -> MaskWords:
    mask.flags.writeable = False
    return mask
