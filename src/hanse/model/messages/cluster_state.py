"""Free room of a cluster as its warden publishes it: deltas and snapshots."""

import msgspec

from hanse.model.constraints import Value
from hanse.model.ids import ClusterId
from hanse.model.resources import Dimensions, Vector


class Delta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Final states of the nodes that changed between two versions of a cluster: idempotent, gaps show."""

    cluster: ClusterId
    epoch: int
    since: int
    version: int
    nodes: tuple[int, ...]
    free: tuple[Vector, ...]
    """Room on offer on each of those nodes; nothing while it is down, draining or held."""


class ClusterDelta(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="change"):
    """Delta as a message of its own."""

    delta: Delta


class RequestSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sync"):
    """Request for the whole state: the broker's view has a gap."""

    cluster: ClusterId


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """Whole state of a cluster as its warden offers it."""

    cluster: ClusterId
    epoch: int
    version: int
    dimensions: Dimensions
    capacity: tuple[Vector, ...]
    attributes: tuple[tuple[tuple[str, Value], ...], ...]
    reserve: tuple[int, ...]
    """Nodes kept for latency work."""
    partitions: tuple[str, ...]
    """Brokers, each preferring an equal contiguous share of the nodes, in this order."""
    free: tuple[Vector, ...]
