"""Ledger of one cluster: room held on each node, and the changes that brokers have to be told.

Every read or change of a node's free room goes through this module. See the README of this folder.
"""

from collections.abc import Sequence
from operator import add, gt, sub
from typing import Final

from hanse.core.config import GANG_PORT_FIRST, NodeConfig
from hanse.core.search_cache import CapacityGains, attribute_index_of, find_large_enough
from hanse.core.warden.affinity_index import AffinityIndex
from hanse.core.warden.gang_layouts import GangLayouts
from hanse.core.warden.ledger_records import AttemptRecord, CompiledShape, Lease
from hanse.model.ids import ClusterId, TaskId
from hanse.model.messages import Delta, Shape
from hanse.model.resources import Resources, Vector, dimensions_of
from hanse.policy.node_classes import node_classes_of
from hanse.policy.node_columns import (
    NodeColumns,
    clear_bit,
    empty_mask,
    full_mask,
    has_bit,
    mask_flags,
    mask_of,
    set_bit,
)

SHAPES_MAX: Final = 4_096
"""Compiled shapes kept; when there are more, all are dropped and compiled again."""

MANY_NODES: Final = 64
"""Number of nodes below which a loop is used; for more NumPy is faster."""


class Ledger:
    """Columns of room, attempts, leases, and the versions of changes."""

    def __init__(
        self, cluster: str, nodes: tuple[NodeConfig, ...], reserve: int, first_port: int = GANG_PORT_FIRST
    ) -> None:
        self.cluster = ClusterId(cluster)
        self.nodes = len(nodes)
        self.dimensions = dimensions_of(tuple(node.capacity for node in nodes))
        self.capacity = [node.capacity.vector(self.dimensions) or () for node in nodes]
        self.room = NodeColumns(self.capacity)
        self.gains = CapacityGains()
        attributes = tuple([node.attributes for node in nodes])
        self.attribute_index = attribute_index_of(attributes)
        self.node_classes = node_classes_of(attributes)
        self.reserve = mask_of(range(max(0, self.nodes - reserve), self.nodes), self.nodes)
        self.unreserved = full_mask(self.nodes) & ~self.reserve
        self.attempts: dict[TaskId, AttemptRecord] = {}
        self.leases: dict[int, Lease] = {}
        self.slots = 0
        """Slots under lease: a gang's lease has many."""
        self.next_lease = 1
        self.version = 1
        self.changed: dict[int, int] = {}
        """Node -> version of its last change, the oldest change first."""
        self.touched: dict[int, None] = {}
        """Nodes with room on offer that may have changed since ``publish``."""
        self._advertised = [(0,) * len(self.dimensions)] * self.nodes
        """Advertised room of each node, at this version."""
        self.up = empty_mask(self.nodes)
        self.draining = empty_mask(self.nodes)
        self.held: dict[int, int] = {}
        """Nodes kept back for the demand line of the current hold."""
        self.withheld: dict[int, tuple[Vector, Vector]] = {}
        """Node -> amount withheld from the league, and the part of it taken out so far."""
        self._open = empty_mask(self.nodes)
        self._open_unreserved = self._open
        """Open nodes without the reserve."""
        self._is_open_flags = [False] * self.nodes
        """Open nodes as flags: faster for one node."""
        self._serial = 0
        self._unheld = self._open
        """Nodes that are not held, if some are."""
        self._compiled_shapes: dict[Shape, CompiledShape] = {}
        self.affinity = AffinityIndex(self.nodes)
        self.gangs = GangLayouts([node.host for node in nodes], first_port)

    # --- where a shape fits --------------------------------------------------------------------------------

    def compile_shape(self, shape: Shape) -> CompiledShape:
        """Return the compiled form of a shape, with ``mask`` = nodes open to it now (held ones excluded)."""
        found = self._compiled_shapes.get(shape)
        if found is None:
            if len(self._compiled_shapes) >= SHAPES_MAX:
                self._compiled_shapes.clear()
                self.affinity.forget_searches()
            found = self._compiled_shapes[shape] = self._compile(shape)
        if found.serial != self._serial:
            found.serial = self._serial
            open_nodes = self._open if found.latency else self._open_unreserved
            if found.open_nodes is not open_nodes:  # a hold alone does not change it
                found.open_nodes, found.open_mask = open_nodes, found.static_mask & open_nodes
            found.mask = found.open_mask & self._unheld if self.held else found.open_mask
        return found

    def _invalidate_masks(self) -> None:
        """Invalidate masks after nodes were opened, closed or held. Newly open nodes are in the gains
        already."""
        self._serial += 1
        if self.held:
            self._unheld = ~mask_of(self.held, self.nodes)

    def _compile(self, shape: Shape) -> CompiledShape:
        ask = shape.ask.vector(self.dimensions)
        if ask is None or not shape.allows_cluster(self.cluster):
            return CompiledShape(shape, None, empty_mask(self.nodes))
        return CompiledShape(
            shape, ask, self.attribute_index.compile(shape.where) & find_large_enough(self.room, ask)
        )

    @staticmethod
    def slots_of(room: Vector, ask: Vector) -> int:
        """Return how many tasks of this ask fit into this room."""
        return min(have // entry for have, entry in zip(room, ask, strict=True) if entry)

    # --- taking and giving ---------------------------------------------------------------------------------

    def take(self, node: int, amount: Vector) -> None:
        """Debit a node."""
        self.room.debit(node, amount)
        self.touched[node] = None

    def give(self, node: int, amount: Vector) -> None:
        """Credit a node."""
        self.room.credit(node, amount)
        if node in self.withheld:
            self._withhold_more(node)
        self.gains.add(node)
        self.touched[node] = None

    def withhold(self, node: int, amount: Resources) -> None:
        """Withhold an amount of a node from the league. Room in use stays in use; the rest is taken as it
        comes free."""
        extra = dict(amount.custom)
        asked = (amount.cpu, amount.memory, amount.gpu, *[extra.get(d, 0) for d in self.dimensions[3:]])
        before = self.withheld.pop(node, None)
        if before is not None:
            self.room.credit(node, before[1])
            self.gains.add(node)
        wanted = tuple(map(min, asked, self.capacity[node]))
        if any(wanted):
            self.withheld[node] = (wanted, (0,) * len(wanted))
            self._withhold_more(node)
        self.touched[node] = None

    def _withhold_more(self, node: int) -> None:
        """Take the free part of what is to be withheld."""
        wanted, taken = self.withheld[node]
        more = tuple(map(min, map(sub, wanted, taken), self.room.free_of(node)))
        self.room.debit(node, more)
        self.withheld[node] = (wanted, tuple(map(add, taken, more)))

    def begin_attempts(self, runs: Sequence[AttemptRecord]) -> None:
        """Add attempts of one group; their room was taken already."""
        held = self.attempts
        for run in runs:
            assert run.task not in held, f"{run.task} runs here already"
            held[run.task] = run
        shape = runs[0].template.shape
        if shape.labels or shape.affinity:
            for run in runs:
                self.affinity.count_labels(run)
        if shape.gang:
            for run in runs:
                if run.port:
                    self.gangs.count_port(run)

    def finish_attempt(self, run: AttemptRecord) -> None:
        """Remove an ended attempt."""
        del self.attempts[run.task]
        self.return_capacity([run])

    def return_capacity(self, runs: Sequence[AttemptRecord]) -> list[int]:
        """Free, once, the room of ended attempts that are no longer in ``attempts``; return the nodes that
        gained. Neighbours of one size on one node, often many, are credited together."""
        nodes: list[int] = []
        at, count = 0, len(runs)
        while at < count:
            first = runs[at]
            node, amount = first.node, first.amount
            after = at + 1
            while after < count and runs[after].node == node and runs[after].amount is amount:
                after += 1
            same = after - at
            self.room.credit(node, amount if same == 1 else tuple([part * same for part in amount]))
            if node in self.withheld:
                self._withhold_more(node)
            self.gains.add(node)
            nodes.append(node)
            at = after
        self.touched.update(dict.fromkeys(nodes))
        for run in runs:
            shape = run.template.shape
            if shape.labels or shape.affinity:
                self.affinity.count_labels(run, -1)
            if run.port:
                self.gangs.count_port(run, -1)
        return nodes

    def create_lease(self, broker: str, line: int, nodes: list[int], shape: Shape, until: int) -> Lease:
        """Create a lease for a broker on room that was taken already."""
        lease = Lease(self.next_lease, broker, line, nodes, shape, until)
        self.next_lease += 1
        self.leases[lease.number] = lease
        self.slots += len(nodes)
        return lease

    def end_lease(self, lease: Lease) -> None:
        """Remove a lease; the caller decides what happens to its room."""
        del self.leases[lease.number]
        self.slots -= len(lease.nodes)

    def in_use(self) -> list[Resources]:
        """Return what attempts and leases hold of each node."""
        held = [Resources()] * self.nodes
        for run in self.attempts.values():
            held[run.node] = held[run.node].plus(run.size)
        for lease in self.leases.values():
            for node in lease.nodes:
                held[node] = held[node].plus(lease.shape.ask)
        return held

    # --- opening and closing nodes -------------------------------------------------------------------------

    def set_node_up(self, node: int, up: bool) -> None:
        """Mark a node as up or down: its runner is present or not."""
        if has_bit(self.up, node) != up:
            (set_bit if up else clear_bit)(self.up, node)
            self._update_open(node)

    def set_draining(self, node: int, draining: bool) -> None:
        """Close a node to new work for an operator, or open it."""
        if has_bit(self.draining, node) != draining:
            (set_bit if draining else clear_bit)(self.draining, node)
            self._update_open(node)

    def _update_open(self, node: int) -> None:
        self._open = self.up & ~self.draining
        self._open_unreserved = self._open & self.unreserved
        self._is_open_flags[node] = has_bit(self._open, node)
        self.gains.add(node)
        self._invalidate_masks()
        self.touched[node] = None

    def hold(self, nodes: list[int]) -> None:
        """Hold exactly these nodes."""
        for node in [n for n in self.held if n not in nodes]:
            del self.held[node]
            self.gains.add(node)
            self.touched[node] = None
        for node in nodes:
            if node not in self.held:
                self.held[node] = 1
                self.touched[node] = None
        self._invalidate_masks()

    def is_open(self, node: int) -> bool:
        """True if new work may go to a node."""
        return self._is_open_flags[node]

    # --- advertised room -----------------------------------------------------------------------------------

    def advertised_free(self, node: int) -> Vector:
        """Return the room of a node as brokers may see it."""
        if node in self.held or not self._is_open_flags[node]:
            return (0,) * len(self.dimensions)
        return self.room.free_of(node)

    def states(self) -> list[tuple[bool, bool, Vector]]:
        """Return for each node whether it is up, whether it drains, and its advertised room."""
        return [
            (has_bit(self.up, node), has_bit(self.draining, node), self.advertised_free(node))
            for node in range(self.nodes)
        ]

    def advertised_free_all(self, nodes: Sequence[int]) -> list[Vector]:
        """Return the advertised room of several nodes."""
        if len(nodes) < MANY_NODES:
            return [self.advertised_free(node) for node in nodes]
        columns = self.room.free[:, nodes] * mask_flags(self._open, self.nodes)[nodes]
        free = list(zip(*columns.tolist(), strict=True))
        if self.held:
            none = (0,) * len(self.dimensions)
            free = [none if node in self.held else room for node, room in zip(nodes, free, strict=True)]
        return free

    def publish(self) -> None:
        """Count changes of advertised room as new versions. Room that came free and was granted in between
        was never advertised, so no broker needs to know of it."""
        if not self.touched:
            return
        touched, self.touched = self.touched, {}
        advertised, changed = self._advertised, self.changed
        many = self.advertised_free_all(list(touched)) if len(touched) >= MANY_NODES else None
        for at, node in enumerate(touched):
            offered = self.advertised_free(node) if many is None else many[at]
            if offered != advertised[node]:
                advertised[node] = offered
                self.version += 1
                changed.pop(node, None)
                changed[node] = self.version

    def delta(self, epoch: int, since: int) -> Delta:
        """Return the final states, at this version, of the nodes that changed after version ``since``."""
        nodes = []
        for node, version in reversed(self.changed.items()):
            if version <= since:
                break
            nodes.append(node)
        nodes.reverse()
        advertised = self._advertised
        free = tuple([advertised[node] for node in nodes])
        return Delta(self.cluster, epoch, since, self.version, tuple(nodes), free)

    # --- state ---------------------------------------------------------------------------------------------

    def restore(
        self, runs: dict[TaskId, AttemptRecord], leases: dict[int, Lease], up: list[int], draining: list[int],
        withheld: dict[int, tuple[Vector, Vector]],
    ) -> None:  # fmt: skip
        """Rebuild columns and indices from what holds room."""
        self.attempts, self.leases = runs, leases
        self.room.clear()
        self.gains.forget()
        self.affinity.clear()
        self.gangs.ports.clear()
        self._compiled_shapes.clear()
        for run in runs.values():
            run.amount = run.size.vector(self.dimensions) or ()  # there may be new columns
            self.room.debit(run.node, run.amount)
            self.affinity.count_labels(run)
            if run.port:
                self.gangs.count_port(run)
        self.slots = sum([len(lease.nodes) for lease in leases.values()])
        for lease in leases.values():
            for node in lease.nodes:
                self.room.debit(node, self.compile_shape(lease.shape).ask or ())
        self._restore_withheld(withheld)
        self.affinity.changed = False  # as at the end of every step
        self.up, self.draining = mask_of(up, self.nodes), mask_of(draining, self.nodes)
        self._open = self.up & ~self.draining
        self._open_unreserved = self._open & self.unreserved
        self._is_open_flags = mask_flags(self._open, self.nodes).tolist()
        self._invalidate_masks()

    def _restore_withheld(self, withheld: dict[int, tuple[Vector, Vector]]) -> None:
        """Withhold what was withheld before, as far as the nodes still have that capacity."""
        self.withheld = {}
        for node, (wanted, taken) in withheld.items():
            if len(wanted) != len(self.dimensions):
                continue  # other columns: the runner will report it again
            if any(map(gt, wanted, self.capacity[node])) or not self.room.fits(node, taken):
                # The node has become smaller.
                self.withheld[node] = (tuple(map(min, wanted, self.capacity[node])), (0,) * len(wanted))
                self._withhold_more(node)
            else:
                self.withheld[node] = (wanted, taken)
                self.room.debit(node, taken)

    def restore_versions(self, version: int, changed: dict[int, int], held: Sequence[int]) -> None:
        """Restore versions, changes and holds."""
        self.version, self.changed, self.held = version, changed, dict.fromkeys(held, 1)
        self._invalidate_masks()
        self.touched = {}
        self._advertised = self.advertised_free_all(range(self.nodes))

    def check(self) -> None:
        """Assert that free room plus held room is the capacity of each node, and that cached masks are
        current."""
        columns = self.room.free.tolist()
        held = [(run.node, run.amount) for run in self.attempts.values()]
        for lease in self.leases.values():
            held += [(node, self.compile_shape(lease.shape).ask or ()) for node in lease.nodes]
        held += [(node, taken) for node, (_, taken) in self.withheld.items()]
        for node, amount in held:
            for column, part in zip(columns, amount, strict=True):
                column[node] += part
        assert columns == self.room.capacity.tolist(), f"{self.cluster}: room leaks"
        self.affinity.check()
        self.gangs.check(tuple(self.attempts.values()))
