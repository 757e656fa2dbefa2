"""Every checker must be able to fail."""

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from hanse.core.config import LOCAL_HOST, NodeConfig, WardenConfig
from hanse.model.constraints import Is
from hanse.model.effects import TaskSettled
from hanse.model.ids import job_id, task_id
from hanse.model.job import Affinity, JobClass, JobSpec, OnLoss, TaskGroup, Together
from hanse.model.messages import Outcome, TaskPlace
from hanse.model.resources import Resources
from hanse.sim.backend import SimulatedAttempt
from hanse.sim.checkers.oracle import Oracle
from hanse.sim.workload import GroupBehaviour, JobPlan, SeedWorkload, payload_of
from hanse.sim.world import Violation, VirtualWorld
from tests.sim.toys import launch

FOUR = Resources(cpu=4_000)
CLUSTERS = (
    WardenConfig(
        "alpha",
        (
            NodeConfig(FOUR, (("zone", "a"),), "r1"),
            NodeConfig(FOUR, (("zone", "b"),), "r1"),
            NodeConfig(FOUR, (), "r2"),
        ),
        ("b1",),
        reserve=1,
    ),
    WardenConfig("beta", (NodeConfig(FOUR, (("zone", "a"),), "r3"),), ("b1",)),
)
RUNNERS = {("alpha", 0): "r1", ("alpha", 1): "r1", ("alpha", 2): "r2", ("beta", 0): "r3"}


class Bench:
    """An oracle and some jobs; job ``n`` is plan ``n``."""

    def __init__(self, *specs: JobSpec, hopeless: bool = False) -> None:
        plans = []
        for number, spec in enumerate(specs):
            groups = tuple(GroupBehaviour(1, 0) for _ in spec.groups)
            plans.append(JobPlan(number, 0, "b1", spec, groups, is_infeasible=hopeless))
        self.oracle = Oracle(VirtualWorld(), SeedWorkload(1, plans), CLUSTERS, 50)
        for plan in plans:
            self.oracle.specs[plan.number] = plan.spec
            self.oracle.on_job_accepted(job_id(1, plan.number), plan)

    def launch(
        self, job: int, index: int, node: int = 0, cluster: str = "alpha", attempt: int = 1, group: int = 0,
        cpu: int = 1_000, **told: object,
    ) -> SimulatedAttempt:  # fmt: skip
        """Launch a task. ``told``: fields of the place that it is told, other than the right ones."""
        command = launch(task_id(job_id(1, job), index), attempt, node, cpu, payload_of(job, group))
        spec = self.oracle.workload.plans[job].spec
        part, rank = spec.groups[group], index - sum(other.count for other in spec.groups[:group])
        place = TaskPlace(part.name, rank, part.count)
        if spec.gang:
            place = TaskPlace(
                part.name, rank, part.count, rank, part.count, node, 2, f"{LOCAL_HOST}:{part.count}",
                "127.0.0.1", 20_000 + job,
            )  # fmt: skip
        place = msgspec.structs.replace(place, **told)
        run = SimulatedAttempt(msgspec.structs.replace(command, place=place))
        self.oracle.on_launched(cluster, RUNNERS[cluster, node], run)
        return run

    def end(
        self, run: SimulatedAttempt, outcome: Outcome = Outcome.SUCCEEDED, cluster: str = "alpha"
    ) -> None:
        self.oracle.on_ended(cluster, run, outcome)

    def settle(self, job: int, index: int, attempt: int, outcome: Outcome) -> None:
        self.oracle.on_task_settled(TaskSettled(task_id(job_id(1, job), index), attempt, outcome))


def job(count: int = 8, **fields: object) -> JobSpec:
    group = {key: fields.pop(key) for key in ("ask", "where", "affinity") if key in fields}
    return JobSpec(groups=(TaskGroup(count=count, **group),), **fields)  # type: ignore[arg-type]


def test_over_commit() -> None:
    bench = Bench(job())
    runs = [bench.launch(0, index) for index in range(4)]
    with pytest.raises(Violation, match=r"no over-commit: task 1-0.4 .*alpha node 0.*1-0.0, 1-0.1"):
        bench.launch(0, 4)
    bench = Bench(job())
    runs = [bench.launch(0, index) for index in range(4)]
    bench.end(runs[0])
    bench.launch(0, 4)


def test_two_live_attempts() -> None:
    bench = Bench(job())
    bench.launch(0, 0)
    with pytest.raises(Violation, match=r"at most one live attempt: task 1-0.0 attempt 2 on beta node 0"):
        bench.launch(0, 0, 0, "beta", attempt=2)


def test_an_attempt_launched_again() -> None:
    bench = Bench(job())
    bench.end(bench.launch(0, 0), Outcome.LOST)
    with pytest.raises(Violation, match=r"the same attempt was launched before"):
        bench.launch(0, 0)


def test_a_launch_after_the_task_was_settled() -> None:
    bench = Bench(job())
    bench.end(bench.launch(0, 0))
    bench.settle(0, 0, 1, Outcome.SUCCEEDED)
    with pytest.raises(Violation, match=r"settled means over"):
        bench.launch(0, 0, attempt=2)


@pytest.mark.parametrize(
    ("ended", "fields", "allowed"),
    [
        (Outcome.FAILED, {"retries": 1}, True),
        (Outcome.FAILED, {}, False),
        (Outcome.CANCELLED, {"preemptible": True}, True),
        (Outcome.CANCELLED, {"retries": 1}, False),
        (Outcome.LOST, {"retries": 1, "preemptible": True}, False),
        (Outcome.SUCCEEDED, {"retries": 1, "preemptible": True}, False),
    ],
)
def test_a_second_start_after_a_loss(ended: Outcome, fields: dict[str, Any], allowed: bool) -> None:
    bench = Bench(job(on_loss=OnLoss.FAIL, **fields), job(**fields))
    for number in (0, 1):
        bench.end(bench.launch(number, 0), ended)
    bench.launch(1, 0, attempt=3)  # a job that may run again
    if allowed:
        bench.launch(0, 0, attempt=3)
        return
    with pytest.raises(
        Violation, match=rf"no second start after a loss.*attempt 1 had begun, and was {ended}"
    ):
        bench.launch(0, 0, attempt=3)


def test_a_gang_starts_again_after_a_failure_of_one() -> None:
    bench = Bench(job(on_loss=OnLoss.FAIL, gang=True, retries=1))
    bench.end(bench.launch(0, 0), Outcome.CANCELLED)
    with pytest.raises(Violation, match=r"no second start after a loss"):
        bench.launch(0, 0, attempt=2)
    bench.end(bench.launch(0, 1), Outcome.FAILED)
    bench.launch(0, 0, attempt=2)
    bench.launch(0, 1, attempt=2)


def test_what_must_not_run_twice_fails_by_an_attempt_or_because_a_cluster_left() -> None:
    bench = Bench(job(on_loss=OnLoss.FAIL))
    bench.settle(0, 0, 1, Outcome.FAILED)
    with pytest.raises(Violation, match=r"no invented failures"):
        bench.settle(0, 1, 0, Outcome.FAILED)
    bench.oracle.doubtful_clusters.append("beta")
    bench.settle(0, 1, 0, Outcome.FAILED)


def test_success_that_never_was() -> None:
    bench = Bench(job())
    bench.end(bench.launch(0, 0), Outcome.FAILED)
    with pytest.raises(Violation, match=r"at most one effective completion.*that attempt failed"):
        bench.settle(0, 0, 1, Outcome.SUCCEEDED)
    with pytest.raises(Violation, match=r"never ran"):
        bench.settle(0, 1, 1, Outcome.SUCCEEDED)


def test_two_completions() -> None:
    bench = Bench(job())
    bench.end(bench.launch(0, 0))
    bench.settle(0, 0, 1, Outcome.SUCCEEDED)
    bench.settle(0, 0, 1, Outcome.SUCCEEDED)
    with pytest.raises(Violation, match=r"settled as succeeded by attempt 1 and as failed by attempt 2"):
        bench.settle(0, 0, 2, Outcome.FAILED)


def test_settled_while_it_runs() -> None:
    bench = Bench(job(deadline=5))
    bench.launch(0, 0)
    with pytest.raises(Violation, match=r"it still runs"):
        bench.settle(0, 0, 1, Outcome.CANCELLED)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.LOST, Outcome.PREEMPTED])
def test_invented_ends(outcome: Outcome) -> None:
    bench = Bench(job())
    bench.end(bench.launch(0, 0), Outcome.LOST)
    with pytest.raises(Violation, match=r"no invented failures"):
        bench.settle(0, 0, 1, outcome)


def test_cancelling_needs_a_reason_and_any_will_do() -> None:
    asked = Bench(job())
    asked.oracle.cancelled_jobs[job_id(1, 0)] = None
    asked.settle(0, 0, 0, Outcome.CANCELLED)
    late = Bench(job(deadline=5))
    late.settle(0, 0, 0, Outcome.CANCELLED)
    after = Bench(job(), job(after=(job_id(1, 0),)))
    after.end(after.launch(0, 0), Outcome.FAILED)
    after.settle(1, 0, 0, Outcome.CANCELLED)
    assert len(asked.oracle.settlements) == len(late.oracle.settlements) == 1


def test_places() -> None:
    with pytest.raises(Violation, match=r"do not satisfy its condition"):
        Bench(job(where=Is("zone", "b"))).launch(0, 0)
    with pytest.raises(Violation, match=r"may not use this cluster"):
        Bench(job(clusters_forbidden=("alpha",))).launch(0, 0)
    with pytest.raises(Violation, match=r"may not use this cluster"):
        Bench(job(clusters_allowed=("beta",))).launch(0, 0)
    with pytest.raises(Violation, match=r"kept for latency work"):
        Bench(job()).launch(0, 0, 2)
    with pytest.raises(Violation, match=r"did not ask for"):
        Bench(job()).launch(0, 0, cpu=2_000)
    run = SimulatedAttempt(launch(task_id(job_id(1, 0), 0), payload=payload_of(0, 0)))
    with pytest.raises(Violation, match=r"does not serve that node"):
        Bench(job()).oracle.on_launched("alpha", "r2", run)
    run = Bench(job(klass=JobClass.LATENCY, where=None)).launch(0, 0, 2)
    assert run.live


def test_keeping_apart() -> None:
    spread = job(affinity=(Affinity("web", apart=True),), labels=("web",))
    bench = Bench(spread)
    bench.launch(0, 0)
    bench.launch(0, 1, 1)
    with pytest.raises(Violation, match=r"keeps away from 'web', which 1-0.0 has"):
        bench.launch(0, 2)


def test_needs_and_after() -> None:
    dag = JobSpec(groups=(TaskGroup("a", 2), TaskGroup("b", 1, needs=("a",))))
    bench = Bench(dag, job(after=(job_id(1, 0),)))
    bench.end(bench.launch(0, 0))
    with pytest.raises(Violation, match=r"group 0, which it needs"):
        bench.launch(0, 2, group=1)
    bench.end(bench.launch(0, 1))
    run = bench.launch(0, 2, group=1)
    with pytest.raises(Violation, match=r"job 1-0, which it comes after"):
        bench.launch(1, 0)
    bench.end(run)
    bench.launch(1, 0)


def test_open_tasks_are_counted_and_found() -> None:
    bench = Bench(job(2))
    assert bench.oracle.open_tasks == 2
    bench.end(bench.launch(0, 1))
    bench.settle(0, 1, 1, Outcome.SUCCEEDED)
    assert bench.oracle.open_tasks == 1
    with pytest.raises(Violation, match=r"task 1-0.0 of submission 0 is not settled"):
        bench.oracle.check_terminal("in time")


def test_gangs() -> None:
    def started(cluster: str, later: int) -> Bench:
        bench = Bench(job(2, gang=True))
        bench.launch(0, 0)
        bench.oracle.world.run(later)
        bench.launch(0, 1, 0, cluster)
        return bench

    started("alpha", 5).oracle.check_gangs(0, 5)
    started("beta", 5).oracle.check_gangs(6, 5)
    with pytest.raises(Violation, match=r"a gang starts together: task 1-0.0 started in alpha without 1-0.1"):
        started("beta", 5).oracle.check_gangs(0, 5)
    with pytest.raises(Violation, match=r"a gang starts together"):
        started("alpha", 6).oracle.check_gangs(0, 5)


@pytest.mark.parametrize(
    ("node", "told", "violation"),
    [
        (0, {"rank": 0}, "a gang's layout: .*rank"),
        (0, {"rank": 4}, "a gang's layout: .*out of range"),
        (0, {"local_rank": 0}, "a gang's layout: .*local rank"),
        (0, {"node_rank": 1}, "a gang's layout: .*node rank"),
        (1, {"node_rank": 0}, "a gang's layout: .*node rank"),
        (0, {"rank": 0, "port": 20_001}, None),  # of another start of the gang
        (0, {"hosts": f"{LOCAL_HOST}:4"}, "not a world of 3"),
        (0, {"hosts": "other:3"}, "its rank is elsewhere"),
        (1, {}, None),
    ],
)
def test_what_a_gang_is_told(node: int, told: dict[str, object], violation: str | None) -> None:
    bench = Bench(job(3, gang=True))
    bench.launch(0, 0)
    with pytest.raises(Violation, match=violation) if violation else nullcontext():
        bench.launch(0, 1, node, **told)  # type: ignore[arg-type]


def test_every_task_of_a_group_is_told_its_rank() -> None:
    for told in ({"rank": 2}, {"world_size": 7}, {"local_size": 1}):
        with pytest.raises(Violation, match=r"ranks: task 1-0.1 .*it was told"):
            Bench(job(3)).launch(0, 1, **told)  # type: ignore[arg-type]


def test_gangs_stay_in_their_part_of_a_cluster_and_are_spread() -> None:
    bench = Bench(job(2, gang=True, together=Together.NODE))
    bench.launch(0, 0)
    with pytest.raises(Violation, match=r"a gang on one node: .*others of its gang are on nodes \[0\]"):
        bench.launch(0, 1, 1)
    with pytest.raises(Violation, match="a gang on one rack"):
        Bench(job(2, gang=True, together=Together.RACK)).launch(0, 0)  # no node has a rack
    bench = Bench(job(3, gang=True, spread="zone", spread_max=1))
    bench.launch(0, 0)
    bench.launch(0, 1, 1)
    with pytest.raises(Violation, match=r"a gang is spread: .*2 of its gang where 'zone' is a"):
        bench.launch(0, 2)


def test_two_gangs_on_one_host_have_two_ports() -> None:
    bench = Bench(job(2, gang=True), job(2, gang=True))
    bench.launch(0, 0)
    with pytest.raises(Violation, match=r"ports of gangs: .*1-0.0 has port 20000 on 127.0.0.1, too"):
        bench.launch(1, 0, port=20_000)


def test_one_number_one_job() -> None:
    bench = Bench(job(), job())
    with pytest.raises(Violation, match=r"one job, one number"):
        bench.oracle.on_job_accepted(job_id(1, 0), bench.oracle.workload.plans[1])
    run = SimulatedAttempt(launch(task_id(job_id(1, 0), 0), payload=payload_of(1, 0)))
    with pytest.raises(Violation, match=r"the command of another task"):
        bench.oracle.on_launched("alpha", "r1", run)
