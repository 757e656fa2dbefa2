"""Set-up of the real machines for a world: one warden and one runner for each cluster, and its jobs.

Node classes and racks are attributes of the nodes. A kind of job has one name, ``WORK/kind-NUMBER``; a job
without history has a name of its own, ``WORK/job-NUMBER``. Brokers know the clusters that hold a job's data,
the bytes that each task reads, and the rate of a flow between two clusters: what people would declare.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, NodeConfig, RunnerConfig, Timings, WardenConfig
from hanse.core.machine import Machine
from hanse.core.runner.runner import Runner
from hanse.core.warden.warden import Warden
from hanse.model.constraints import Constraint, In
from hanse.model.ids import MILLISECOND, SECOND, JobId
from hanse.model.job import JobSpec, TaskGroup, Together
from hanse.model.resources import Resources
from hanse.policy.node_classes import CLASS_ATTRIBUTES
from hanse.policy.sizers import LeastSizer
from hanse.registry import CLUSTER_RANKERS, NODE_RANKERS, PLACERS, QUEUE_ORDERS
from hanse.sim.worlds.columns import WorkColumns, WorldColumns

LONG: Final = 3_600 * SECOND
"""Beats and leases of a run in which no machine fails: none is needed."""
CLASS: Final = CLASS_ATTRIBUTES[0]
TOGETHER: Final = (Together.CLUSTER, Together.CLUSTER, Together.RACK, Together.NODE)
"""Extent of a gang, by ``WorkColumns.job_gang``."""


class WorldLeagueSettings(msgspec.Struct, frozen=True):
    """Settings of the league in a world."""

    brokers: int = 4
    delay_us: int = 500
    """One-way delay of every message."""
    order: str = "shortest-work"
    placer: str = "spread"
    cluster_ranker: str = "earliest-finish"
    node_ranker: str = "spread"
    seed: int = 0


class WorldLeague(msgspec.Struct, frozen=True):
    """Machines of one run."""

    brokers: tuple[str, ...]
    machines: dict[str, Machine]
    first_node: dict[str, int]
    """Runner -> number of its first node in the world."""
    runner_of_cluster: tuple[str, ...]
    capacities: tuple[Resources, ...]
    """Capacity of each node of the world."""


def world_timings(settings: WorldLeagueSettings) -> Timings:
    """Return the times of a protocol in which nobody fails."""
    return Timings(
        ack_delay=LONG // 10,
        resend_after=LONG,
        resend_max=LONG,
        beat=LONG,
        runner_beat=LONG,
        cluster_lease=100 * LONG,
        runner_lease=100 * LONG,
        grant_lease=LONG // 10,
        delta_linger=max(5 * MILLISECOND, settings.delay_us),
        started_linger=500 * MILLISECOND,
        settle_linger=LONG,
        suspect_after=100 * LONG,
        start_deadline=LONG,
    )


def make_world_league(world: WorldColumns, work: WorkColumns, settings: WorldLeagueSettings) -> WorldLeague:
    """Return the machines: brokers ``broker-1`` ..., and a warden and a runner for each cluster."""
    timings = world_timings(settings)
    brokers = tuple(f"broker-{number + 1}" for number in range(settings.brokers))
    machines: dict[str, Machine] = {}
    for number, name in enumerate(brokers):
        config = BrokerConfig(
            name=name, number=number + 1, brokers=(name,), clusters=world.cluster_names, timings=timings,
            jobs_max=2 * work.job_count, tasks_max=2 * work.task_count, decisions=False,
            data_rates=data_rates(world),
        )  # fmt: skip
        machines[name] = Broker(
            config,
            QUEUE_ORDERS.get(settings.order)(),
            PLACERS.get(settings.placer)(),
            CLUSTER_RANKERS.get(settings.cluster_ranker)(),
            LeastSizer(),
        )
    first_node, runners, capacities = {}, [], list[Resources]()
    for cluster, name in enumerate(world.cluster_names):
        members = np.flatnonzero(world.node_cluster == cluster)
        assert len(members) == members[-1] - members[0] + 1, "nodes of a cluster are neighbours"
        runner = f"{name}.runner"
        nodes = tuple([_node(world, int(node), runner) for node in members])
        capacities += [node.capacity for node in nodes]
        ranker = NODE_RANKERS.get(settings.node_ranker)()
        machines[name] = Warden(WardenConfig(name, nodes, brokers, timings), ranker)
        machines[runner] = Runner(RunnerConfig(runner, name, tuple(range(len(nodes))), timings))
        first_node[runner] = int(members[0])
        runners.append(runner)
    return WorldLeague(brokers, machines, first_node, tuple(runners), tuple(capacities))


def data_rates(world: WorldColumns) -> tuple[tuple[int, ...], ...]:
    """Return the bytes a second of one flow between two clusters, or inside one."""
    rates = world.wan_flow_max.copy()
    np.fill_diagonal(rates, world.lan_flow_max)
    return tuple([tuple([int(rate) for rate in row]) for row in rates.tolist()])


def _node(world: WorldColumns, node: int, runner: str) -> NodeConfig:
    capacity = Resources(
        cpu=int(world.node_cpu[node]), memory=int(world.node_memory[node]), gpu=int(world.node_gpu[node])
    )
    name = world.class_names[int(world.node_class[node])]
    return NodeConfig(capacity, ((CLASS, name), ("rack", int(world.node_rack[node]))), runner)


def broker_of_jobs(work: WorkColumns, brokers: int) -> list[int]:
    """Return the broker of each job: that of its home cluster; of jobs that need each other, the first one's.

    The brokers of a run are alone in their lists, so that nothing is replicated; a job can only wait for jobs
    of its own broker.
    """
    root = list(range(work.job_count))

    def find(job: int) -> int:
        while root[job] != job:
            root[job] = root[root[job]]
            job = root[job]
        return job

    bounds, needs = work.needs_offset.tolist(), work.needs.tolist()
    for job in range(work.job_count):
        for need in needs[bounds[job] : bounds[job + 1]]:
            first, second = sorted((find(job), find(need)))
            root[second] = first
    home = work.job_home.tolist()
    return [home[find(job)] % brokers for job in range(work.job_count)]


class WorldJobs:
    """Jobs of a work, as brokers take them."""

    def __init__(self, world: WorldColumns, work: WorkColumns) -> None:
        self._world, self._work = world, work
        every = (1 << len(world.class_names)) - 1
        self._classes = [int(bits) & every for bits in work.job_classes.tolist()]
        self._every = every

    def make_spec(self, job: int, after: tuple[JobId, ...]) -> JobSpec:
        """Return one job; ``after``: the jobs that it needs."""
        work, world = self._work, self._world
        first, past = int(work.job_offset[job]), int(work.job_offset[job + 1])
        kind, label = int(work.job_kind[job]), world.work_kind_names[int(work.job_work_kind[job])]
        racks = [rack for rack in work.replica_rack[job].tolist() if rack >= 0]
        data = tuple(dict.fromkeys(world.cluster_names[int(world.rack_cluster[rack])] for rack in racks))
        size = int(work.task_bytes[first:past].mean()) if data else 0
        group = TaskGroup(
            count=past - first,
            ask=Resources(
                cpu=int(work.job_cpu[job]), memory=int(work.job_memory[job]), gpu=int(work.job_gpu[job])
            ),
            where=self._where(job),
            duration=int(work.job_estimate[job]) or None,
            input_bytes=size,
        )
        return JobSpec(
            groups=(group,),
            name=f"{label}/kind-{kind}" if kind >= 0 else f"{label}/job-{job}",
            gang=bool(work.job_gang[job]),
            together=TOGETHER[int(work.job_gang[job])],
            grace=0,
            data=data if size else (),
            after=after,
        )

    def _where(self, job: int) -> Constraint | None:
        """Return the node classes to which a job is bound; None: any."""
        bits = self._classes[job]
        if bits == self._every:
            return None
        names = [name for number, name in enumerate(self._world.class_names) if bits >> number & 1]
        return In(CLASS, tuple(names))
