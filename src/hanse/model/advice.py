"""Request to a broker's policy process, and the advice that it returns.

A machine never runs a network: it asks with an effect, and the reply returns as an event that is journalled
like any other. Amounts are milli-CPU and GPUs, times microseconds.
"""

import msgspec

from hanse.model.ids import JobId

Amount = tuple[int, int]
"""Milli-CPU and GPUs."""


class ClusterCapacity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cluster as the broker believes it to be."""

    cluster: str
    capacity: Amount
    """Capacity of all its nodes together."""
    free: Amount
    """Capacity less what is used or claimed."""
    largest_node: Amount
    """Most CPUs and most GPUs of any of its nodes: no task can have more."""


class SizeEstimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Size that a group's tasks may have, and the believed duration of one task of this size."""

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
    """Ladder of all sizes that may be chosen, the smallest first."""
    eligible_clusters: tuple[int, ...]
    """Positions of the clusters that could run one task."""


class HeldResources(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Elastic task of this broker that runs, or is on its way to its node."""

    cluster_index: int
    """Position of its cluster."""
    cpu: int
    gpu: int
    elapsed: int
    """Time since the broker placed it."""
    duration: int
    """Believed duration in all."""


class AdviceRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Facts on which advice is based."""

    clusters: tuple[ClusterCapacity, ...]
    waiting: tuple[WaitingGroup, ...]
    """Waiting groups in queue order."""
    held: tuple[HeldResources, ...]


class Advice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Size for the tasks of a waiting group, and the cluster to search first."""

    job: JobId
    group: int
    cpu: int
    gpu: int
    cluster: str = ""
    """Empty: any cluster."""
