"""Policy ``hanse`` with faults: the same machines in the processes of the simulator, which can crash.

Brokers and wardens keep journals and restart with them; shards have standbys; runners report starts; a lost
cluster loses its running tasks. ``league_setup.protocol_timings`` sets the times of the protocol. A run with
faults is to be compared with a run with an empty faults file, which costs replication and beats too.

Clients hand a job to a broker in turn, or to the next one if that is down; a job that is not acknowledged
after ``RESUBMIT_AFTER`` they submit again under the same name, so that it becomes one job. A task may run
more than once; its start is that of the attempt that succeeded.
"""

from random import Random
from time import perf_counter_ns
from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig
from hanse.core.runner.runner import Runner
from hanse.model.effects import JobAccepted, JobSettled, LaunchAttempt, RequestRejected
from hanse.model.ids import SECOND, JobId, index_of, job_of
from hanse.model.messages import Envelope
from hanse.model.messages import Outcome as Ending
from hanse.sim.backend import PlannedEnd, SimulatedAttempt
from hanse.sim.disk import Durability
from hanse.sim.league import LeagueDesign, LeagueFactories, PolicyNames, SimulatedLeague
from hanse.sim.network import SimulatedLink, SimulatedNetwork, delay_table
from hanse.sim.process import Process
from hanse.sim.replay.fault_file import ReplayFault, read_faults
from hanse.sim.replay.league_setup import (
    JobSpecs,
    MessageCounts,
    ReplayLeague,
    make_broker,
    make_league,
    make_warden,
)
from hanse.sim.replay.queue_order import queue_order_of
from hanse.sim.replay.run_records import Progress, ReplayError, ReplayOutcome, ReplaySettings, ReplayWorkload
from hanse.sim.world import VirtualWorld

RESUBMIT_AFTER: Final = 60 * SECOND
"""Time that a client waits for a reply; by then a standby has taken over."""
STEP: Final = 60 * SECOND
"""Virtual time between two progress reports."""
STALL_LIMIT: Final = 1_800 * SECOND
"""Virtual time without an arrival, a start or an end, after the last fault, that only a lost job explains."""
SNAPSHOT_EVENTS: Final = 50_000
"""Events between two snapshots of a process: a restart replays at most this many."""
PAYLOAD_BYTES: Final = 8
"""Length of a task's payload, the number of its job in the workload."""


class CountingNetwork(SimulatedNetwork):
    """Network that counts the messages sent."""

    __slots__ = ("message_counts",)

    def __init__(self, world: VirtualWorld, rng: Random, message_counts: MessageCounts) -> None:
        super().__init__(world, rng)
        self.message_counts = message_counts

    def send(self, link: SimulatedLink, envelope: Envelope) -> None:
        """Count a message and send it."""
        self.message_counts.count(envelope)
        super().send(link, envelope)


class RunWithFaults:
    """One run; also the ``sim.backend.AttemptObserver`` of all backends."""

    def __init__(
        self, workload: ReplayWorkload, settings: ReplaySettings, faults: tuple[ReplayFault, ...]
    ) -> None:
        self.workload = workload
        self.delay = settings.delay_us
        self.world = VirtualWorld()
        self.specs = JobSpecs(workload, settings)
        self.replay_league = make_league(settings, faults=True)
        self.lead = self.replay_league.lead
        rng = Random(settings.seed)
        self.network = CountingNetwork(self.world, rng, MessageCounts())
        self.league = _make_league(self.network, self.replay_league, workload, settings, rng)
        self.start = [-1] * workload.task_count
        self.node = [-1] * workload.task_count
        self.job_end = [-1] * workload.job_count
        self.accepted = [False] * workload.job_count
        self.job_numbers: dict[JobId, int] = {}
        self.launched_at: dict[tuple[int, int], int] = {}
        """Live attempts: task and attempt -> time of the launch."""
        self.launches = 0
        self.started_tasks = 0
        self.ended_jobs = 0
        self.progressed_at = self.lead + max((fault.at + (fault.length or 0) for fault in faults), default=0)
        """Time of the last arrival, start or end; at least the end of the last fault."""
        self.decision_ns: list[int] = []
        self._start(faults)

    def _start(self, faults: tuple[ReplayFault, ...]) -> None:
        delays = delay_table("constant", self.delay)
        for link in self.network.links:
            link.delays = delays
        self.league.add_backends(self._planned_end, self)
        for backend in self.league.backends.values():
            backend.notice_max = 0
        for process in self.league.brokers.values():
            process.set_performers(
                {
                    JobAccepted: self._on_job_accepted,
                    RequestRejected: self._on_request_rejected,
                    JobSettled: self._on_job_settled,
                }
            )
        self.league.start()
        for fault in faults:
            self.world.call_at(self.lead + fault.at, self._inject, fault)
        self._schedule_arrival(0)

    # --- clients -------------------------------------------------------------------------------------------

    def _schedule_arrival(self, job: int) -> None:
        if job < self.workload.job_count:
            self.world.call_at(self.lead + self.workload.arrival[job], self._on_arrival, job)

    def _on_arrival(self, job: int) -> None:
        if not job:
            self.network.message_counts = MessageCounts()  # earlier messages belong to no task
        self.progressed_at = max(self.progressed_at, self.world.now)
        self._schedule_arrival(job + 1)
        self._submit(job)

    def _submit(self, job: int) -> None:
        """Submit a job to its broker, or to the next one that is up; repeat until it is acknowledged."""
        if self.accepted[job]:
            return
        brokers = list(self.league.brokers.values())
        turn = job % len(brokers)
        up = [process for process in brokers[turn:] + brokers[:turn] if process.is_up]
        if up:
            spec = self.specs.make_spec(job, job.to_bytes(PAYLOAD_BYTES, "little"), f"job{job}")
            began = perf_counter_ns()
            up[0].submit(("client", job, spec))
            self.decision_ns.append(perf_counter_ns() - began)
        self.world.call_at(self.world.now + RESUBMIT_AFTER, self._submit, job)

    def _on_job_accepted(self, effect: JobAccepted) -> None:
        self.accepted[effect.request] = True
        self.job_numbers[effect.job] = effect.request

    def _on_request_rejected(self, effect: RequestRejected) -> None:
        raise AssertionError(f"job {effect.request} was rejected: {effect.reason}")

    def _on_job_settled(self, effect: JobSettled) -> None:
        job = self.job_numbers[effect.job]
        if self.job_end[job] < 0:  # else a client without a timely reply made two jobs of it
            self.ended_jobs += 1
            self.job_end[job] = self.world.now - self.lead - self.delay

    # --- real starts and ends ------------------------------------------------------------------------------

    def _planned_end(self, launch: LaunchAttempt) -> PlannedEnd:
        return self.workload.duration[self._task_number(launch.task, launch.payload)], Ending.SUCCEEDED, 0

    def _task_number(self, task: int, payload: bytes) -> int:
        """Return the number of a task in the workload."""
        return self.workload.offset[int.from_bytes(payload, "little")] + index_of(task)  # type: ignore[arg-type]

    def on_launched(self, _cluster: str, _runner: str, attempt: SimulatedAttempt) -> None:
        """Record the start of an attempt."""
        self.job_numbers[job_of(attempt.task)] = int.from_bytes(attempt.payload, "little")
        self.launched_at[attempt.task, attempt.attempt] = self.world.now
        self.progressed_at = max(self.progressed_at, self.world.now)
        self.launches += 1

    def on_ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Ending) -> None:
        """Record the end of an attempt."""
        began = self.launched_at.pop((attempt.task, attempt.attempt))
        self.progressed_at = max(self.progressed_at, self.world.now)
        task = self._task_number(attempt.task, attempt.payload)
        if outcome is Ending.SUCCEEDED and self.start[task] < 0:
            self.started_tasks += 1
            self.start[task] = began - self.lead
            self.node[task] = self.replay_league.first_node[f"{cluster}.r"] + attempt.node

    # --- faults --------------------------------------------------------------------------------------------

    def _inject(self, fault: ReplayFault) -> None:
        brokers = [list(self.league.brokers.values())[number] for number in fault.brokers]
        wardens = [list(self.league.wardens.values())[number] for number in fault.clusters]
        if fault.partition:
            self._partition([process.name for process in brokers + wardens], fault)
            return
        lost: list[Process] = [*brokers, *wardens]
        for process in lost:
            process.crash()
        for warden in wardens:
            backend = self.league.backends[f"{warden.name}.r"]
            backend.lose_host()
            lost.append(backend.runner)
        if fault.length is not None:
            for process in lost:
                self.world.call_at(self.world.now + fault.length, self._restart, process)

    def _restart(self, process: Process) -> None:
        process.restart()

    def _partition(self, names: list[str], fault: ReplayFault) -> None:
        """Cut the links of these members for a while; a warden and its runner stay connected."""
        group = dict.fromkeys(names + [f"{name}.r" for name in names])
        crossing = [link for link in self.network.links if (link.source in group) != (link.target in group)]
        self.network.cut(crossing)
        assert fault.length is not None
        self.world.call_at(self.world.now + fault.length, self.network.end_cut, crossing)

    # --- the run -------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None) -> ReplayOutcome:
        """Run until every job has ended; stop early if ``progress`` asks for it."""
        jobs = self.workload.job_count
        while self.ended_jobs < jobs:
            self.world.run(self.world.now + STEP)
            if not self.launched_at and self.world.now - self.progressed_at > STALL_LIMIT:
                raise ReplayError(f"{jobs - self.ended_jobs} jobs can never end with these faults")
            if progress is not None and not progress(self.started_tasks):
                break
        outcome = ReplayOutcome(
            np.asarray(self.start, np.int64),
            np.asarray(self.node, np.int64),
            np.asarray(self.job_end, np.int64),
            self.launches,
            decision_ns=self.decision_ns,
            complete=self.ended_jobs == jobs,
        )
        return self.network.message_counts.add_to_outcome(outcome)


def _make_league(
    network: SimulatedNetwork,
    replay_league: ReplayLeague,
    workload: ReplayWorkload,
    settings: ReplaySettings,
    rng: Random,
) -> SimulatedLeague:
    """Return the simulated league of these machines."""
    order = queue_order_of(workload, settings)

    def make_broker_of(config: BrokerConfig, _: PolicyNames) -> Broker:
        bounds = msgspec.structs.replace(
            config, jobs_max=2 * workload.job_count, tasks_max=2 * workload.task_count
        )
        return make_broker(bounds, order)

    return SimulatedLeague(
        network.world,
        network,
        LeagueFactories(make_broker_of, lambda config, _: make_warden(config, settings), Runner),
        LeagueDesign(
            brokers=replay_league.brokers,
            wardens=replay_league.wardens,
            timings=replay_league.timings,
            durability=Durability(snapshot_every=SNAPSHOT_EVENTS, check_every=SNAPSHOT_EVENTS),
            decisions=False,
        ),
        rng,
    )


def run_with_faults(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None
) -> ReplayOutcome:
    """Run the league of the settings with the faults that they name."""
    return RunWithFaults(workload, settings, read_faults(settings)).run(progress)
