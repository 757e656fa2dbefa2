"""Resources add up: the laws every ledger relies on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.resources import BASE_DIMENSIONS, Resources, dimensions_of, dominant_share
from tests.model.drawn import resources

NOTHING = Resources()


@given(resources, resources, resources)
def test_addition_is_a_sum(a: Resources, b: Resources, c: Resources) -> None:
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert a.plus(NOTHING) == a


@given(resources, resources)
def test_taking_away_undoes_adding(a: Resources, b: Resources) -> None:
    assert a.plus(b).minus(b) == a
    assert a.minus(a) == NOTHING


@given(resources, resources)
def test_taking_too_much_is_our_bug(a: Resources, b: Resources) -> None:
    if b.fits(a):
        assert a.minus(b).plus(b) == a
    else:
        with pytest.raises(AssertionError, match="does not fit"):
            a.minus(b)


@given(resources, st.integers(0, 5))
def test_times_is_repeated_addition(a: Resources, count: int) -> None:
    total = NOTHING
    for _ in range(count):
        total = total.plus(a)
    assert a.times(count) == total


@given(resources, resources, resources)
def test_fitting_is_an_order(a: Resources, b: Resources, c: Resources) -> None:
    assert a.fits(a)
    assert a.fits(a.plus(b))
    assert NOTHING.fits(a)
    if a.fits(b) and b.fits(a):
        assert a == b
    if a.fits(b) and b.fits(c):
        assert a.fits(c)
    assert a.fits(b) == a.plus(c).fits(b.plus(c))


@given(resources, resources)
def test_vectors_say_the_same_as_records(a: Resources, b: Resources) -> None:
    dimensions = dimensions_of((a, b))
    left, right, total = a.vector(dimensions), b.vector(dimensions), a.plus(b).vector(dimensions)
    assert left is not None
    assert right is not None
    assert total == tuple(x + y for x, y in zip(left, right, strict=True))
    assert a.fits(b) == all(x <= y for x, y in zip(left, right, strict=True))


def test_a_cluster_without_the_resource_has_no_vector_for_it() -> None:
    ask = Resources(cpu=1, custom=(("fpga", 1),))
    assert ask.vector(BASE_DIMENSIONS) is None
    assert ask.vector((*BASE_DIMENSIONS, "fpga", "tpu")) == (1, 0, 0, 1, 0)
    assert Resources(cpu=1).vector((*BASE_DIMENSIONS, "fpga")) == (1, 0, 0, 0)


def test_dimensions_are_sorted_and_named_once() -> None:
    one = Resources(custom=(("b", 1), ("z", 1)))
    other = Resources(custom=(("a", 1), ("b", 2)))
    assert dimensions_of((one, other)) == ("cpu", "memory", "gpu", "a", "b", "z")


@given(resources, resources)
def test_the_dominant_share_is_the_largest(used: Resources, total: Resources) -> None:
    share, name = dominant_share(used, total)
    dimensions = dimensions_of((used, total))
    parts, whole = used.vector(dimensions), total.vector(dimensions)
    assert parts is not None
    assert whole is not None
    shares = {
        kind: part * 1_000_000 // size if size else (1_000_000 if part else 0)
        for kind, part, size in zip(dimensions, parts, whole, strict=True)
    }
    assert share == max(shares.values()) == shares[name]
    if used.fits(total):
        assert share <= 1_000_000


@given(resources, resources, resources)
def test_using_more_never_lowers_the_share(used: Resources, more: Resources, total: Resources) -> None:
    assert dominant_share(used, total)[0] <= dominant_share(used.plus(more), total)[0]


def test_ties_go_to_the_first_kind() -> None:
    total = Resources(10, 10, 10, (("a", 10), ("b", 10)))
    assert dominant_share(Resources(5, 5, 5), total) == (500_000, "cpu")
    assert dominant_share(Resources(1, 5, 5, (("a", 5),)), total) == (500_000, "memory")
    assert dominant_share(Resources(0, 0, 0, (("a", 5), ("b", 5))), total) == (500_000, "a")
    assert dominant_share(NOTHING, total) == (0, "cpu")
    assert dominant_share(Resources(custom=(("x", 1),)), total) == (1_000_000, "x")
