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
from hanse.core.warden.warden import Warden
from hanse.model.effects import JobAccepted, JobSettled, LaunchAttempt, RequestRejected
from hanse.model.ids import SECOND, JobId, index_of, job_of
from hanse.model.messages import Envelope
from hanse.model.messages import Outcome as Ending
from hanse.sim.backend import Attempt, Fate
from hanse.sim.league import Design, Factories, League, Policies
from hanse.sim.network import Link, Network, delay_table
from hanse.sim.process import Durability, Process
from hanse.sim.replay.fault_file import Fault, read_faults
from hanse.sim.replay.league_setup import LeagueSettings, Specs, Tally, league_of, make_broker, order_of
from hanse.sim.replay.records import Outcome, Progress, ReplayError, Settings, Workload
from hanse.sim.world import World

ASK_AGAIN: Final = 60 * SECOND
"""Time that a client waits for a reply; by then a standby has taken over."""
STEP: Final = 60 * SECOND
"""Virtual time between two progress reports."""
STALLED: Final = 1_800 * SECOND
"""Virtual time without an arrival, a start or an end, after the last fault, that only a lost job explains."""
SNAPSHOT_EVENTS: Final = 50_000
"""Events between two snapshots of a process: a restart replays at most this many."""
PAYLOAD_BYTES: Final = 8
"""Length of a task's payload, the number of its job in the workload."""


class CountingNetwork(Network):
    """Network that counts the messages sent."""

    __slots__ = ("tally",)

    def __init__(self, world: World, rng: Random, tally: Tally) -> None:
        super().__init__(world, rng)
        self.tally = tally

    def send(self, link: Link, envelope: Envelope) -> None:
        """Count a message and send it."""
        self.tally.count(envelope)
        super().send(link, envelope)


class FaultedRun:
    """One run; also the ``sim.backend.AttemptObserver`` of all backends."""

    def __init__(self, workload: Workload, settings: Settings, faults: tuple[Fault, ...]) -> None:
        self.workload = workload
        self.delay = settings.delay_us
        self.world = World()
        self.specs = Specs(workload, settings)
        self.settings_of_league = league_of(settings, faults=True)
        self.lead = self.settings_of_league.lead
        rng = Random(settings.seed)
        self.network = CountingNetwork(self.world, rng, Tally())
        self.league = _league(self.network, self.settings_of_league, workload, settings, rng)
        self.start = [-1] * workload.tasks
        self.node = [-1] * workload.tasks
        self.job_end = [-1] * workload.jobs
        self.accepted = [False] * workload.jobs
        self.plan_of: dict[JobId, int] = {}
        self.launched_at: dict[tuple[int, int], int] = {}
        """Live attempts: task and attempt -> time of the launch."""
        self.launches = 0
        self.begun = 0
        self.ended_jobs = 0
        self.moved_at = self.lead + max((fault.at + (fault.length or 0) for fault in faults), default=0)
        """Time of the last arrival, start or end; at least the end of the last fault."""
        self.decision_ns: list[int] = []
        self._begin(faults)

    def _begin(self, faults: tuple[Fault, ...]) -> None:
        delays = delay_table("constant", self.delay)
        for link in self.network.links:
            link.delays = delays
        self.league.equip(self._fate, self)
        for backend in self.league.backends.values():
            backend.notice_max = 0
        for process in self.league.brokers.values():
            process.connect(
                {JobAccepted: self._acknowledge, RequestRejected: self._reject, JobSettled: self._settle}
            )
        self.league.boot()
        for fault in faults:
            self.world.at(self.lead + fault.at, self._strike, fault)
        self._next_arrival(0)

    # --- clients -------------------------------------------------------------------------------------------

    def _next_arrival(self, job: int) -> None:
        if job < self.workload.jobs:
            self.world.at(self.lead + self.workload.arrival[job], self._arrive, job)

    def _arrive(self, job: int) -> None:
        if not job:
            self.network.tally = Tally()  # earlier messages belong to no task
        self.moved_at = max(self.moved_at, self.world.now)
        self._next_arrival(job + 1)
        self._submit(job)

    def _submit(self, job: int) -> None:
        """Submit a job to its broker, or to the next one that is up; repeat until it is acknowledged."""
        if self.accepted[job]:
            return
        brokers = list(self.league.brokers.values())
        turn = job % len(brokers)
        up = [process for process in brokers[turn:] + brokers[:turn] if process.up]
        if up:
            spec = self.specs.spec(job, job.to_bytes(PAYLOAD_BYTES, "little"), f"job{job}")
            began = perf_counter_ns()
            up[0].submit(("client", job, spec))
            self.decision_ns.append(perf_counter_ns() - began)
        self.world.at(self.world.now + ASK_AGAIN, self._submit, job)

    def _acknowledge(self, effect: JobAccepted) -> None:
        self.accepted[effect.request] = True
        self.plan_of[effect.job] = effect.request

    def _reject(self, effect: RequestRejected) -> None:
        raise AssertionError(f"job {effect.request} was rejected: {effect.reason}")

    def _settle(self, effect: JobSettled) -> None:
        job = self.plan_of[effect.job]
        if self.job_end[job] < 0:  # else a client without a timely reply made two jobs of it
            self.ended_jobs += 1
            self.job_end[job] = self.world.now - self.lead - self.delay

    # --- real starts and ends ------------------------------------------------------------------------------

    def _fate(self, launch: LaunchAttempt) -> Fate:
        return self.workload.duration[self._task(launch.task, launch.payload)], Ending.SUCCEEDED, 0

    def _task(self, task: int, payload: bytes) -> int:
        """Return the number of a task in the workload."""
        return self.workload.offset[int.from_bytes(payload, "little")] + index_of(task)  # type: ignore[arg-type]

    def launched(self, _cluster: str, _runner: str, attempt: Attempt) -> None:
        """Record the start of an attempt."""
        self.plan_of[job_of(attempt.task)] = int.from_bytes(attempt.payload, "little")
        self.launched_at[attempt.task, attempt.attempt] = self.world.now
        self.moved_at = max(self.moved_at, self.world.now)
        self.launches += 1

    def ended(self, cluster: str, attempt: Attempt, outcome: Ending) -> None:
        """Record the end of an attempt."""
        began = self.launched_at.pop((attempt.task, attempt.attempt))
        self.moved_at = max(self.moved_at, self.world.now)
        task = self._task(attempt.task, attempt.payload)
        if outcome is Ending.SUCCEEDED and self.start[task] < 0:
            self.begun += 1
            self.start[task] = began - self.lead
            self.node[task] = self.settings_of_league.first_node[f"{cluster}.r"] + attempt.node

    # --- faults --------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        brokers = [list(self.league.brokers.values())[number] for number in fault.brokers]
        wardens = [list(self.league.wardens.values())[number] for number in fault.clusters]
        if fault.partition:
            self._cut([process.name for process in brokers + wardens], fault)
            return
        lost: list[Process] = [*brokers, *wardens]
        for process in lost:
            process.crash()
        for warden in wardens:
            backend = self.league.backends[f"{warden.name}.r"]
            backend.burn()
            lost.append(backend.runner)
        if fault.length is not None:
            for process in lost:
                self.world.at(self.world.now + fault.length, self._restart, process)

    def _restart(self, process: Process) -> None:
        process.restart()

    def _cut(self, names: list[str], fault: Fault) -> None:
        """Cut the links of these members for a while; a warden and its runner stay connected."""
        group = dict.fromkeys(names + [f"{name}.r" for name in names])
        crossing = [link for link in self.network.links if (link.source in group) != (link.target in group)]
        self.network.cut(crossing)
        assert fault.length is not None
        self.world.at(self.world.now + fault.length, self.network.mend, crossing)

    # --- the run -------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None) -> Outcome:
        """Run until every job has ended; stop early if ``progress`` asks for it."""
        jobs = self.workload.jobs
        while self.ended_jobs < jobs:
            self.world.run(self.world.now + STEP)
            if not self.launched_at and self.world.now - self.moved_at > STALLED:
                raise ReplayError(f"{jobs - self.ended_jobs} jobs can never end with these faults")
            if progress is not None and not progress(self.begun):
                break
        outcome = Outcome(
            np.asarray(self.start, np.int64),
            np.asarray(self.node, np.int64),
            np.asarray(self.job_end, np.int64),
            self.launches,
            decision_ns=self.decision_ns,
            complete=self.ended_jobs == jobs,
        )
        return self.network.tally.in_outcome(outcome)


def _league(
    network: Network, design: LeagueSettings, workload: Workload, settings: Settings, rng: Random
) -> League:
    """Return the simulated league of these machines."""
    order = order_of(workload, settings)

    def broker(config: BrokerConfig, _: Policies) -> Broker:
        bounds = msgspec.structs.replace(config, jobs_max=2 * workload.jobs, tasks_max=2 * workload.tasks)
        return make_broker(bounds, order)

    return League(
        network.world,
        network,
        Factories(broker, Warden, Runner),
        Design(
            brokers=design.brokers,
            wardens=design.wardens,
            timings=design.timings,
            durability=Durability(snapshot_every=SNAPSHOT_EVENTS, check_every=SNAPSHOT_EVENTS),
            decisions=False,
        ),
        rng,
    )


def run_with_faults(workload: Workload, settings: Settings, progress: Progress | None) -> Outcome:
    """Run the league of the settings with the faults that they name."""
    return FaultedRun(workload, settings, read_faults(settings)).run(progress)
