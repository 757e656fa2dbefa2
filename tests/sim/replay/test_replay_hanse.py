"""The real machines as a policy: delays and messages worked out by hand, orders, reserve, and the oracle."""

import msgspec
import numpy as np
import pytest

from hanse.sim.baselines.task_level import engine
from hanse.sim.baselines.task_level.central import central
from hanse.sim.replay import hanse_policy
from hanse.sim.replay.compiled import find_objection as objection_to_twin
from hanse.sim.replay.compiled.outcome_diff import describe_difference
from hanse.sim.replay.hanse_policy import LeanShell, run_hanse
from hanse.sim.replay.invariants import find_problems
from hanse.sim.replay.league_setup import CLUSTER_NODES_MAX, JobSpecs, find_objection
from hanse.sim.replay.metrics import delays_of
from hanse.sim.replay.registry import select_policies
from hanse.sim.replay.run_records import ReplayError, ReplayOutcome, ReplaySettings, ReplayWorkload

SECOND = 1_000_000
D = 500
ONE = ReplaySettings(nodes=1, clusters=1, brokers=1)


def made(jobs: list[tuple[float, list[float]]], priority: list[int] | None = None) -> ReplayWorkload:
    """Jobs as (arrival, durations) in seconds, in order of arrival."""
    offset = [0]
    for _, durations in jobs:
        offset.append(offset[-1] + len(durations))
    return ReplayWorkload(
        "made",
        [round(arrival * SECOND) for arrival, _ in jobs],
        offset,
        [round(duration * SECOND) for _, durations in jobs for duration in durations],
        [round(sum(durations) * SECOND / len(durations)) for _, durations in jobs],
        priority or [0] * len(jobs),
    )


def ran(workload: ReplayWorkload, settings: ReplaySettings) -> ReplayOutcome:
    """The outcome, checked; by the machines, and the same by their compiled twin where there is one."""
    outcome = run_hanse(workload, msgspec.structs.replace(settings, engine="machines"))
    if not objection_to_twin(workload, settings):
        twin = run_hanse(workload, settings)
        assert twin.engine == "compiled"
        assert describe_difference(outcome, twin) == ""
    assert find_problems(workload, settings, outcome, 2) == []
    assert outcome.complete
    return outcome


def test_a_job_that_finds_room_is_delayed_by_three_messages() -> None:
    # claim D, order D, the end told D
    workload = made([(0, [10, 4])])
    outcome = ran(workload, ReplaySettings(nodes=8, clusters=2, brokers=2))
    assert outcome.start.tolist() == [2 * D, 2 * D]
    assert outcome.job_end.tolist() == [10 * SECOND + 3 * D]


def test_freed_room_is_granted_and_bound_in_four_messages() -> None:
    # The end of the first reaches the warden (D), the grant the broker (D), its bind the warden (D), its
    # order the node (D).
    workload = made([(0, [10]), (1, [5])])
    outcome = ran(workload, ONE)
    assert outcome.start.tolist() == [2 * D, 10 * SECOND + 2 * D + 4 * D]
    assert outcome.job_end.tolist() == [10 * SECOND + 3 * D, 15 * SECOND + 7 * D]
    assert (outcome.grants, outcome.releases, outcome.rejects) == (1, 0, 0)


def test_every_message_is_counted() -> None:
    # claim, answer, order, report, news; settling and the order to forget wait for something to ride on
    assert ran(made([(0, [10])]), ONE).messages == 5
    # The second: demand, claim with the bind (not answered), order, report, news. Its offer came with news.
    assert ran(made([(0, [10]), (1, [5])]), ONE).messages == 5 + 5
    # A batch is one message; what ends at different times is told at different times.
    eight = msgspec.structs.replace(ONE, nodes=8)
    assert ran(made([(0, [10] * 8)]), eight).messages == 5
    assert ran(made([(0, [10, 11, 12, 13])]), eight).messages == 3 + 4 * 2


def test_two_brokers_that_see_the_same_node_are_told_apart_by_the_warden() -> None:
    # Three nodes, two brokers that each want two at the same moment: one task is turned down and waits.
    workload = made([(0, [10, 10]), (0, [10, 10])])
    outcome = ran(workload, ReplaySettings(nodes=3, clusters=1, brokers=2))
    assert outcome.rejects == 1
    assert sorted(outcome.start.tolist())[:3] == [2 * D] * 3
    assert sorted(outcome.start.tolist())[3] == 10 * SECOND + 6 * D
    assert outcome.grants == 1
    # With a node for everybody the second claim of the common one is served by another node.
    outcome = ran(workload, ReplaySettings(nodes=4, clusters=1, brokers=2))
    assert (outcome.rejects, outcome.grants) == (0, 0)
    assert outcome.start.tolist() == [2 * D] * 4


@pytest.mark.parametrize(
    ("order", "served"),
    [
        ("fifo", [1, 2, 3]),
        ("fewest-remaining", [3, 1, 2]),
        ("short-first", [2, 3, 1]),
        ("priority", [2, 1, 3]),
    ],
)
def test_the_queue_follows_the_order(order: str, served: list[int]) -> None:
    # one node; job 0 holds it while the others come
    workload = made([(0, [10]), (1, [4, 4]), (2, [1, 1]), (3, [2])], [0, 1, 2, 1])
    settings = ReplaySettings(nodes=1, clusters=1, brokers=1, order=order, short_cutoff_us=3 * SECOND)
    outcome = ran(workload, settings)
    first = [int(outcome.start[workload.offset[job]]) for job in range(4)]
    assert sorted((1, 2, 3), key=lambda job: first[job]) == served


def test_one_order_holds_across_brokers() -> None:
    # Job 1 (three tasks) and job 2 (one) wait at different brokers for one node; the fewest go first.
    workload = made([(0, [10]), (1, [4, 4, 4]), (2, [1])])
    outcome = ran(workload, ReplaySettings(nodes=2, clusters=1, brokers=2))
    assert outcome.start[4] < outcome.start[3]


def test_the_reserve_is_for_short_jobs_alone() -> None:
    workload = made([(0, [100, 100]), (1, [2])])
    settings = ReplaySettings(nodes=2, clusters=1, brokers=1, short_cutoff_us=5 * SECOND)
    without = ran(workload, settings)
    assert without.start.tolist()[:2] == [2 * D] * 2
    kept = ran(workload, msgspec.structs.replace(settings, reserve_percent=50))
    assert sorted(kept.start.tolist()[:2]) == [2 * D, 100 * SECOND + 6 * D]
    assert kept.start[2] == SECOND + 2 * D


def test_a_seed_decides_everything() -> None:
    workload = made([(job * 0.3, [1 + task % 3 for task in range(7)]) for job in range(40)])
    settings = ReplaySettings(nodes=24, clusters=3, brokers=2)
    first, again, other = (ran(workload, msgspec.structs.replace(settings, seed=seed)) for seed in (3, 3, 4))
    for field in ("start", "node", "job_end"):
        assert np.array_equal(getattr(first, field), getattr(again, field))
    assert (first.messages, first.heartbeats) == (again.messages, again.heartbeats)
    assert not np.array_equal(first.node, other.node)


def test_reported_starts_change_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = made([(0, [10]), (1, [5]), (2, [3])])
    without = ran(workload, ONE)
    monkeypatch.setattr(hanse_policy, "UNREPORTED_TASKS_MAX", 0)
    told = ran(workload, ONE)
    assert told.start.tolist() == without.start.tolist()
    assert told.messages > without.messages


def test_a_stopped_run_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EVENTS_PER_REPORT", 2_000)
    workload = made([(job, [5.0] * 10) for job in range(400)])
    outcome = run_hanse(workload, ReplaySettings(nodes=100, clusters=2, brokers=2), lambda _: False)
    assert not outcome.complete
    assert 0 < int((outcome.job_end >= 0).sum()) < workload.job_count


def test_nothing_is_left_behind() -> None:
    """After the last job, and a little time for what is under way, every machine is idle and sound."""
    workload = made([(job * 0.2, [1.0 + task for task in range(6)]) for job in range(30)])
    shell = LeanShell(workload, ReplaySettings(nodes=20, clusters=2, brokers=2))
    outcome = shell.run()
    assert outcome.complete
    until = shell.heap[0][0] + 2 * shell.league.timings.settle_linger
    while shell.lane or shell.heap[0][0] < until:
        shell._play(1)
    for name, machine in shell.machines.items():
        machine.check()
        if not name.endswith(".r"):
            complaints = [text for text in machine.find_leftovers() if "unacknowledged" not in text]  # type: ignore[attr-defined]
            assert complaints == []


def test_what_the_machines_cannot_do_is_refused() -> None:
    wide = ReplaySettings(nodes=CLUSTER_NODES_MAX + 1, clusters=1, brokers=1)
    assert "--clusters 2" in find_objection(wide)
    with pytest.raises(ReplayError, match="nodes in a cluster"):
        select_policies(["hanse"], wide)
    assert select_policies(["central"], wide)
    assert "brokers" in find_objection(ReplaySettings(nodes=5000, clusters=1, brokers=2000))


def test_priorities_become_steps_that_never_preempt() -> None:
    workload = made([(0, [1]), (0, [1]), (0, [1])], [7, -3, 2000])
    specs = JobSpecs(workload, ReplaySettings(nodes=4, order="priority"))
    assert [specs.make_spec(job).priority for job in range(3)] == [-1, -2, 0]
    assert [JobSpecs(workload, ReplaySettings(nodes=4)).make_spec(job).priority for job in range(3)] == [
        0,
        0,
        0,
    ]


def test_with_queueing_the_mean_delay_is_near_the_oracle() -> None:
    jobs = [(job * 0.5, [2.0 + (job * 7 + task) % 11 for task in range(1 + job % 40)]) for job in range(300)]
    workload = made(jobs)
    settings = ReplaySettings(nodes=240, clusters=6, brokers=3)
    assert workload.load(settings.nodes) > 0.9
    ours, oracle = (
        float(delays_of(workload, run(workload, settings))[0].mean()) for run in (run_hanse, central)
    )
    assert oracle > 0.1
    assert ours <= 1.2 * oracle
