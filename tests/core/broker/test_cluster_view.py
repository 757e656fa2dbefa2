"""A broker's view under random interleavings of news, lost news and its own claims."""

from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hanse.core.broker.cluster_view import ClusterView, ViewState
from hanse.model.constraints import Is
from hanse.model.ids import ClusterId, JobId
from hanse.model.job import Affinity, Proximity
from hanse.model.messages import ClusterSnapshot, Delta, Shape, TaskBatch, TaskTemplate
from hanse.model.resources import Resources, Vector
from hanse.policy.kernels import FIRST, pick

NODES = 4
CAPACITY = (4_000, 0, 0)
SHAPE = Shape(Resources(cpu=1_000))
amounts = st.integers(0, 4).map(lambda cores: (cores * 1_000, 0, 0))
places = st.integers(0, NODES - 1)


class Warden:
    """The truth, as numbered changes."""

    def __init__(self) -> None:
        self.free: list[Vector] = [CAPACITY] * NODES
        self.version, self.epoch = 1, 1
        self.changed: dict[int, int] = {}

    def change(self, at: int, free: Vector) -> None:
        self.version += 1
        self.free[at] = free
        self.changed[at] = self.version

    def delta(self, since: int) -> Delta:
        nodes = tuple(at for at, version in self.changed.items() if version > since)
        free = tuple(self.free[at] for at in nodes)
        return Delta(ClusterId("c1"), self.epoch, since, self.version, nodes, free)

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot(
            ClusterId("c1"), self.epoch, self.version, ("cpu", "memory", "gpu"), (CAPACITY,) * NODES,
            ((),) * NODES, (), ("b1",), tuple(self.free),
        )  # fmt: skip


class ViewHistory(RuleBasedStateMachine):
    """News in any order, some of it lost or doubled, between claims and their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ClusterView("c1", 0, "b1")
        self.warden = Warden()
        self.told = 0
        self.news: list[Delta | ClusterSnapshot] = []
        self.claims: dict[int, list[TaskBatch]] = {}

    @initialize()
    def first(self) -> None:
        assert not self.view.apply_delta(self.warden.delta(0))  # nothing is known yet: a snapshot is needed
        assert self.view.confirmed_free() is None
        self.view.apply_snapshot(self.warden.snapshot())
        self.told = self.warden.version

    @rule(at=places, free=amounts)
    def change(self, at: int, free: Vector) -> None:
        self.warden.change(at, free)

    @rule()
    def tell(self) -> None:
        """The warden sends what is new since it last sent something."""
        self.news.append(self.warden.delta(self.told))
        self.told = self.warden.version

    @rule()
    def tell_all(self) -> None:
        self.news.append(self.warden.snapshot())
        self.told = self.warden.version

    @rule()
    def restart(self) -> None:
        self.warden.epoch += 1

    @precondition(lambda self: self.news)
    @rule(data=st.data(), again=st.booleans())
    def arrive(self, data: st.DataObject, again: bool) -> None:
        """Any of the news arrives; it may arrive again later."""
        at = data.draw(st.integers(0, len(self.news) - 1))
        news = self.news[at] if again else self.news.pop(at)
        pending = {place: list(amount) for place, amount in self.view.pending.items()}
        sight = self.view.state
        assert sight.snapshot is not None
        before, epoch, free = sight.version, sight.snapshot.epoch, list(sight.free)
        if isinstance(news, ClusterSnapshot):
            self.view.apply_snapshot(news)
            if (news.epoch, news.version) >= (epoch, before):
                assert self.view.confirmed_free() == list(news.free)
            else:
                assert sight.free == free
        else:
            taken = self.view.apply_delta(news)
            gap = news.epoch > epoch or (news.epoch == epoch and news.since > before)
            assert taken != gap
            if gap or news.epoch < epoch or news.version <= before:
                assert (sight.version, sight.free) == (before, free)
            else:
                assert sight.version == news.version
        assert self.view.pending == pending

    @precondition(lambda self: self.news)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.news.pop(data.draw(st.integers(0, len(self.news) - 1)))

    @rule(chosen=st.lists(places, min_size=1, max_size=4), cores=st.integers(1, 3))
    def claim(self, chosen: list[int], cores: int) -> None:
        """Claim what the view says is usable; a placer debits it first, as here."""
        size = Resources(cpu=cores * 1_000)
        taken = []
        for at in chosen:
            if self.view.usable.fits(at, (size.cpu, 0, 0)):
                self.view.usable.debit(at, (size.cpu, 0, 0))
                taken.append(at)
        if taken:
            indices = tuple(range(len(taken)))
            batch = TaskBatch(JobId(1), 0, TaskTemplate(SHAPE, "b1#1"), indices, indices, tuple(taken), size)
            self.view.reserve(batch)
            number = self.view.propose([batch])
            assert number not in self.claims
            self.claims[number] = [batch]

    @rule()
    def bind(self) -> None:
        """A binding of granted room is no claim on the view."""
        batch = TaskBatch(JobId(1), 0, TaskTemplate(SHAPE, "b1#1"), (0,), (1,), (0,), SHAPE.ask, lease=7)
        before = {at: list(amount) for at, amount in self.view.pending.items()}
        number = self.view.propose([batch])
        assert self.view.pending == before
        assert self.view.resolve_claim(number) == []

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.claims)))
        assert self.view.resolve_claim(number) == self.claims.pop(number)
        assert self.view.resolve_claim(number) == []  # once only

    @rule()
    def restore(self) -> None:
        fresh = ClusterView("c1", 0, "b1")
        fresh.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(self.view.state), type=ViewState))
        assert fresh.pending == self.view.pending
        assert (fresh.usable.free == self.view.usable.free).all()
        self.view = fresh

    @rule()
    def converge(self) -> None:
        """After a snapshot of now the view is the truth, less the claims on their way."""
        self.view.apply_snapshot(self.warden.snapshot())
        assert self.view.confirmed_free() == self.warden.free

    @invariant()
    def usable_is_confirmed_less_pending(self) -> None:
        if self.view.state.snapshot is None:
            return
        pending = [0] * NODES
        for batches in self.claims.values():
            for batch in batches:
                for at in batch.nodes:
                    pending[at] += batch.size.cpu
        confirmed = self.view.confirmed_free()
        assert confirmed is not None
        for at in range(NODES):
            assert self.view.pending.get(at, [0, 0, 0])[0] == pending[at]
            assert self.view.usable.free_of(at)[0] == confirmed[at][0] - pending[at]


ViewHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_view_history = ViewHistory.TestCase


def test_only_changes_of_the_life_that_the_snapshot_is_of_count() -> None:
    """A warden that was put back from an older copy counts its changes again; its other lives counted on."""
    view, warden = ClusterView("c1", 0, "b1"), Warden()
    warden.epoch = 2
    view.apply_snapshot(warden.snapshot())
    warden.change(0, (1_000, 0, 0))
    late = msgspec.structs.replace(warden.delta(1), epoch=1)
    assert view.apply_delta(late), "an earlier life: old news, which asks for no snapshot"
    assert view.confirmed_free() == [CAPACITY] * NODES
    early = msgspec.structs.replace(warden.delta(1), epoch=3)
    assert not view.apply_delta(early), "a later life: it may have other nodes, so a snapshot is needed"
    assert view.confirmed_free() == [CAPACITY] * NODES
    assert view.apply_delta(warden.delta(1))
    assert view.confirmed_free() == warden.free


@given(
    nodes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), min_size=1, max_size=70),
    ask=st.tuples(st.integers(1, 3), st.integers(0, 1)),
    claimed=st.lists(st.integers(0, 69), max_size=5),
    kind=st.sampled_from(["many", "alone", "alone in cluster"]),
)
@example(nodes=[(3, 0, True)], ask=(1, 0), claimed=[0], kind="many")  # less than no GPU, none asked for
@settings(deadline=None)
def test_room_for_a_shape_is_what_picking_finds(
    nodes: list[tuple[int, int, bool]], ask: tuple[int, int], claimed: list[int], kind: str
) -> None:
    """Whether there are few nodes or many, free room or (after late news) less than none."""
    view = ClusterView("c1", 0, "b1")
    free = tuple((cores * 1_000, 0, gpus) for cores, gpus, _ in nodes)
    zones = tuple((("zone", "a"),) if here else () for *_, here in nodes)
    kinds, partitions = ("cpu", "memory", "gpu"), ("b1",)
    capacity = ((9_000, 0, 3),) * len(nodes)
    view.apply_snapshot(ClusterSnapshot(ClusterId("c1"), 1, 1, kinds, capacity, zones, (), partitions, free))
    shape = Shape(Resources(cpu=ask[0] * 1_000, gpu=ask[1]), where=Is("zone", "a"), **_company(kind))
    for node in claimed:
        if node < len(nodes):
            view.usable.debit(node, (2_000, 0, 1))
    fit = view.compile_shape(shape)
    assert fit.ask is not None
    picked = pick(view.usable.copy(), fit.ask, fit.mask, 0, 10_000, FIRST, int(kind == "alone"), None)
    assert view.count_free_slots(shape) == (
        min(1, len(picked)) if kind == "alone in cluster" else len(picked)
    )
    assert view.count_slots(shape) >= view.count_free_slots(shape)


def _company(kind: str) -> dict[str, Any]:
    """What makes a shape keep to itself."""
    scope = {"alone": Proximity.NODE, "alone in cluster": Proximity.CLUSTER}.get(kind)
    if scope is None:
        return {}
    return {"labels": ("x",), "affinity": (Affinity("x", scope, apart=True),)}
