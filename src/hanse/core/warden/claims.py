"""How a warden takes claims: room for each task of a lot, on the node proposed or another, or a refusal
with a reason.

A lot on the fast path names nodes; each is checked against the ledger, and where it is taken another
suitable node of the cluster is substituted. A lot that binds a lease gets the room that was kept for it. A
gang gets all or nothing.
"""

from collections.abc import Callable, Sequence

from hanse.core.warden.grants import Grants
from hanse.core.warden.ledger import ORDERED, Lease, Ledger, Run
from hanse.core.warden.runner_sessions import Roster
from hanse.model.ids import INDEX_BITS, TaskId, task_id
from hanse.model.messages import Brief, Lot, Refusal, Refused, StartTask
from hanse.model.resources import Resources, Vector
from hanse.policy.kernels import FIRST, pick, settle
from hanse.policy.node_columns import has_bit

Columns = tuple[Sequence[TaskId], Sequence[int], Sequence[int]]
"""Tasks, their attempts, and the node of each; -1: none."""


class Acceptance:
    """The accepting side of a warden."""

    def __init__(self, ledger: Ledger, grants: Grants, roster: Roster, mark: Callable[[str], None]) -> None:
        self.ledger = ledger
        self.grants = grants
        self.roster = roster
        self._mark = mark

    def place(
        self, now: int, broker: str, lot: Lot, substituted: list[tuple[TaskId, int]], refused: list[Refused]
    ) -> bool:
        """Find room for a lot; whether it was a claim on the fast path, which is always answered."""
        lease = self.ledger.leases.get(lot.lease) if lot.lease else None
        if lease is not None and lease.broker == broker:
            self.ledger.unlease(lease)
            self._bind(now, lot, lease, refused)
            return False
        if lot.lease:
            self._mark("warden.bound_expired_lease")
        base = lot.job << INDEX_BITS
        tasks = [TaskId(base | index) for index in lot.tasks]
        places = self._find(lot, tasks)
        if places != list(lot.nodes) or -1 in places:
            self._answer(lot, tasks, places, substituted, refused)
            taken = [node for node in places if node >= 0]
        else:
            taken = places
        self.ledger.touched.update(dict.fromkeys(taken))
        amount = lot.size.vector(self.ledger.dimensions) or ()
        self._run(now, lot.brief, (tasks, lot.attempts, places), lot.size, amount)
        return True

    def _answer(
        self, lot: Lot, tasks: list[TaskId], places: list[int], substituted: list[tuple[TaskId, int]],
        refused: list[Refused],
    ) -> None:  # fmt: skip
        """Note which tasks did not get what was proposed for them."""
        for task, attempt, proposed, node in zip(tasks, lot.attempts, lot.nodes, places, strict=True):
            if node < 0:
                self._mark("warden.refused_no_room")
                reason = Refusal.NO_ROOM if self.ledger.fit(lot.brief.shape).ever else Refusal.NEVER_FITS
                refused.append(Refused(task, attempt, Refusal.HELD if task in self.ledger.runs else reason))
            elif node != proposed:
                substituted.append((task, node))
                self._mark("warden.substituted")

    def _run(self, now: int, brief: Brief, lot: Columns, size: Resources, amount: Vector) -> None:
        """Order the start of all tasks that have a place; their room is taken."""
        of_node = self.roster.of_node
        estate, unreachable, payload = brief.estate, brief.unreachable, brief.payload
        runs: list[Run] = []
        starts: list[StartTask] = []
        runner = ""
        for task, attempt, node in zip(*lot, strict=True):
            if node < 0:
                continue
            if of_node[node] != runner or not runs:
                runner = of_node[node]
                starts = self.roster.orders(runner).starts
            runs.append(Run(task, attempt, node, size, amount, brief, ORDERED, now))
            starts.append(StartTask(task, attempt, node, size, estate, unreachable, payload))
        if runs:
            self.ledger.begin(runs)

    def _find(self, lot: Lot, tasks: list[TaskId]) -> list[int]:
        """A node for each task of a lot, debited, or -1. A gang gets all or nothing."""
        ledger = self.ledger
        fit = ledger.fit(lot.brief.shape)
        size = lot.size.vector(ledger.dimensions)
        none = [-1] * len(tasks)
        if fit.ask is None or size is None:
            return none
        mask = ledger.near(lot.brief.shape, fit.mask) if fit.dynamic else fit.mask
        start = self.grants.start() % max(1, ledger.nodes)
        held = ledger.runs
        here = [index for index, task in zip(lot.tasks, tasks, strict=True) if task in held]
        if lot.brief.shape.gang:
            if here:
                return none
            nodes = pick(ledger.room, size, mask, start, len(tasks), FIRST, fit.alone, None)
            if len(nodes) == len(tasks):
                return nodes
            for node in nodes:
                ledger.room.credit(node, size)
            return none
        if here or (fit.alone and lot.brief.shape.alone_in_cluster):
            return self._find_each(lot, size, here)
        return settle(ledger.room, size, mask, lot.nodes, start, fit.alone)

    def _find_each(self, lot: Lot, size: Vector, here: list[int]) -> list[int]:
        """The rare case: some tasks still hold room here, or only one may be here at all."""
        ledger = self.ledger
        fit = ledger.fit(lot.brief.shape)
        places = []
        full = False
        for index, proposed in zip(lot.tasks, lot.nodes, strict=True):
            node = -1
            if index not in here and not full:
                mask = ledger.near(lot.brief.shape, fit.mask) if fit.dynamic else fit.mask
                node = settle(ledger.room, size, mask, [proposed], 0, 0)[0]
                full = node >= 0 and lot.brief.shape.alone_in_cluster
            places.append(node)
        return places

    def _bind(self, now: int, lot: Lot, lease: Lease, refused: list[Refused]) -> None:
        fit = self.ledger.fit(lease.shape)
        assert fit.ask is not None
        nodes = list(lease.nodes)
        mask = self.ledger.near(lot.brief.shape, fit.static) if fit.dynamic else None
        base = lot.job << INDEX_BITS
        tasks = [TaskId(base | index) for index in lot.tasks]
        busy = any(task in self.ledger.runs for task in tasks)
        apart = mask is not None and (
            not all(has_bit(mask, node) for node in nodes)
            or (lot.brief.shape.alone_in_cluster and len(lot.tasks) > 1)
        )
        closed = not all(map(self.ledger.is_open, nodes))  # drained or lost since the room was granted
        if busy or apart or closed or len(tasks) > len(nodes) or lot.brief.shape != lease.shape:
            self._mark("warden.refused_bind")
            refused += self.refuse(lot, Refusal.HELD if busy else Refusal.NO_ROOM)
            self._return_room(nodes, fit.ask)
            return
        ask = lot.brief.shape.ask
        if lot.size == ask:
            self._run(now, lot.brief, (tasks, lot.attempts, nodes[: len(tasks)]), ask, fit.ask)
        else:
            for task, attempt, node in zip(tasks, lot.attempts, nodes, strict=False):
                size, amount = self._enlarge(lot, node, fit.ask)
                self._run(now, lot.brief, ([task], [attempt], [node]), size, amount)
        self._return_room(nodes[len(tasks) :], fit.ask)

    def _enlarge(self, lot: Lot, node: int, least: Vector) -> tuple[Resources, Vector]:
        """A bound elastic task gets its larger size if the node has it."""
        amount = lot.size.vector(self.ledger.dimensions)
        if amount is not None:
            extra = tuple([more - less for more, less in zip(amount, least, strict=True)])
            if self.ledger.room.fits(node, extra):
                self.ledger.take(node, extra)
                return lot.size, amount
        return lot.brief.shape.ask, least

    @staticmethod
    def refuse(lot: Lot, reason: Refusal) -> list[Refused]:
        """A whole lot is not taken."""
        pairs = zip(lot.tasks, lot.attempts, strict=True)
        return [Refused(task_id(lot.job, index), attempt, reason) for index, attempt in pairs]

    def release(self, broker: str, number: int) -> None:
        """A broker gives a lease back, or its time is up."""
        lease = self.ledger.leases.get(number)
        if lease is not None and lease.broker == broker:
            self.ledger.unlease(lease)
            ask = self.ledger.fit(lease.shape).ask
            assert ask is not None
            self._return_room(lease.nodes, ask)

    def expire(self, now: int) -> None:
        """Take back the room of leases whose time is up."""
        leases = self.ledger.leases
        while leases:
            first = next(iter(leases.values()))  # the oldest
            if first.until > now:
                break
            self._mark("warden.lease_expired")
            self.release(first.broker, first.number)

    def _return_room(self, nodes: list[int], ask: Vector) -> None:
        for node in nodes:
            self.ledger.give(node, ask)
            self.grants.freed.append(node)
