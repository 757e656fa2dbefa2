"""Context in which a machine's messages are validated: known members, sizes, layouts of clusters."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hanse.core.config import BrokerConfig, RunnerConfig, WardenConfig
from hanse.live.rpc.field_validators import NUMBER_MAX
from hanse.model import messages as m
from hanse.model.ids import Instant, JobId
from hanse.model.resources import Dimensions
from hanse.policy.node_columns import NODES_MAX

STALE: Final = "stale layout"
"""Problem of ``validate`` that is no accusation: drop the envelope, keep the connection."""


class Layout(msgspec.Struct, frozen=True):
    """Layout of a cluster as its brokers see it."""

    epoch: int
    nodes: int
    dimensions: Dimensions


class ValidationContext(msgspec.Struct):
    """Context in which one machine's messages are validated. None: not known, so not checked."""

    name: str = ""
    """Name of the machine."""
    brokers: frozenset[str] | None = None
    """Brokers in the machine's configuration; the same below."""
    clusters: frozenset[str] | None = None
    runners: frozenset[str] | None = None
    nodes: int = NODES_MAX
    """Nodes of the machine's own cluster (a warden)."""
    served_nodes: frozenset[int] | None = None
    """Nodes that the machine serves (a runner)."""
    count_tasks: Callable[[JobId], int | None] | None = None
    """Returns the task count of a known job (at a broker: its own, and those kept for peers)."""
    clock: Callable[[], Instant] | None = None
    """Clock of the machine: an echo of its own instant cannot be later than now."""
    layouts: dict[str, Layout] = {}
    """Layouts of clusters, by name; kept up to date by ``validate_frame``."""

    def learn_layout(self, snapshot: m.ClusterSnapshot) -> None:
        """Note the layout of a cluster: from a delivered snapshot, or from a restored machine's view."""
        known = self.layouts.get(snapshot.cluster)
        if known is None or snapshot.epoch >= known.epoch:
            self.layouts[snapshot.cluster] = layout_of(snapshot)


def broker_validation_context(config: BrokerConfig) -> ValidationContext:
    """Return the context of a broker's messages."""
    return ValidationContext(
        config.name,
        brokers=frozenset(config.brokers),
        clusters=frozenset(config.clusters),
        runners=frozenset(),
        layouts={},
    )


def warden_validation_context(config: WardenConfig) -> ValidationContext:
    """Return the context of a warden's messages."""
    return ValidationContext(
        config.name,
        brokers=frozenset(config.brokers),
        clusters=frozenset(),
        runners=frozenset(node.runner for node in config.nodes),
        nodes=len(config.nodes),
        layouts={},
    )


def runner_validation_context(config: RunnerConfig) -> ValidationContext:
    """Return the context of a runner's messages."""
    return ValidationContext(
        config.name,
        brokers=frozenset(),
        clusters=frozenset((config.warden,)),
        runners=frozenset(),
        served_nodes=frozenset(config.nodes),
        layouts={},
    )


def layout_of(snapshot: m.ClusterSnapshot) -> Layout:
    """Return the layout of the cluster of a snapshot."""
    return Layout(snapshot.epoch, len(snapshot.capacity), snapshot.dimensions)


def is_known(name: str, group: frozenset[str] | None) -> bool:
    """True if a sender is in a group, or the group is not known."""
    return group is None or name in group


def echo_problem(echo: Instant, context: ValidationContext) -> str | None:
    """Check our own instant that a peer returns: it cannot be later than now."""
    if not 0 <= echo <= NUMBER_MAX:
        return "an instant out of range"
    return "an echo from the future" if context.clock is not None and echo > context.clock() else None


Validator = Callable[[Any, ValidationContext, str], str | None]
"""Checks a message, given its sender: returns the problem in a few words, or None."""
