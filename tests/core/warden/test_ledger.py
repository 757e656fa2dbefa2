"""The ledger's promises, under random histories: nothing leaks, nothing is offered that is not there, deltas
add up.
"""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from hanse.core.warden.ledger import MANY_NODES, Ledger
from hanse.core.warden.ledger_records import ORDERED, AttemptRecord, Lease
from hanse.model.ids import TaskId
from hanse.model.job import Affinity
from hanse.model.messages import Shape, TaskTemplate
from hanse.model.resources import Resources, Vector
from hanse.policy.node_columns import has_bit, mask_indices
from tests.core.wired import node

NODES = tuple(node(cpu, zone=zone) for cpu, zone in ((4_000, "a"), (2_000, "a"), (8_000, "b"), (1_000, "b")))
SHAPES = (
    Shape(Resources(cpu=1_000)),
    Shape(Resources(cpu=700), labels=("db",)),
    Shape(Resources(cpu=2_000), latency=True),
    Shape(Resources(cpu=500), affinity=(Affinity("db", apart=True),)),
)
nodes = st.integers(0, len(NODES) - 1)
shapes = st.sampled_from(SHAPES)


class LedgerHistory(RuleBasedStateMachine):
    """Takes, leases, runs, ends, holds, drains, in any order, beside a model that only adds up."""

    runs = Bundle("runs")
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger("c1", NODES, reserve=1)
        self.used = [0] * len(NODES)
        self.others = [0] * len(NODES)
        """What others are to have of each node; ``taken``: what they have got so far."""
        self.taken = [0] * len(NODES)
        self.tasks = 0
        self.seen: dict[int, list[Vector]] = {}
        """What was offered at earlier versions."""
        for at in range(len(NODES)):
            self.ledger.set_node_up(at, True)

    def offered(self) -> list[Vector]:
        return [self.ledger.advertised_free(at) for at in range(len(NODES))]

    def fits(self, at: int, shape: Shape) -> bool:
        return self.used[at] + self.taken[at] + shape.ask.cpu <= NODES[at].capacity.cpu

    def less(self, at: int, cpu: int) -> None:
        """Less of a node is used by us: others take what is theirs of it."""
        self.used[at] -= cpu
        self.taken[at] = min(self.others[at], NODES[at].capacity.cpu - self.used[at])

    @rule(target=runs, at=nodes, shape=shapes)
    def run(self, at: int, shape: Shape) -> TaskId | None:
        assert self.ledger.room.fits(at, shape.ask.vector(self.ledger.dimensions) or ()) == self.fits(
            at, shape
        )
        if not self.fits(at, shape):
            return None
        self.tasks += 1
        task = TaskId(self.tasks)
        self.ledger.take(at, (shape.ask.cpu, 0, 0))
        amount = shape.ask.vector(self.ledger.dimensions) or ()
        self.ledger.begin_attempts(
            [AttemptRecord(task, 1, at, shape.ask, amount, TaskTemplate(shape, "b1#1"), ORDERED, 0)]
        )
        self.used[at] += shape.ask.cpu
        return task

    @rule(task=consumes(runs))
    def finish(self, task: TaskId | None) -> None:
        if task is None:
            return
        run = self.ledger.attempts[task]
        self.ledger.finish_attempt(run)
        self.less(run.node, run.size.cpu)
        assert task not in self.ledger.attempts

    @rule(target=leases, at=nodes, shape=shapes)
    def lease(self, at: int, shape: Shape) -> Lease | None:
        if not self.fits(at, shape):
            return None
        self.ledger.take(at, (shape.ask.cpu, 0, 0))
        self.used[at] += shape.ask.cpu
        return self.ledger.create_lease("b1", 0, [at], shape, 10)

    @rule(lease=consumes(leases))
    def give_back(self, lease: Lease | None) -> None:
        if lease is None:
            return
        del self.ledger.leases[lease.number]
        for at in lease.nodes:
            self.ledger.give(at, (lease.shape.ask.cpu, 0, 0))
            self.less(at, lease.shape.ask.cpu)

    @rule(at=nodes, cpu=st.integers(0, 10_000))
    def withhold(self, at: int, cpu: int) -> None:
        self.ledger.withhold(at, Resources(cpu=cpu, custom=(("unknown", 3),)))
        self.others[at] = min(cpu, NODES[at].capacity.cpu)
        self.taken[at] = 0
        self.less(at, 0)

    @rule(at=nodes, up=st.booleans())
    def set_up(self, at: int, up: bool) -> None:
        self.ledger.set_node_up(at, up)

    @rule(at=nodes, closed=st.booleans())
    def drain(self, at: int, closed: bool) -> None:
        self.ledger.set_draining(at, closed)

    @rule(kept=st.lists(nodes, unique=True, max_size=3))
    def hold(self, kept: list[int]) -> None:
        self.ledger.hold(kept)
        assert sorted(self.ledger.held) == sorted(kept)

    @rule()
    def restore(self) -> None:
        """Journalled state, taken back into a fresh ledger, offers and finds the same."""
        ledger, fresh = self.ledger, Ledger("c1", NODES, reserve=1)
        runs = msgspec.msgpack.decode(msgspec.msgpack.encode(ledger.attempts), type=dict[int, AttemptRecord])
        leases = msgspec.msgpack.decode(msgspec.msgpack.encode(ledger.leases), type=dict[int, Lease])
        up, draining = mask_indices(ledger.up, len(NODES)), mask_indices(ledger.draining, len(NODES))
        fresh.restore(runs, leases, up, draining, dict(ledger.withheld))  # type: ignore[arg-type]
        fresh.restore_versions(ledger.version, dict(ledger.changed), list(ledger.held))
        fresh.check()
        assert [fresh.advertised_free(at) for at in range(len(NODES))] == self.offered()
        for shape in SHAPES:
            mine, theirs = ledger.compile_shape(shape), fresh.compile_shape(shape)
            assert mask_indices(mine.mask, len(NODES)) == mask_indices(theirs.mask, len(NODES))
            assert mask_indices(ledger.affinity.allowed_nodes(shape, mine.mask), len(NODES)) == mask_indices(
                fresh.affinity.allowed_nodes(shape, theirs.mask), len(NODES)
            )

    @invariant()
    def deltas_catch_up(self) -> None:
        """A delta since any version, applied to what was offered then, gives what is offered now."""
        self.ledger.publish()
        now = self.offered()
        for since, then in self.seen.items():
            copy = list(then)
            delta = self.ledger.delta(3, since)
            for at, free in zip(delta.nodes, delta.free, strict=True):
                copy[at] = free
            assert copy == now
            assert (delta.epoch, delta.since, delta.version) == (3, since, self.ledger.version)
            assert len(delta.nodes) == len(set(delta.nodes))
        assert self.seen.setdefault(self.ledger.version, now) == now, "a change without a new version"

    @invariant()
    def adds_up(self) -> None:
        self.ledger.check()
        for at, one in enumerate(NODES):
            assert self.ledger.room.free_of(at) == (one.capacity.cpu - self.used[at] - self.taken[at], 0, 0)

    @invariant()
    def offers_only_what_is_open(self) -> None:
        ledger = self.ledger
        for at in range(len(NODES)):
            closed = at in ledger.held or not has_bit(ledger.up, at) or has_bit(ledger.draining, at)
            assert ledger.advertised_free(at) == ((0, 0, 0) if closed else ledger.room.free_of(at))

    @invariant()
    def masks_keep_reserve_holds_and_company(self) -> None:
        ledger = self.ledger
        carrying = {run.node for run in ledger.attempts.values() if "db" in run.template.shape.labels}
        shy = {run.node for run in ledger.attempts.values() if run.template.shape.affinity}
        for shape in SHAPES:
            mask = ledger.affinity.allowed_nodes(shape, ledger.compile_shape(shape).mask)
            for at in mask_indices(mask, len(NODES)):
                assert ledger.is_open(at)
                assert at not in ledger.held
                assert shape.latency or at != len(NODES) - 1
                assert not (shape.affinity and at in carrying)
                assert not (shape.labels and at in shy)


LedgerHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_ledger_history = LedgerHistory.TestCase


def test_a_restored_ledger_has_no_unserved_change_of_company() -> None:
    """Every step serves what a change of labels opens; a restore is no such change: replay would differ."""
    ledger = Ledger("c1", NODES, reserve=0)
    amount = SHAPES[1].ask.vector(ledger.dimensions) or ()
    run = AttemptRecord(TaskId(1), 1, 0, SHAPES[1].ask, amount, TaskTemplate(SHAPES[1], "b1#1"), ORDERED, 0)
    ledger.restore({run.task: run}, {}, [0], [], {})
    assert not ledger.affinity.changed


def test_many_together_are_as_one_after_the_other() -> None:
    at = [2, 2, 0, 2, 2, 2, 1]
    template = TaskTemplate(SHAPES[0], "b1#1")
    one, many = Ledger("c1", NODES, reserve=0), Ledger("c1", NODES, reserve=0)
    amount = SHAPES[0].ask.vector(one.dimensions) or ()
    for ledger in (one, many):
        runs = [
            AttemptRecord(TaskId(n), 1, place, SHAPES[0].ask, amount, template, ORDERED, 0)
            for n, place in enumerate(at)
        ]
        for place in at:
            ledger.room.debit(place, amount)
        ledger.begin_attempts(runs)
        if ledger is many:
            ledger.attempts.clear()
            assert ledger.return_capacity(runs) == [2, 0, 2, 1]
        else:
            for run in runs:
                ledger.finish_attempt(run)
    assert list(one.touched) == list(many.touched) == [2, 0, 1]
    assert one.room.free.tolist() == many.room.free.tolist() == many.room.capacity.tolist()


def test_many_nodes_are_offered_as_each_of_them_is() -> None:
    ledger = Ledger("c1", NODES * (MANY_NODES // 2), reserve=0)
    for at in range(0, ledger.nodes, 3):
        ledger.set_node_up(at, True)
    ledger.hold([0, 9])
    ledger.take(6, (500, 0, 0))
    assert ledger.advertised_free_all(range(ledger.nodes)) == [
        ledger.advertised_free(at) for at in range(ledger.nodes)
    ]
    assert ledger.advertised_free(6) != ledger.capacity[6]
