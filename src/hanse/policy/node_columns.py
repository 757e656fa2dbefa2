"""Columns of one cluster: its nodes' resources as rows of integers, and sets of nodes as bit masks.

Columns, not objects, because every decision reads the same few numbers of thousands of nodes. A
``NodeColumns`` has one row per resource (``[R, N]``, units as in ``model.resources``), so a kernel reads
memory in order. A mask is a C-contiguous uint64 array of ``mask_words(n)`` words; node ``i`` is bit ``i %
64`` of word ``i // 64``, lowest bit first, and the bits beyond the last node are zero.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hanse.model.resources import Vector

Column = NDArray[np.int64]
MaskWords = NDArray[np.uint64]

DIMENSIONS_MAX: Final = 32
"""Resources of a cluster: the three base ones and CUSTOM_KINDS_MAX fit with room to spare."""
NODES_MAX: Final = 1 << 22
"""Nodes of a cluster. A league has many clusters; one of four million nodes is a mistake."""
CAPACITY_MAX: Final = 1 << 50
"""Largest amount of one resource on a node (MEMORY_BYTES_MAX): times 1024 it stays below 2**63."""
FEW_NODES: Final = 64
"""Nodes up to which a cluster's capacities are cached."""
CALL_WORDS: Final = 8
"""Numbers of a kernel call before the ask: the head of ``call_t`` in kernels.c."""
VIEW_DRIFT_MAX: Final = 1 << 52
"""Drift, in either direction, of the free room of a view beyond which there is a bug."""


class NodeColumns:
    """Capacity and free room of each node of a cluster.

    ``NodeColumns(capacity)`` starts with everything free; ``capacity`` is one vector per node. Checked
    columns are truth: free room never leaves [0, capacity]. With ``checked=False`` they are a belief (a
    broker's view), which late news may push below zero or above capacity; only the drift is bounded. The
    arrays are changed in place and never replaced: the kernels keep their raw addresses. An object belongs to
    one thread.
    """

    __slots__ = ("_cells", "_high", "_low", "_rows", "capacity", "checked", "dims", "free", "header",
                 "header_address", "nodes", "pack", "words")  # fmt: skip

    def __init__(self, capacity: Sequence[Vector], checked: bool = True) -> None:
        few = len(capacity) <= FEW_NODES
        self._lay_out(_known_columns(tuple(capacity)) if few else _columns(capacity), checked)

    def _lay_out(self, capacity: Column, checked: bool) -> None:
        """Set every attribute; each is set once."""
        dims, nodes = capacity.shape
        self.capacity = capacity
        """Capacity of each node, ``[R, N]``; read-only."""
        self.free = capacity.copy()
        """Free room of each node, ``[R, N]``."""
        self.nodes = nodes
        self.dims = dims
        self.words = mask_words(nodes)
        self.checked = checked
        self._cells = self.free.reshape(-1).data
        """Free room, row after row."""
        self._rows = [self._cells[row * nodes : (row + 1) * nodes] for row in range(dims)]
        self._low = 0 if checked else -VIEW_DRIFT_MAX
        self._high: list[Sequence[int]] = (
            [capacity[row].data for row in range(dims)] if checked else [_drift_bounds(nodes)] * dims
        )
        self.pack = _packer(dims)
        """Packs the numbers of a kernel call and an ask into bytes; refuses an ask of another length."""
        self.header = array("q", (self.free.ctypes.data, capacity.ctypes.data, dims, nodes))
        """Header for the compiled kernels: two addresses, R, N."""
        self.header_address = self.header.buffer_info()[0]

    def fits(self, node: int, ask: Vector) -> bool:
        """True if the node has at least ``ask`` left of everything."""
        assert node >= 0, f"node {node}"
        for row, amount in zip(self._rows, ask, strict=True):  # noqa: SIM110  any() costs twice the call
            if row[node] < amount:
                return False
        return True

    def debit(self, node: int, ask: Vector) -> None:
        """Take ``ask`` from the node's free room."""
        assert node >= 0, f"node {node}"
        low = self._low
        for row, amount in zip(self._rows, ask, strict=True):
            left = row[node] - amount
            assert left >= low, f"node {node} has {row[node]} left, {amount} taken"
            row[node] = left

    def credit(self, node: int, ask: Vector) -> None:
        """Give ``ask`` back to the node's free room."""
        assert node >= 0, f"node {node}"
        for row, high, amount in zip(self._rows, self._high, ask, strict=True):
            left = row[node] + amount
            assert left <= high[node], f"node {node} would have {left} left of {high[node]}"
            row[node] = left

    def free_of(self, node: int) -> Vector:
        """Return what the node has left."""
        assert 0 <= node < self.nodes, f"node {node}"
        return tuple(self._cells[node :: self.nodes].tolist())

    def set_free(self, node: int, free: Vector) -> None:
        """Set what the node has left, when news replaces a belief."""
        assert node >= 0, f"node {node}"
        low = self._low
        for row, high, amount in zip(self._rows, self._high, free, strict=True):
            assert low <= amount <= high[node], f"node {node} cannot have {amount} left"
            row[node] = amount

    def clear(self) -> None:
        """Make everything free again."""
        self.free[:] = self.capacity

    def copy(self, checked: bool | None = None) -> "NodeColumns":
        """Return an independent copy; ``checked=False`` makes a belief out of truth."""
        twin = NodeColumns.__new__(NodeColumns)
        twin._lay_out(self.capacity, self.checked if checked is None else checked)
        twin.free[:] = self.free
        if twin.checked:
            possible = bool(((self.free >= 0) & (self.free <= self.capacity)).all())
            assert possible, "a belief outside [0, capacity] cannot become truth"
        return twin


def _columns(capacity: Sequence[Vector]) -> Column:
    """Return the capacities of nodes as columns, read-only."""
    dims = len(capacity[0]) if capacity else 0
    assert all(len(vector) == dims for vector in capacity), "every node has the same resources"
    assert not capacity or 1 <= dims <= DIMENSIONS_MAX, f"{dims} resources"
    assert len(capacity) <= NODES_MAX, f"{len(capacity)} nodes"
    columns = np.ascontiguousarray(np.array(capacity, dtype=np.int64).reshape(len(capacity), dims).T)
    assert not columns.size or columns.min() >= 0, "a negative capacity"
    assert not columns.size or columns.max() <= CAPACITY_MAX, "a capacity above CAPACITY_MAX"
    columns.flags.writeable = False
    return columns


_known_columns: Final = lru_cache(maxsize=64)(_columns)
"""Cached columns of a small cluster: a restarting warden and every broker that sees the cluster ask again."""


@lru_cache(maxsize=DIMENSIONS_MAX)
def _packer(dims: int) -> Callable[..., bytes]:
    return Struct(f"={CALL_WORDS + dims}q").pack


@lru_cache(maxsize=64)
def _drift_bounds(nodes: int) -> Sequence[int]:
    """Return the highest free room of a belief, for each of so many nodes."""
    return (VIEW_DRIFT_MAX,) * nodes


def mask_words(n: int) -> int:
    """Return the number of words of a mask over ``n`` nodes."""
    return (n + 63) // 64


def empty_mask(n: int) -> MaskWords:
    """Return the mask of none of ``n`` nodes."""
    return np.zeros(mask_words(n), dtype=np.uint64)


def full_mask(n: int) -> MaskWords:
    """Return the mask of all ``n`` nodes; the bits beyond them are zero."""
    if 0 < n <= 64:  # one word: NumPy's calls would cost more than the work
        return np.array([(1 << n) - 1], dtype=np.uint64)
    mask = np.full(mask_words(n), (1 << 64) - 1, dtype=np.uint64)
    if n & 63:
        mask[-1] = (1 << (n & 63)) - 1
    return mask


def mask_of(indices: Iterable[int], n: int) -> MaskWords:
    """Return the mask of these of ``n`` nodes."""
    if n <= 64:  # one word: NumPy's calls would cost ten times the work
        word = 0
        for index in indices:
            assert 0 <= index < n, "a node outside the cluster"
            word |= 1 << index
        return np.array([word] if n else [], dtype=np.uint64)
    chosen = np.fromiter(indices, dtype=np.int64)
    assert not chosen.size or (chosen.min() >= 0 and chosen.max() < n), "a node outside the cluster"
    flags = np.zeros(mask_words(n) * 64, dtype=np.bool_)
    flags[chosen] = True
    return pack_flags(flags)


def pack_flags(flags: NDArray[np.bool_]) -> MaskWords:
    """Return the mask of one flag per node; zeros fill up the last word."""
    padded = np.zeros(mask_words(len(flags)) * 8, dtype=np.uint8)
    packed = np.packbits(flags, bitorder="little")
    padded[: len(packed)] = packed
    return padded.view(np.dtype("<u8")).astype(np.uint64, copy=False)


def mask_flags(mask: MaskWords, n: int) -> NDArray[np.bool_]:
    """Return one flag per node, from the mask of ``n`` nodes; bits beyond ``n`` are ignored."""
    octets = mask.astype(np.dtype("<u8"), copy=False).view(np.uint8)
    return np.unpackbits(octets, count=n, bitorder="little").view(np.bool_)


def mask_indices(mask: MaskWords, n: int) -> list[int]:
    """Return the nodes in the mask, in rising order; bits beyond ``n`` are ignored."""
    if n <= 64:  # one word: NumPy's calls would cost more than the work
        word = mask.item(0) if n else 0
        return [index for index in range(n) if word >> index & 1]
    indices: list[int] = mask_flags(mask, n).nonzero()[0].tolist()
    return indices


def set_bit(mask: MaskWords, i: int) -> None:
    """Add node ``i`` to the mask."""
    assert i >= 0, f"node {i}"
    mask[i >> 6] = mask.item(i >> 6) | 1 << (i & 63)


def clear_bit(mask: MaskWords, i: int) -> None:
    """Remove node ``i`` from the mask."""
    assert i >= 0, f"node {i}"
    mask[i >> 6] = mask.item(i >> 6) & ~(1 << (i & 63))


def has_bit(mask: MaskWords, i: int) -> bool:
    """True if node ``i`` is in the mask."""
    assert i >= 0, f"node {i}"
    return bool(mask.item(i >> 6) >> (i & 63) & 1)


def is_empty(mask: MaskWords) -> bool:
    """True if no node is in the mask."""
    if mask.size == 1:  # one word: NumPy's call would cost ten times the work
        return not mask.item(0)
    return not mask.any()


def count_bits(mask: MaskWords) -> int:
    """Count the nodes in the mask."""
    return int(np.bitwise_count(mask).sum())
