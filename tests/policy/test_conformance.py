"""What every policy must keep, whichever it is: a new one joins its registry and is tested here without more
ado.

Purity (the same question, the same answer, nothing changed but what the answer says), the hard limits
(mask, room, count, bounds), and the documented shape of the answer. That a policy is any good is for its
own tests. ``test_placer_conformance`` has the rules of placers and node rankers.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.resources import Resources
from hanse.policy.interface import (
    ClusterFacts,
    ClusterRanker,
    JobFacts,
    NodeRanker,
    Placer,
    QueueOrder,
    Sizer,
)
from hanse.registry import CLUSTER_RANKERS, NODE_RANKERS, PLACERS, QUEUE_ORDERS, SIZERS, Registry

orders = pytest.mark.parametrize("name", QUEUE_ORDERS.shipped)
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


# --- cluster rankings ---------------------------------------------------------------------------------------


def facts_of(rows: list[tuple[int, int, int]]) -> list[ClusterFacts]:
    return [ClusterFacts(f"c{at}", *row) for at, row in enumerate(rows)]


clusters = st.lists(
    st.tuples(st.integers(0, 1_000), st.integers(-1, 4), st.integers(0, 3)), min_size=1, max_size=9
).map(facts_of)


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
    renamed = [
        ClusterFacts(f"z{len(known) - at}", it.standing, it.data, it.finish) for at, it in enumerate(known)
    ]
    assert CLUSTER_RANKERS.get(name)().rank(renamed, start) == CLUSTER_RANKERS.get(name)().rank(known, start)


@ranks
@given(count=st.integers(1, 9), start=st.integers(0, 20))
def test_equal_clusters_are_ranked_in_circular_order(name: str, count: int, start: int) -> None:
    known = [ClusterFacts(f"c{at}", 1_000, -1) for at in range(count)]
    expected = [(start + at) % count for at in range(count)]
    assert CLUSTER_RANKERS.get(name)().rank(known, start) == expected


@ranks
@given(known=clusters, start=st.integers(0, 20))
def test_clusters_with_the_data_come_first_or_those_where_it_ends_first(
    name: str, known: list[ClusterFacts], start: int
) -> None:
    if CLUSTER_RANKERS.get(name).follows_estimates:
        order = [known[at] for at in CLUSTER_RANKERS.get(name)().rank(known, start)]
        keys = [(each.finish, each.data < 0, each.data) for each in order]
        assert keys == sorted(keys)
        return
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
