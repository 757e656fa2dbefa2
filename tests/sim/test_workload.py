from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.job import JobSpec, OnLoss
from hanse.model.job_validation import check_job
from hanse.model.resources import Resources
from hanse.sim.chaos import describe_options
from hanse.sim.seed_options import SCENARIOS, draw_options
from hanse.sim.workload import SeedWorkload, count_fits, draw_workload, is_feasible
from tests.sim.toys import launch


def _draw(seed: int) -> tuple[SeedWorkload, object]:
    options = draw_options(seed, Random(seed))
    return draw_workload(Random(seed), options.workload, options.brokers, options.wardens), options.wardens


@pytest.mark.parametrize("seed", range(40))
def test_every_job_is_sound_and_can_run_or_has_a_deadline(seed: int) -> None:
    options = draw_options(seed, Random(seed))
    workload = draw_workload(Random(seed), options.workload, options.brokers, options.wardens)
    assert workload.plans
    for plan in workload.plans:
        assert check_job(plan.spec) == ()
        assert is_feasible(plan.spec, options.wardens) or plan.spec.deadline is not None
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan.spec), type=JobSpec) == plan.spec
        assert all(earlier < plan.number for earlier in plan.after)


def test_the_seeds_draw_every_scenario_and_every_kind_of_work() -> None:
    drawn = [draw_options(seed, Random(seed)) for seed in range(200)]
    assert {options.scenario for options in drawn} == set(SCENARIOS)
    assert {options.network.loss for options in drawn} == {0, 1, 10, 30}
    plans = [plan for seed in range(60) for plan in _draw(seed)[0].plans]
    assert any(plan.spec.gang for plan in plans)
    assert any(group.needs for plan in plans for group in plan.spec.groups)
    assert any(group.ask_max for plan in plans for group in plan.spec.groups)
    assert any(group.ask.custom for plan in plans for group in plan.spec.groups)
    assert any(plan.after for plan in plans)
    assert any(plan.cancel_after for plan in plans)
    assert any(plan.is_infeasible for plan in plans)
    assert any(plan.spec.on_loss is OnLoss.FAIL for plan in plans)


def test_which_jobs_must_not_run_twice_changes_nothing_else() -> None:
    options = draw_options(3, Random(3))
    without = msgspec.structs.replace(options.workload, without_restart=0)
    drawn = draw_workload(Random(3), options.workload, options.brokers, options.wardens).plans
    others = draw_workload(Random(3), without, options.brokers, options.wardens).plans
    assert drawn != others
    plain = [msgspec.structs.replace(plan.spec, on_loss=OnLoss.RETRY) for plan in drawn]
    assert plain == [plan.spec for plan in others]


def test_a_fate_depends_on_the_task_and_the_attempt_only() -> None:
    workload, _ = _draw(3)
    payload = workload.plans[0].spec.groups[0].payload
    first = workload.planned_end(launch(5, 1, payload=payload))
    assert first == workload.planned_end(launch(5, 1, node=7, payload=payload))
    assert len({workload.planned_end(launch(5, attempt, payload=payload)) for attempt in range(1, 9)}) > 1


def test_options_are_printable_and_repeatable() -> None:
    assert describe_options(7) == describe_options(7)
    assert describe_options(7) != describe_options(8)
    assert any(line.startswith("network: ") for line in describe_options(7))


_AMOUNTS = st.integers(0, 3)
_ASKS = st.builds(
    lambda cpu, memory, gpu, fpga: Resources(cpu, memory, gpu, (("fpga", fpga),) if fpga else ()),
    _AMOUNTS, _AMOUNTS, _AMOUNTS, _AMOUNTS,
)  # fmt: skip


@given(ask=_ASKS.filter(lambda ask: ask != Resources()), capacity=_ASKS.map(lambda some: some.times(3)))
def test_how_often_an_ask_fits_is_counted_one_by_one(ask: Resources, capacity: Resources) -> None:
    count = 0
    while ask.times(count + 1).fits(capacity):
        count += 1
    assert count_fits(ask, capacity) == count
