"""Rigid jobs: hand-made cases, and what must hold of every schedule whatever the workload."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.baselines.rigid.conservative import Profile
from hanse.sim.baselines.rigid.invariants import check_promises, check_schedule, peak_use
from hanse.sim.baselines.rigid.queue_order import ORDERS
from hanse.sim.baselines.rigid.schedulers import RIGID_SCHEDULERS, conservative, easy, fcfs, sjf
from hanse.sim.baselines.rigid.workload import (
    NOT_RUN,
    RigidOutcome,
    RigidSettings,
    RigidWorkload,
    figures,
    rigid_workload,
)

SECOND = 1_000_000
PROCESSORS = 8


def made(*jobs: tuple[int, int, int, int], kill: bool = False) -> RigidWorkload:
    """Jobs as (submit, run, request, processors) in seconds."""
    submit, run, request, width = (np.asarray(column, np.int64) for column in zip(*jobs, strict=True))
    rule = "kill" if kill else "run-out"
    return rigid_workload(submit * SECOND, run * SECOND, request * SECOND, width, kill=rule)  # type: ignore[arg-type]


def starts(outcome: RigidOutcome) -> list[int]:
    return [value // SECOND if value >= 0 else value for value in outcome.start.tolist()]


workloads = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 40), st.integers(1, PROCESSORS + 1)),
    min_size=1,
    max_size=40,
).map(lambda jobs: made(*jobs))


@given(
    workload=workloads, name=st.sampled_from(sorted(RIGID_SCHEDULERS)), order=st.sampled_from(sorted(ORDERS))
)
@settings(max_examples=300, deadline=None)
def test_every_schedule_is_sound(workload: RigidWorkload, name: str, order: str) -> None:
    machine = RigidSettings(PROCESSORS, order)
    check_schedule(workload, machine, RIGID_SCHEDULERS[name](workload, machine))


@given(workload=workloads)
@settings(max_examples=300, deadline=None)
def test_easy_never_delays_the_head(workload: RigidWorkload) -> None:
    check_promises(easy(workload, RigidSettings(PROCESSORS)))


@given(workload=workloads)
@settings(max_examples=300, deadline=None)
def test_conservative_keeps_every_reservation(workload: RigidWorkload) -> None:
    outcome = conservative(workload, RigidSettings(PROCESSORS))
    check_promises(outcome)
    fits = workload.processors <= PROCESSORS
    assert bool((outcome.promise[fits] >= 0).all()), "everyone is promised a start on arrival"


@given(workload=workloads)
@settings(max_examples=100, deadline=None)
def test_conservative_starts_by_arrival_when_estimates_are_exact(workload: RigidWorkload) -> None:
    exact = RigidWorkload(workload.submit, workload.run, workload.run, workload.run, workload.processors)
    outcome = conservative(exact, RigidSettings(PROCESSORS))
    long = exact.run > 0  # a job of no length is planned for a microsecond that it gives back
    if bool(long.all()):
        ran = outcome.start != NOT_RUN
        assert bool(np.array_equal(outcome.start[ran], outcome.promise[ran]))


def test_head_blocks_under_fcfs() -> None:
    workload = made((0, 10, 10, 6), (1, 10, 10, 4), (2, 1, 1, 1))
    assert starts(fcfs(workload, RigidSettings(8))) == [0, 10, 10]


def test_shortest_first_serves_by_requested_time() -> None:
    workload = made((0, 10, 10, 8), (1, 1, 9, 8), (2, 8, 3, 8))
    assert starts(sjf(workload, RigidSettings(8))) == [0, 18, 10]


def test_easy_backfills_what_ends_by_the_shadow_time_or_needs_only_extra_processors() -> None:
    workload = made((0, 10, 10, 6), (1, 10, 10, 6), (2, 8, 8, 2), (3, 20, 20, 1), (3, 20, 20, 2))
    # the head (job 1) is promised second 10; job 2 ends by then; for the others there is no room
    outcome = easy(workload, RigidSettings(8))
    assert starts(outcome) == [0, 10, 2, 10, 20]
    assert outcome.promise[1] == 10 * SECOND
    assert outcome.backfilled == 1
    # two processors will be left over beside the head: who needs more than those may not stay beyond
    assert starts(easy(made((0, 10, 10, 5), (1, 10, 10, 6), (2, 20, 20, 2)), RigidSettings(8))) == [0, 10, 2]
    assert starts(easy(made((0, 10, 10, 5), (1, 10, 10, 6), (2, 20, 20, 3)), RigidSettings(8))) == [0, 10, 20]
    # two who come together may not take the left-over processors twice
    together = made((0, 10, 10, 4), (1, 10, 10, 6), (2, 20, 20, 2), (2, 20, 20, 2))
    assert starts(easy(together, RigidSettings(8))) == [0, 10, 2, 20]


def test_a_reservation_is_kept_when_nothing_happens_at_its_time() -> None:
    # found by the soundness test: whoever the last job waited for ended early, and it was not moved forward
    jobs = ((0, 23, 0, 5), (0, 16, 18, 4), (10, 30, 0, 1), (0, 0, 2, 5), (20, 1, 0, 4))
    outcome = conservative(made(*jobs), RigidSettings(8, "expansion"))
    check_schedule(made(*jobs), RigidSettings(8), outcome)


def test_easy_lets_a_later_job_pass_that_conservative_holds_back() -> None:
    # job 3 delays job 2 but not the head, job 1
    jobs = ((0, 10, 10, 5), (1, 10, 10, 5), (2, 5, 5, 6), (3, 30, 30, 3))
    assert starts(easy(made(*jobs), RigidSettings(8))) == [0, 10, 33, 3]
    assert starts(conservative(made(*jobs), RigidSettings(8))) == [0, 10, 20, 25]


def test_conservative_moves_forward_when_a_job_ends_early() -> None:
    outcome = conservative(made((0, 5, 50, 8), (1, 5, 5, 8)), RigidSettings(8))
    assert outcome.promise[1] == 50 * SECOND
    assert starts(outcome) == [0, 5]


def test_rules_of_the_log() -> None:
    jobs = ((0, 10, 4, 2), (0, 3, 0, 0), (1, 6, 0, 3))
    kept = made(*jobs)
    assert kept.dropped == 1
    assert kept.run.tolist() == [10 * SECOND, 6 * SECOND]
    assert kept.estimate.tolist() == [10 * SECOND, 6 * SECOND]
    assert kept.request.tolist() == [4 * SECOND, 6 * SECOND]
    assert made(*jobs, kill=True).run.tolist() == [4 * SECOND, 6 * SECOND]


def test_a_job_larger_than_the_machine_is_refused() -> None:
    workload = made((0, 1, 1, 9), (0, 1, 1, 8))
    outcome = easy(workload, RigidSettings(8))
    assert starts(outcome) == [NOT_RUN, 0]
    assert outcome.refused == 1
    assert figures(workload, outcome, 8).jobs == 1


def test_ageing_order_prefers_who_waited_long_for_little() -> None:
    workload = made((0, 10, 10, 8), (1, 9, 100, 8), (2, 9, 2, 8))
    assert starts(fcfs(workload, RigidSettings(8, "expansion"))) == [0, 19, 10]
    assert starts(fcfs(workload, RigidSettings(8, "wfp3"))) == [0, 19, 10]


def test_figures() -> None:
    workload = made((0, 10, 10, 8), (0, 5, 5, 4))
    found = figures(workload, fcfs(workload, RigidSettings(8)), 8)
    assert found.wait_mean == 5.0
    assert found.slowdown_mean == (1 + 3) / 2
    assert found.bounded_slowdown_mean == (1 + 1.5) / 2
    assert found.makespan == 15.0
    assert found.utilisation == 100 / 120


def test_profile_finds_the_earliest_hole() -> None:
    profile = Profile(8)
    profile.add(0, 10, -6)
    profile.add(12, 20, -8)
    assert profile.earliest_start(2, 12) == 0
    assert profile.earliest_start(2, 13) == 20
    assert profile.earliest_start(4, 2) == 10
    assert profile.earliest_start(4, 3) == 20
    profile.add(12, 20, 8)
    profile.add(0, 10, 6)
    assert (profile.times, profile.free) == ([0], [8])


def test_the_checkers_see_faults() -> None:
    workload = made((0, 10, 10, 6), (0, 10, 10, 6))
    machine = RigidSettings(8)
    good = fcfs(workload, machine)
    both = np.zeros(2, np.int64)
    twice = RigidOutcome(both, both + 10 * SECOND, good.promise, 0, 0, 0)
    assert peak_use(workload, twice) == 12
    with pytest.raises(AssertionError, match="held twice"):
        check_schedule(workload, machine, twice)
    short = RigidOutcome(good.start, good.end - 1, good.promise, 0, 0, 0)
    with pytest.raises(AssertionError, match="whole"):
        check_schedule(workload, machine, short)
    late = RigidOutcome(good.start, good.end, np.asarray([0, 5 * SECOND]), 0, 0, 0)
    with pytest.raises(AssertionError, match="later than promised"):
        check_promises(late)
