"""Acceptance of claims at a warden: room for each task, on the proposed or another node, or a refusal.

A batch on the fast path names nodes. Each is checked against the ledger; if it is taken, another suitable
node of the cluster is substituted. A batch that binds a lease gets the room that was kept for it. A gang gets
all or nothing.
"""

from collections.abc import Callable, Sequence

from hanse.core.warden.grants import Grants
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ledger_records import ORDERED, AttemptRecord, CompiledShape, Lease
from hanse.core.warden.node_preferences import acceptable_nodes
from hanse.core.warden.ownership import Ownership
from hanse.core.warden.runner_sessions import RunnerSessions
from hanse.model.ids import INDEX_BITS, INDEX_MASK, TaskId, task_id
from hanse.model.messages import (
    Claim,
    GroupLayout,
    RefusalReason,
    RefusedTask,
    Shape,
    StartTask,
    TaskBatch,
    TaskTemplate,
)
from hanse.model.resources import Resources, Vector
from hanse.policy.gang_topology import group_by_node
from hanse.policy.node_columns import MaskWords, has_bit

Columns = tuple[Sequence[TaskId], Sequence[int], Sequence[int]]
"""Tasks, their attempts, and the node of each; -1: none."""


class ClaimAcceptance:
    """Acceptance of claims at one warden."""

    def __init__(
        self,
        ledger: Ledger,
        grants: Grants,
        sessions: RunnerSessions,
        ownership: Ownership,
        mark: Callable[[str], None],
    ) -> None:
        self.ledger = ledger
        self.grants = grants
        self.sessions = sessions
        self.ownership = ownership
        self._mark = mark

    def accept_claim(
        self,
        now: int,
        broker: str,
        claim: Claim,
        substituted: list[tuple[TaskId, int]],
        refused: list[RefusedTask],
    ) -> bool:
        """Take leases back, then accept or refuse each batch; return True if the claim has a batch on the
        fast path."""
        rounds = dict(claim.rounds)
        fast = False
        for number in claim.releases:
            self.release_lease(broker, number)
        for batch in claim.batches:
            reason = self.ownership.find_refusal(now, broker, batch.template.shard, rounds)
            if reason is None and not self.grants.can_keep(len(batch.tasks)):
                reason = RefusalReason.BUSY
            if reason is not None:
                self._mark(f"warden.refused_{reason}")
                refused += self._refuse_all(batch, reason)
                self.release_lease(broker, batch.lease)
                continue
            fast = self.accept_batch(now, broker, batch, substituted, refused) or fast
        return fast

    def accept_batch(
        self,
        now: int,
        broker: str,
        batch: TaskBatch,
        substituted: list[tuple[TaskId, int]],
        refused: list[RefusedTask],
    ) -> bool:
        """Find room for a batch; return True for a claim on the fast path, which is always answered."""
        lease = self.ledger.leases.get(batch.lease) if batch.lease else None
        if lease is not None and lease.broker == broker:
            self.ledger.end_lease(lease)
            self._bind(now, batch, lease, refused)
            return False
        if batch.lease:
            self._mark("warden.bound_expired_lease")
        base = batch.job << INDEX_BITS
        tasks = [TaskId(base | index) for index in batch.tasks]
        places = self._find_nodes(batch, tasks)
        if places != list(batch.nodes) or -1 in places:
            self._note_changes(batch, tasks, places, substituted, refused)
            taken = [node for node in places if node >= 0]
        else:
            taken = places
        self.ledger.touched.update(dict.fromkeys(taken))
        amount = batch.size.vector(self.ledger.dimensions) or ()
        if taken:
            layout = self.ledger.gangs.lay_out(batch.template, tasks, batch.attempts, places)
            self._start_tasks(
                now, batch.template, (tasks, batch.attempts, places), batch.size, amount, layout
            )
        return True

    def _note_changes(
        self, batch: TaskBatch, tasks: list[TaskId], places: list[int], substituted: list[tuple[TaskId, int]],
        refused: list[RefusedTask],
    ) -> None:  # fmt: skip
        """Note the tasks that did not get the proposed node."""
        for task, attempt, proposed, node in zip(tasks, batch.attempts, batch.nodes, places, strict=True):
            if node < 0:
                self._mark("warden.refused_no_room")
                reason = (
                    RefusalReason.NO_ROOM
                    if self.ledger.compile_shape(batch.template.shape).can_ever_fit
                    else RefusalReason.NEVER_FITS
                )
                refused.append(
                    RefusedTask(task, attempt, RefusalReason.HELD if task in self.ledger.attempts else reason)
                )
            elif node != proposed:
                substituted.append((task, node))
                self._mark("warden.substituted")

    def _start_tasks(
        self, now: int, template: TaskTemplate, batch: Columns, size: Resources, amount: Vector,
        layout: GroupLayout | None,
    ) -> None:  # fmt: skip
        """Order the start of all tasks that have a node; their room is taken already."""
        of_node = self.sessions.runner_of_node
        shard, unreachable, payload = template.shard, template.unreachable, template.payload
        runs: list[AttemptRecord] = []
        starts: list[StartTask] = []
        runner = ""
        first_rank, port = -1, 0
        if layout is not None and layout.runs:
            first_rank, port = layout.ranks[0] if layout.ranks else layout.first, layout.port
        for task, attempt, node in zip(*batch, strict=True):
            if node < 0:
                continue
            if of_node[node] != runner or not runs:
                runner = of_node[node]
                orders = self.sessions.orders_for(runner)
                starts = orders.starts
                if layout is not None:
                    orders.layouts[layout.job, layout.first] = layout
            runs.append(AttemptRecord(task, attempt, node, size, amount, template, ORDERED, now))
            starts.append(StartTask(task, attempt, node, size, shard, unreachable, payload))
        if port:
            for run in runs:
                run.port = port if run.task & INDEX_MASK == first_rank else 0
        if runs:
            self.ledger.begin_attempts(runs)

    def _find_nodes(self, batch: TaskBatch, tasks: list[TaskId]) -> list[int]:
        """Return a node for each task of a batch, debited, or -1. A gang gets all or nothing."""
        ledger = self.ledger
        compiled = ledger.compile_shape(batch.template.shape)
        size = batch.size.vector(ledger.dimensions)
        none = [-1] * len(tasks)
        if compiled.ask is None or size is None:
            return none
        mask = self._mask_now(batch.template.shape, compiled)
        if batch.preference is not None:
            mask = acceptable_nodes(batch.preference, ledger.node_classes, mask)
        start = self.grants.random.position(ledger.nodes)
        ranker, held = self.grants.node_ranker, ledger.attempts
        here = [index for index, task in zip(batch.tasks, tasks, strict=True) if task in held]
        if batch.template.shape.gang:
            if here:
                return none
            nodes = self.grants.choose_nodes(batch.template.shape, compiled, mask, start, len(tasks), size)
            if len(nodes) == len(tasks):
                return group_by_node(nodes)
            for node in nodes:
                ledger.room.credit(node, size)
            return none
        if here or (compiled.max_per_node and batch.template.shape.is_single_per_cluster):
            return self._find_nodes_one_by_one(batch, size, here)
        return ranker.settle(ledger.room, size, mask, batch.nodes, start, compiled.max_per_node)

    def _find_nodes_one_by_one(self, batch: TaskBatch, size: Vector, here: list[int]) -> list[int]:
        """Find nodes where tasks still hold room here, or where only one may be in the cluster: rare
        cases."""
        ledger = self.ledger
        compiled = ledger.compile_shape(batch.template.shape)
        places = []
        full = False
        for index, proposed in zip(batch.tasks, batch.nodes, strict=True):
            node = -1
            if index not in here and not full:
                mask = self._mask_now(batch.template.shape, compiled)
                node = self.grants.node_ranker.settle(ledger.room, size, mask, [proposed], 0, 0)[0]
                full = node >= 0 and batch.template.shape.is_single_per_cluster
            places.append(node)
        return places

    def _mask_now(self, shape: Shape, compiled: CompiledShape) -> MaskWords:
        """Return the open nodes that suit a shape, beside the attempts that are there now."""
        return self.ledger.affinity.allowed_nodes(shape, compiled.mask) if compiled.dynamic else compiled.mask

    def _bind(self, now: int, batch: TaskBatch, lease: Lease, refused: list[RefusedTask]) -> None:
        compiled = self.ledger.compile_shape(lease.shape)
        assert compiled.ask is not None
        nodes = list(lease.nodes)
        mask = (
            self.ledger.affinity.allowed_nodes(batch.template.shape, compiled.static_mask)
            if compiled.dynamic
            else None
        )
        base = batch.job << INDEX_BITS
        tasks = [TaskId(base | index) for index in batch.tasks]
        busy = any(task in self.ledger.attempts for task in tasks)
        violates_affinity = mask is not None and (
            not all(has_bit(mask, node) for node in nodes)
            or (batch.template.shape.is_single_per_cluster and len(batch.tasks) > 1)
        )
        closed = not all(map(self.ledger.is_open, nodes))  # drained or lost since the grant
        if (
            busy
            or violates_affinity
            or closed
            or len(tasks) > len(nodes)
            or batch.template.shape != lease.shape
        ):
            self._mark("warden.refused_bind")
            refused += self._refuse_all(batch, RefusalReason.HELD if busy else RefusalReason.NO_ROOM)
            self._return_capacity(nodes, compiled.ask)
            return
        ask = batch.template.shape.ask
        layout = self.ledger.gangs.lay_out(batch.template, tasks, batch.attempts, nodes[: len(tasks)])
        if batch.size == ask:
            self._start_tasks(
                now, batch.template, (tasks, batch.attempts, nodes[: len(tasks)]), ask, compiled.ask, layout
            )
        else:
            for task, attempt, node in zip(tasks, batch.attempts, nodes, strict=False):
                size, amount = self._enlarge(batch, node, compiled.ask)
                self._start_tasks(now, batch.template, ([task], [attempt], [node]), size, amount, layout)
        self._return_capacity(nodes[len(tasks) :], compiled.ask)

    def _enlarge(self, batch: TaskBatch, node: int, least: Vector) -> tuple[Resources, Vector]:
        """Return the larger size of a bound elastic task if its node has room for it, else the minimum."""
        amount = batch.size.vector(self.ledger.dimensions)
        if amount is not None:
            extra = tuple([more - less for more, less in zip(amount, least, strict=True)])
            if self.ledger.room.fits(node, extra):
                self.ledger.take(node, extra)
                return batch.size, amount
        return batch.template.shape.ask, least

    @staticmethod
    def _refuse_all(batch: TaskBatch, reason: RefusalReason) -> list[RefusedTask]:
        """Refuse a whole batch."""
        pairs = zip(batch.tasks, batch.attempts, strict=True)
        return [RefusedTask(task_id(batch.job, index), attempt, reason) for index, attempt in pairs]

    def release_lease(self, broker: str, number: int) -> None:
        """End a lease that a broker gives back, or that has expired."""
        lease = self.ledger.leases.get(number)
        if lease is not None and lease.broker == broker:
            self.ledger.end_lease(lease)
            ask = self.ledger.compile_shape(lease.shape).ask
            assert ask is not None
            self._return_capacity(lease.nodes, ask)

    def expire_leases(self, now: int) -> None:
        """Free the room of expired leases."""
        leases = self.ledger.leases
        while leases:
            first = next(iter(leases.values()))  # the oldest
            if first.until > now:
                break
            self._mark("warden.lease_expired")
            self.release_lease(first.broker, first.number)

    def _return_capacity(self, nodes: list[int], ask: Vector) -> None:
        for node in nodes:
            self.ledger.give(node, ask)
            self.grants.freed_nodes.append(node)
