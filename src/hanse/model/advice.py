"""What a broker shows to its policy process, and what it is advised.

A machine never runs a network: it asks with a command, and the answer comes back as an event that is on the
journal like any other. Amounts are milli-CPU and GPUs, times microseconds.
"""

import msgspec

from hanse.model.ids import JobId

Amount = tuple[int, int]
"""Milli-CPU and GPUs."""


class ClusterCapacity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cluster as the broker believes it to be."""

    cluster: str
    capacity: Amount
    """Of all its nodes together."""
    free: Amount
    """The same, less what is used or claimed."""
    largest_node: Amount
    """The most CPUs and the most GPUs that one of its nodes has: no task can have more."""


class SizeEstimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A size that a group's tasks may have, and how long one is believed to take then."""

    cpu: int
    gpu: int
    duration: int


class WaitingGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Elastic tasks that wait for room, all of one kind."""

    job: JobId
    group: int
    count: int
    waited: int
    sizes: tuple[SizeEstimate, ...]
    """The ladder: every size that may be chosen, the least first."""
    eligible_clusters: tuple[int, ...]
    """Positions of the clusters that could run one."""


class HeldResources(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An elastic task of this broker that runs, or is on its way to its node."""

    cluster_index: int
    """Position of its cluster."""
    cpu: int
    gpu: int
    elapsed: int
    """Since the broker placed it."""
    duration: int
    """How long it is believed to take in all."""


class AdviceRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that advice is asked on."""

    clusters: tuple[ClusterCapacity, ...]
    waiting: tuple[WaitingGroup, ...]
    """Who stands first in the queue comes first."""
    held: tuple[HeldResources, ...]


class Advice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How much the tasks of a waiting group should be asked for, and where to look for it first."""

    job: JobId
    group: int
    cpu: int
    gpu: int
    cluster: str = ""
    """Empty: wherever."""
