"""Compiled kernels: ctypes wrappers of ``kernels.c``.

The functions have the meaning of those in ``numpy_kernels``. This module makes every assertion that keeps C
from reading foreign memory, and keeps the cost of a call near one microsecond: the numbers of a call travel
as one packed record, a mask as a copy of its bytes (faster than taking the address of an array).

``pick`` and ``settle`` share scratch memory between calls: call them from one thread of a process only. The
library keeps the interpreter's lock while it runs (``PyDLL``); its calls are shorter than a release of the
lock.
"""

import ctypes
from array import array
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hanse.model.resources import Vector
from hanse.policy.kernels.numpy_kernels import CHEAPEST, COUNT_MAX, FIRST, check_cost, check_match
from hanse.policy.kernels.shared_library import open_library
from hanse.policy.node_columns import Column, MaskWords, NodeColumns

_ENTRY_BYTES: Final = 24
"""Size of ``entry_t`` in kernels.c."""
_WORD: Final = np.dtype(np.uint64)


def _c_function(library: ctypes.PyDLL | None, name: str, arguments: int) -> Callable[..., int]:
    """Return the C function of this name, which takes addresses (or bytes) only and returns an int64."""
    if library is None:

        def raise_missing(*_: object) -> int:
            raise AssertionError(f"{name} called without the library: {LOAD_ERROR}")

        return raise_missing
    function = library[name]
    function.argtypes = [ctypes.c_void_p] * arguments
    function.restype = ctypes.c_int64
    return function


_C_TYPES: Final = {"a": ctypes.c_void_p, "i": ctypes.c_int64, "d": ctypes.c_double, "": None}


def open_function(name: str, arguments: str, result: str = "") -> Any:
    """Return another function of the library. Types are letters: ``a`` an address or bytes, ``i`` an int64,
    ``d`` a double."""
    function: Any = _c_function(_LIBRARY, name, len(arguments))
    if _LIBRARY is not None:
        function.argtypes = [_C_TYPES[letter] for letter in arguments]
        function.restype = _C_TYPES[result]
    return function


def find_address(name: str) -> int:
    """Return the address of a function of the library, for other compiled parts that call it."""
    assert _LIBRARY is not None, LOAD_ERROR
    return ctypes.cast(_LIBRARY[name], ctypes.c_void_p).value or 0


_LIBRARY, LOAD_ERROR = open_library(files(__package__), "_kernels", ctypes.PyDLL)
"""``LOAD_ERROR``: the reason why the compiled kernels cannot be used; empty if they can."""
_pick: Final = _c_function(_LIBRARY, "hanse_pick", 2)
_settle: Final = _c_function(_LIBRARY, "hanse_settle", 2)
_fit: Final = _c_function(_LIBRARY, "hanse_fit", 4)
_match: Final = _c_function(_LIBRARY, "hanse_match", 6)


class _Scratch:
    """Memory that the kernels use during a call.

    It grows to the largest call and keeps its size; COUNT_MAX and NODES_MAX bound it.
    """

    __slots__ = ("entries", "entries_address", "given", "given_address", "given_size", "nodes",
    "nodes_address",
                 "size")  # fmt: skip

    def __init__(self) -> None:
        self.grow(64)
        self.grow_given(64)

    def grow(self, count: int) -> None:
        """Make room for the answers and the candidates of ``count`` tasks."""
        self.size = 1 << (count - 1).bit_length()
        self.nodes = array("q", bytes(8 * self.size))
        self.nodes_address = self.nodes.buffer_info()[0]
        self.entries = array("q", bytes(_ENTRY_BYTES * self.size))
        self.entries_address = self.entries.buffer_info()[0]

    def grow_given(self, nodes: int) -> None:
        """Make room for one count per node, all zero; every call leaves them zero."""
        self.given_size = nodes
        self.given = array("i", bytes(4 * nodes))
        self.given_address = self.given.buffer_info()[0]


_scratch: Final = _Scratch()


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
    """Choose nodes for up to ``count`` tasks and debit the room: see ``numpy_kernels.pick``. One thread
    only."""
    assert FIRST <= mode <= CHEAPEST, f"mode {mode}"
    assert count <= COUNT_MAX, f"{count} tasks in one call"
    assert each_max >= 0, f"at most {each_max} tasks a node"
    if count <= 0 or not room.nodes:
        return []
    assert mask.dtype == _WORD, f"a mask of {mask.dtype}"
    assert mask.shape == (room.words,), f"a mask of {mask.shape} words for {room.nodes} nodes"
    cost_address = 0
    if mode == CHEAPEST:
        assert cost is not None, "CHEAPEST needs the costs"
        check_cost(room, cost)
        cost_address = cost.ctypes.data
    if count > _scratch.size:
        _scratch.grow(count)
    call = room.pack(
        room.header_address,
        start % room.nodes,
        count,
        mode,
        each_max,
        cost_address,
        _scratch.entries_address,
        _scratch.nodes_address,
        *ask,
    )
    done = _pick(call, mask.tobytes())
    assert done >= 0, f"{ask} asks for less than nothing"
    if done <= 1:
        return [_scratch.nodes[0]] if done else []
    return _scratch.nodes[:done].tolist()


def settle(
    room: NodeColumns, ask: Vector, mask: MaskWords, nodes: Sequence[int], start: int, each_max: int = 0
) -> list[int]:
    """Check a claim task by task and debit the room: see ``numpy_kernels.settle``. One thread only."""
    assert len(nodes) <= COUNT_MAX, f"{len(nodes)} tasks in one call"
    assert each_max >= 0, f"at most {each_max} tasks a node"
    if not room.nodes:
        return [-1] * len(nodes)
    assert mask.dtype == _WORD, f"a mask of {mask.dtype}"
    assert mask.shape == (room.words,), f"a mask of {mask.shape} words for {room.nodes} nodes"
    if each_max and room.nodes > _scratch.given_size:
        _scratch.grow_given(room.nodes)
    settled = array("q", nodes)
    call = room.pack(
        room.header_address,
        start % room.nodes,
        len(settled),
        FIRST,
        each_max,
        0,
        _scratch.given_address,
        settled.buffer_info()[0],
        *ask,
    )
    done = _settle(call, mask.tobytes())
    assert done >= 0, f"{ask} asks for less than nothing"
    return settled.tolist()


def fit(room: NodeColumns, asks: Sequence[Vector]) -> NDArray[np.uint64]:
    """Return for each ask the mask of the nodes that fit it: see ``numpy_kernels.fit``."""
    masks = np.zeros((len(asks), room.words), dtype=np.uint64)
    if not masks.size:
        return masks
    table = np.array(asks, dtype=np.int64)
    assert table.shape == (len(asks), room.dims), f"asks of shape {table.shape} for {room.dims} resources"
    done = _fit(room.header_address, table.ctypes.data, len(asks), masks.ctypes.data)
    assert done >= 0, "an ask for less than nothing"
    return masks


def match(
    rows: NDArray[np.uint64],
    available: MaskWords,
    wanted: NDArray[np.int32],
    starts: NDArray[np.int64],
    nodes: int,
    take: bool,
) -> NDArray[np.int64]:
    """Match a batch of requests as Megha does: see ``numpy_kernels.match``."""
    check_match(rows, available, wanted, starts, nodes)
    assert not take or available.flags.writeable, "a match that takes changes what is available"
    found = np.full(len(starts), -1, dtype=np.int64)
    size = np.array([len(rows), len(starts), wanted.shape[1], nodes, take], dtype=np.int64)
    if nodes:
        addresses = [each.ctypes.data for each in (size, rows, available, wanted, starts, found)]
        assert _match(*addresses) >= 0, "a row that is not there"
    return found
