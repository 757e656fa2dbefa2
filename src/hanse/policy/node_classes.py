"""Node classes of one cluster: nodes of equal hardware, as masks.

Estimates are kept per node class, because a league sees too few tasks on a single node. The class of a node
is its attribute ``class``, else ``cpu_class``, else the empty text. Brokers and wardens number the classes of
a cluster alike: by name, in the order of code points.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from hanse.model.constraints import Value
from hanse.policy.node_columns import MaskWords, empty_mask, mask_of

CLASS_ATTRIBUTES: Final = ("class", "cpu_class")
"""Attributes that name the class of a node; the first that a node has counts."""
CLASSES_MAX: Final = 64
"""Classes of a cluster that are told apart; the nodes of all further ones count as the last."""
CLUSTERS_CACHED: Final = 1_024
"""Clusters of which the classes are remembered: brokers and wardens of a simulation share them."""

NodeAttributes = tuple[tuple[tuple[str, Value], ...], ...]
"""Attributes of each node of a cluster, as a snapshot has them."""


class NodeClasses:
    """Classes of a cluster's nodes. They never change: other nodes need another object."""

    __slots__ = ("_unions", "masks", "names", "of_node")

    def __init__(self, attributes: Sequence[Sequence[tuple[str, Value]]]) -> None:
        named = [_class_name(node) for node in attributes]
        self.names: tuple[str, ...] = tuple(sorted(dict.fromkeys(named))[:CLASSES_MAX])
        """Names of the classes, in the order of their numbers."""
        numbers = {name: number for number, name in enumerate(self.names)}
        last = len(self.names) - 1
        self.of_node: tuple[int, ...] = tuple([numbers.get(name, last) for name in named])
        """Class of each node."""
        self.masks: tuple[MaskWords, ...] = tuple(
            [
                mask_of([node for node, of in enumerate(self.of_node) if of == number], len(named))
                for number in range(len(self.names))
            ]
        )
        """Nodes of each class; read only."""
        self._unions: dict[int, MaskWords] = {}

    def nodes_of(self, chosen: Sequence[int]) -> MaskWords:
        """Return the nodes of the chosen classes; read only."""
        bits = 0
        for number in chosen:
            bits |= 1 << number
        found = self._unions.get(bits)
        if found is None:
            if len(self._unions) >= CLASSES_MAX:
                self._unions.clear()
            found = empty_mask(len(self.of_node))
            for number in chosen:
                found = found | self.masks[number]
            self._unions[bits] = found
        return found


def node_classes_of(attributes: NodeAttributes) -> NodeClasses:
    """Return the classes of a cluster; equal clusters share one object."""
    return _node_classes(
        msgspec.msgpack.encode(attributes)
    )  # encoded, because True and 1 are equal to Python


@lru_cache(maxsize=CLUSTERS_CACHED)
def _node_classes(encoded: bytes) -> NodeClasses:
    return NodeClasses(msgspec.msgpack.decode(encoded, type=NodeAttributes))


def _class_name(attributes: Sequence[tuple[str, Value]]) -> str:
    found = dict(attributes)
    for name in CLASS_ATTRIBUTES:
        if name in found:
            return str(found[name])
    return ""
