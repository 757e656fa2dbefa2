"""Where room has grown lately: how a futile search is not repeated.

Whoever has found no room for a shape takes a mark. As long as no node that has gained room since then could
take one, a new search would find nothing either, because everywhere else there is at most as much as before.
Most searches of a crowded league are of this kind. A hint about state, never state itself: it is not dumped,
and without it everything goes the same way, only slower.
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
"""Nodes remembered; a mark from before the oldest of them says nothing."""
LOOK_MAX: Final = 16
"""With more nodes than this to look at one by one, searching anew is as cheap."""
NO_CHECKPOINT: Final = -1
Attributes = tuple[tuple[tuple[str, Value], ...], ...]
"""Those of each node of a cluster."""
INDEXES_MAX: Final = 64
"""Indices of clusters' attributes kept for those who ask again."""
SMALL_NODES: Final = 32
"""Up to so many nodes are looked at one by one."""


class CapacityGains:
    """The nodes of one room that have gained, in order of time."""

    __slots__ = ("_before", "_nodes")

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._before = 0
        """How many gains are forgotten."""

    @property
    def checkpoint(self) -> int:
        """This moment."""
        return self._before + len(self._nodes)

    def add(self, node: int) -> None:
        """A node has gained room."""
        if len(self._nodes) >= GAINS_MAX:
            self._before += GAINS_MAX
            self._nodes.clear()
        self._nodes.append(node)

    def forget(self) -> None:
        """Anything may have changed: no earlier mark counts any more."""
        self._before += len(self._nodes) + 1
        self._nodes.clear()

    def is_futile(self, found: "CachedSearch", room: NodeColumns) -> bool:
        """Whether there is surely still no room for what found none when it took its mark."""
        nodes = self._nodes
        first, now = found.failed_at - self._before, len(nodes)
        if first == now:
            return True
        if first < 0 or now - first > LOOK_MAX:
            return False
        ask, mask = found.ask, found.mask
        assert ask is not None
        for node in dict.fromkeys(nodes[first:]):  # a busy node gains again and again
            if has_bit(mask, node) and room.fits(node, ask):
                return False
        found.failed_at = self._before + now
        return True


class CachedSearch(Protocol):
    """Something that may have found no room among ``mask`` for ``ask``."""

    ask: Vector | None
    mask: MaskWords
    failed_at: int
    """The mark that it took then; ``NO_CHECKPOINT``: it has found some, or never looked."""


def find_large_enough(room: NodeColumns, ask: Vector) -> MaskWords:
    """The nodes that could take ``ask`` if they were empty."""
    if room.nodes > SMALL_NODES:
        return pack_flags(np.all(room.capacity >= np.array(ask, dtype=np.int64)[:, None], axis=0))
    each = enumerate(room.capacity.T.tolist())  # NumPy's calls would cost more than the work
    return mask_of([node for node, capacity in each if not any(map(lt, capacity, ask))], room.nodes)


def attribute_index_of(attributes: Attributes) -> AttributeIndex:
    """The index of a cluster's attributes. It never changes, so equal clusters share one."""
    return _attribute_index(
        msgspec.msgpack.encode(attributes)
    )  # encoded, because True and 1 are equal to Python


@lru_cache(maxsize=INDEXES_MAX)
def _attribute_index(encoded: bytes) -> AttributeIndex:
    attributes = msgspec.msgpack.decode(encoded, type=Attributes)
    return AttributeIndex([dict(each) for each in attributes])
