"""Runs in a world: policies x seeds, each outcome checked and measured."""

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.worlds.columns import WorkColumns, WorldColumns
from hanse.sim.worlds.invariants import find_outcome_problems
from hanse.sim.worlds.measures import RunNames, WorldResult, measure_world
from hanse.sim.worlds.policy_registry import JobsEnded, WorldPolicy, WorldRunSettings
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.world import World
from hanse.sim.worlds.world_columns import columns_of


class WorldPlan(msgspec.Struct, frozen=True, eq=False):
    """A comparison: the world, the traces, and what is varied."""

    world: World
    traces: list[tuple[str, JobChunk]]
    policies: Sequence[WorldPolicy]
    load: float
    stretch: str
    order: str
    seeds: range
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
    problems = find_outcome_problems(world, work, outcome) if outcome.complete else []
    assert not problems, f"{policy.name}: {'; '.join(problems)}"
    names = RunNames(policy.name, policy.order(settings), settings.seed, load)
    return measure_world(world, work, outcome, names, seconds)


def run_world_plan(
    plan: WorldPlan, watch: Callable[[WorldPolicy, int, WorkColumns], JobsEnded | None]
) -> Iterator[WorldResult]:
    """Run every policy on the work of each seed; end after a run that was stopped."""
    columns = columns_of(plan.world)
    for seed in plan.seeds:
        work = make_work(plan.world, plan.traces, plan.load, seed, plan.stretch)
        for policy in plan.policies:
            settings = WorldRunSettings(plan.order, seed, brokers=plan.brokers, delay_us=plan.delay_us)
            result = run_in_world(policy, columns, work, settings, plan.load, watch(policy, seed, work))
            yield result
            if not result.complete:
                return
