"""Cache of searches that found no room: a search is skipped until a node that could help has gained room.

A search that finds no room for a shape stores a checkpoint. As long as no node that has gained room since
could take one task, a new search would find nothing either, because every other node has at most as much room
as before. Most searches of a busy league are of this kind. The cache is no state: it is not dumped, and
without it every decision is the same, only slower.
"""

from functools import lru_cache
from operator import lt
from typing import Final, Protocol

import msgspec
import numpy as np

from hanse.model.constraints import Value
from hanse.model.resources import Vector
from hanse.policy.constraint_index import AttributeIndex
from hanse.policy.node_columns import MaskWords, NodeColumns, has_bit, mask_of, pack_flags

GAINS_MAX: Final = 1_024
"""Nodes remembered; a checkpoint from before the oldest of them is useless."""
LOOK_MAX: Final = 16
"""Nodes to check one by one, above which a new search is as cheap."""
NO_CHECKPOINT: Final = -1
Attributes = tuple[tuple[tuple[str, Value], ...], ...]
"""Attributes of each node of a cluster."""
INDEXES_MAX: Final = 64
"""Cached indices of clusters' attributes."""
SMALL_NODES: Final = 32
"""Number of nodes up to which a loop is used."""


class CapacityGains:
    """Nodes of one cluster that have gained room, in order of time."""

    __slots__ = ("_before", "_nodes")

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._before = 0
        """Number of dropped gains."""

    @property
    def checkpoint(self) -> int:
        """Present position in the sequence of gains."""
        return self._before + len(self._nodes)

    def add(self, node: int) -> None:
        """Note that a node has gained room."""
        if len(self._nodes) >= GAINS_MAX:
            self._before += GAINS_MAX
            self._nodes.clear()
        self._nodes.append(node)

    def forget(self) -> None:
        """Invalidate all earlier checkpoints: anything may have changed."""
        self._before += len(self._nodes) + 1
        self._nodes.clear()

    def is_futile(self, search: "CachedSearch", room: NodeColumns) -> bool:
        """True if there is certainly still no room for a search that failed at its checkpoint."""
        nodes = self._nodes
        first, now = search.failed_at - self._before, len(nodes)
        if first == now:
            return True
        if first < 0 or now - first > LOOK_MAX:
            return False
        ask, mask = search.ask, search.mask
        assert ask is not None
        for node in dict.fromkeys(nodes[first:]):  # a busy node gains often
            if has_bit(mask, node) and room.fits(node, ask):
                return False
        search.failed_at = self._before + now
        return True


class CachedSearch(Protocol):
    """Search that may have found no room for ``ask`` in ``mask``."""

    ask: Vector | None
    mask: MaskWords
    failed_at: int
    """Checkpoint of that failure; ``NO_CHECKPOINT``: it found room, or never ran."""


def find_large_enough(room: NodeColumns, ask: Vector) -> MaskWords:
    """Return the nodes that could take ``ask`` when empty."""
    if room.nodes > SMALL_NODES:
        return pack_flags(np.all(room.capacity >= np.array(ask, dtype=np.int64)[:, None], axis=0))
    each = enumerate(room.capacity.T.tolist())  # NumPy's calls would cost more
    return mask_of([node for node, capacity in each if not any(map(lt, capacity, ask))], room.nodes)


def attribute_index_of(attributes: Attributes) -> AttributeIndex:
    """Return the index of a cluster's attributes. It never changes, so equal clusters share one."""
    return _attribute_index(
        msgspec.msgpack.encode(attributes)
    )  # encoded, because True and 1 are equal to Python


@lru_cache(maxsize=INDEXES_MAX)
def _attribute_index(encoded: bytes) -> AttributeIndex:
    attributes = msgspec.msgpack.decode(encoded, type=Attributes)
    return AttributeIndex([dict(each) for each in attributes])
