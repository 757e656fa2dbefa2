"""A room of nodes by itself, without the kernels."""

import pytest

from hanse.policy.node_columns import NodeColumns


def test_a_node_is_told_across_the_columns() -> None:
    room = NodeColumns([(2, 9), (3, 8)])
    room.debit(1, (1, 5))
    assert [room.free_of(0), room.free_of(1)] == [(2, 9), (2, 3)]


@pytest.mark.parametrize("node", [-1, 2, 3])
def test_a_node_that_is_not_there_has_no_room_to_tell(node: int) -> None:
    room = NodeColumns([(2, 9), (3, 8)])  # one past the end would be the next column's first
    with pytest.raises(AssertionError, match=f"node {node}"):
        room.free_of(node)
