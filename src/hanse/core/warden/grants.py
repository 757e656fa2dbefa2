"""Grants: a warden's freed room goes to the demand with the best key.

A node with freed room is offered to the first entry, in the global order, that fits it; new demand is served
from what is free. A gang, or a task too large for what is free, may ask the warden to *hold*: nodes are then
kept back for it, nearest to fitting first, until all of it fits at once. An entry with a higher priority than
running preemptible work may have that work stopped, on one node, lowest priority and youngest first, never
more than needed.
"""

from collections.abc import Callable
from operator import add, lt
from typing import Final

import msgspec

from hanse.core.config import WardenConfig
from hanse.core.warden.demand_table import DemandEntry, DemandTable
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ledger_records import RUNNING, AttemptRecord, CompiledShape
from hanse.core.warden.node_preferences import acceptable_classes, choose_by_class, is_acceptable
from hanse.core.warden.step_random import StepRandom
from hanse.core.warden.unacked_ends import UnackedEnds
from hanse.model.messages import Offer, QueueKey, Shape
from hanse.model.resources import Vector
from hanse.policy.gang_topology import choose_gang, choose_hold, group_by_node, has_topology
from hanse.policy.interface import NodeRanker
from hanse.policy.node_columns import MaskWords, has_bit, mask_indices

GRANTS_MAX: Final = 1_024
"""Slots granted in reply to one message; the rest follows as these are bound."""
SLOTS_MAX: Final = 65_536
"""Slots granted at one warden and not yet bound; each slot of a gang counts. Further grants wait until
earlier ones are bound, given back or expire."""


class Hold(msgspec.Struct):
    """Nodes kept back for one entry."""

    broker: str
    line: int
    nodes: list[int]


class Grants:
    """Grants of one warden."""

    def __init__(
        self,
        config: WardenConfig,
        ledger: Ledger,
        unacked_ends: UnackedEnds,
        random: StepRandom,
        node_ranker: NodeRanker,
        mark: Callable[[str], None],
    ) -> None:
        self.config = config
        self.timings = config.timings
        self.ledger = ledger
        self.unacked_ends = unacked_ends
        self.random = random
        """Start of each search for room."""
        self.node_ranker = node_ranker
        self.demand = DemandTable()
        self.hold: Hold | None = None
        self.offers: dict[str, list[Offer]] = {}
        """Offers made in this step, by broker."""
        self.victims: list[AttemptRecord] = []
        """Attempts to be preempted in this step."""
        self.silent_brokers: dict[str, bool] = {}
        """Brokers without a message for long: their demand is skipped."""
        self.preempt_at = 0
        """Time before which there is no further preemption: the room of the last one must first be used."""
        self.freed_nodes: list[int] = []
        """Nodes to be offered before this step ends."""
        self._mark = mark

    def can_keep(self, more: int) -> bool:
        """True if the warden may keep so many more attempts: those that run here count, and those that have
        ended and are not safe with their owner."""
        return len(self.ledger.attempts) + len(self.unacked_ends) + more <= self.config.runs_max

    def is_full(self) -> bool:
        """True if the warden would have to refuse the binding of a new grant."""
        return not self.can_keep(1)

    # --- granting ------------------------------------------------------------------------------------------

    def serve_node(self, now: int, node: int) -> None:
        """Offer the free room of a node in the global order until no entry fits."""
        ledger = self.ledger
        if not self.demand.entries or not ledger.is_open(node) or self.is_full():
            return
        free = ledger.room.free_of(node)
        for entry in self.demand.entries:
            if entry.count <= 0 or entry.broker in self.silent_brokers:
                continue
            compiled = ledger.compile_shape(entry.shape)
            if entry.shape.gang:
                if not self._is_futile(entry, compiled):
                    self._serve_gang(now, entry, compiled)
                    free = ledger.room.free_of(node)
                continue
            if (
                compiled.ask is None
                or any(map(lt, free, compiled.ask))
                or not self._can_use_node(entry, compiled, node)
            ):
                continue
            while (
                self._grant(now, entry, compiled, [node])
                and not compiled.dynamic  # affinity is checked when it is bound
                and entry.count > 0
                and ledger.room.fits(node, compiled.ask)
            ):
                pass
            free = ledger.room.free_of(node)

    def _can_use_node(self, entry: DemandEntry, compiled: CompiledShape, node: int) -> bool:
        mask = compiled.open_mask if self.hold is not None and self._is_held_for(entry) else compiled.mask
        if compiled.dynamic:
            mask = self.ledger.affinity.find_search(entry.shape, compiled, mask).mask
        return has_bit(mask, node) and is_acceptable(entry.preference, self.ledger.node_classes, node)

    def _is_held_for(self, entry: DemandEntry) -> bool:
        hold = self.hold
        return hold is not None and hold.line == entry.line and hold.broker == entry.broker

    def serve_demand(self, now: int, entries: list[DemandEntry]) -> None:
        """Serve a broker's new demand, best first, from what is free; then review holds and preemption."""
        if entries and entries[0].broker not in self.silent_brokers and not self.is_full():
            for entry in entries:
                self._serve(now, entry)
        self.review(now)

    def serve_affinity(self, now: int) -> None:
        """Serve entries with labels or affinities, after labelled attempts have come or gone."""
        self.ledger.affinity.changed = False
        for entry in self.demand.entries:
            if (entry.shape.affinity or entry.shape.labels) and entry.broker not in self.silent_brokers:
                self._serve(now, entry)

    def _serve(self, now: int, entry: DemandEntry) -> None:
        compiled = self.ledger.compile_shape(entry.shape)
        if self._is_futile(entry, compiled):
            return
        if entry.shape.gang:
            self._serve_gang(now, entry, compiled)
            return
        count = min(entry.count, GRANTS_MAX, SLOTS_MAX - self.ledger.slots)
        if count > 0:
            for node in self._find_nodes(entry, compiled, count, self.random.position(self.ledger.nodes)):
                self.ledger.touched[node] = None
                self._create_lease(now, entry, compiled, [node])

    def _serve_gang(self, now: int, entry: DemandEntry, compiled: CompiledShape) -> None:
        if entry.count <= 0:
            return
        size = entry.shape.gang
        if self.ledger.slots + size > SLOTS_MAX:
            self._mark("warden.grants_full")
            return
        nodes = group_by_node(self._find_nodes(entry, compiled, size, 0))
        if len(nodes) < size:
            for node in nodes:
                self.ledger.room.credit(node, compiled.ask or ())
            return
        self.ledger.touched.update(dict.fromkeys(nodes))
        self._mark("warden.granted_gang")
        self._create_lease(now, entry, compiled, nodes)

    def _is_futile(self, entry: DemandEntry, compiled: CompiledShape) -> bool:
        """True if there is certainly no room for an entry."""
        if compiled.ask is None:
            return True
        if self.hold is not None and self._is_held_for(entry):
            return False
        ledger = self.ledger
        if compiled.failed_at >= 0 and ledger.gains.is_futile(compiled, ledger.room):
            return True
        if not compiled.dynamic:
            return False
        search = ledger.affinity.find_search(entry.shape, compiled, compiled.mask)
        return search.failed_at >= 0 and ledger.gains.is_futile(search, ledger.room)

    def _find_nodes(self, entry: DemandEntry, compiled: CompiledShape, count: int, start: int) -> list[int]:
        """Return nodes with room for up to ``count`` tasks of an entry, debited."""
        ledger = self.ledger
        among = compiled.open_mask if self.hold is not None and self._is_held_for(entry) else compiled.mask
        search = ledger.affinity.find_search(entry.shape, compiled, among) if compiled.dynamic else None
        mask = among if search is None else search.mask
        preferred = acceptable_classes(entry.preference, ledger.node_classes)
        if preferred is not None and not entry.shape.gang:
            masks = [ledger.node_classes.masks[number] for number in preferred]
            ask, each_max = compiled.ask or (), compiled.max_per_node
            return choose_by_class(self.node_ranker, ledger.room, ask, mask, masks, start, count, each_max)
        nodes = self.choose_nodes(entry.shape, compiled, mask, start, count)
        if len(nodes) < count and not (nodes and compiled.max_per_node):
            if mask is compiled.mask:
                compiled.failed_at = ledger.gains.checkpoint
            elif search is not None:
                search.failed_at = ledger.gains.checkpoint
        return nodes

    def choose_nodes(
        self, shape: Shape, compiled: CompiledShape, mask: MaskWords, start: int, count: int,
        size: Vector = (),
    ) -> list[int]:  # fmt: skip
        """Return nodes in a mask with room for up to ``count`` tasks of a shape, debited; for a gang with a
        topology all or none. ``size``: of each task; empty: the ask."""
        room, ask, each_max = self.ledger.room, size or compiled.ask or (), compiled.max_per_node
        choose = self.node_ranker.choose
        if not has_topology(shape):
            return choose(room, ask, mask, start, count, each_max)
        return choose_gang(
            shape, room, ask, mask, count, self.ledger.attribute_index,
            lambda part, number: choose(room, ask, part, start, number, each_max),
        )  # fmt: skip

    def _grant(self, now: int, entry: DemandEntry, compiled: CompiledShape, nodes: list[int]) -> bool:
        if self.ledger.slots + len(nodes) > SLOTS_MAX or compiled.ask is None:
            return False
        for node in nodes:
            self.ledger.take(node, compiled.ask)
        self._create_lease(now, entry, compiled, nodes)
        return True

    def _create_lease(self, now: int, entry: DemandEntry, compiled: CompiledShape, nodes: list[int]) -> None:
        entry.count -= 1
        held = self._is_held_for(entry)
        if held:
            self._mark("warden.hold_served")
            self.release_hold()
        lease = self.ledger.create_lease(
            entry.broker, entry.line, nodes, entry.shape, now + self.timings.grant_lease
        )
        busy = len(self.ledger.attempts) * 1000 // max(1, self.ledger.nodes)
        offer = Offer(
            lease.number,
            entry.line,
            tuple(nodes),
            score=1000 // (1 + entry.count),
            prior=1000 * 1000 // (1000 + busy),
            rival_key=self._find_rival_key(entry, compiled, nodes[0]) if len(nodes) == 1 and not held else (),
        )
        self.offers.setdefault(entry.broker, []).append(offer)

    def _find_rival_key(self, entry: DemandEntry, granted: CompiledShape, node: int) -> QueueKey:
        """Return the best key of another broker that could use the room granted on a node."""
        ledger = self.ledger
        room: Vector = ()
        for other in self.demand.entries:
            if other.broker == entry.broker or other.count <= 0 or other.broker in self.silent_brokers:
                continue
            if other.shape is entry.shape or other.shape == entry.shape:
                return other.key
            if other.shape.gang:
                continue
            compiled = ledger.compile_shape(other.shape)
            room = room or tuple(map(add, ledger.room.free_of(node), granted.ask or ()))
            if (
                compiled.ask is None
                or any(map(lt, room, compiled.ask))
                or not self._can_use_node(other, compiled, node)
            ):
                continue
            return other.key
        return ()

    # --- holds and preemption ------------------------------------------------------------------------------

    def review(self, now: int) -> None:
        """Hold nodes or preempt for the best entry that asks for it; release an obsolete hold."""
        if self.hold is not None:
            entry = self.demand.find(self.hold.broker, self.hold.line)
            if entry is None or entry.count <= 0 or not entry.hold or entry.broker in self.silent_brokers:
                self.release_hold()
        for entry in self.demand.entries:
            if not entry.hold or entry.count <= 0 or entry.broker in self.silent_brokers:
                continue
            if entry.shape.priority > 0 and not entry.shape.gang:
                self._preempt(now, entry)
            else:
                self._hold_for(entry)
            break

    def _hold_for(self, entry: DemandEntry) -> None:
        if self.hold is not None and not self._is_held_for(entry):
            held = self.demand.find(self.hold.broker, self.hold.line)
            if held is not None and held.rank() < entry.rank():
                return
        compiled = self.ledger.compile_shape(entry.shape)
        if compiled.ask is None or self._is_held_for(entry):
            return
        if has_topology(entry.shape):
            room, index = self.ledger.room, self.ledger.attribute_index
            nodes = choose_hold(entry.shape, room, compiled.ask, compiled.open_mask, index)
            if nodes:
                self._mark("warden.holds_part")
                self._hold_nodes(entry, nodes)
            return
        needed = entry.shape.gang or 1
        nodes = []
        for node in sorted(
            mask_indices(compiled.open_mask, self.ledger.nodes),
            key=lambda n: (-self._free_slots(n, compiled.ask), n),
        ):
            nodes.append(node)
            needed -= (
                1
                if entry.shape.max_per_node
                else self.ledger.slots_of(self.ledger.capacity[node], compiled.ask)
            )
            if needed <= 0:
                self._mark("warden.holds_room")
                self._hold_nodes(entry, nodes)
                return

    def _hold_nodes(self, entry: DemandEntry, nodes: list[int]) -> None:
        """Hold these nodes for an entry instead of the held ones; offer what changes at once."""
        self.release_hold()
        self.ledger.hold(nodes)
        self.hold = Hold(entry.broker, entry.line, nodes)
        self.freed_nodes += nodes

    def _free_slots(self, node: int, ask: Vector | None) -> int:
        return self.ledger.slots_of(self.ledger.room.free_of(node), ask or ())

    def release_hold(self) -> None:
        """Open the held nodes again."""
        if self.hold is not None:
            self.freed_nodes += self.hold.nodes
            self.hold = None
            self.ledger.hold([])

    def _preempt(self, now: int, entry: DemandEntry) -> None:
        if self._is_held_for(entry) or now < self.preempt_at:
            return  # room of the last preemption is still to come
        if self.hold is not None:
            held = self.demand.find(self.hold.broker, self.hold.line)
            if held is not None and held.rank() < entry.rank():
                return
            self.release_hold()
        compiled = self.ledger.compile_shape(entry.shape)
        if compiled.ask is None:
            return
        best: tuple[int, int, int, list[AttemptRecord]] | None = None
        for node, runs in self._find_preemptible(now, entry).items():
            if not has_bit(compiled.mask, node):
                continue
            victims = _fewest_victims(runs, self.ledger.room.free_of(node), compiled.ask)
            if victims:
                cost = (max(v.template.shape.priority for v in victims), len(victims), node, victims)
                if best is None or cost[:3] < best[:3]:
                    best = cost
        if best is not None:
            self._mark("warden.preempted")
            self.victims += best[3]
            self.preempt_at = now + max(run.template.grace for run in best[3]) + self.timings.preempt_after
            self._hold_nodes(entry, [best[2]])

    def _find_preemptible(self, now: int, entry: DemandEntry) -> dict[int, list[AttemptRecord]]:
        nodes: dict[int, list[AttemptRecord]] = {}
        for run in self.ledger.attempts.values():
            shape = run.template.shape
            if (
                shape.preemptible
                and run.state == RUNNING
                and not run.stop
                and shape.priority < entry.shape.priority
                and not shape.gang
                and now - run.since >= self.timings.preempt_after
            ):
                nodes.setdefault(run.node, []).append(run)
        return nodes

    def check(self) -> None:
        """Assert order, bounds, and that held nodes belong to a hold."""
        self.demand.check()
        assert self.ledger.slots == sum([len(lease.nodes) for lease in self.ledger.leases.values()])
        assert self.ledger.slots <= SLOTS_MAX
        assert (self.hold is not None) == bool(self.ledger.held)


def _fewest_victims(runs: list[AttemptRecord], free: Vector, ask: Vector) -> list[AttemptRecord]:
    """Return the victims that make room for ``ask`` on one node: lowest priority first, then the youngest; []
    if none suffice."""
    room = list(free)
    chosen: list[AttemptRecord] = []
    for run in sorted(runs, key=lambda r: (r.template.shape.priority, -r.since, r.task)):
        if all(have >= entry for have, entry in zip(room, ask, strict=True)):
            break
        room = [have + more for have, more in zip(room, run.amount, strict=True)]
        chosen.append(run)
    fits = all(have >= entry for have, entry in zip(room, ask, strict=True))
    return [run for run in chosen if fits]
