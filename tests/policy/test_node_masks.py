"""Room of nodes stays within its bounds, and masks are sets of nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.policy.node_columns import (
    CAPACITY_MAX,
    DIMENSIONS_MAX,
    VIEW_DRIFT_MAX,
    NodeColumns,
    clear_bit,
    count_bits,
    empty_mask,
    full_mask,
    has_bit,
    is_empty,
    mask_indices,
    mask_of,
    mask_words,
    set_bit,
)
from tests.policy.naive_kernels import flat_mask


def test_a_checked_room_stays_between_nothing_and_capacity() -> None:
    room = NodeColumns([(4, 8), (2, 2)])
    assert room.capacity.shape == room.free.shape == (2, 2)
    assert (room.nodes, room.dims, room.words) == (2, 2, 1)
    room.debit(0, (3, 8))
    assert room.free_of(0) == (1, 0)
    assert room.fits(0, (1, 0))
    assert not room.fits(0, (1, 1))
    with pytest.raises(AssertionError):
        room.debit(0, (2, 0))
    with pytest.raises(AssertionError):
        room.credit(0, (4, 0))
    with pytest.raises(AssertionError):
        room.set_free(1, (3, 0))
    room.credit(0, (2, 8))
    room.clear()
    assert np.array_equal(room.free, room.capacity)
    assert NodeColumns([(1, 2, 3), (4, 5, 6)]).free_of(1) == (4, 5, 6)
    with pytest.raises(AssertionError):
        room.fits(-1, (0, 0))
    with pytest.raises(ValueError, match="zip"):
        room.fits(0, (1,))
    with pytest.raises(ValueError, match="read-only"):
        room.capacity[0, 0] = 5


def test_a_belief_may_leave_the_bounds_and_a_copy_is_independent() -> None:
    truth = NodeColumns([(4,)])
    view = truth.copy(checked=False)
    view.debit(0, (9,))
    assert view.free_of(0) == (-5,)
    assert truth.free_of(0) == (4,)
    view.credit(0, (20,))
    assert view.copy().free_of(0) == (15,)
    with pytest.raises(AssertionError):
        view.copy(checked=True)
    with pytest.raises(AssertionError):
        view.credit(0, (VIEW_DRIFT_MAX,))
    view.set_free(0, (3,))
    assert view.copy(checked=True).free_of(0) == (3,)


def test_rooms_that_cannot_be() -> None:
    for capacity in ([(1,), (1, 2)], [()], [(-1,)], [(CAPACITY_MAX + 1,)], [(1,) * (DIMENSIONS_MAX + 1)]):
        with pytest.raises(AssertionError):
            NodeColumns(capacity)


@given(n=st.integers(0, 200), data=st.data())
def test_masks_are_sets_of_nodes(n: int, data: st.DataObject) -> None:
    members = sorted(data.draw(st.sets(st.integers(0, n - 1)))) if n else []
    mask = mask_of(members, n)
    assert mask.dtype == np.uint64
    assert mask.shape == (mask_words(n),)
    assert flat_mask(mask) == sum(1 << node for node in members)
    assert mask_indices(mask, n) == members
    assert count_bits(mask) == len(members)
    assert is_empty(mask) == (not members)
    assert [node for node in range(n) if has_bit(mask, node)] == members
    by_bits, rest = empty_mask(n), full_mask(n)
    for node in members:
        set_bit(by_bits, node)
        clear_bit(rest, node)
    assert by_bits.tolist() == mask.tolist()
    assert count_bits(rest) == n - len(members)
    assert flat_mask(full_mask(n)) == (1 << n) - 1


def test_a_node_outside_the_mask_is_our_bug() -> None:
    mask = full_mask(64)
    for change in (set_bit, clear_bit, has_bit):
        with pytest.raises(AssertionError):
            change(mask, -1)
        with pytest.raises(IndexError):
            change(mask, 64)
    with pytest.raises(AssertionError):
        mask_of([64], 64)
