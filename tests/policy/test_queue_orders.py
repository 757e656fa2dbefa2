"""What each queue order is for."""

from hypothesis import given
from hypothesis import strategies as st

from hanse.model.ids import SECOND
from hanse.policy.interface import JobFacts
from hanse.policy.queue_orders import (
    AGEING_SECONDS,
    SHORT_CUTOFF,
    UNKNOWN_SECONDS,
    WORK_AGEING,
    WORK_SECONDS_MAX,
    FewestRemaining,
    Fifo,
    PriorityWithAgeing,
    ShortestWork,
    ShortFirst,
)


def facts(
    at: int = 0, remaining: int = 1, duration: int = 0, priority: int = 0, latency: bool = False
) -> JobFacts:
    return JobFacts(at, 1_000, remaining, duration, priority, latency)


def test_fifo_goes_by_arrival_alone() -> None:
    assert Fifo().key(facts(at=3, remaining=999, priority=-5)) < Fifo().key(facts(at=4, priority=900))


def test_fewest_remaining_puts_a_nearly_finished_job_before_an_earlier_large_one() -> None:
    order = FewestRemaining()
    assert order.key(facts(at=9, remaining=2)) < order.key(facts(at=1, remaining=3))
    assert order.key(facts(at=1, remaining=3)) < order.key(facts(at=2, remaining=3))


def test_short_first_tells_short_from_long_by_the_estimate() -> None:
    order = ShortFirst()
    short, long = facts(at=9, duration=SHORT_CUTOFF - 1), facts(at=1, duration=SHORT_CUTOFF)
    unknown, urgent = facts(at=1, duration=0), facts(at=9, duration=SHORT_CUTOFF, latency=True)
    assert order.key(short) < order.key(long)
    assert order.key(short) < order.key(unknown)
    assert order.key(urgent) < order.key(long)
    assert ShortFirst(cutoff=10).key(facts(duration=10)) > ShortFirst(cutoff=10).key(facts(duration=9))


def test_priority_is_overtaken_by_waiting_at_the_stated_rate() -> None:
    order = PriorityWithAgeing()
    step = AGEING_SECONDS * SECOND
    urgent = facts(at=10 * step, priority=3)
    assert order.key(urgent) < order.key(facts(at=8 * step))
    assert order.key(urgent) == order.key(facts(at=7 * step))
    assert order.key(urgent) > order.key(facts(at=6 * step))


def test_shortest_work_goes_by_tasks_times_duration() -> None:
    order = ShortestWork()

    def job(tasks: int, seconds: int, at: int = 0) -> JobFacts:
        return JobFacts(at, tasks, tasks, seconds * SECOND, 0, False)

    assert order.key(job(3, 20)) < order.key(job(2, 40)) < order.key(job(1, 90))
    assert order.key(job(3, 0)) == order.key(job(3, UNKNOWN_SECONDS))
    assert order.key(job(1, 90)) < order.key(job(1, 10, at=80 * SECOND // WORK_AGEING + 1))


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.integers(1, 1 << 40))
def test_with_shortest_work_nobody_starves(tasks: int, duration: int, later: int, others: int) -> None:
    """However long a job is: what comes a while after it stands behind it."""
    order = ShortestWork()
    ours = JobFacts(0, tasks, tasks, duration, 0, False)
    after = WORK_SECONDS_MAX * SECOND // WORK_AGEING + 1 + later
    assert order.key(ours) < order.key(JobFacts(after, others, others, 1, 0, False))
