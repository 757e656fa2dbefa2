"""The checks of outcomes: whole outcomes pass, and every kind of damage is found."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from hanse.sim.worlds.attempt_table import attempts_of
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.invariants import find_outcome_problems, integrate_rates
from hanse.sim.worlds.policy_records import WorldRunSettings
from hanse.sim.worlds.policy_registry import world_policies
from tests.sim.worlds.small_worlds import SECOND, random_work, random_world, renamed

Damage = Callable[[WorldColumns, WorkColumns, WorldOutcome], tuple[WorkColumns, WorldOutcome]]


def made(outages: bool = False) -> tuple[WorldColumns, WorkColumns, WorldOutcome]:
    """A world with all kinds of jobs in which cores are held, and a run in it."""
    for seed in range(20):
        world = random_world(seed)
        work = random_work(seed, world, outages=outages)
        if not world.holds_cores or len(set(world.node_cluster.tolist())) < 2:
            continue
        outcome = world_policies()["least-loaded"].run(world, work, WorldRunSettings("fifo", 0, False), None)
        if bool(len(outcome.lost)) == outages and outcome.bytes_wan and outcome.bytes_lan:
            return world, work, outcome
    raise AssertionError("no seed has what is wanted")


def changed(outcome: WorldOutcome, field: str, place: Any, value: Any) -> WorldOutcome:
    """The outcome with some entries of a column replaced."""
    column = getattr(outcome, field).copy()
    column[place] = value
    return msgspec.structs.replace(outcome, **{field: column})


def _no_end(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    return work, changed(outcome, "end", 0, -1)


def _longer(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    return work, changed(outcome, "end", 3, outcome.end[3] + SECOND)


def _earlier(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    job = int(np.argmax(work.job_arrival))
    task = int(work.job_offset[job])
    return work, changed(outcome, "start", task, 0)


def _elsewhere(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    work = renamed(work, job_classes=np.full(work.job_count, 7, np.uint64))
    return work, changed(outcome, "node", slice(None), 0)


def _forbidden(
    world: WorldColumns, work: WorkColumns, outcome: WorldOutcome
) -> tuple[WorkColumns, WorldOutcome]:
    classes = work.job_classes.copy()
    classes[0] = 7 ^ (1 << int(world.node_class[outcome.node[0]]))
    return renamed(work, job_classes=classes), outcome


def _needs(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    offset = np.zeros(work.job_count + 1, np.int64)
    offset[2:] = 1
    last = int(np.argmax(np.maximum.reduceat(outcome.end, work.job_offset[:-1])))
    return renamed(work, needs_offset=offset, needs=np.array([last])), outcome


def _gang(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    task = int(work.job_offset[np.nonzero((work.job_gang > 0) & (np.diff(work.job_offset) > 1))[0][0]])
    return work, changed(outcome, "start", task, outcome.start[task] - 1)


def _slower(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    return renamed(work, job_demand=work.job_demand * 1.1), outcome


def _bytes(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    return work, msgspec.structs.replace(outcome, bytes_wan=outcome.bytes_wan * 0.99)


def _fast(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    return renamed(work, task_bytes=work.task_bytes * 5), outcome


def _down(_: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> tuple[WorkColumns, WorldOutcome]:
    moment = np.array([outcome.start[0] + 1])
    node = outcome.node[:1].astype(np.int32)
    return renamed(work, outage_node=node, outage_from=moment, outage_until=moment + 1), outcome


DAMAGES: list[tuple[Damage, str]] = [
    (_no_end, "no end"), (_longer, "another amount of work"), (_earlier, "before their job arrived"),
    (_elsewhere, "more CPU taken"), (_forbidden, "does not allow"), (_needs, "had ended"),
    (_gang, "not together"), (_slower, "another amount of work"), (_bytes, "bytes were read"),
    (_fast, "faster than one flow"), (_down, "was down"),
]  # fmt: skip


def test_a_whole_outcome_has_no_problem() -> None:
    assert not find_outcome_problems(*made())
    assert not find_outcome_problems(*made(outages=True))


@pytest.mark.parametrize(("damage", "said"), DAMAGES, ids=lambda value: getattr(value, "__name__", ""))
def test_damage_is_found(damage: Damage, said: str) -> None:
    world, work, outcome = made()
    problems = find_outcome_problems(world, *damage(world, work, outcome))
    assert any(said in problem for problem in problems), problems


def test_wasted_work_and_launches_are_those_of_the_attempts() -> None:
    world, work, outcome = made(outages=True)
    wrong = msgspec.structs.replace(outcome, wasted_core_us=outcome.wasted_core_us + 1)
    assert "wasted" in find_outcome_problems(world, work, wrong)[0]
    wrong = msgspec.structs.replace(outcome, launches=outcome.launches + 1)
    assert "launches" in find_outcome_problems(world, work, wrong)[0]
    unexplained = renamed(
        work,
        outage_node=work.outage_node[:0],
        outage_from=work.outage_from[:0],
        outage_until=work.outage_until[:0],
    )
    assert "without an outage" in find_outcome_problems(world, unexplained, outcome)[0]


def test_the_integral_of_the_rates_is_the_work() -> None:
    world, work, outcome = made(outages=True)
    table = attempts_of(work, outcome)
    done = integrate_rates(world, work, table)
    count = len(done) - table.undone
    np.testing.assert_allclose(done[:count], work.task_work[table.task[:count]], atol=1e-5)
    assert bool((done[count:] < work.task_work[table.task[count:]] + 1e-5).all())
