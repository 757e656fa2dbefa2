"""What each scheduler is known for, in small cases worked out by hand; and a second, slow oracle."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.policy.queue_orders import WORK_AGEING
from hanse.registry import QUEUE_ORDERS
from hanse.sim.baselines.task_level.central import central, ideal, independent
from hanse.sim.baselines.task_level.eagle import eagle
from hanse.sim.baselines.task_level.free_count_sharing import load_sharing
from hanse.sim.baselines.task_level.hawk import hawk
from hanse.sim.baselines.task_level.megha import megha, megha_repaired
from hanse.sim.baselines.task_level.megha_log_reproduction import megha_logged
from hanse.sim.baselines.task_level.pigeon import pigeon
from hanse.sim.baselines.task_level.sparrow import sparrow
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload

SECOND = 1_000_000
FLOOR = 1500


def made(jobs: list[tuple[int, list[int]]], priority: list[int] | None = None) -> ReplayWorkload:
    """Jobs as (arrival in microseconds, durations in seconds), in order of arrival."""
    offset = [0]
    for _, durations in jobs:
        offset.append(offset[-1] + len(durations))
    return ReplayWorkload(
        "made",
        [arrival for arrival, _ in jobs],
        offset,
        [duration * SECOND for _, durations in jobs for duration in durations],
        [sum(durations) * SECOND // len(durations) for _, durations in jobs],
        priority or [0] * len(jobs),
    )


def _naive(workload: ReplayWorkload, nodes: int, order: str, cutoff: int) -> list[int]:
    """The oracle again, without a heap: at every moment look through everything. Starts of all tasks."""
    arrival = [time + FLOOR for time in workload.arrival]
    waiting = [
        list(range(first, past)) for first, past in zip(workload.offset, workload.offset[1:], strict=False)
    ]
    left = [len(tasks) for tasks in waiting]
    tasks = list(left)
    running: list[tuple[int, int, int]] = []  # end, node, job
    free = list(reversed(range(nodes)))
    start = [-1] * workload.task_count
    upcoming = list(range(len(arrival)))
    present: list[int] = []

    def key(job: int) -> tuple[int, int]:
        ranks = {
            "fifo": 0,
            "fewest-remaining": left[job],
            "short-first": int(workload.estimate[job] >= cutoff),
            "priority": -workload.priority[job],
            "shortest-work": tasks[job] * max(1, workload.estimate[job])
            + WORK_AGEING * workload.arrival[job],
        }
        return ranks[order], job

    def fill(now: int) -> None:
        while free and any(waiting[job] for job in present):
            job = min((job for job in present if waiting[job]), key=key)
            task = waiting[job].pop(0)
            start[task] = now
            running.append((now + workload.duration[task], free.pop(), job))

    while running or upcoming:
        if running and (not upcoming or min(running)[0] <= arrival[upcoming[0]]):
            end, node, job = min(running)
            running.remove((end, node, job))
            left[job] -= 1
            free.append(node)
            fill(end)
        else:
            present.append(upcoming.pop(0))
            fill(arrival[present[-1]])
    return start


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(0, 9), min_size=1, max_size=6)),
        min_size=1,
        max_size=12,
    ),
    nodes=st.integers(1, 5),
    order=st.sampled_from(QUEUE_ORDERS.shipped),
    priorities=st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
@settings(max_examples=300, deadline=None)
def test_the_oracle_does_what_looking_at_everything_does(
    jobs: list[tuple[int, list[int]]], nodes: int, order: str, priorities: list[int]
) -> None:
    jobs = sorted([(at * SECOND, durations) for at, durations in jobs], key=lambda job: job[0])
    workload = made(jobs, priorities[: len(jobs)])
    chosen = ReplaySettings(nodes=nodes, clusters=1, brokers=1, order=order, short_cutoff_us=4 * SECOND)
    ours = ideal(workload, chosen).start.tolist()
    theirs = _naive(workload, nodes, order, 4 * SECOND)
    assert ours == theirs


def test_orders_of_the_oracle() -> None:
    # one node; three jobs wait behind the first: two long tasks, one short task, one of high priority
    workload = made([(0, [10]), (1, [3, 3]), (2, [1]), (3, [5])], [0, 0, 0, 9])
    expected = {
        "fifo": [0, 10, 13, 16, 17],
        "fewest-remaining": [0, 16, 19, 10, 11],
        "short-first": [0, 11, 14, 10, 17],
        "priority": [0, 15, 18, 21, 10],
        "shortest-work": [0, 16, 19, 10, 11],
    }
    for order, starts in expected.items():
        chosen = ReplaySettings(nodes=1, clusters=1, brokers=1, order=order, short_cutoff_us=2 * SECOND)
        ran = central(workload, chosen).start
        assert ((ran - FLOOR) // SECOND).tolist() == starts, order


def test_a_central_broker_needs_three_messages_between_two_tasks_of_a_node() -> None:
    workload = made([(0, [10, 10, 10])])
    chosen = ReplaySettings(nodes=1, clusters=1, brokers=1, delay_us=1_000)
    with_messages, without = central(workload, chosen), ideal(workload, chosen)
    assert with_messages.start.tolist() == [3_000, 10 * SECOND + 6_000, 20 * SECOND + 9_000]
    assert without.start.tolist() == [3_000, 10 * SECOND + 3_000, 20 * SECOND + 3_000]
    assert (with_messages.messages, without.messages) == (9, 0)


def test_independent_brokers_do_not_help_each_other_and_sharing_ones_do() -> None:
    workload = made([(0, [10] * 4)])
    chosen = ReplaySettings(nodes=4, clusters=1, brokers=2)
    alone = independent(workload, chosen)
    assert sorted((alone.start // SECOND).tolist()) == [0, 0, 10, 10]
    together = load_sharing(workload, chosen)
    assert (together.start // SECOND).tolist() == [0, 0, 0, 0]
    assert (
        together.messages == 4 * 3 + 1 + 2
    )  # launches and ends, one batch sent, two ends told to its broker


def test_gossip_moves_waiting_tasks_to_nodes_that_fell_free() -> None:
    # broker 1's job occupies its share for 2 s, and the gossip of 1 s says so; broker 0's second job waits
    workload = made([(0, [100, 100]), (1, [2, 2]), (1_100_000, [1, 1])])
    ran = load_sharing(workload, ReplaySettings(nodes=4, clusters=1, brokers=2, gossip_us=SECOND))
    # node ends at 2.001 s, told at 2.0015 s; the next gossip leaves at 3 s
    assert [start // SECOND for start in ran.start.tolist()][4:] == [3, 3]


def test_sparrow_binds_late_and_counts_seven_messages() -> None:
    # one node: both probes of each job queue there; the second probe of a launched job costs a round trip
    ran = sparrow(made([(0, [1]), (0, [1])]), ReplaySettings(nodes=1, clusters=1, brokers=1))
    assert ran.start.tolist() == [1500, 1500 + SECOND + 2 * 1000]
    assert ran.messages == 14


def test_hawk_lets_short_work_be_stolen_from_behind_long_work() -> None:
    # node 0 is for short jobs only, node 1 runs a long task; a quarter of the short jobs probes node 1 only
    workload = made([(0, [1000]), *((SECOND * at, [1]) for at in range(1, 21))])
    for seed in range(8):
        chosen = ReplaySettings(
            nodes=2, clusters=1, brokers=1, short_percent=50, short_cutoff_us=10 * SECOND, seed=seed
        )
        ran = hawk(workload, chosen)
        assert int(ran.node[0]) == 1
        # whoever comes later on node 0 takes them along when it ends
        assert int(ran.start[1:16].max()) < 40 * SECOND


def test_eagle_keeps_short_work_off_nodes_with_long_work() -> None:
    workload = made([(0, [1000] * 5), *((SECOND * at, [1, 1, 1]) for at in range(1, 30))])
    chosen = ReplaySettings(nodes=10, clusters=1, brokers=1, short_percent=20, short_cutoff_us=10 * SECOND)
    ran = eagle(workload, chosen)
    long_nodes = ran.node[:5].tolist()
    assert sorted(long_nodes) == [2, 3, 4, 5, 6]
    assert set(ran.node[5:].tolist()).isdisjoint(long_nodes)
    assert int(ran.job_end[1:].max()) < 40 * SECOND
    assert ran.rejects > 0


def test_long_jobs_go_where_the_least_work_waits() -> None:
    workload = made([(0, [100, 100]), (SECOND, [50]), (2 * SECOND, [50, 50, 50])])
    chosen = ReplaySettings(nodes=3, clusters=1, brokers=1, short_percent=0, short_cutoff_us=SECOND)
    ran = hawk(workload, chosen)
    # node 2 is empty at 1 s; at 2 s it waits 49 s, then 99, the others 98: each gets one task
    assert ran.node.tolist() == [0, 1, 2, 2, 0, 1]


def test_what_a_long_task_has_already_run_is_not_waited_for() -> None:
    # at 91 s node 0 has 9 s left of 100, node 1 has 19 s left of 20
    workload = made([(0, [100]), (90 * SECOND, [20]), (91 * SECOND, [10])])
    chosen = ReplaySettings(nodes=2, clusters=1, brokers=1, short_percent=0, short_cutoff_us=SECOND)
    for policy in (hawk, eagle):
        assert policy(workload, chosen).node.tolist() == [0, 1, 0]


def test_pigeon_reserves_nodes_and_serves_short_tasks_first() -> None:
    # one group of four nodes, one reserved; long tasks fill the other three and one of them waits
    workload = made([(0, [100] * 4), (SECOND, [1]), (SECOND, [1]), (SECOND, [1])])
    chosen = ReplaySettings(
        nodes=4, clusters=1, brokers=1, short_percent=25, short_cutoff_us=10 * SECOND, pigeon_group=4
    )
    ran = pigeon(workload, chosen)
    assert (ran.start // SECOND).tolist() == [0, 0, 0, 100, 1, 2, 3]
    assert len(set(ran.node[4:].tolist())) == 1
    assert ran.messages == 4 * 7


def test_a_single_broker_of_megha_is_never_denied() -> None:
    workload = made([(at * 100_000, [1 + (at * task) % 5 for task in range(6)]) for at in range(100)])
    chosen = ReplaySettings(nodes=20, clusters=2, brokers=1)
    assert megha(workload, chosen).rejects == 0
    assert megha_repaired(workload, chosen).rejects == 0


def test_brokers_of_megha_collide_on_borrowed_nodes() -> None:
    # both brokers want more than their half of the nodes at the same moment
    workload = made([(0, [10] * 3), (0, [10] * 3)])
    chosen = ReplaySettings(nodes=4, clusters=1, brokers=2, order="fifo", heartbeat_us=SECOND)
    for policy in (megha, megha_repaired):
        ran = policy(workload, chosen)
        assert ran.rejects >= 2
        starts = sorted((ran.start // SECOND).tolist())
        assert starts[:4] == [0, 0, 0, 0]
        # a node that the other broker used is heard of with the heartbeat after its end, at 11 s
        assert 10 <= starts[4] <= starts[5] == 11


def test_the_published_news_take_a_retaken_node_for_free() -> None:
    # broker 0 runs on its node, refills it; broker 1 hears "taken, freed, taken" and believes it free
    workload = made([(0, [1, 1, 1]), (0, [9]), (2 * SECOND, [5]), (6 * SECOND, [1])])
    chosen = ReplaySettings(nodes=2, clusters=1, brokers=2, order="fifo", heartbeat_us=5 * SECOND)
    assert megha(workload, chosen).rejects > megha_repaired(workload, chosen).rejects


def test_the_logged_megha_claims_again_what_it_has_just_claimed() -> None:
    # Four tasks end at one moment while eight jobs wait: each end brings the whole truth, so the second one
    # has the four nodes claimed again for the next four jobs, and a broker that is alone is denied.
    jobs = [(0, [10] * 4), *((1_000 + job, [5]) for job in range(8))]
    alone = ReplaySettings(nodes=4, clusters=1, brokers=1)
    outcome = megha_logged(made(jobs), alone)
    assert outcome.rejects > 0
    assert megha(made(jobs), alone).rejects == 0
    # an end is known one message later, acted on after another one, and two messages start the next task
    starts = sorted(outcome.start.tolist())
    assert starts[:8] == [1_000] * 4 + [10 * SECOND + 1_000 + 4 * 500] * 4
    assert starts[8:] == [15 * SECOND + 3_000 + 4 * 500] * 4


def test_the_logged_megha_serves_the_job_with_the_fewest_tasks_left() -> None:
    jobs = [(0, [10]), (1_000, [5, 5, 5]), (2_000, [5])]
    outcome = megha_logged(made(jobs), ReplaySettings(nodes=1, clusters=1, brokers=1))
    first, second, third, single = outcome.start.tolist()[1:]
    assert single < first < second < third
    assert outcome.rejects == 0
