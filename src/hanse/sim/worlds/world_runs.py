"""Runs in a world: policies x seeds, each outcome checked and measured."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.worlds.columns import WorkColumns, WorldColumns
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory
from hanse.sim.worlds.invariants import find_outcome_problems
from hanse.sim.worlds.measures import RunNames, WorldResult, measure_world
from hanse.sim.worlds.policy_records import JobsEnded, WorldPolicy, WorldRunSettings
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.world import World
from hanse.sim.worlds.world_columns import columns_of

WARM_UP_SEED: Final = 1_000
"""Seed of the first stretch of a warm-up; those of runs are smaller, usually."""
WARM_UP_MAX: Final = 20
"""Stretches of a warm-up; history fades, so more would be forgotten."""


class WorldPlan(msgspec.Struct, frozen=True, eq=False):
    """A comparison: the world, the traces, and what is varied."""

    world: World
    traces: list[tuple[str, JobChunk]]
    policies: Sequence[WorldPolicy]
    load: float
    stretch: str
    order: str
    seeds: range
    warm_up: int = 0
    """Stretches of the first 60 % of the traces on which policies that learn run first; 0: they know
    nothing."""
    brokers: int = 4
    delay_us: int = 500


def run_in_world(
    policy: WorldPolicy,
    world: WorldColumns,
    work: WorkColumns,
    settings: WorldRunSettings,
    load: float,
    progress: JobsEnded | None = None,
) -> WorldResult:
    """Run a policy and measure it; a complete outcome that breaks an invariant is a bug and raises."""
    begin = time.process_time()
    outcome = policy.run(world, work, settings, progress)
    seconds = time.process_time() - begin
    is_checked = outcome.complete and not policy.is_computed
    problems = find_outcome_problems(world, work, outcome) if is_checked else []
    assert not problems, f"{policy.name}: {'; '.join(problems)}"
    names = RunNames(policy.name, policy.order(settings), settings.seed, load)
    return measure_world(world, work, outcome, names, seconds)


def run_world_plan(
    plan: WorldPlan, watch: Callable[[WorldPolicy, int, WorkColumns], JobsEnded | None]
) -> Iterator[WorldResult]:
    """Run every policy on the work of each seed; end after a run that was stopped."""
    columns = columns_of(plan.world)
    histories = _warm_up(plan, columns)
    for seed in plan.seeds:
        work = make_work(plan.world, plan.traces, plan.load, seed, plan.stretch)
        for policy in plan.policies:
            settings = WorldRunSettings(
                plan.order,
                seed,
                history=histories.get(policy.name),
                brokers=plan.brokers,
                delay_us=plan.delay_us,
            )
            result = run_in_world(policy, columns, work, settings, plan.load, watch(policy, seed, work))
            yield result
            if not result.complete:
                return


def _warm_up(plan: WorldPlan, columns: WorldColumns) -> dict[str, FinishHistory]:
    """Return what each policy that learns knows before its first run, by its name."""
    if not plan.warm_up:
        return {}
    seeds = range(WARM_UP_SEED, WARM_UP_SEED + plan.warm_up)
    works = [make_work(plan.world, plan.traces, plan.load, seed, "train") for seed in seeds]
    return {policy.name: policy.warm_up(columns, works) for policy in plan.policies if policy.warm_up}
