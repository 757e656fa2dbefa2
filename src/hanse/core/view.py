"""What a broker believes about one cluster, as columns.

Three things are kept apart: what the warden last said (*confirmed*), the broker's own claims on their way
(*pending*), and the difference, which is what it may propose on (*usable*). News replaces what was
confirmed and never touches what is pending.
"""

from collections import Counter
from operator import gt
from typing import Final

import msgspec
import numpy as np

from hanse.model.ids import ClusterId
from hanse.model.messages import Delta, EstateId, Lot, Shape, Snapshot
from hanse.model.resources import Dimensions, Vector
from hanse.policy.attributes import AttributeTable
from hanse.policy.columns import MaskWords, Room, full_mask, mask_of

STANDING_FULL: Final = 1_000
SHAPES_MAX: Final = 4_096
"""Compiled shapes kept per cluster; when there are more, all are compiled afresh."""


class Sight(msgspec.Struct):
    """The state of a view, as it is dumped."""

    snapshot: Snapshot | None = None
    version: int = 0
    free: list[Vector] = []
    rounds: dict[EstateId, int] = {}
    least_round: dict[EstateId, int] = {}
    """Rounds below this are of the past: the broker has given that lease up."""
    echo: int = 0
    renewed_at: int = 0
    """When the latest beat that the broker answered came, on the broker's clock."""
    seen_at: int = 0
    """When the latest news of its room came."""
    given_up: bool = False
    standing: int = STANDING_FULL
    claims: dict[int, list[Lot]] = {}
    """Claims of the fast path on their way, by number."""
    next_claim: int = 1
    exhausted: dict[int, bool] = {}
    """Lines for which nothing was found or given here since the last news."""
    closed_until: int = 0
    """A claim was refused for want of a valid lease: no more before this time."""


class ClusterView:
    """One broker's view of one cluster."""

    def __init__(self, name: str, index: int, broker: str) -> None:
        self.name = name
        self.cluster = ClusterId(name)
        self.index = index
        self.broker = broker
        self.sight = Sight(free=[], rounds={}, least_round={}, claims={}, exhausted={})
        self.dimensions: Dimensions = ()
        self.usable = Room([], checked=False)
        self.table = AttributeTable([])
        self.pending: dict[int, list[int]] = {}
        self.fresh: list[Lot] = []
        """Lots of this step: already pending, not yet in a claim."""
        self.own: MaskWords = full_mask(0)
        self._unreserved: MaskWords = full_mask(0)
        self._fits: dict[Shape, tuple[Vector | None, MaskWords]] = {}
        self._slots: dict[Shape, int] = {}
        self.median_cpu = 0
        """Milli-CPU of the middle node."""

    # --- news ----------------------------------------------------------------------------------------------

    def snapshot(self, news: Snapshot) -> None:
        """Take a whole state."""
        sight = self.sight
        if sight.snapshot is not None and (news.epoch, news.version) < (sight.snapshot.epoch, sight.version):
            return
        known = sight.snapshot
        sight.snapshot, sight.version, sight.free = news, news.version, list(news.free)
        sight.exhausted.clear()
        if known is None or _layout(known) != _layout(news):
            self._lay_out(news)
        self._refresh()

    def _lay_out(self, news: Snapshot) -> None:
        self.dimensions = news.dimensions
        self.usable = Room(news.capacity, checked=False)
        self.table = AttributeTable([dict(attributes) for attributes in news.attributes])
        nodes = len(news.capacity)
        self._unreserved = full_mask(nodes) & ~mask_of(news.reserve, nodes)
        share = news.partitions.index(self.broker) if self.broker in news.partitions else 0
        count = max(1, len(news.partitions))
        self.own = mask_of(range(nodes * share // count, nodes * (share + 1) // count), nodes)
        self.median_cpu = sorted(vector[0] for vector in news.capacity)[nodes // 2] if nodes else 0
        self._fits.clear()
        self._slots.clear()

    def _refresh(self) -> None:
        """Usable is what was confirmed less what is pending."""
        for node, free in enumerate(self.sight.free):
            self.usable.set_free(node, free)
        claims, self.pending = self.sight.claims, {}
        for lots in (*claims.values(), self.fresh):
            for lot in lots:
                self._debit(lot)

    def delta(self, news: Delta) -> bool:
        """Take final states; False if there is a gap, so that a snapshot is needed."""
        sight = self.sight
        if sight.snapshot is None or news.since > sight.version or news.epoch < sight.snapshot.epoch:
            return sight.snapshot is not None and news.epoch < sight.snapshot.epoch
        if news.version <= sight.version:
            return True
        sight.version = news.version
        better = False
        for node, free in zip(news.nodes, news.free, strict=True):
            better = better or any(map(gt, free, sight.free[node]))
            sight.free[node] = free
            pending = self.pending.get(node)
            if pending is not None:
                free = tuple([have - own for have, own in zip(free, pending, strict=True)])  # noqa: PLW2901
            self.usable.set_free(node, free)
        if better:
            sight.exhausted.clear()
        return True

    # --- own claims ----------------------------------------------------------------------------------------

    def _debit(self, lot: Lot) -> None:
        size = lot.size.vector(self.dimensions)
        assert size is not None
        for node in lot.nodes:
            self.usable.debit(node, size)
        self._add_all(lot, 1)

    def _add_all(self, lot: Lot, sign: int) -> None:
        """A lot is on its way, or (-1) no longer, and its room is usable again. By node, not by task."""
        size = lot.size.vector(self.dimensions)
        assert size is not None
        for node, count in Counter(lot.nodes).items():
            whole = size if count == 1 else tuple([amount * count for amount in size])
            self._add(node, whole, sign)
            if sign < 0:
                self.usable.credit(node, whole)

    def _add(self, node: int, size: Vector, sign: int) -> None:
        pending = self.pending.get(node)
        if pending is None:
            pending = self.pending[node] = [0] * len(size)
        left = 0
        for row, amount in enumerate(size):
            pending[row] += sign * amount
            left |= pending[row]
        if not left:
            del self.pending[node]

    def reserve(self, lot: Lot) -> None:
        """A lot will be claimed when this step ends; the placer has debited its room. News of this same step
        must find it pending."""
        self.fresh.append(lot)
        self._add_all(lot, 1)

    def propose(self, lots: list[Lot]) -> int:
        """Lots are on their way in one claim; returns the claim's number."""
        number = self.sight.next_claim
        self.sight.next_claim += 1
        fast = [lot for lot in lots if not lot.lease]
        if fast:  # bindings are answered only when they fail
            self.sight.claims[number] = fast
        self.fresh.clear()
        return number

    def answered(self, number: int) -> list[Lot]:
        """A claim is no longer on its way; its lots."""
        lots = self.sight.claims.pop(number, [])
        for lot in lots:
            self._add_all(lot, -1)
        return lots

    # --- questions -----------------------------------------------------------------------------------------

    def fit(self, shape: Shape) -> tuple[Vector | None, MaskWords]:
        """A shape's ask in column order (None: cannot run here) and the nodes that could ever take it."""
        found = self._fits.get(shape)
        if found is None:
            if len(self._fits) >= SHAPES_MAX:
                self._fits.clear()
                self._slots.clear()
            found = self._fits[shape] = self._compile(shape)
        return found

    def _compile(self, shape: Shape) -> tuple[Vector | None, MaskWords]:
        ask = shape.ask.vector(self.dimensions)
        if ask is None or not shape.may_use(self.name):
            return None, mask_of((), self.usable.nodes)
        mask = self.table.compile(shape.where)
        if not shape.latency:
            mask = mask & self._unreserved
        wide = np.all(self.usable.capacity >= np.array(ask, dtype=np.int64)[:, None], axis=0)
        return ask, mask & mask_of(np.flatnonzero(wide).tolist(), self.usable.nodes)

    def slots(self, shape: Shape) -> int:
        """How many tasks of a shape the empty cluster could hold."""
        known = self._slots.get(shape)
        if known is None:
            known = self._slots[shape] = self._count_slots(shape)
        return known

    def _count_slots(self, shape: Shape) -> int:
        ask, mask = self.fit(shape)
        if ask is None:
            return 0
        columns = self.usable.capacity
        per_node = np.min([columns[row] // amount for row, amount in enumerate(ask) if amount], axis=0)
        if shape.alone:
            per_node = np.minimum(per_node, 1)
        octets = np.unpackbits(mask.view(np.uint8), count=self.usable.nodes, bitorder="little")
        total = int(per_node[octets.astype(bool)].sum())
        return min(total, 1) if shape.alone_in_cluster else total

    def confirmed(self) -> list[Vector] | None:
        """What the warden last said is free, node by node; None before the first snapshot."""
        return self.sight.free if self.sight.snapshot is not None else None

    def check(self) -> None:
        """What may be proposed on is what was confirmed less what is on its way."""
        if self.sight.snapshot is not None:
            for node, free in enumerate(self.sight.free):
                pending = self.pending.get(node, (0,) * len(free))
                usable = tuple(have - own for have, own in zip(free, pending, strict=True))
                assert self.usable.free_of(node) == usable, f"{self.broker} on {self.name}: node {node}"

    def restore(self, sight: Sight) -> None:
        """Take a dumped state."""
        self.sight = sight
        if sight.snapshot is not None:
            self._lay_out(sight.snapshot)
            self._refresh()


def _layout(news: Snapshot) -> tuple[object, ...]:
    """What of a snapshot changes only when the cluster does."""
    return (news.dimensions, news.capacity, news.attributes, news.reserve, news.partitions)
