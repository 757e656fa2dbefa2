"""The physics of a world by hand: neighbours, shared links, outages, staging, order. Both twins tell the
same."""

import numpy as np
import pytest

from hanse.sim.worlds.columns import NEVER, WorkColumns, WorldColumns
from hanse.sim.worlds.compiled.compiled_physics import CompiledPhysics
from hanse.sim.worlds.physics import EventKind, WorldEvent, WorldPhysics
from tests.sim.worlds.small_worlds import SECOND, random_work, random_world, work_of, world_of
from tests.sim.worlds.twins import EITHER, Physics, needs_compiled_world

ENDED, ARRIVED, STAGED = EventKind.ENDED, EventKind.ARRIVED, EventKind.STAGED
UP, DOWN, LOST = EventKind.UP, EventKind.DOWN, EventKind.LOST


def drain(physics: Physics) -> list[WorldEvent]:
    """All events until nothing more happens."""
    found = []
    while physics.next_time() < NEVER:
        _, events = physics.advance(physics.next_time())
        assert events
        found += events
    return found


@EITHER
def test_two_tasks_slow_each_other_down(physics_type: type[Physics]) -> None:
    """One node of 2 cores and bandwidth 100. Alone each task takes 10 s (u = 0.5, g = 0.3 / 8 = 0.0375, m =
    1, speed 1.0375). Together u = 1, g = 0.3 and one polluted core of two with s = 0.2: slow-down 1 + 0.3 +
    0.1."""
    world = world_of([[0]], [0], cpu=[2_000])
    work = work_of(
        [1, 1],
        task_work=np.array([10.0, 10.0]),
        job_demand=np.array([50.0, 50.0]),
        job_bandwidth_sensitivity=np.ones(2),
        job_cache_sensitivity=np.full(2, 0.2),
        job_pollution=np.ones(2),
        template_speed=np.full((1, 1), 1.0375),
    )
    physics = physics_type(world, work)
    assert physics.start(0, 0, 0)
    assert physics.advance(4 * SECOND) == (4 * SECOND, [])
    assert physics.start(1, 0, 4 * SECOND)
    # task 0 has 6 s of work left, at rate 1.0375 / 1.4
    shared = 6.0 / (1.0375 / 1.4)
    first, second = drain(physics)
    assert (first.kind, first.number) == (ENDED, 0)
    assert first.time == pytest.approx((4 + shared) * SECOND, abs=1)
    # task 1 has done 6 s of work by then, and does the other 4 alone, at rate 1
    assert (second.kind, second.number) == (ENDED, 1)
    assert second.time == pytest.approx((4 + shared + 4) * SECOND, abs=2)


@EITHER
def test_demand_beyond_saturation_slows_by_the_slope(physics_type: type[Physics]) -> None:
    world = world_of([[0]], [0], cpu=[2_000])
    work = work_of([2], job_demand=np.array([75.0]), job_bandwidth_sensitivity=np.full(1, 0.5))
    physics = physics_type(world, work)
    physics.start(0, 0, 0)
    physics.start(1, 0, 0)
    slowing = 1 + 0.5 * (0.3 + 0.95 * 0.5)
    assert [event.time for event in drain(physics)] == [pytest.approx(10 * slowing * SECOND, abs=1)] * 2


def far_work(*sizes: float) -> WorkColumns:
    """One-task jobs without work to speak of, whose input is in rack 0."""
    replicas = np.full((len(sizes), 4), -1, np.int32)
    replicas[:, 1] = 0
    return work_of(
        [1] * len(sizes),
        task_bytes=np.array(sizes),
        task_work=np.full(len(sizes), 1.0),
        replica_rack=replicas,
    )


@EITHER
def test_two_flows_share_a_link(physics_type: type[Physics]) -> None:
    """The uplink of rack 0 carries 100 bytes per second; a flow may have 80."""
    world = world_of(
        [[0], [0]], [0, 0], cpu=[4_000], lan_flow_max=80.0, rack_uplink=np.array([100.0, 1_000.0])
    )
    physics = physics_type(world, far_work(800.0, 400.0))
    assert not physics.start(0, 1, 0)
    physics.advance(5 * SECOND)  # 400 bytes left
    assert not physics.start(1, 1, 5 * SECOND)
    # both have 50 per second: both need 8 seconds more
    assert drain(physics) == [
        WorldEvent(13 * SECOND, ARRIVED, 0),
        WorldEvent(13 * SECOND, ARRIVED, 1),
        WorldEvent(14 * SECOND, ENDED, 0),
        WorldEvent(14 * SECOND, ENDED, 1),
    ]
    outcome = physics.outcome(complete=True)
    assert (outcome.bytes_rack, outcome.bytes_lan, outcome.bytes_wan) == (0.0, 1_200.0, 0.0)


@EITHER
def test_a_flow_takes_the_room_that_another_leaves(physics_type: type[Physics]) -> None:
    world = world_of(
        [[0], [0]], [0, 0], cpu=[4_000], lan_flow_max=80.0, rack_uplink=np.array([100.0, 1_000.0])
    )
    physics = physics_type(world, far_work(200.0, 720.0))
    physics.start(0, 1, 0)
    physics.start(1, 1, 0)
    # 4 s at 50 each; the second has 520 left, 6.5 s at 80
    assert [event for event in drain(physics) if event.kind == ARRIVED] == [
        WorldEvent(4 * SECOND, ARRIVED, 0),
        WorldEvent(10_500_000, ARRIVED, 1),
    ]


@EITHER
def test_the_nearest_replica_is_read(physics_type: type[Physics]) -> None:
    """Same rack 400, same cluster 200, else the one with the fastest flows: 100 from cluster 2, 10 from 1."""
    flows = np.full((3, 3), 10.0)
    flows[2, 0] = 100.0
    world = world_of([[0], [0], [0], [0]], [0, 0, 1, 2], cpu=[4_000], wan_flow_max=flows)
    replicas = np.array([[2, 1, 0, -1], [2, 1, -1, -1], [2, 3, -1, -1], [2, -1, -1, -1], [-1, -1, -1, -1]])
    work = work_of([1] * 5, task_bytes=np.full(5, 400.0), replica_rack=replicas.astype(np.int32))
    for task, seconds in enumerate((1, 2, 4, 40, 0)):
        physics = physics_type(world, work)
        assert physics.start(task, 0, 0) is (seconds == 0)
        assert physics.advance(100 * SECOND)[0] == (seconds or 10) * SECOND


@EITHER
def test_an_outage_ends_its_tasks_which_wait_again(physics_type: type[Physics]) -> None:
    world = world_of([[0, 0]], [0], cpu=[4_000])
    work = work_of(
        [2],
        outage_node=np.array([0], np.int32),
        outage_from=np.array([3 * SECOND]),
        outage_until=np.array([5 * SECOND]),
    )
    physics = physics_type(world, work)
    physics.start(1, 0, 0)
    physics.start(0, 0, SECOND)
    time, events = physics.advance(NEVER)
    assert time == 3 * SECOND
    assert events == [WorldEvent(time, DOWN, 0), WorldEvent(time, LOST, 1), WorldEvent(time, LOST, 0)]
    physics.start(0, 1, time)
    assert drain(physics) == [WorldEvent(5 * SECOND, UP, 0), WorldEvent(13 * SECOND, ENDED, 0)]
    outcome = physics.outcome(complete=False)
    assert outcome.lost.tolist() == [[1, 0, 0, 0, 3 * SECOND], [0, 0, SECOND, SECOND, 3 * SECOND]]
    assert outcome.wasted_core_us == 5 * SECOND
    assert outcome.launches == 3


@EITHER
def test_an_end_comes_before_an_outage_of_the_same_time(physics_type: type[Physics]) -> None:
    world = world_of([[0]], [0], cpu=[4_000])
    moment = np.array([10 * SECOND])
    work = work_of([1], outage_node=np.array([0], np.int32), outage_from=moment, outage_until=moment + 1)
    physics = physics_type(world, work)
    physics.start(0, 0, 0)
    assert [event.kind for event in drain(physics)] == [ENDED, DOWN, UP]


@EITHER
def test_staged_input_is_not_read_again(physics_type: type[Physics]) -> None:
    world = world_of([[0], [0]], [0, 0], cpu=[1_000], holds_cores=False)
    work = far_work(400.0, 0.0)
    physics = physics_type(world, work)
    assert physics.stage(0, 1, 0)
    assert physics.start(1, 1, 0)  # the only core is not held
    assert drain(physics)[-1] == WorldEvent(2 * SECOND, STAGED, 0)
    assert not physics.stage(0, 1, 2 * SECOND)
    assert physics.start(0, 1, 2 * SECOND)
    assert drain(physics) == [WorldEvent(3 * SECOND, ENDED, 0)]


@EITHER
def test_a_task_that_is_withdrawn_frees_place_and_links(physics_type: type[Physics]) -> None:
    world = world_of(
        [[0], [0]], [0, 0], cpu=[2_000], lan_flow_max=80.0, rack_uplink=np.array([100.0, 1_000.0])
    )
    physics = physics_type(world, far_work(500.0, 500.0))
    physics.start(0, 1, 0)
    physics.start(1, 1, 0)
    physics.advance(2 * SECOND)  # 400 left of each
    physics.withdraw(0, 2 * SECOND)
    assert physics.advance(NEVER) == (7 * SECOND, [WorldEvent(7 * SECOND, ARRIVED, 1)])
    assert physics.outcome(complete=False).bytes_lan == pytest.approx(600.0)


@EITHER
def test_impossible_decisions_are_refused(physics_type: type[Physics]) -> None:
    world = world_of([[0]], [0], cpu=[1_000])
    physics = physics_type(world, work_of([2]))
    physics.start(0, 0, 0)
    with pytest.raises(AssertionError, match="cannot run"):
        physics.start(1, 0, 0)
    late = physics_type(world, work_of([2]))
    late.start(0, 0, 0)
    with pytest.raises(AssertionError, match="out of order"):
        late.start(1, 0, 11 * SECOND)


@EITHER
def test_shares_are_refreshed_by_a_tenth(physics_type: type[Physics]) -> None:
    """With 20 flows a link's share changes at the 3rd more (10 % of 20 is 2), and not before."""
    world = world_of(
        [[0], [0]], [0, 0], cpu=[64_000], lan_flow_max=1_000.0, rack_uplink=np.array([1_000.0, 9e9])
    )
    work = far_work(*[1e6] * 20, 100.0, 100.0, 100.0)
    physics = physics_type(world, work)
    shares = []
    for task in range(23):
        physics.start(task, 1, 0)
        if task >= 19:
            trial = physics_type(world, work)
            for each in range(task + 1):
                trial.start(each, 1, 0)
            shares.append(trial.advance(NEVER)[0] if task > 19 else 0)
    counted = refresh_points(23)
    at = [max(point for point in counted if point <= flows) for flows in (21, 22, 23)]
    assert shares[1:] == [pytest.approx(100.0 / (1_000.0 / count) * SECOND, abs=1) for count in at]
    assert len(set(at)) > 1, "the case shows a refresh"
    assert at != [21, 22, 23], "the case shows a share that is not refreshed"


def refresh_points(flows: int) -> list[int]:
    """Numbers of flows at which a growing link computes its share, by the rule as it is documented."""
    points = [0]
    for count in range(1, flows + 1):
        if (count - points[-1]) > points[-1] / 10:
            points.append(count)
    return points


@needs_compiled_world
@pytest.mark.parametrize("seed", range(5))
def test_both_twins_tell_the_same_events(seed: int) -> None:
    """Under somebody who decides outside: one task at a time on a node, every third input staged first."""
    world = random_world(seed)
    work = random_work(seed, world)
    stories = [_story(kind(world, work), world, work) for kind in (WorldPhysics, CompiledPhysics)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > work.task_count


def _story(physics: Physics, world: WorldColumns, work: WorkColumns) -> list[WorldEvent]:
    job_of = np.repeat(np.arange(work.job_count), np.diff(work.job_offset)).tolist()
    waiting = [task for task in range(work.task_count) if not work.job_gpu[job_of[task]]]
    node_of: dict[int, int] = {}
    told: list[WorldEvent] = []
    down = [0] * len(world.node_cpu)
    while waiting or node_of:
        for task in list(waiting):
            allowed = int(work.job_classes[job_of[task]])
            free = [
                node
                for node, number in enumerate(world.node_class.tolist())
                if not down[node] and node not in node_of.values() and allowed >> number & 1
            ]
            if free:
                waiting.remove(task)
                node_of[task] = free[0]
                if task % 3 or not physics.stage(task, int(world.node_rack[free[0]]), physics.now):
                    physics.start(task, free[0], physics.now)
        _, events = physics.advance(NEVER)
        told += events
        for event in events:
            if event.kind in (UP, DOWN):
                down[event.number] += 1 if event.kind == DOWN else -1
            elif event.kind in (ENDED, LOST):
                del node_of[event.number]
        for event in events:
            if event.kind == LOST:
                waiting.append(event.number)
            elif event.kind == STAGED and not down[node_of[event.number]]:
                physics.start(event.number, node_of[event.number], physics.now)
            elif event.kind == STAGED:
                del node_of[event.number]
                waiting.append(event.number)
    return told
