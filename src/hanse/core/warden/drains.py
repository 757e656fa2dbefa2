"""Drains of one cluster: nodes closed to new work, with reason, requester and end.

The ledger stores which nodes drain, this module why. Every draining node belongs to exactly one drain, so
there are never more drains than nodes.
"""

from collections.abc import Iterable

import msgspec

from hanse.core.messaging.link import NEVER
from hanse.core.warden.ledger import Ledger
from hanse.model.drains import DRAINED_NODES_REPORTED_MAX, DRAINS_REPORTED_MAX, Drain
from hanse.model.events import DrainRequested
from hanse.policy.node_columns import mask_indices


class Drains:
    """Drains of the nodes of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.active: list[Drain] = []
        """Active drains, the oldest first."""
        self.due = NEVER
        """Time at which the next drain expires."""
        self.reported: tuple[Drain, ...] = ()
        """Drains that heartbeats report."""

    def on_drain_requested(self, event: DrainRequested) -> Iterable[int]:
        """Close or open nodes for an operator; return the nodes. The latest request for a node counts."""
        nodes = event.nodes or tuple(range(self._ledger.nodes))
        self._forget(nodes)
        if event.drain:
            self.active.append(
                Drain(self._compact_nodes(nodes), event.requested_by, event.reason, event.at, event.until)
            )
        self._set_draining(nodes, event.drain)
        return nodes

    def expire(self, now: int) -> Iterable[int]:
        """Open the nodes of expired drains; return them."""
        opened: list[int] = []
        for drain in self.active:
            if 0 < drain.until <= now:
                opened += self._nodes_of(drain)
        self._forget(opened)
        self._set_draining(opened, False)
        return opened

    def restore(self, kept: list[Drain]) -> None:
        """Restore dumped drains. A draining node without one (an older state) gets an empty drain."""
        draining = mask_indices(self._ledger.draining, self._ledger.nodes)
        known = {node for drain in kept for node in self._nodes_of(drain)}
        unnamed = [node for node in draining if node not in known]
        self.active = [*kept, Drain(self._compact_nodes(unnamed))] if unnamed else kept
        self._review()

    def is_withheld(self, node: int) -> bool:
        """True if its runner withholds a whole node from the league."""
        wanted, _ = self._ledger.withheld.get(node, (None, None))
        return wanted == self._ledger.capacity[node]

    def attempts_per_node(self) -> list[int]:
        """Count the attempts on each node, ordered or running."""
        found = [0] * self._ledger.nodes
        for run in self._ledger.attempts.values():
            found[run.node] += 1
        return found

    def check(self) -> None:
        """Assert that each draining node, and no other, belongs to one drain."""
        named = sorted(node for drain in self.active for node in self._nodes_of(drain))
        assert named == mask_indices(self._ledger.draining, self._ledger.nodes)

    def _set_draining(self, nodes: Iterable[int], draining: bool) -> None:
        for node in nodes:
            self._ledger.set_draining(node, draining)
        self._review()

    def _forget(self, nodes: Iterable[int]) -> None:
        """Remove nodes from their drains."""
        gone = set(nodes)
        kept = []
        for drain in self.active:
            left = [node for node in self._nodes_of(drain) if node not in gone]
            if left:
                kept.append(msgspec.structs.replace(drain, nodes=self._compact_nodes(left)))
        self.active = kept

    def _nodes_of(self, drain: Drain) -> Iterable[int]:
        return drain.nodes or range(self._ledger.nodes)

    def _compact_nodes(self, nodes: Iterable[int]) -> tuple[int, ...]:
        found = tuple(sorted(set(nodes)))
        return () if len(found) == self._ledger.nodes else found

    def _review(self) -> None:
        self.due = min((drain.until for drain in self.active if drain.until), default=NEVER)
        reported: list[Drain] = []
        left = DRAINED_NODES_REPORTED_MAX
        for drain in self.active:
            if len(reported) < DRAINS_REPORTED_MAX and len(drain.nodes) <= left:
                reported.append(drain)
                left -= len(drain.nodes)
        self.reported = tuple(reported)
