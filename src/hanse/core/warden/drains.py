"""The drains of one cluster: which nodes are closed to new work, by whose wish, and when they open again.

The ledger knows whether a node drains; here is why. Every draining node belongs to exactly one drain, so
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
    """Closes and opens the nodes of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.active: list[Drain] = []
        """The oldest first."""
        self.due = NEVER
        """When the next one ends by itself."""
        self.reported: tuple[Drain, ...] = ()
        """What beats say."""

    def on_drain_requested(self, event: DrainRequested) -> Iterable[int]:
        """Do what an operator wants; return the nodes that it is about. The latest wish for a node counts."""
        nodes = event.nodes or tuple(range(self._ledger.nodes))
        self._forget(nodes)
        if event.drain:
            self.active.append(
                Drain(self._compact_nodes(nodes), event.requested_by, event.reason, event.at, event.until)
            )
        self._set(nodes, event.drain)
        return nodes

    def expire(self, now: int) -> Iterable[int]:
        """Open the nodes whose drain has come to its end; return them."""
        opened: list[int] = []
        for drain in self.active:
            if 0 < drain.until <= now:
                opened += self._nodes_of(drain)
        self._forget(opened)
        self._set(opened, False)
        return opened

    def restore(self, kept: list[Drain]) -> None:
        """Take over dumped drains. A draining node of none (an older state) gets one that says nothing."""
        draining = mask_indices(self._ledger.draining, self._ledger.nodes)
        known = {node for drain in kept for node in self._nodes_of(drain)}
        unnamed = [node for node in draining if node not in known]
        self.active = [*kept, Drain(self._compact_nodes(unnamed))] if unnamed else kept
        self._review()

    def is_withheld(self, node: int) -> bool:
        """Whether its runner says that nothing of a node is for the league."""
        wanted, _ = self._ledger.withheld.get(node, (None, None))
        return wanted == self._ledger.capacity[node]

    def attempts_per_node(self) -> list[int]:
        """How many attempts each node has, ordered or running."""
        found = [0] * self._ledger.nodes
        for run in self._ledger.attempts.values():
            found[run.node] += 1
        return found

    def check(self) -> None:
        """Each draining node, and no other, belongs to one drain."""
        named = sorted(node for drain in self.active for node in self._nodes_of(drain))
        assert named == mask_indices(self._ledger.draining, self._ledger.nodes)

    def _set(self, nodes: Iterable[int], draining: bool) -> None:
        for node in nodes:
            self._ledger.set_draining(node, draining)
        self._review()

    def _forget(self, nodes: Iterable[int]) -> None:
        """Take nodes out of the drains that they belong to."""
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
        told: list[Drain] = []
        left = DRAINED_NODES_REPORTED_MAX
        for drain in self.active:
            if len(told) < DRAINS_REPORTED_MAX and len(drain.nodes) <= left:
                told.append(drain)
                left -= len(drain.nodes)
        self.reported = tuple(told)
