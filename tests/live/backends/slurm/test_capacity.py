"""Room of Slurm's nodes: what is asked for, and what is withheld."""

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends.slurm.capacity import (
    NODE_ATTRIBUTE,
    SlurmCapacity,
    held_resources,
    requested_amounts,
)
from hanse.live.backends.slurm.driver import SlurmJob, SlurmNode, SlurmPartition
from hanse.model.resources import Resources


def test_what_is_asked_of_slurm_is_rounded_up() -> None:
    assert requested_amounts(Resources(1_001, (64 << 20) + 1, 2, (("fpga", 1),))) == (
        2,
        65,
        (("fpga", 1), ("gpu", 2)),
    )
    assert requested_amounts(Resources()) == (1, 64, ())  # no memory would mean all of it
    assert held_resources(Resources(500)) == Resources(1_000, 64 << 20)


def test_a_job_that_ends_between_two_lists_is_not_taken_for_anothers() -> None:
    room = SlurmCapacity((NodeConfig(Resources(4_000, 4 << 30), ((NODE_ATTRIBUTE, "n1"),)),))
    mine = SlurmJob(1, -1, 1, "hanse:x", "RUNNING", "n1", 2, 1 << 30)
    busy = SlurmNode("n1", True, 4, 4 << 30, (), 2, 1 << 30, (), (), (), "", "")
    assert room.update([busy], [mine], {0: [Resources(2_000, 1 << 30)]}) == []
    assert room.update([busy], [], {}) == []  # it has just ended
    assert room.update([busy], [], {}) == [(0, Resources(2_000, 1 << 30))]  # somebody else's


def test_a_job_that_came_and_went_between_two_looks_is_not_taken_for_anothers() -> None:
    room = SlurmCapacity((NodeConfig(Resources(4_000, 4 << 30), ((NODE_ATTRIBUTE, "n1"),)),))
    mine = SlurmJob(1, -1, 1, "hanse:x", "COMPLETED", "n1", 2, 1 << 30)
    busy = SlurmNode("n1", True, 4, 4 << 30, (), 2, 1 << 30, (), (), (), "", "")
    assert room.update([busy], [mine], {}) == []
    assert room.update([busy], [mine], {}) == [(0, Resources(2_000, 1 << 30))]


def test_a_node_that_slurm_has_no_more_is_withheld() -> None:
    whole = Resources(4_000, 4 << 30)
    room = SlurmCapacity((NodeConfig(whole, ((NODE_ATTRIBUTE, "n1"),)), NodeConfig(whole)))
    assert room.update([], [], {}) == [(0, whole)]
    assert room.withhold_all() == [(1, whole)]
    smaller = SlurmNode("n1", True, 3, 4 << 30, (), 0, 0, (), (), (), "", "")
    assert room.update([smaller], [], {}) == [(0, Resources(1_000)), (1, Resources())]


@pytest.mark.parametrize(
    ("ours", "shut", "withheld"),
    [
        ("", (), ()),
        ("", ("batch",), (0, 1, 3)),  # jobs that name none go to the default
        ("", ("small",), ()),
        ("", ("apart",), (2,)),  # not in the default: judged by its own
        ("small", ("batch",), (1,)),
        ("small", ("small",), (0, 3)),
        ("gone", ("small",), ()),  # Slurm says nothing of it; each node has an open one
    ],
)
def test_room_of_a_closed_partition_is_withheld(
    ours: str, shut: tuple[str, ...], withheld: tuple[int, ...]
) -> None:
    whole = Resources(4_000, 4 << 30)
    within = {"n1": ("batch", "small"), "n2": ("batch",), "n3": ("apart",)}
    nodes = [
        SlurmNode(name, True, 4, 4 << 30, (), 0, 0, (), each, (), "", "") for name, each in within.items()
    ]
    partitions = [
        SlurmPartition(name, name not in shut, name == "batch") for name in ("batch", "small", "apart")
    ]
    configs = (*(NodeConfig(whole, ((NODE_ATTRIBUTE, name),)) for name in within), NodeConfig(whole))
    room = SlurmCapacity(configs, ours)
    assert room.update(nodes, [], {}, partitions) == [(number, whole) for number in withheld]
    every = [SlurmPartition(each.name, True, each.is_default) for each in partitions]
    assert room.update(nodes, [], {}, every) == [(number, Resources()) for number in withheld]
