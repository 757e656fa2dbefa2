"""View of one cluster at a broker, as columns.

The view keeps three amounts apart: free capacity that the warden last reported (*confirmed*), the broker's
own claims that are not answered (*pending*), and the difference, on which the broker may propose (*usable*).
A report of the warden replaces the confirmed amount and never changes the pending amount.
"""

from operator import add, gt, sub
from typing import Final

import msgspec
import numpy as np

from hanse.core.search_cache import (
    NO_CHECKPOINT,
    SMALL_NODES,
    CapacityGains,
    attribute_index_of,
    find_large_enough,
)
from hanse.model.drains import Drain
from hanse.model.ids import MINUTE, ClusterId
from hanse.model.messages import ClusterSnapshot, Delta, Shape, ShardId, TaskBatch
from hanse.model.resources import Dimensions, Vector
from hanse.policy.constraint_index import AttributeIndex
from hanse.policy.gang_topology import find_largest, has_topology
from hanse.policy.node_classes import NodeClasses, node_classes_of
from hanse.policy.node_columns import (
    Column,
    MaskWords,
    NodeColumns,
    empty_mask,
    full_mask,
    has_bit,
    is_empty,
    mask_flags,
    mask_of,
)

STANDING_FULL: Final = 1_000
SHAPES_MAX: Final = 4_096
"""Compiled shapes kept per cluster. When there are more, all are dropped and compiled again."""
BEHIND_MAX: Final = 3
"""Consecutive heartbeats with an older state than the known one, after which the older state is accepted."""
WARY_TIME: Final = 60 * MINUTE
"""Time for which a broker remembers that a warden refused a claim."""

_EMPTY_COLUMNS: Final = NodeColumns([], checked=False)
_EMPTY_INDEX: Final = AttributeIndex([])
_NO_CLASSES: Final = NodeClasses([])
_NO_NODES: Final = empty_mask(0)
"""Values of a cluster of which nothing is known; they never change."""


class ViewState(msgspec.Struct, gc=False, rename={"beats_behind": "behind"}):
    """State of a view, as it is dumped."""

    snapshot: ClusterSnapshot | None = None
    version: int = 0
    free: list[Vector] = []
    rounds: dict[ShardId, int] = {}
    least_round: dict[ShardId, int] = {}
    """Rounds below these are obsolete: the broker has given that lease up."""
    echo: int = 0
    renewed_at: int = 0
    """Time of the latest heartbeat that the broker answered, on the broker's clock."""
    seen_at: int = 0
    """Time of the latest report of the cluster's capacity."""
    given_up: bool = False
    standing: int = STANDING_FULL
    claims: dict[int, list[TaskBatch]] = {}
    """Unanswered claims of the fast path, by number."""
    next_claim: int = 1
    exhausted: dict[int, bool] = {}
    """Lines for which the search found no room here since the last report."""
    closed_until: int = 0
    """Time before which no claim is sent, after a refusal because of an invalid lease round."""
    wary_until: int = 0
    """Time until which other brokers' claims are expected here, after a refusal."""
    drains: tuple[Drain, ...] = ()
    """Drains in the latest heartbeat, in instants of the warden's clock."""
    beats_behind: int = 0
    """Consecutive latest heartbeats with an older state than the known one."""
    left_at: int = -1
    """Time since which nothing can run in a retired cluster; -1: not known yet."""


class CompiledViewShape:
    """Shape compiled for one cluster, as a broker sees it."""

    __slots__ = ("ask", "can_ever_fit", "failed_at", "mask", "own_mask")

    def __init__(self, ask: Vector | None, mask: MaskWords, own_mask: MaskWords) -> None:
        self.ask = ask
        """Ask in column order; None if the shape cannot run there."""
        self.mask = mask
        """Nodes that could take one task when empty."""
        self.can_ever_fit = not is_empty(mask)
        self.own_mask = own_mask
        """Nodes of ``mask`` in this broker's own share."""
        self.failed_at = NO_CHECKPOINT
        """Checkpoint of the view's gains at which the last search in ``mask`` found no room."""


class ClusterView:
    """One broker's view of one cluster."""

    def __init__(self, name: str, index: int, broker: str) -> None:
        self.name = name
        self.cluster = ClusterId(name)
        self.index = index
        self.broker = broker
        self.is_open = True
        """True if it may be used: not retired, and known to every broker (``broker.cluster_lifecycle``)."""
        self.state = ViewState(free=[], rounds={}, least_round={}, claims={}, exhausted={})
        self.dimensions: Dimensions = ()
        self.usable = _EMPTY_COLUMNS
        self.gains = CapacityGains()
        self.attribute_index = _EMPTY_INDEX
        self.node_classes = _NO_CLASSES
        self.pending: dict[int, list[int]] = {}
        self.unsent_batches: list[TaskBatch] = []
        """Batches of this step: already pending, not yet in a claim."""
        self.own_share: MaskWords = _NO_NODES
        self._unreserved: MaskWords = _NO_NODES
        self._compiled_shapes: dict[Shape, CompiledViewShape] = {}
        self._slots: dict[Shape, int] = {}
        self.median_cpu = 0
        """Milli-CPU of the median node."""

    # --- reports of the warden ------------------------------------------------------------------------------

    def apply_snapshot(self, snapshot: ClusterSnapshot) -> None:
        """Replace the view by a snapshot."""
        view_state = self.state
        if self._is_behind(snapshot.epoch, snapshot.version) and view_state.beats_behind < BEHIND_MAX:
            return
        previous, view_state.beats_behind = view_state.snapshot, 0
        view_state.snapshot, view_state.version = snapshot, snapshot.version
        view_state.exhausted.clear()
        if previous is None or _layout(previous) != _layout(snapshot):
            view_state.free = list(snapshot.free)
            self._lay_out(snapshot)
            self._refresh()
        elif tuple(view_state.free) != snapshot.free:
            for node, free in enumerate(snapshot.free):
                if free != view_state.free[node]:
                    self._confirm(node, free)

    def _is_behind(self, epoch: int, version: int) -> bool:
        known = self.state.snapshot
        return known is not None and (epoch, version) < (known.epoch, self.state.version)

    def is_rewound(self, epoch: int, version: int) -> bool:
        """Count heartbeats with an older state than the known one; True after ``BEHIND_MAX`` in a row. A
        newer report may have overtaken a single one. Several in a row come from a warden that was restored
        from an older copy and counts from there; then the next snapshot is accepted, with any number."""
        view_state = self.state
        if view_state.beats_behind or self._is_behind(epoch, version):
            view_state.beats_behind = view_state.beats_behind + 1 if self._is_behind(epoch, version) else 0
        return view_state.beats_behind >= BEHIND_MAX

    def _lay_out(self, snapshot: ClusterSnapshot) -> None:
        self.dimensions = snapshot.dimensions
        self.usable = NodeColumns(snapshot.capacity, checked=False)
        self.attribute_index = attribute_index_of(snapshot.attributes)
        self.node_classes = node_classes_of(snapshot.attributes)
        nodes = len(snapshot.capacity)
        self._unreserved = full_mask(nodes) & ~mask_of(snapshot.reserve, nodes)
        share = snapshot.partitions.index(self.broker) if self.broker in snapshot.partitions else 0
        count = max(1, len(snapshot.partitions))
        self.own_share = mask_of(range(nodes * share // count, nodes * (share + 1) // count), nodes)
        self.median_cpu = sorted(vector[0] for vector in snapshot.capacity)[nodes // 2] if nodes else 0
        self._compiled_shapes.clear()
        self._slots.clear()

    def _refresh(self) -> None:
        """Compute usable capacity: confirmed minus pending."""
        for node, free in enumerate(self.state.free):
            self.usable.set_free(node, free)
        self.gains.forget()
        claims, self.pending = self.state.claims, {}
        for batches in (*claims.values(), self.unsent_batches):
            for batch in batches:
                self._debit(batch)

    def apply_delta(self, delta: Delta) -> bool:
        """Apply final states of nodes; return False if there is a gap, so that a snapshot is needed."""
        view_state = self.state
        if (
            view_state.snapshot is None
            or delta.since > view_state.version
            or delta.epoch != view_state.snapshot.epoch
        ):
            # An earlier epoch is old; in a later epoch the warden may have other nodes.
            return view_state.snapshot is not None and delta.epoch < view_state.snapshot.epoch
        if delta.version <= view_state.version:
            return True
        view_state.version = delta.version
        has_gained = False
        for node, free in zip(delta.nodes, delta.free, strict=True):
            if self._confirm(node, free):
                has_gained = True
        if has_gained:
            view_state.exhausted.clear()
        return True

    def _confirm(self, node: int, free: Vector) -> bool:
        """Set the confirmed capacity of a node; True if any amount is larger than before."""
        known = self.state.free
        has_gained = any(map(gt, free, known[node]))
        if has_gained:
            self.gains.add(node)
        known[node] = free
        pending = self.pending.get(node)
        self.usable.set_free(node, free if pending is None else tuple(map(sub, free, pending)))
        return has_gained

    # --- own claims ----------------------------------------------------------------------------------------

    def _debit(self, batch: TaskBatch) -> None:
        size = batch.size.vector(self.dimensions)
        assert size is not None
        for node in batch.nodes:
            self.usable.debit(node, size)
        self._add_all(batch, 1)

    def _add_all(self, batch: TaskBatch, sign: int) -> None:
        """Add a batch to the pending amounts, or (-1) remove it and free its room. By node, not by task."""
        size = batch.size.vector(self.dimensions)
        assert size is not None
        counts: dict[int, int] = {}
        for node in batch.nodes:
            counts[node] = counts.get(node, 0) + 1
        for node, count in counts.items():
            whole = size if count == 1 else tuple([amount * count for amount in size])
            pending = self.pending.get(node)
            if sign > 0:
                self.pending[node] = list(whole) if pending is None else list(map(add, pending, whole))
                continue
            assert pending is not None, f"{self.broker} on {self.name}: nothing is pending on node {node}"
            left = list(map(sub, pending, whole))
            if any(left):
                self.pending[node] = left
            else:
                del self.pending[node]
            self.usable.credit(node, whole)
            self.gains.add(node)

    def reserve(self, batch: TaskBatch) -> None:
        """Reserve a batch for the claim at the end of this step: reports handled in the same step must find
        it pending. The placer has debited its room."""
        self.unsent_batches.append(batch)
        self._add_all(batch, 1)

    def propose(self, batches: list[TaskBatch]) -> int:
        """Register batches as one claim on its way; return the number of the claim."""
        number = self.state.next_claim
        self.state.next_claim += 1
        fast = [batch for batch in batches if not batch.lease]
        if fast:  # bindings are answered only when they fail
            self.state.claims[number] = fast
        self.unsent_batches.clear()
        return number

    def resolve_claim(self, number: int) -> list[TaskBatch]:
        """Remove a claim that was answered or abandoned; return its batches."""
        batches = self.state.claims.pop(number, [])
        for batch in batches:
            self._add_all(batch, -1)
        return batches

    def find_renewable(
        self, shards: tuple[ShardId, ...], proposed_rounds: tuple[tuple[ShardId, int], ...]
    ) -> tuple[ShardId, ...]:
        """Return the shards with a renewable lease, by the lease rounds of the newest heartbeat. A warden
        that was restored from an older copy may report a round that has ended or was given up; the broker
        lets those leases expire until the warden reaches a new round."""
        rounds, least = self.state.rounds, self.state.least_round
        old_shards = [
            name for name, number in proposed_rounds if number < max(rounds.get(name, 0), least.get(name, 0))
        ]
        return tuple([name for name in shards if name not in old_shards]) if old_shards else shards

    def abandon_claims(self) -> None:
        """Resolve all unanswered claims: no reply will come."""
        for number in list(self.state.claims):
            self.resolve_claim(number)

    # --- questions -----------------------------------------------------------------------------------------

    def compile_shape(self, shape: Shape) -> CompiledViewShape:
        """Return the compiled form of a shape."""
        found = self._compiled_shapes.get(shape)
        if found is None:
            if len(self._compiled_shapes) >= SHAPES_MAX:
                self._compiled_shapes.clear()
                self._slots.clear()
            found = self._compiled_shapes[shape] = self._compile(shape)
        return found

    def _compile(self, shape: Shape) -> CompiledViewShape:
        ask = shape.ask.vector(self.dimensions)
        if ask is None or not shape.allows_cluster(self.name):
            none = empty_mask(self.usable.nodes)
            return CompiledViewShape(None, none, none)
        mask = self.attribute_index.compile(shape.where) & find_large_enough(self.usable, ask)
        if not shape.latency:
            mask &= self._unreserved
        return CompiledViewShape(ask, mask, mask & self.own_share)

    def allows(self, shape: Shape) -> bool:
        """True if the cluster has all resources that a shape asks for, and its job may use the cluster."""
        return self.compile_shape(shape).ask is not None

    def is_futile(self, shape: Shape) -> bool:
        """True if there is certainly no room for a shape: a search found none, and no node of use has
        gained."""
        compiled = self.compile_shape(shape)
        return compiled.failed_at >= 0 and self.gains.is_futile(compiled, self.usable)

    def can_ever_hold(self, shape: Shape) -> bool:
        """True if the empty cluster could hold a task of a shape."""
        return self.compile_shape(shape).can_ever_fit

    def count_slots(self, shape: Shape) -> int:
        """Count the tasks of a shape that the empty cluster could hold."""
        known = self._slots.get(shape)
        if known is None:
            known = self._slots[shape] = self._count(shape, self.usable.capacity)
        return known

    def find_largest_part(self, shape: Shape) -> tuple[int, str]:
        """Return the largest gang of a shape that the empty cluster could hold, and its rack or node."""
        compiled = self.compile_shape(shape)
        if compiled.ask is None:
            return 0, ""
        return find_largest(shape, self.usable.capacity, compiled.ask, compiled.mask, self.attribute_index)

    def count_free_slots(self, shape: Shape) -> int:
        """Count the tasks of a shape that would fit now, as far as the broker knows."""
        return 0 if self.is_futile(shape) else self._count(shape, self.usable.free)

    def _count(self, shape: Shape, columns: Column) -> int:
        """Count the tasks of a shape that fit into these columns. A node with a negative amount holds
        none."""
        compiled = self.compile_shape(shape)
        ask = compiled.ask
        if ask is None:
            return 0
        if has_topology(shape):
            return find_largest(shape, columns, ask, compiled.mask, self.attribute_index)[0]
        if self.usable.nodes <= SMALL_NODES:  # NumPy's calls would cost more than the work
            asked = [(row, amount) for row, amount in enumerate(ask) if amount]
            each: list[int] = [
                min([room[row] // amount for row, amount in asked])
                for node, room in enumerate(columns.T.tolist())
                if has_bit(compiled.mask, node) and min(room) >= 0
            ]
            total, nodes = sum(each), len(each) - each.count(0)
        else:
            per_node = np.min([columns[row] // amount for row, amount in enumerate(ask) if amount], axis=0)
            per_node = per_node[mask_flags(compiled.mask, self.usable.nodes) & (columns.min(axis=0) >= 0)]
            total, nodes = int(per_node.sum()), int(np.count_nonzero(per_node))
        if shape.is_single_per_cluster:
            return min(1, total)
        return nodes if shape.max_per_node else total

    def confirmed_free(self) -> list[Vector] | None:
        """Return the free capacity of each node as last reported; None before the first snapshot."""
        return self.state.free if self.state.snapshot is not None else None

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        complaints = [f"claim {number} to {self.name} is unanswered" for number in self.state.claims]
        return complaints + [f"room is pending on node {node} of {self.name}" for node in self.pending]

    def check(self) -> None:
        """Assert that usable capacity is confirmed minus pending."""
        if self.state.snapshot is not None:
            expected = list(self.state.free)
            for node, pending in self.pending.items():
                expected[node] = tuple(map(sub, expected[node], pending))
            for node, usable in enumerate(zip(*self.usable.free.tolist(), strict=True)):
                assert usable == expected[node], f"{self.broker} on {self.name}: node {node}"

    def restore(self, view_state: ViewState) -> None:
        """Restore a dumped state."""
        self.state = view_state
        if view_state.snapshot is not None:
            self._lay_out(view_state.snapshot)
            self._refresh()


def _layout(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the fields of a snapshot that change only when the cluster changes."""
    return (
        snapshot.dimensions,
        snapshot.capacity,
        snapshot.attributes,
        snapshot.reserve,
        snapshot.partitions,
    )
