"""What every policy must keep, whichever it is: a new one joins its registry and is tested here without more
ado.

Purity (the same question, the same answer, nothing changed but what the answer says), the hard limits
(mask, room, count, bounds), and the documented shape of the answer. That a policy is any good is for its
own tests.
"""

from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.resources import Resources, Vector
from hanse.policy import node_rankers as node_rankers_module
from hanse.policy.interface import (
    ClusterFacts,
    ClusterRanker,
    JobFacts,
    NodeRanker,
    Placer,
    QueueOrder,
    Sizer,
)
from hanse.policy.kernels import numpy_kernels
from hanse.policy.node_columns import NodeColumns, mask_indices, mask_of
from hanse.registry import CLUSTER_RANKERS, NODE_RANKERS, PLACERS, QUEUE_ORDERS, SIZERS, Registry

orders = pytest.mark.parametrize("name", QUEUE_ORDERS.shipped)
placers = pytest.mark.parametrize("name", PLACERS.shipped)
node_rankers = pytest.mark.parametrize("name", NODE_RANKERS.shipped)
ranks = pytest.mark.parametrize("name", CLUSTER_RANKERS.shipped)
sizers = pytest.mark.parametrize("name", SIZERS.shipped)


@pytest.mark.parametrize("registry", [QUEUE_ORDERS, PLACERS, NODE_RANKERS, CLUSTER_RANKERS, SIZERS])
def test_a_policy_is_registered_under_its_own_name_and_says_what_it_does(
    registry: Registry[
        type[QueueOrder] | type[Placer] | type[NodeRanker] | type[ClusterRanker] | type[Sizer]
    ],
) -> None:
    assert registry.shipped
    for name in registry.shipped:
        kind = registry.get(name)
        assert kind().name == name
        assert name == name.lower()
        assert kind.__doc__
        assert kind.__doc__.strip()


# --- queue orders -------------------------------------------------------------------------------------------

facts = st.builds(
    JobFacts,
    accepted_at=st.integers(0, 1 << 50),
    tasks=st.integers(1, 1 << 20),
    remaining=st.integers(0, 1 << 20),
    duration=st.integers(0, 1 << 45),
    priority=st.integers(-1_000, 1_000),
    latency=st.booleans(),
)


@orders
@given(one=facts, other=facts)
def test_keys_are_integers_of_one_length_and_so_in_total_order(
    name: str, one: JobFacts, other: JobFacts
) -> None:
    order = QUEUE_ORDERS.get(name)()
    first, second = order.key(one), order.key(other)
    assert len(first) == len(second) >= 1
    assert all(type(part) is int for part in first + second)
    assert (first < second) + (first == second) + (first > second) == 1


@orders
@given(one=facts)
def test_a_key_depends_on_the_facts_alone(name: str, one: JobFacts) -> None:
    order = QUEUE_ORDERS.get(name)()
    before = order.key(one)
    order.key(JobFacts(5, 5, 5, 5, 5, True))
    assert order.key(one) == before == QUEUE_ORDERS.get(name)().key(one)


@orders
@given(one=facts, later=st.integers(1, 1 << 40))
def test_of_two_alike_the_earlier_goes_first(name: str, one: JobFacts, later: int) -> None:
    order = QUEUE_ORDERS.get(name)()
    second = JobFacts(one.accepted_at + later, *_rest(one))
    assert order.key(one) < order.key(second)


@orders
@given(one=facts, done=st.integers(0, 1 << 20))
def test_only_an_order_that_says_so_follows_progress(name: str, one: JobFacts, done: int) -> None:
    order = QUEUE_ORDERS.get(name)()
    further = JobFacts(one.accepted_at, one.tasks, max(0, one.remaining - done), *_rest(one)[2:])
    if not order.follows_progress:
        assert order.key(one) == order.key(further)


def _rest(one: JobFacts) -> tuple[int, int, int, int, bool]:
    return (one.tasks, one.remaining, one.duration, one.priority, one.latency)


# --- placers ------------------------------------------------------------------------------------------------

NODES_MAX = 70  # more than one word of a mask


class Question(NamedTuple):
    """What a placer is asked."""

    capacity: list[Vector]
    free: list[Vector]
    ask: Vector
    mask: list[int]
    start: int
    tasks: int
    each_max: int
    attributes: list[int]

    def room(self) -> NodeColumns:
        room = NodeColumns(self.capacity)
        for node, free in enumerate(self.free):
            room.set_free(node, free)
        return room


def question_of(seed: int, nodes: int, count: int) -> Question:
    """A question drawn from a seed: much quicker than to have hypothesis draw every node."""
    rng = Random(seed)
    capacity: list[Vector] = [
        (rng.choice((2_000, 4_000, 8_000)), rng.choice((8, 16)), 0) for _ in range(nodes)
    ]
    free: list[Vector] = [
        (rng.randint(0, 4) * cpu // 4, rng.randint(0, 2) * memory // 2, 0) for cpu, memory, _ in capacity
    ]
    return Question(
        capacity, free, (rng.choice((500, 1_000, 3_000)), rng.randint(0, 4), 0),
        [node for node in range(nodes) if rng.randint(0, 4)], rng.randint(0, 2 * nodes), count,
        rng.randint(0, 3), [rng.randint(0, 3) for _ in range(nodes)],
    )  # fmt: skip


def questions() -> st.SearchStrategy[Question]:
    return st.builds(question_of, st.integers(0, 1 << 30), st.integers(1, NODES_MAX), st.integers(0, 12))


def answer(name: str, question: Question, room: NodeColumns | None = None) -> list[int]:
    nodes = len(question.capacity)
    return PLACERS.get(name)().place(
        room or question.room(), question.ask, mask_of(question.mask, nodes), question.start, question.tasks,
        question.each_max, np.array(question.attributes, dtype=np.int64),
    )  # fmt: skip


@placers
@given(question=questions())
def test_a_placer_keeps_to_mask_room_count_and_bound(name: str, question: Question) -> None:
    chosen = answer(name, question)
    assert len(chosen) <= question.tasks
    for node in set(chosen):
        times = chosen.count(node)
        assert node in question.mask
        assert not question.each_max or times <= question.each_max
        assert all(
            times * amount <= have for amount, have in zip(question.ask, question.free[node], strict=True)
        )


@placers
@given(question=questions())
def test_a_placer_debits_exactly_what_it_answers_and_changes_nothing_else(
    name: str, question: Question
) -> None:
    room = question.room()
    mask = mask_of(question.mask, len(question.capacity))
    attributes = np.array(question.attributes, dtype=np.int64)
    before = mask.copy(), attributes.copy()
    chosen = PLACERS.get(name)().place(
        room, question.ask, mask, question.start, question.tasks, question.each_max, attributes
    )
    assert mask_indices(mask, room.nodes) == mask_indices(before[0], room.nodes) == question.mask
    assert attributes.tolist() == before[1].tolist()
    for node in chosen:
        room.credit(node, question.ask)
    assert [room.free_of(node) for node in range(room.nodes)] == question.free


@placers
@given(question=questions(), other=questions())
def test_a_placer_gives_the_same_answer_to_the_same_question(
    name: str, question: Question, other: Question
) -> None:
    first = answer(name, question)
    answer(name, other)
    assert answer(name, question) == first


@placers
@given(question=questions())
def test_a_placer_finds_room_for_all_whenever_there_is(name: str, question: Question) -> None:
    slots = 0
    for node in question.mask:
        fits = min(have // want for have, want in zip(question.free[node], question.ask, strict=True) if want)
        slots += min(fits, question.each_max) if question.each_max else fits
    assert len(answer(name, question)) == min(question.tasks, slots)


@placers
@given(question=questions(), noise=st.integers(0, 8))
def test_what_a_placer_may_not_use_does_not_matter(name: str, question: Question, noise: int) -> None:
    """Room and attributes of nodes outside the mask, and bits beyond the last node."""
    hidden = [node for node in range(len(question.capacity)) if node not in question.mask]
    free, attributes = list(question.free), list(question.attributes)
    for node in hidden:
        free[node] = (question.capacity[node][0] * noise // 8, 0, 0)
        attributes[node] = noise
    assert answer(name, question._replace(free=free, attributes=attributes)) == answer(name, question)


@placers
@given(question=questions())
def test_ties_go_to_the_first_in_circular_order(name: str, question: Question) -> None:
    """On a cluster of equal, empty nodes, one task each, the answer is circular from ``start``."""
    nodes = len(question.capacity)
    even = question._replace(
        capacity=[(8_000, 8, 0)] * nodes, free=[(8_000, 8, 0)] * nodes, each_max=1, attributes=[1] * nodes
    )
    start = question.start % nodes
    turn = sorted(question.mask, key=lambda node: (node - start) % nodes)
    assert answer(name, even) == turn[: question.tasks]


@placers
@given(question=questions(), shift=st.integers(0, NODES_MAX))
def test_turning_the_cluster_turns_the_answer(name: str, question: Question, shift: int) -> None:
    """Nodes have no rank of their own: their room, attributes and distance from ``start`` count."""
    nodes = len(question.capacity)

    def turned(column: list[Vector]) -> list[Vector]:
        return [column[(node - shift) % nodes] for node in range(nodes)]

    other = question._replace(
        capacity=turned(question.capacity), free=turned(question.free),
        mask=sorted((node + shift) % nodes for node in question.mask), start=question.start + shift,
        attributes=[question.attributes[(node - shift) % nodes] for node in range(nodes)],
    )  # fmt: skip
    assert answer(name, other) == [(node + shift) % nodes for node in answer(name, question)]


# --- node rankers -------------------------------------------------------------------------------------------


def proposals_of(question: Question) -> list[int]:
    """What a claim proposes: nodes of the cluster, some twice, some unsuitable, some that are not there."""
    rng = Random(question.start * 1_000 + question.tasks)
    return [rng.randint(-1, len(question.capacity)) for _ in range(question.tasks)]


def chosen_by(name: str, question: Question, room: NodeColumns | None = None) -> list[int]:
    return NODE_RANKERS.get(name)().choose(
        room or question.room(), question.ask, mask_of(question.mask, len(question.capacity)),
        question.start, question.tasks, question.each_max,
    )  # fmt: skip


def settled_by(
    name: str, question: Question, proposed: list[int], room: NodeColumns | None = None
) -> list[int]:
    return NODE_RANKERS.get(name)().settle(
        room or question.room(), question.ask, mask_of(question.mask, len(question.capacity)), proposed,
        question.start, question.each_max,
    )  # fmt: skip


def slots_of(question: Question) -> int:
    """How many of the tasks fit into the mask."""
    slots = 0
    for node in question.mask:
        fits = min(have // want for have, want in zip(question.free[node], question.ask, strict=True) if want)
        slots += min(fits, question.each_max) if question.each_max else fits
    return slots


def check_nodes(question: Question, nodes: list[int], room: NodeColumns) -> None:
    """Nodes keep to mask and bound, and exactly their room is gone."""
    for node in set(nodes):
        assert node in question.mask
        assert not question.each_max or nodes.count(node) <= question.each_max
    for node in nodes:
        room.credit(node, question.ask)
    assert [room.free_of(node) for node in range(room.nodes)] == question.free


@node_rankers
@given(question=questions())
def test_a_node_ranker_finds_suitable_nodes_for_all_that_fit_and_debits_them(
    name: str, question: Question
) -> None:
    room = question.room()
    chosen = chosen_by(name, question, room)
    assert len(chosen) == min(question.tasks, slots_of(question))
    check_nodes(question, chosen, room)
    assert chosen_by(name, question) == chosen, "the same question, the same answer"


@node_rankers
@given(question=questions())
def test_ties_of_a_node_ranker_go_to_the_first_in_circular_order(name: str, question: Question) -> None:
    nodes = len(question.capacity)
    even = question._replace(capacity=[(8_000, 8, 0)] * nodes, free=[(8_000, 8, 0)] * nodes, each_max=1)
    start = question.start % nodes
    turn = sorted(question.mask, key=lambda node: (node - start) % nodes)
    assert chosen_by(name, even) == turn[: question.tasks]
    nowhere = settled_by(name, even, [-1] * question.tasks)
    assert [node for node in nowhere if node >= 0] == turn[: question.tasks]


@node_rankers
@given(question=questions())
def test_a_claim_is_settled_as_far_as_there_is_room(name: str, question: Question) -> None:
    room, proposed = question.room(), proposals_of(question)
    settled = settled_by(name, question, proposed, room)
    assert len(settled) == len(proposed)
    taken = [node for node in settled if node >= 0]
    assert len(taken) == min(question.tasks, slots_of(question))
    check_nodes(question, taken, room)
    assert settled_by(name, question, proposed) == settled, "the same question, the same answer"


@node_rankers
@given(question=questions())
def test_proposals_that_all_suit_are_taken(name: str, question: Question) -> None:
    proposed = chosen_by("spread", question)
    assert settled_by(name, question, proposed) == proposed


@node_rankers
@given(question=questions())
def test_a_mask_survives_a_node_ranker(name: str, question: Question) -> None:
    mask = mask_of(question.mask, len(question.capacity))
    ranker, rest = NODE_RANKERS.get(name)(), (question.start, question.each_max)
    ranker.settle(question.room(), question.ask, mask, proposals_of(question), *rest)
    ranker.choose(question.room(), question.ask, mask, question.start, question.tasks, question.each_max)
    assert mask_indices(mask, len(question.capacity)) == question.mask


@node_rankers
@given(question=questions())
def test_node_rankers_give_the_same_answers_without_the_compiled_kernels(
    name: str, question: Question
) -> None:
    proposed = proposals_of(question)
    answers = chosen_by(name, question), settled_by(name, question, proposed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_rankers_module, "pick", numpy_kernels.pick)
        patch.setattr(node_rankers_module, "settle", numpy_kernels.settle)
        assert (chosen_by(name, question), settled_by(name, question, proposed)) == answers


# --- cluster rankings ---------------------------------------------------------------------------------------


def facts_of(rows: list[tuple[int, int]]) -> list[ClusterFacts]:
    return [ClusterFacts(f"c{at}", standing, data) for at, (standing, data) in enumerate(rows)]


clusters = st.lists(st.tuples(st.integers(0, 1_000), st.integers(-1, 4)), min_size=1, max_size=9).map(
    facts_of
)


@ranks
@given(known=clusters, start=st.integers(0, 20))
def test_a_ranking_is_a_permutation_and_pure(name: str, known: list[ClusterFacts], start: int) -> None:
    before = list(known)
    order = CLUSTER_RANKERS.get(name)().rank(known, start)
    assert sorted(order) == list(range(len(known)))
    assert known == before
    assert CLUSTER_RANKERS.get(name)().rank(known, start) == order


@ranks
@given(known=clusters, start=st.integers(0, 20))
def test_a_ranking_does_not_go_by_names(name: str, known: list[ClusterFacts], start: int) -> None:
    renamed = [ClusterFacts(f"z{len(known) - at}", it.standing, it.data) for at, it in enumerate(known)]
    assert CLUSTER_RANKERS.get(name)().rank(renamed, start) == CLUSTER_RANKERS.get(name)().rank(known, start)


@ranks
@given(count=st.integers(1, 9), start=st.integers(0, 20))
def test_equal_clusters_are_ranked_in_circular_order(name: str, count: int, start: int) -> None:
    known = [ClusterFacts(f"c{at}", 1_000, -1) for at in range(count)]
    expected = [(start + at) % count for at in range(count)]
    assert CLUSTER_RANKERS.get(name)().rank(known, start) == expected


@ranks
@given(known=clusters, start=st.integers(0, 20))
def test_clusters_with_the_data_come_first_in_the_jobs_order(
    name: str, known: list[ClusterFacts], start: int
) -> None:
    places = [known[at].data for at in CLUSTER_RANKERS.get(name)().rank(known, start)]
    listed = [place for place in places if place >= 0]
    assert places[: len(listed)] == sorted(listed)


# --- sizers -------------------------------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Resources, Resources | None]:
    least = Resources(draw(st.integers(0, 64_000)), draw(st.integers(0, 1 << 40)), draw(st.integers(0, 8)))
    if draw(st.booleans()):
        least = least.plus(Resources(custom=(("licence", draw(st.integers(1, 9))),)))
    if not draw(st.booleans()):
        return least, None
    more = Resources(draw(st.integers(0, 64_000)), draw(st.integers(0, 1 << 40)), draw(st.integers(0, 8)))
    if draw(st.booleans()):
        more = more.plus(Resources(custom=(("licence", draw(st.integers(1, 9))),)))
    return least, least.plus(more)


@sizers
@given(asked=ranges())
def test_a_ladder_falls_from_the_most_to_the_least(
    name: str, asked: tuple[Resources, Resources | None]
) -> None:
    least, most = asked
    ladder = SIZERS.get(name)().sizes_to_try(least, most)
    assert ladder[-1] == least
    assert all(size.fits(most or least) and least.fits(size) for size in ladder)
    for larger, smaller in pairwise(ladder):
        assert smaller.fits(larger)
        assert smaller != larger
    assert SIZERS.get(name)().sizes_to_try(least, most) == ladder


@sizers
def test_a_ladder_is_short(name: str) -> None:
    huge = Resources(1_000_000_000, 1 << 50, 1 << 20)
    assert len(SIZERS.get(name)().sizes_to_try(Resources(1, 1), huge)) <= 64


@sizers
@given(asked=ranges())
def test_work_that_is_not_elastic_gets_what_it_asks_for(
    name: str, asked: tuple[Resources, Resources | None]
) -> None:
    assert SIZERS.get(name)().sizes_to_try(asked[0], None) == (asked[0],)
    assert SIZERS.get(name)().sizes_to_try(asked[0], asked[0]) == (asked[0],)
