"""Every placer and every node ranker keeps the rules of its interface."""

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.resources import Vector
from hanse.policy import node_rankers as node_rankers_module
from hanse.policy.kernels import numpy_kernels
from hanse.policy.node_columns import NodeColumns, mask_indices, mask_of
from hanse.registry import NODE_RANKERS, PLACERS

placers = pytest.mark.parametrize("name", PLACERS.shipped)
node_rankers = pytest.mark.parametrize("name", NODE_RANKERS.shipped)
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
