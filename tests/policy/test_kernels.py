"""The kernels: what they mean, beside a rescan written out naively; and native equal to its twin."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hanse.model.resources import Vector
from hanse.policy import kernels
from hanse.policy.kernels import BEST_FIT, CHEAPEST, FIRST, SPREAD, c_kernels, numpy_kernels
from hanse.policy.node_columns import (
    CAPACITY_MAX,
    MaskWords,
    NodeColumns,
    empty_mask,
    full_mask,
    mask_of,
    mask_words,
)
from tests.policy.naive_kernels import Case, cases, flat_mask, naive_pick, naive_settle

HAS_COMPILER = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
needs_native = pytest.mark.skipif(
    bool(c_kernels.LOAD_ERROR) and not HAS_COMPILER,
    reason="no C compiler on this machine: only the twin can be tested",
)
MODES = (FIRST, BEST_FIT, SPREAD, CHEAPEST)
both = pytest.mark.parametrize(
    "backend", [pytest.param(c_kernels, marks=needs_native), numpy_kernels], ids=["native", "twin"]
)


# --- random clusters ---


counts = st.integers(-1, 60)
limits = st.sampled_from([0, 1, 2, 7])


def agree(
    case: Case, run: Callable[[ModuleType, NodeColumns, MaskWords], object]
) -> tuple[object, NodeColumns]:
    """Run both backends on copies; the answers and what they left behind must be equal."""
    assert c_kernels.LOAD_ERROR == "", f"{c_kernels.LOAD_ERROR} (python setup.py build_kernel)"
    left = []
    for backend in (c_kernels, numpy_kernels):
        room, mask = case.room.copy(), case.mask.copy()
        left.append((run(backend, room, mask), room))
        assert mask.tobytes() == case.mask.tobytes(), "the mask is only read"
        assert np.array_equal(room.capacity, case.room.capacity)
    assert left[0][0] == left[1][0]
    assert np.array_equal(left[0][1].free, left[1][1].free)
    return left[1]


@needs_native
@settings(max_examples=400, deadline=None)
@given(case=cases(), count=counts, mode=st.sampled_from(MODES), each_max=limits)
def test_pick_native_twin_and_naive_agree(case: Case, count: int, mode: int, each_max: int) -> None:
    chosen, room = agree(
        case,
        lambda backend, room, mask: backend.pick(
            room, case.ask, mask, case.start, count, mode, each_max, case.cost
        ),
    )
    naive = case.room.copy()
    expected = naive_pick(naive, case.ask, flat_mask(case.mask), case.start, count, mode, each_max, case.cost)
    assert chosen == expected
    assert np.array_equal(room.free, naive.free)


@needs_native
@settings(max_examples=300, deadline=None)
@given(case=cases(), nodes=st.lists(st.integers(-2, 220), max_size=60), each_max=limits)
def test_settle_native_twin_and_naive_agree(case: Case, nodes: list[int], each_max: int) -> None:
    settled, room = agree(
        case,
        lambda backend, room, mask: backend.settle(room, case.ask, mask, nodes, case.start, each_max),
    )
    naive = case.room.copy()
    assert settled == naive_settle(naive, case.ask, flat_mask(case.mask), nodes, case.start, each_max)
    assert np.array_equal(room.free, naive.free)


@needs_native
@settings(max_examples=150, deadline=None)
@given(case=cases(), more=st.integers(0, 3))
def test_fit_native_twin_and_room_agree(case: Case, more: int) -> None:
    asks = [case.ask] + [tuple(amount // (part + 2) for amount in case.ask) for part in range(more)]
    masks, _ = agree(case, lambda backend, room, _: backend.fit(room, asks).tolist())
    expected = [
        mask_of(
            (node for node in range(case.room.nodes) if case.room.fits(node, ask)), case.room.nodes
        ).tolist()
        for ask in asks
    ]
    assert masks == expected


@dataclass
class Requests:
    rows: NDArray[np.uint64]
    available: MaskWords
    wanted: NDArray[np.int32]
    starts: NDArray[np.int64]
    nodes: int


@st.composite
def requests(draw: st.DrawFn) -> Requests:
    nodes, rows, batch = draw(st.integers(0, 200)), draw(st.integers(1, 6)), draw(st.integers(0, 80))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    words = mask_words(nodes)
    table = rng.integers(0, 1 << 64, (rows, words), dtype=np.uint64)
    available = rng.integers(0, 1 << 64, words, dtype=np.uint64)
    if draw(st.booleans()):
        available &= rng.integers(0, 1 << 64, words, dtype=np.uint64) & table[0]
    wanted = rng.integers(-1, rows, (batch, draw(st.integers(0, 5))), dtype=np.int32)
    starts = rng.integers(-500, 500, batch)
    return Requests(table, available, wanted, starts, nodes)


@needs_native
@settings(max_examples=200, deadline=None)
@given(case=requests(), take=st.booleans())
def test_match_native_twin_and_naive_agree(case: Requests, take: bool) -> None:
    assert c_kernels.LOAD_ERROR == "", f"{c_kernels.LOAD_ERROR} (python setup.py build_kernel)"
    expected, bits = [], flat_mask(case.available)
    for wanted, start in zip(case.wanted.tolist(), case.starts.tolist(), strict=True):
        left = bits
        for row in wanted:
            left &= flat_mask(case.rows[row]) if row >= 0 else -1
        circle = ((start + step) % case.nodes for step in range(case.nodes))
        node = next((node for node in circle if left >> node & 1), -1)
        bits &= ~(1 << node) if take and node >= 0 else -1
        expected.append(node)
    for backend in (c_kernels, numpy_kernels):
        available = case.available.copy()
        found = backend.match(case.rows, available, case.wanted, case.starts, case.nodes, take)
        assert found.dtype == np.int64
        assert found.tolist() == expected
        assert flat_mask(available) == bits


# --- meanings, one by one ---


@both
def test_first_fills_a_node_before_the_next_and_goes_round(backend: ModuleType) -> None:
    room = NodeColumns([(2, 9)] * 130)
    assert backend.pick(room, (1, 1), full_mask(130), 128, 5, FIRST, 0, None) == [128, 128, 129, 129, 0]
    assert room.free_of(128) == (0, 7)
    assert room.free_of(0) == (1, 8)
    assert backend.pick(room, (1, 1), full_mask(130), 128, 3, FIRST, 1, None) == [0, 1, 2]


@both
def test_scored_modes_break_ties_in_circular_order(backend: ModuleType) -> None:
    for mode, expected in ((BEST_FIT, [2, 2, 3, 3]), (SPREAD, [2, 3, 0, 1]), (CHEAPEST, [2, 2, 3, 3])):
        room, cost = NodeColumns([(2,)] * 4), np.zeros(4, dtype=np.int64)
        assert backend.pick(room, (1,), full_mask(4), 2, 4, mode, 0, cost) == expected


@both
def test_best_fit_spread_and_cheapest_choose_what_they_say(backend: ModuleType) -> None:
    capacities = [(10, 0), (4, 0), (7, 0), (1, 0)]
    cost = np.array([3, 9, 1, 0], dtype=np.int64)
    for mode, first in ((BEST_FIT, 1), (SPREAD, 0), (CHEAPEST, 2)):
        room = NodeColumns(capacities)
        assert backend.pick(room, (2, 0), full_mask(4), 0, 1, mode, 0, cost) == [first]


@both
def test_each_max_counts_and_a_full_cluster_shortens_the_answer(backend: ModuleType) -> None:
    for mode in MODES:
        room, cost = NodeColumns([(9,)] * 3), np.array([0, 1, 2], dtype=np.int64)
        chosen = backend.pick(room, (1,), mask_of([0, 2], 3), 0, 9, mode, 2, cost)
        assert sorted(chosen) == [0, 0, 2, 2]
        assert [room.free_of(node) for node in range(3)] == [(7,), (9,), (7,)]


@both
def test_bits_beyond_the_last_node_are_no_nodes(backend: ModuleType) -> None:
    mask = np.array([(1 << 64) - 1], dtype=np.uint64)
    room = NodeColumns([(1,)] * 3)
    assert backend.pick(room, (1,), mask, 1, 10, FIRST, 0, None) == [1, 2, 0]
    assert backend.settle(NodeColumns([(1,)] * 3), (1,), mask, [7, 63, -1, -1], 2) == [2, 0, 1, -1]
    assert backend.fit(NodeColumns([(1,)] * 3), [(1,), (2,)]).tolist() == [[7], [0]]
    found = backend.match(mask[None, :], mask, np.zeros((1, 1), np.int32), np.array([70]), 3, True)
    assert found.tolist() == [1]
    assert mask.tolist() == [(1 << 64) - 3]


@both
def test_settle_keeps_what_fits_and_substitutes_the_rest(backend: ModuleType) -> None:
    room = NodeColumns([(1,), (2,), (1,), (1,)])
    mask = mask_of([0, 1, 3], 4)  # node 2 is not to be had
    assert backend.settle(room, (1,), mask, [2, 1, 1, 1], 3) == [3, 1, 1, 0]
    assert [room.free_of(node) for node in range(4)] == [(0,), (0,), (1,), (0,)]
    assert backend.settle(room, (1,), mask, [1, -1], 0) == [-1, -1]


@both
def test_settle_each_max_counts_substitutes_too(backend: ModuleType) -> None:
    room = NodeColumns([(9,)] * 3)
    assert backend.settle(room, (1,), full_mask(3), [-1, 0, 1, 1], 0, 1) == [0, 1, 2, -1]
    # the counts are of this call alone
    assert backend.settle(room, (1,), full_mask(3), [0, 1, 2], 0, 1) == [0, 1, 2]


@both
def test_a_full_cluster_is_searched_to_the_end(backend: ModuleType) -> None:
    room = NodeColumns([(1, 1)] * 1000)
    room.free[0, :] = 0
    room.free[0, 437] = 1  # behind the start, and beyond where nodes are asked one by one
    for mode in MODES:
        some = room.copy()
        cost = np.zeros(1000, dtype=np.int64)
        assert backend.pick(some, (1, 1), full_mask(1000), 438, 2, mode, 0, cost) == [437]
    assert backend.settle(room, (1, 1), full_mask(1000), [5, 6], 438) == [437, -1]


@both
def test_many_tasks_and_large_amounts(backend: ModuleType) -> None:
    room = NodeColumns([(CAPACITY_MAX, CAPACITY_MAX - 1)] * 700)
    for mode in MODES:
        cost = np.arange(700, dtype=np.int64)[::-1].copy()
        chosen = backend.pick(room, (CAPACITY_MAX // 8, 3), full_mask(700), 11, 1000, mode, 0, cost)
        assert len(chosen) == 1000
    assert room.free.sum(axis=1).tolist() == [
        700 * CAPACITY_MAX - 4000 * (CAPACITY_MAX // 8),
        700 * (CAPACITY_MAX - 1) - 12_000,
    ]


@both
@pytest.mark.parametrize("ask", [(CAPACITY_MAX - 1 - near,) for near in range(3)])
def test_leftovers_are_exact_where_doubles_round(backend: ModuleType, ask: Vector) -> None:
    # Leftovers a hair below a whole 1024th: rounding up would make the nodes equal and choose node 0.
    capacities = [(CAPACITY_MAX - 1 - step,) for step in range(3)]
    for mode in (BEST_FIT, SPREAD):
        room, naive = NodeColumns(capacities, checked=False), NodeColumns(capacities, checked=False)
        for each in (room, naive):
            each.free += CAPACITY_MAX - 1 - np.arange(3)
            each.free[:, 0] += 1
        expected = naive_pick(naive, ask, 7, 0, 3, mode, 1, None)
        assert backend.pick(room, ask, full_mask(3), 0, 3, mode, 1, None) == expected


@both
def test_our_bugs_are_assertions(backend: ModuleType) -> None:
    room, mask = NodeColumns([(1, 1)] * 70), full_mask(70)
    none = np.zeros((1, 1), np.int32)
    with pytest.raises(AssertionError):
        backend.pick(room, (-1, 1), mask, 0, 1, FIRST, 0, None)
    with pytest.raises(AssertionError):
        backend.pick(room, (1, 1), mask, 0, 1, CHEAPEST, 0, None)
    with pytest.raises(AssertionError):
        backend.pick(room, (1, 1), mask, 0, 1, CHEAPEST, 0, np.zeros(69, dtype=np.int64))
    with pytest.raises(AssertionError):
        backend.pick(room, (1, 1), mask[:1], 0, 1, FIRST, 0, None)
    with pytest.raises(AssertionError):
        backend.pick(room, (1, 1), mask, 0, 1, 4, 0, None)
    with pytest.raises(AssertionError):
        backend.pick(room, (1, 1), mask, 0, kernels.COUNT_MAX + 1, FIRST, 0, None)
    with pytest.raises(AssertionError):
        backend.settle(room, (1, -1), mask, [0], 0)
    with pytest.raises(AssertionError):
        backend.settle(room, (1, 1), mask.astype(np.int64), [0], 0)
    with pytest.raises(AssertionError):
        backend.fit(room, [(1, -1)])
    for row in (1, -2):
        with pytest.raises(AssertionError):
            backend.match(mask[None, :], mask, none + np.int32(row), np.zeros(1, np.int64), 70, False)
    with pytest.raises(AssertionError):
        backend.match(mask[None, :], mask[:1], none, np.zeros(1, np.int64), 70, False)
    assert np.array_equal(room.free, room.capacity)


@both
def test_a_cluster_without_nodes(backend: ModuleType) -> None:
    room, mask = NodeColumns([]), empty_mask(0)
    assert backend.pick(room, (1, 2), mask, 5, 3, SPREAD, 0, None) == []
    assert backend.settle(room, (1, 2), mask, [0, -1], 5) == [-1, -1]
    assert backend.fit(room, [(1, 2)]).shape == (1, 0)
    rows = np.zeros((1, 0), dtype=np.uint64)
    found = backend.match(rows, mask, np.zeros((2, 1), np.int32), np.zeros(2, np.int64), 0, True)
    assert found.tolist() == [-1, -1]


@needs_native
def test_the_compiled_kernels_are_at_work_in_the_tree() -> None:
    assert c_kernels.LOAD_ERROR == "", f"{c_kernels.LOAD_ERROR} (python setup.py build_kernel)"
    assert kernels.BACKEND == "native"
    assert (kernels.pick, kernels.settle, kernels.fit, kernels.match) == (
        c_kernels.pick,
        c_kernels.settle,
        c_kernels.fit,
        c_kernels.match,
    )
