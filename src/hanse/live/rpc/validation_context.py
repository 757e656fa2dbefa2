"""What a machine's mail is judged by: who it knows, how large things are, what clusters look like."""

from collections.abc import Callable
from typing import Final

import msgspec

from hanse.core.config import BrokerConfig, RunnerConfig, WardenConfig
from hanse.model import messages as m
from hanse.model.ids import Instant, JobId
from hanse.model.resources import Dimensions
from hanse.policy.node_columns import NODES_MAX

STALE: Final = "stale layout"
"""The one answer of ``vet`` that is no accusation: drop the envelope, keep the connection."""


class Layout(msgspec.Struct, frozen=True):
    """What a cluster looks like to its brokers."""

    epoch: int
    nodes: int
    dimensions: Dimensions


class Limits(msgspec.Struct):
    """What one machine's mail is judged by. None: not known, so not judged."""

    name: str = ""
    """The machine's own name."""
    brokers: frozenset[str] | None = None
    """Brokers that the machine was configured with; likewise below."""
    clusters: frozenset[str] | None = None
    runners: frozenset[str] | None = None
    nodes: int = NODES_MAX
    """Nodes of the machine's own cluster (a warden)."""
    served: frozenset[int] | None = None
    """Nodes that the machine serves (a runner)."""
    tasks: Callable[[JobId], int | None] | None = None
    """How many tasks a job has that the machine knows (a broker: its own, and those it keeps for peers)."""
    clock: Callable[[], Instant] | None = None
    """The machine's own clock: what it is told that it said itself cannot be later than now."""
    layouts: dict[str, Layout] = {}
    """What clusters look like, by name; kept up to date by ``vet_frame``."""

    def learn(self, snapshot: m.ClusterSnapshot) -> None:
        """Note what a cluster looks like: from mail that is delivered, or from a restored machine's view."""
        known = self.layouts.get(snapshot.cluster)
        if known is None or snapshot.epoch >= known.epoch:
            self.layouts[snapshot.cluster] = layout_of(snapshot)


def broker_limits(config: BrokerConfig) -> Limits:
    """What a broker's mail is judged by."""
    return Limits(
        config.name,
        brokers=frozenset(config.brokers),
        clusters=frozenset(config.clusters),
        runners=frozenset(),
        layouts={},
    )


def warden_limits(config: WardenConfig) -> Limits:
    """What a warden's mail is judged by."""
    return Limits(
        config.name,
        brokers=frozenset(config.brokers),
        clusters=frozenset(),
        runners=frozenset(node.runner for node in config.nodes),
        nodes=len(config.nodes),
        layouts={},
    )


def runner_limits(config: RunnerConfig) -> Limits:
    """What a runner's mail is judged by."""
    return Limits(
        config.name,
        brokers=frozenset(),
        clusters=frozenset((config.warden,)),
        runners=frozenset(),
        served=frozenset(config.nodes),
        layouts={},
    )


def layout_of(snapshot: m.ClusterSnapshot) -> Layout:
    """What the cluster of a snapshot looks like."""
    return Layout(snapshot.epoch, len(snapshot.capacity), snapshot.dimensions)
