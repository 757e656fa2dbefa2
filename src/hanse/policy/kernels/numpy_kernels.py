"""NumPy kernels: the reference for the compiled ones, and the fallback where there is no compiler.

Every function here has a counterpart of the same name in ``c_kernels``; tests hold the two equal, including
what they change. This module defines the meaning of a kernel; ``kernels.c`` explains its speed.

Common rules. A node *fits* when it has at least the ask left of *every* resource, so a believed shortage of
any one resource rules a node out. ``start`` is taken modulo the number of nodes; circular order is start,
start + 1, …, last, 0, …, start - 1. Bits of a mask beyond the last node are ignored. A cluster without nodes
fits nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hanse.model.resources import Vector
from hanse.policy.node_columns import Column, MaskWords, NodeColumns, mask_flags, mask_words, pack_flags

FIRST: Final = 0
"""Fill the first fitting node in circular order, then the next."""
BEST_FIT: Final = 1
"""Take each time the node with the smallest leftover."""
SPREAD: Final = 2
"""Take each time the node with the largest leftover."""
CHEAPEST: Final = 3
"""Take each time the node with the smallest cost."""

COUNT_MAX: Final = 1 << 20
"""Tasks that one call of ``pick`` or ``settle`` may place: 8 MB of answers."""
WANTED_MAX: Final = 64
"""Rows that one request of ``match`` may ask for."""
SHARE: Final = 1024
"""Parts into which a node's capacity of one resource is divided when leftovers are added up."""


def pick(
    room: NodeColumns,
    ask: Vector,
    mask: MaskWords,
    start: int,
    count: int,
    mode: int,
    each_max: int,
    cost: Column | None,
) -> list[int]:
    """Choose nodes for up to ``count`` identical tasks, debit the room, return the nodes in the order chosen.

    A node may appear several times, but at most ``each_max`` times (0: no limit). The answer is shorter than
    ``count`` when the cluster is full. Ties go to the first node in circular order from ``start``.

    The leftover of a node is the sum, over the resources it has any capacity of, of what the task would leave
    there in whole 1024ths of the capacity; a belief above capacity counts as all of it. ``cost`` is read in
    mode CHEAPEST only, where it must be given: one int64 per node.
    """
    assert FIRST <= mode <= CHEAPEST, f"mode {mode}"
    assert count <= COUNT_MAX, f"{count} tasks in one call"
    assert each_max >= 0, f"at most {each_max} tasks a node"
    if count <= 0 or not room.nodes:
        return []
    nodes = _candidates(room, ask, mask, start)
    keys = _keys(room, ask, nodes, mode, cost)
    given: dict[int, int] = {}
    chosen: list[int] = []
    while len(chosen) < count and len(nodes):
        at = int(keys.argmin())  # the first of equals: the tie-break, as the candidates are in circular order
        node = int(nodes[at])
        room.debit(node, ask)
        chosen.append(node)
        given[node] = given.get(node, 0) + 1
        if given[node] == each_max or not room.fits(node, ask):
            nodes, keys = np.delete(nodes, at), np.delete(keys, at)
        elif mode in (BEST_FIT, SPREAD):
            keys[at] = _keys(room, ask, nodes[at : at + 1], mode, cost)[0]
    return chosen


def settle(
    room: NodeColumns, ask: Vector, mask: MaskWords, nodes: Sequence[int], start: int, each_max: int = 0
) -> list[int]:
    """Check a claim task by task, debit the room, and return the node of each task.

    A proposed node is taken if it is in the mask, fits, and was not given ``each_max`` times in this call (0:
    no limit). Otherwise (also for -1, or a node the cluster does not have) the task gets the first such node
    in circular order from ``start``, or -1 when there is none.
    """
    assert len(nodes) <= COUNT_MAX, f"{len(nodes)} tasks in one call"
    assert each_max >= 0, f"at most {each_max} tasks a node"
    if not room.nodes:
        return [-1] * len(nodes)
    rest = _candidates(room, ask, mask, start)
    allowed = mask_flags(mask, room.nodes)
    given: dict[int, int] = {}

    def can_take(node: int) -> bool:
        return bool(allowed[node]) and room.fits(node, ask) and not 0 < each_max <= given.get(node, 0)

    settled: list[int] = []
    cursor = 0  # only forwards: within a call room shrinks, so a node once passed over never fits again
    for proposed in nodes:
        node = proposed
        if not (0 <= node < room.nodes and can_take(node)):
            while cursor < len(rest) and not can_take(int(rest[cursor])):
                cursor += 1
            node = int(rest[cursor]) if cursor < len(rest) else -1
        if node >= 0:
            room.debit(node, ask)
            given[node] = given.get(node, 0) + 1
        settled.append(node)
    return settled


def fit(room: NodeColumns, asks: Sequence[Vector]) -> NDArray[np.uint64]:
    """Return for each ask the mask of the nodes that fit it: ``[S, words]``."""
    masks = np.zeros((len(asks), room.words), dtype=np.uint64)
    if room.nodes:
        for row, ask in zip(masks, asks, strict=True):
            row[:] = pack_flags(_find_fitting(room, ask))
    return masks


def match(
    rows: NDArray[np.uint64],
    available: MaskWords,
    wanted: NDArray[np.int32],
    starts: NDArray[np.int64],
    nodes: int,
    take: bool,
) -> NDArray[np.int64]:
    """Match a batch as Megha does: per request return the first available node that is in all wanted rows.

    ``rows`` ``[C, words]`` has one mask per constraint, ``wanted`` ``[B, K]`` the rows each request needs
    (-1: none), ``starts`` ``[B]`` the start of its circular search. The answer is one node per request, -1 if
    there is none. With ``take`` a matched node leaves ``available`` before the next request.
    """
    check_match(rows, available, wanted, starts, nodes)
    assert not wanted.size or (wanted.min() >= -1 and wanted.max() < len(rows)), "a row that is not there"
    found = np.full(len(wanted), -1, dtype=np.int64)
    if not nodes:
        return found
    for request, start in enumerate((starts % nodes).tolist()):
        left = available.copy()
        for row in wanted[request].tolist():
            if row >= 0:
                left &= rows[row]
        flags = mask_flags(left, nodes)
        at = start + int(flags[start:].argmax())
        if not flags[at]:
            at = int(flags.argmax())
        if flags[at]:
            found[request] = at
            if take:
                available[at >> 6] &= ~(np.uint64(1) << np.uint64(at & 63))
    return found


def check_match(
    rows: NDArray[np.uint64],
    available: MaskWords,
    wanted: NDArray[np.int32],
    starts: NDArray[np.int64],
    nodes: int,
) -> None:
    """Assert that the arrays of a ``match`` fit together (shared with ``c_kernels``, which reads raw
    memory)."""
    words = mask_words(nodes)
    _check_array(rows, np.uint64, (rows.shape[0], words))
    _check_array(available, np.uint64, (words,))
    _check_array(wanted, np.int32, (starts.shape[0], wanted.shape[1]))
    _check_array(starts, np.int64, (starts.shape[0],))
    assert wanted.shape[1] <= WANTED_MAX, f"{wanted.shape[1]} wanted rows a request"


def check_cost(room: NodeColumns, cost: Column) -> None:
    """Assert that there is one int64 per node (shared with ``c_kernels``, which reads raw memory)."""
    _check_array(cost, np.int64, (room.nodes,))


def _check_array(array: NDArray[np.generic], kind: type[np.generic], shape: tuple[int, ...]) -> None:
    assert array.dtype == kind, f"{array.dtype} in place of {kind.__name__}"
    assert array.shape == shape, f"shape {array.shape} in place of {shape}"
    assert array.flags.c_contiguous, "arrays are read row after row"


def _find_fitting(room: NodeColumns, ask: Vector) -> NDArray[np.bool_]:
    """Return one flag per node: True if the ask fits."""
    assert len(ask) == room.dims, f"{ask} for {room.dims} resources"
    assert min(ask) >= 0, f"{ask} asks for less than nothing"
    flags = np.ones(room.nodes, dtype=np.bool_)
    for free, amount in zip(room.free, ask, strict=True):
        flags &= free >= amount
    return flags


def _candidates(room: NodeColumns, ask: Vector, mask: MaskWords, start: int) -> Column:
    """Return the nodes of the mask that fit, in circular order from ``start``."""
    _check_array(mask, np.uint64, (room.words,))
    nodes = np.flatnonzero(_find_fitting(room, ask) & mask_flags(mask, room.nodes))
    return np.roll(nodes, -int(np.searchsorted(nodes, start % room.nodes)))


def _keys(room: NodeColumns, ask: Vector, nodes: Column, mode: int, cost: Column | None) -> Column:
    """Return the keys that ``pick`` minimises, one per node."""
    if mode == CHEAPEST:
        assert cost is not None, "CHEAPEST needs the costs"
        check_cost(room, cost)
        return cost[nodes]
    keys = np.zeros(len(nodes), dtype=np.int64)
    if mode == FIRST:
        return keys
    for free, capacity, amount in zip(room.free, room.capacity, ask, strict=True):
        whole = capacity[nodes]
        left = np.minimum(free[nodes] - amount, whole)
        keys += np.where(whole > 0, left * SHARE // np.maximum(whole, 1), 0)
    return keys if mode == BEST_FIT else -keys
