"""The buckets: nobody gets more than their share, everybody gets it, and the table has an end."""

from hypothesis import given
from hypothesis import strategies as st

from hanse.live.http.rate_limiter import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(steps=st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 8)), max_size=100))
def test_nobody_gets_more_than_burst_and_rate(steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    buckets = RateLimiter(5.0, 10.0, clock=clock)
    paid = 0.0
    for pause, cost in steps:
        clock.now += pause
        if buckets.take("ann", cost) == 0:
            paid += cost
        # The last one may be admitted with almost nothing left, and owes the rest.
        assert paid <= 10.0 + 5.0 * clock.now + 8.0 + 1e-6


@given(cost=st.floats(0.1, 30), times=st.integers(1, 20))
def test_whoever_waits_as_told_is_admitted(cost: float, times: int) -> None:
    clock = Clock()
    buckets = RateLimiter(5.0, 10.0, clock=clock)
    for _ in range(times):
        wait = buckets.take("ann", cost)
        if wait:
            clock.now += wait + 1e-6
            assert buckets.take("ann", cost) == 0


def test_one_who_floods_leaves_the_others_theirs() -> None:
    clock = Clock()
    buckets = RateLimiter(5.0, 10.0, clock=clock)
    assert [buckets.take("eve", 1.0) for _ in range(100)].count(0) == 10
    assert [buckets.take("ann", 1.0) for _ in range(10)].count(0) == 10


def test_what_is_owed_has_a_bound() -> None:
    clock = Clock()
    buckets = RateLimiter(5.0, 10.0, clock=clock)
    buckets.charge("ann", 1e9)
    assert buckets.take("ann", 1.0) == 2  # ten tokens at five a second


def test_the_table_forgets_who_was_not_there_for_longest() -> None:
    buckets = RateLimiter(5.0, 10.0, buckets_max=3, clock=Clock())
    for name in ("a", "b", "c"):
        buckets.charge(name, 100.0)
    assert buckets.take("a", 1.0) > 0
    buckets.charge("a", 1.0)
    buckets.charge("d", 1.0)
    assert len(buckets) == 3
    assert buckets.take("b", 1.0) == 0  # forgotten, so it begins anew
    assert buckets.take("a", 1.0) > 0
