"""Clusters and workload of ``hanse demo``."""

from random import Random
from typing import Final, NamedTuple

import msgspec

from hanse.core.config import NodeConfig, Timings, WardenConfig
from hanse.model.constraints import Constraint, Is
from hanse.model.ids import SECOND
from hanse.model.job import JobClass, JobSpec, TaskGroup
from hanse.model.resources import Resources
from hanse.sim.workload import GroupBehaviour, JobPlan, payload_of

BROKERS: Final = ("east", "west")
WARM_UP: Final = 3 * SECOND
"""Time for the members to connect before the first job."""
GIB: Final = 1 << 30


def demo_clusters(timings: Timings) -> tuple[WardenConfig, ...]:
    """Return the clusters: plain nodes, strong nodes with GPUs, and small nodes with another processor."""
    plain = NodeConfig(Resources(8_000, 32 * GIB), (("arch", "x86-64"),), "luebeck.r1")
    strong = NodeConfig(Resources(16_000, 64 * GIB, 2), (("arch", "x86-64"), ("ssd", True)), "hamburg.r1")
    small = NodeConfig(Resources(4_000, 16 * GIB), (("arch", "arm64"),), "bremen.r1")
    return (
        WardenConfig("luebeck", (plain,) * 4, BROKERS, timings, reserve=1),
        WardenConfig("hamburg", (strong,) * 3, BROKERS, timings),
        WardenConfig("bremen", (small,) * 4, BROKERS, timings),
    )


class WorkloadJob(NamedTuple):
    """Job of the workload."""

    what: str
    """Special feature of the job."""
    at: int
    """Arrival time in seconds; shifted by up to half a second."""
    broker: str
    spec: JobSpec
    run: tuple[int, ...]
    """Mean run time of a task of each group, in seconds."""
    failing: int = 0
    """Failing attempts out of a thousand."""
    after: tuple[int, ...] = ()
    """Indices of jobs that must succeed first."""


_CORE: Final = Resources(1_000, GIB)
_BUILD: Final = (
    TaskGroup("fetch", 2, _CORE),
    TaskGroup("compile", 8, Resources(2_000, 2 * GIB), needs=("fetch",)),
    TaskGroup("link", 1, Resources(4_000, 8 * GIB), needs=("compile",)),
)


def _equal_tasks(
    count: int, ask: Resources = _CORE, where: Constraint | None = None
) -> tuple[TaskGroup, ...]:
    return (TaskGroup(count=count, ask=ask, where=where),)


WORKLOAD: Final = (
    WorkloadJob(
        "gang, 4 GPUs",
        0,
        "west",
        JobSpec(_equal_tasks(4, Resources(4_000, GIB, 1)), "train", gang=True),
        (15,),
    ),
    WorkloadJob(
        "preemptible", 1, "east", JobSpec(_equal_tasks(72), "simulate", preemptible=True, grace=SECOND), (12,)
    ),
    WorkloadJob("DAG, 3 groups", 2, "east", JobSpec(_BUILD, "build"), (3, 8, 4)),
    WorkloadJob("array", 2, "west", JobSpec(_equal_tasks(24, Resources(2_000, GIB)), "render"), (8,)),
    WorkloadJob(
        "needs arm64", 3, "east", JobSpec(_equal_tasks(6, where=Is("arch", "arm64")), "arm-tests"), (6,)
    ),
    WorkloadJob(
        "latency class", 4, "west", JobSpec(_equal_tasks(2), "notebook", klass=JobClass.LATENCY), (2,)
    ),
    WorkloadJob(
        "urgent", 6, "west", JobSpec(_equal_tasks(1, Resources(8_000, GIB)), "report", priority=50), (5,)
    ),
    WorkloadJob("3 retries", 7, "west", JobSpec(_equal_tasks(6), "flaky", retries=3), (3,), failing=250),
    WorkloadJob(
        "gang, 50 GPUs",
        8,
        "west",
        JobSpec(_equal_tasks(50, Resources(1_000, GIB, 1)), "huge", gang=True),
        (5,),
    ),
    WorkloadJob("after build", 10, "west", JobSpec(_equal_tasks(1), "publish"), (2,), after=(2,)),
)
"""Workload: more than the league holds at once, of every kind, with one job to be refused."""


def make_plan(number: int, workload_job: WorkloadJob, rng: Random) -> JobPlan:
    """Return the plan of a job of the workload; the seed shifts its arrival."""
    groups = tuple(
        msgspec.structs.replace(group, payload=payload_of(number, position))
        for position, group in enumerate(workload_job.spec.groups)
    )
    spec = msgspec.structs.replace(workload_job.spec, groups=groups, client_id=f"demo{number}")
    truths = tuple(GroupBehaviour(length * SECOND, workload_job.failing) for length in workload_job.run)
    at = WARM_UP + workload_job.at * SECOND + rng.randrange(SECOND // 2)
    return JobPlan(number, at, workload_job.broker, spec, truths, workload_job.after)
