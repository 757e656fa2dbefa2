"""Placers of the example."""

import numpy as np
from numpy.typing import NDArray

from hanse.model.resources import Vector
from hanse.policy.interface import Mask
from hanse.policy.kernels import FIRST, pick
from hanse.policy.node_columns import NodeColumns


class LowestNumber:
    """Placer on the suitable node with the lowest number: nodes with high numbers stay idle."""

    name = "lowest-number"

    def place(
        self,
        room: NodeColumns,
        ask: Vector,
        mask: Mask,
        start: int,
        count: int,
        each_max: int,
        attributes: NDArray[np.int64],
    ) -> list[int]:
        """See ``Placer.place``."""
        del start, attributes
        return pick(room, ask, mask, 0, count, FIRST, each_max, None)
