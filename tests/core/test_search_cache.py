"""A search that is skipped would have found nothing: judged by doing it anyway."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hanse.core.search_cache import (
    GAINS_MAX,
    LOOK_MAX,
    NO_CHECKPOINT,
    CapacityGains,
    attribute_index_of,
    find_large_enough,
)
from hanse.model.constraints import Is
from hanse.model.resources import Vector
from hanse.policy.kernels import FIRST, pick
from hanse.policy.node_columns import MaskWords, NodeColumns, mask_indices, mask_of

CAPACITY = [(4, 2), (2, 4), (8, 8), (1, 0)]
ASKS = ((1, 1), (2, 2), (4, 0), (0, 3))
GANG = 3


class Looking:
    """What looks for room, and remembers when it found none."""

    def __init__(self, ask: Vector, mask: MaskWords) -> None:
        self.ask: Vector | None = ask
        self.mask = mask
        self.failed_at = NO_CHECKPOINT


class GainsHistory(RuleBasedStateMachine):
    """Room is taken and given back in any order; asks look for it in between."""

    def __init__(self) -> None:
        super().__init__()
        self.room = NodeColumns(CAPACITY)
        self.gains = CapacityGains()
        self.taken: list[tuple[int, Vector]] = []
        masks = (mask_of(range(4), 4), mask_of((0, 2), 4))
        self.searches = [Looking(ask, mask) for ask in ASKS for mask in masks]
        self.gangs = [Looking(ask, mask) for ask in ASKS for mask in masks]

    @rule(at=st.integers(0, 2 * len(ASKS) - 1), count=st.integers(1, 6))
    def look(self, at: int, count: int) -> None:
        search = self.searches[at]
        assert search.ask is not None
        nodes = pick(self.room, search.ask, search.mask, 0, count, FIRST, 0, None)
        self.taken += [(node, search.ask) for node in nodes]
        if len(nodes) < count:
            search.failed_at = self.gains.checkpoint

    @rule(at=st.integers(0, 2 * len(ASKS) - 1))
    def look_for_all_or_nothing(self, at: int) -> None:
        search = self.gangs[at]
        assert search.ask is not None
        nodes = pick(self.room, search.ask, search.mask, 0, GANG, FIRST, 0, None)
        if len(nodes) == GANG:
            self.taken += [(node, search.ask) for node in nodes]
            return
        for node in nodes:
            self.room.credit(node, search.ask)
        search.failed_at = self.gains.checkpoint

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.taken:
            node, amount = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
            self.room.credit(node, amount)
            self.gains.add(node)

    @rule()
    def forget(self) -> None:
        self.gains.forget()

    @invariant()
    def what_is_futile_finds_nothing(self) -> None:
        for least, searches in ((1, self.searches), (GANG, self.gangs)):
            for search in searches:
                if search.failed_at >= 0 and self.gains.is_futile(search, self.room):
                    assert search.ask is not None
                    found = pick(self.room.copy(), search.ask, search.mask, 0, least, FIRST, 0, None)
                    assert len(found) < least


GainsHistory.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_gains_history = GainsHistory.TestCase


def full_room() -> tuple[NodeColumns, CapacityGains, Looking]:
    room, gains = NodeColumns([(1,), (1,)]), CapacityGains()
    room.debit(0, (1,))
    room.debit(1, (1,))
    search = Looking((1,), mask_of((0, 1), 2))
    search.failed_at = gains.checkpoint
    return room, gains, search


def test_it_is_futile_until_a_node_gains_enough() -> None:
    room, gains, search = full_room()
    assert gains.is_futile(search, room)
    gains.add(0)  # too little
    assert gains.is_futile(search, room)
    room.credit(1, (1,))
    gains.add(1)
    assert not gains.is_futile(search, room)


def test_a_gain_elsewhere_than_one_may_go_changes_nothing() -> None:
    room, gains, search = full_room()
    search.mask = mask_of((0,), 2)
    room.credit(1, (1,))
    gains.add(1)
    assert gains.is_futile(search, room)


def test_an_old_mark_says_nothing() -> None:
    room, gains, search = full_room()
    gains.forget()
    assert not gains.is_futile(search, room)
    room, gains, search = full_room()
    for _ in range(LOOK_MAX + 1):
        gains.add(0)
    assert not gains.is_futile(search, room)
    room, gains, search = full_room()
    for _ in range(GAINS_MAX + 1):
        gains.add(0)
    assert not gains.is_futile(search, room)


def test_wide_enough_is_the_same_for_few_nodes_and_for_many() -> None:
    for count in (0, 1, 31, 32, 33, 64, 65, 130):
        room = NodeColumns([(at % 5, at % 3) for at in range(count)])
        found = mask_indices(find_large_enough(room, (2, 1)), count) if count else []
        assert found == [at for at in range(count) if at % 5 >= 2 and at % 3 >= 1]


def test_equal_clusters_share_an_index_and_true_is_not_one() -> None:
    yes, one = ((("ssd", True),),), ((("ssd", 1),),)
    assert attribute_index_of(yes) is attribute_index_of(((("ssd", True),),))
    assert mask_indices(attribute_index_of(yes).compile(Is("ssd", True)), 1) == [0]
    assert mask_indices(attribute_index_of(one).compile(Is("ssd", True)), 1) == []
