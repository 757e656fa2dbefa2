"""Preferences of brokers among a warden's node classes: which classes are acceptable, the best first.

A preference comes with demand and with claims. It never opens a node that the shape or the ledger closes: a
warden uses it only to leave nodes out and to choose among those that are left.
"""

from collections.abc import Sequence

from hanse.model.messages import NodePreference
from hanse.model.resources import Vector
from hanse.policy.interface import Mask, NodeRanker
from hanse.policy.node_classes import NodeClasses
from hanse.policy.node_columns import NodeColumns, is_empty


def acceptable_classes(preference: NodePreference | None, classes: NodeClasses) -> Sequence[int] | None:
    """Return the acceptable classes, the cheapest first, ties by number; None: all nodes are alike."""
    if preference is None or len(preference.costs) != len(classes.names):
        return None
    costs, limit = preference.costs, preference.limit
    found = [number for number, cost in enumerate(costs) if not limit or cost <= limit]
    found.sort(key=costs.__getitem__)
    return found


def is_acceptable(preference: NodePreference | None, classes: NodeClasses, node: int) -> bool:
    """True if the class of a node is acceptable."""
    if preference is None or not preference.limit or len(preference.costs) != len(classes.names):
        return True
    return preference.costs[classes.of_node[node]] <= preference.limit


def acceptable_nodes(preference: NodePreference | None, classes: NodeClasses, mask: Mask) -> Mask:
    """Return the nodes of ``mask`` whose class is acceptable."""
    chosen = acceptable_classes(preference, classes)
    if chosen is None or len(chosen) == len(classes.names):
        return mask
    return mask & classes.nodes_of(chosen)


def choose_by_class(
    ranker: NodeRanker, room: NodeColumns, ask: Vector, mask: Mask, classes: Sequence[Mask], start: int,
    count: int, each_max: int,
) -> list[int]:  # fmt: skip
    """Return up to ``count`` nodes for single tasks, class after class; inside a class the ranker chooses."""
    nodes: list[int] = []
    for members in classes:
        among = mask & members
        if is_empty(among):
            continue
        nodes += ranker.choose(room, ask, among, start, count - len(nodes), each_max)
        if len(nodes) >= count:
            break
    return nodes
