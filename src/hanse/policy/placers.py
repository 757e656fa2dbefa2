"""Placers: choice of nodes for equal tasks inside a cluster.

All keep to the mask and the room; ties go to the first suitable node in circular order from ``start``.
"""

import numpy as np
from numpy.typing import NDArray

from hanse.model.resources import Vector
from hanse.policy.interface import Mask
from hanse.policy.kernels import BEST_FIT, CHEAPEST, FIRST, SPREAD, pick
from hanse.policy.node_columns import NodeColumns

Counts = NDArray[np.int64]


class BestFit:
    """Placer on the node with the least left afterwards: keeps whole nodes free for large tasks."""

    name = "best-fit"

    def place(
        self,
        room: NodeColumns,
        ask: Vector,
        mask: Mask,
        start: int,
        count: int,
        each_max: int,
        attributes: Counts,
    ) -> list[int]:
        """See ``Placer.place``."""
        return pick(room, ask, mask, start, count, BEST_FIT, each_max, None)


class Spread:
    """Placer on the node with the most left afterwards: evens load and heat; a lost node costs less."""

    name = "spread"

    def place(
        self,
        room: NodeColumns,
        ask: Vector,
        mask: Mask,
        start: int,
        count: int,
        each_max: int,
        attributes: Counts,
    ) -> list[int]:
        """See ``Placer.place``."""
        return pick(room, ask, mask, start, count, SPREAD, each_max, None)


class Random:
    """Placer on the first suitable node from a random start: the fastest, and brokers seldom collide."""

    name = "random"

    def place(
        self,
        room: NodeColumns,
        ask: Vector,
        mask: Mask,
        start: int,
        count: int,
        each_max: int,
        attributes: Counts,
    ) -> list[int]:
        """See ``Placer.place``."""
        return pick(room, ask, mask, start, count, FIRST, each_max, None)


class FewestAttributes:
    """Placer on the suitable node with the fewest attributes (Megha): keeps rare attributes free."""

    name = "fewest-attributes"

    def place(
        self,
        room: NodeColumns,
        ask: Vector,
        mask: Mask,
        start: int,
        count: int,
        each_max: int,
        attributes: Counts,
    ) -> list[int]:
        """See ``Placer.place``."""
        return pick(room, ask, mask, start, count, CHEAPEST, each_max, attributes)
