"""The real brokers, wardens and runners in a world."""

import msgspec
import numpy as np
import pytest

from hanse.sim.worlds.columns import Ints, WorldColumns, WorldOutcome
from hanse.sim.worlds.invariants import find_outcome_problems
from hanse.sim.worlds.policy_records import WorldRunSettings
from hanse.sim.worlds.policy_registry import world_policies
from tests.sim.worlds.small_worlds import SECOND, random_work, random_world, work_of, world_of

LEAGUES = ("hanse", "hanse-default")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", LEAGUES)
def test_every_job_ends_and_no_invariant_breaks(name: str, seed: int) -> None:
    """Gangs of random work meet no outages: what has succeeded of a gang does not run again with the rest."""
    world = held_world(seed)
    fails = bool(seed % 2)
    work = random_work(seed, world, outages=fails)
    work = msgspec.structs.replace(work, job_gang=work.job_gang * (0 if fails else 1))
    outcome = world_policies()[name].run(world, work, WorldRunSettings(seed=seed, brokers=2), None)
    assert outcome.complete
    assert find_outcome_problems(world, work, outcome) == []
    assert outcome.messages > work.task_count
    assert outcome.message_bytes > 10 * outcome.messages


def held_world(seed: int) -> WorldColumns:
    """A random world in which tasks hold their cores while they read, as those of the machines do."""
    return msgspec.structs.replace(random_world(seed), holds_cores=True)


def test_the_same_seed_gives_the_same_outcome() -> None:
    world = held_world(3)
    work = random_work(3, world)
    first, second = (
        world_policies()["hanse"].run(world, work, WorldRunSettings(seed=1, brokers=3), None)
        for _ in range(2)
    )
    for column in ("node", "start", "run", "end"):
        assert getattr(first, column).tolist() == getattr(second, column).tolist()
    assert (first.messages, first.message_bytes) == (second.messages, second.message_bytes)


def test_both_twins_of_the_physics_give_the_same_league() -> None:
    world = held_world(5)
    work = random_work(5, world, 20)
    twins = [
        world_policies()["hanse"].run(world, work, WorldRunSettings(brokers=2, compiled=compiled), None)
        for compiled in (True, False)
    ]
    assert twins[0].end.tolist() == twins[1].end.tolist()
    assert twins[0].messages == twins[1].messages


def completion(arrival: Ints, outcome: WorldOutcome, offset: Ints) -> float:
    ends = np.maximum.reduceat(outcome.end, offset[:-1])
    return float((ends - arrival).mean())


def test_a_league_learns_which_nodes_are_fast_for_a_kind() -> None:
    """Two kinds, each fast on another class; few jobs at a time, so that there is a choice."""
    world = world_of([[0] * 4, [1] * 4], [0, 1], cpu=[1_000, 1_000])
    jobs = 80
    work = work_of(
        [2] * jobs,
        2,
        job_arrival=np.arange(jobs) * 6 * SECOND,
        job_kind=(np.arange(jobs) % 2).astype(np.int32),
        job_template=(np.arange(jobs) % 2).astype(np.int32),
        template_speed=np.array([[1.0, 0.25], [0.25, 1.0]]),
    )
    found = {
        name: world_policies()[name].run(world, work, WorldRunSettings(brokers=1), None) for name in LEAGUES
    }
    learned, unaware = (completion(work.job_arrival, found[name], work.job_offset) for name in LEAGUES)
    assert learned < 0.75 * unaware
    half = work.job_offset[jobs // 2]
    classes = world.node_class[found["hanse"].node[half:]]
    templates = np.repeat(work.job_template, 2)[half:]
    assert (classes == templates).mean() > 0.95


def test_a_league_keeps_tasks_near_their_data() -> None:
    """Links so thin that reading from the other cluster takes ten times as long as the work."""
    world = world_of([[0] * 2, [0] * 2], [0, 1], cpu=[4_000], lan_flow_max=400e6, rack_flow_max=400e6,
                     rack_uplink=np.full(2, 10e9), cluster_wan=np.full(2, 1e9),
                     wan_flow_max=np.full((2, 2), 20e6))  # fmt: skip
    jobs = 20
    replicas = np.full((jobs, 4), -1, np.int32)
    replicas[:, 0] = np.arange(jobs) % 2
    work = work_of([1] * jobs, 1, job_arrival=np.arange(jobs) * SECOND, replica_rack=replicas,
                   task_bytes=np.full(jobs, 2e9))  # fmt: skip
    outcome = world_policies()["hanse"].run(world, work, WorldRunSettings(brokers=2), None)
    assert world.node_cluster[outcome.node].tolist() == (np.arange(jobs) % 2).tolist()
    assert outcome.bytes_wan == 0.0
