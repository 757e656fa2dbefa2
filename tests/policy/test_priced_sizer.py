"""The priced sizer: learns from what tasks took, leaves useless CPUs alone, and says why."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.duration_stats import DurationStats
from hanse.model.ids import SECOND
from hanse.model.job import SpeedUp
from hanse.model.resources import Resources
from hanse.policy.interface import ElasticFacts
from hanse.policy.priced_sizer import WAIT_MAX, PricedSizer, sizes_between

LEAST, MOST = Resources(cpu=250), Resources(cpu=4_000)


def learn(
    took: Callable[[Resources], float], tasks: int, least: Resources, most: Resources
) -> list[Resources]:
    """Sizes of so many tasks in a row, each told how long the one before took, in seconds."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    sizes = []
    for _ in range(tasks):
        seen = tuple(DurationStats(*size, *sum_) for size, sum_ in sums.items())
        size = PricedSizer().preferred_sizes(ElasticFacts(least, most, duration_stats=seen))[0].size
        total, count = sums.get((size.cpu, size.gpu), (0, 0))
        sums[size.cpu, size.gpu] = (total + int(took(size) * SECOND), count + 1)
        sizes.append(size)
    return sizes


@pytest.mark.parametrize(
    ("took", "best"),
    [
        (lambda size: 2 / min(1.0, size.cpu / 1_000), 1_000),
        (lambda size: 2 / min(2.0, size.cpu / 1_000), 2_000),
        (lambda size: 2 / (size.cpu / 1_000), 4_000),
        (lambda _: 1.0, 250),
        (lambda size: 1.0 if size.cpu == 500 else 3.0, 500),
    ],
    ids=["one thread", "two threads", "parallel", "waits for others", "not monotone"],
)
def test_it_settles_on_what_the_work_can_use(took: Callable[[Resources], float], best: int) -> None:
    sizes = [size.cpu for size in learn(took, 60, LEAST, MOST)]
    assert sizes[-3:] == [best] * 3
    assert sizes.count(best) >= 40, "tries are few"


def test_gpus_are_chosen_by_what_they_gain() -> None:
    sizes = learn(lambda size: 1 + 10 / size.gpu, 60, Resources(1_000, 0, 1), Resources(1_000, 0, 8))
    cost = {g: (1 + 10 / g) * (1 + 0.08 * g) for g in (1, 2, 4, 8)}
    assert sizes[-1].gpu == min(cost, key=lambda g: cost[g])


def test_a_profile_speaks_before_anything_was_seen() -> None:
    profile = SpeedUp(((250, 0, 1_000), (1_000, 0, 4_000)))
    facts = ElasticFacts(LEAST, MOST, profile, 8 * SECOND)
    first = PricedSizer().preferred_sizes(facts)[0]
    assert first.size.cpu == 1_000
    assert first.reason.startswith("1 CPU each: 2.00 s believed (by the curve)")


def test_who_has_waited_long_gets_its_least() -> None:
    facts = ElasticFacts(LEAST, MOST, waited_seconds=WAIT_MAX)
    assert [chosen.size for chosen in PricedSizer().preferred_sizes(facts)] == [LEAST]


def test_a_size_is_waited_for_as_long_as_it_would_run() -> None:
    """Four seconds at one unit, half of that at two, a quarter at four."""
    seen = tuple(DurationStats(cpu, 0, 400 * SECOND * 1_000 // cpu, 100) for cpu in (1_000, 2_000, 4_000))
    least, most = Resources(cpu=1_000), Resources(cpu=4_000)

    def after(waited: int) -> tuple[int, bool]:
        first = PricedSizer().preferred_sizes(
            ElasticFacts(least, most, duration_stats=seen, waited_seconds=waited)
        )[0]
        return first.size.cpu, f"it has waited {waited} s" in first.reason

    assert after(0) == (4_000, False)
    assert [after(waited) for waited in (1, 2)] == [(2_000, True)] * 2
    assert [after(waited) for waited in (3, 9, 119)] == [(1_000, True)] * 3


def test_memory_grows_with_the_rest() -> None:
    sizes = sizes_between(Resources(1_000, 1 << 30), Resources(4_000, 4 << 30))
    assert [(size.cpu, size.memory >> 30) for size in sizes] == [(1_000, 1), (2_000, 2), (4_000, 4)]


AMOUNTS = st.builds(Resources, st.integers(0, 64_000), st.integers(0, 1 << 40), st.integers(0, 8))
SEEN = st.lists(
    st.builds(
        DurationStats,
        st.integers(0, 64_000),
        st.integers(0, 8),
        st.integers(1, 1 << 50),
        st.integers(1, 1_000),
    ),
    max_size=6,
    unique_by=lambda seen: (seen.cpu, seen.gpu),
)


@given(least=AMOUNTS, more=AMOUNTS, seen=SEEN, waited=st.integers(0, 9))
def test_every_size_is_within_the_range_and_the_answer_does_not_vary(
    least: Resources, more: Resources, seen: list[DurationStats], waited: int
) -> None:
    most = least.plus(more)
    facts = ElasticFacts(least, most, duration_stats=tuple(seen), waited_seconds=waited)
    chosen = PricedSizer().preferred_sizes(facts)
    assert chosen == PricedSizer().preferred_sizes(facts)
    assert all(least.fits(one.size) and one.size.fits(most) for one in chosen)
    assert len({one.size for one in chosen}) == len(chosen)
    assert all(one.reason for one in chosen)
