"""League of ``hanse demo``: two brokers, three clusters, a small mixed workload and a crash of one broker.

The demonstration runs the machines of ``core``, the policies and the checkers of ``sim`` in virtual time. The
seed decides the network delays, the exact arrival times and the run time of each task; the same seed gives
the same report. Times in a report are seconds since the league was ready.
"""

from random import Random
from typing import Final

from hanse.cli.demo_report import DemoDecision, DemoEvent, DemoJob, DemoReport, Promise
from hanse.cli.demo_workload import BROKERS, WARM_UP, WORKLOAD, demo_clusters, make_plan
from hanse.core.config import Timings
from hanse.model.decision_record import DecisionRecord
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    RecordDecision,
    SendMessage,
    TaskSettled,
    TasksSettled,
    for_each_task,
)
from hanse.model.events import Event, MessageReceived
from hanse.model.ids import MILLISECOND, SECOND, JobId, job_of, job_text
from hanse.model.messages import Outcome, OwnershipTransferred, TaskUpdates
from hanse.sim.backend import SimulatedAttempt
from hanse.sim.checkers.idle_league import check_idle
from hanse.sim.checkers.journal_replay import check_replay
from hanse.sim.checkers.oracle import Oracle
from hanse.sim.clients import Clients
from hanse.sim.event_text import decision_text
from hanse.sim.league import LeagueDesign, PolicyNames, SimulatedLeague
from hanse.sim.network import SimulatedNetwork, delay_table
from hanse.sim.shipped_league import shipped_factories
from hanse.sim.task_story import Story
from hanse.sim.workload import JobPlan, SeedWorkload
from hanse.sim.world import Violation, VirtualWorld

DELAY_MEAN: Final = 2 * MILLISECOND
"""Mean one-way delay of a message."""
CRASH_AT: Final = WARM_UP + 9 * SECOND
RESTART_AT: Final = WARM_UP + 40 * SECOND
FINISH_MAX: Final = 600 * SECOND
"""Time by which all jobs must have ended."""
GANG_WINDOW: Final = 2 * SECOND
"""Greatest difference of the start times of a gang's tasks."""


class LaunchRecorder:
    """Recorder of launched attempts that passes starts and ends on to the checkers."""

    def __init__(self, oracle: Oracle) -> None:
        self.launches: list[tuple[int, str, SimulatedAttempt]] = []
        self._oracle = oracle

    def on_launched(self, cluster: str, runner: str, attempt: SimulatedAttempt) -> None:
        """Record the start of an attempt."""
        self._oracle.on_launched(cluster, runner, attempt)
        self.launches.append((self._oracle.world.now, cluster, attempt))

    def on_ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """Pass on the end of an attempt."""
        self._oracle.on_ended(cluster, attempt, outcome)


class DemoRecorder(Story):
    """Recorder that keeps only what the report needs of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[tuple[int, DecisionRecord]] = []
        self.accepted: dict[JobId, int] = {}
        self.settled: dict[JobId, tuple[int, str, Outcome]] = {}
        self.happenings: list[tuple[int, str]] = []
        self.preempted: dict[tuple[int, int], tuple[int, str]] = {}
        """Task and attempt -> time at which its broker learned of the preemption, and the cluster."""

    def on_event(self, now: int, who: str, event: Event) -> None:
        """Record preemptions."""
        del who
        if isinstance(event, MessageReceived) and isinstance(event.envelope.body, TaskUpdates):
            for end in event.envelope.body.ended:
                if end.outcome is Outcome.PREEMPTED:
                    self.preempted.setdefault((end.task, end.attempt), (now, event.envelope.source))

    def on_effect(self, now: int, who: str, effect: Effect) -> None:
        """Record decisions, takeovers and ends."""
        if isinstance(effect, RecordDecision):
            self.decisions.append((now, effect.decision))
        elif isinstance(effect, JobAccepted):
            self.accepted.setdefault(effect.job, now)
        elif isinstance(effect, JobSettled):
            self.settled.setdefault(effect.job, (now, who, effect.outcome))
        elif isinstance(effect, SendMessage) and isinstance(effect.envelope.body, OwnershipTransferred):
            transfer = effect.envelope.body
            names = ", ".join(job_text(job) for job in transfer.jobs)
            owner = effect.envelope.target
            text = f"every warden has agreed: {who} takes over the unfinished jobs of {owner} ({names})"
            if all(text != known_text for _, known_text in self.happenings):
                self.happenings.append((now, text))

    def on_fault(self, now: int, who: str, what: str) -> None:
        """Record crashes and restarts, but not the first start."""
        if now > 0:
            self.happenings.append((now, f"{who} {what}"))


class DemoLeague:
    """Simulated league of the demonstration."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.seed = seed
        self.recorder = DemoRecorder()
        self.world = VirtualWorld(self.recorder)
        self.timings = Timings()
        wardens = demo_clusters(self.timings)
        network = SimulatedNetwork(self.world, Random(rng.getrandbits(64)))
        design = LeagueDesign(BROKERS, wardens, self.timings, policies=PolicyNames(order="priority"))
        self.league = SimulatedLeague(
            self.world, network, shipped_factories(), design, Random(rng.getrandbits(64))
        )
        for link in network.links:
            link.delays = delay_table("exponential", DELAY_MEAN)
        arrivals = Random(rng.getrandbits(64))
        plans = [make_plan(number, workload_job, arrivals) for number, workload_job in enumerate(WORKLOAD)]
        self.workload = SeedWorkload(rng.getrandbits(63), plans)
        self.oracle = Oracle(self.world, self.workload, wardens, design.lost_max)
        self.launch_recorder = LaunchRecorder(self.oracle)
        self.league.add_backends(self.workload.planned_end, self.launch_recorder)
        for broker in self.league.brokers.values():
            broker.set_performers(
                {
                    TaskSettled: self.oracle.on_task_settled,
                    TasksSettled: for_each_task(self.oracle.on_task_settled),
                }
            )
        self.clients = Clients(
            self.world, Random(rng.getrandbits(64)), self.workload, self.league.brokers, self.oracle
        )

    def run(self) -> DemoReport:
        """Run the workload and return the report."""
        world, east = self.world, self.league.brokers["east"]
        self.league.start()
        world.call_at(CRASH_AT, lambda _: east.crash())
        world.call_at(RESTART_AT, lambda _: east.restart())
        violation = ""
        try:
            self._run_workload()
            self._check_promises()
        except Violation as broken:
            violation = str(broken)
        return self._make_report(violation)

    def _run_workload(self) -> None:
        world = self.world
        while self.oracle.open_tasks or self.clients.unanswered_count or world.now <= RESTART_AT:
            world.run(world.now + 100 * MILLISECOND)
            if world.now >= FINISH_MAX:
                self.oracle.check_terminal(f"after {FINISH_MAX // SECOND} s")
                raise Violation(
                    "every submission answered", f"{self.clients.unanswered_count} clients wait for a reply"
                )

    def _check_promises(self) -> None:
        """Let every lease expire, then check for leftovers."""
        timings, world = self.timings, self.world
        world.run(world.now + 2 * timings.cluster_lease + 2 * timings.resend_max + timings.grant_lease)
        self.oracle.check_terminal("after the league is idle")
        self.oracle.check_gangs(0, GANG_WINDOW)
        for process in self.league.processes:
            process.machine.check()
        check_idle(self.league.brokers, self.league.wardens, list(self.league.backends.values()))
        for process in self.league.journalled_processes:
            check_replay(process)

    # --- the report ----------------------------------------------------------------------------------------

    def _make_report(self, violation: str) -> DemoReport:
        recorder = self.recorder
        last = max((at for at, _, _ in recorder.settled.values()), default=self.world.now)
        events = [*recorder.happenings, *self._preemptions()]
        events.sort()
        return DemoReport(
            seed=self.seed,
            simulated=_report_seconds(last),
            events=self.world.event_count,
            digest=self.world.digest(self.oracle.outcomes()),
            jobs=tuple(self._job_record(plan) for plan in self.workload.plans),
            happenings=tuple(DemoEvent(_report_seconds(at), text) for at, text in events),
            decisions=tuple(self._decision_record(at, decision) for at, decision in recorder.decisions),
            promises=self._promises() if not violation else (),
            violation=violation,
        )

    def _preemptions(self) -> list[tuple[int, str]]:
        """Return one line per job and cluster, at the time of the first preemption."""
        counts: dict[tuple[str, str], tuple[int, int]] = {}
        for (task, _), (at, cluster) in self.recorder.preempted.items():
            name = self.oracle.jobs[job_of(task)].spec.name  # type: ignore[arg-type]  # a task id is a number
            first, count = counts.get((name, cluster), (at, 0))
            counts[name, cluster] = (min(first, at), count + 1)
        return [
            (at, f"{cluster} has stopped {count} tasks of {name} to make room for more urgent work")
            for (name, cluster), (at, count) in counts.items()
        ]

    def _job_record(self, plan: JobPlan) -> DemoJob:
        job = self.clients.jobs.get(plan.number)
        launches = [
            it for it in self.launch_recorder.launches if job is not None and job_of(it[2].task) == job
        ]
        places: dict[str, int] = {}
        first: dict[int, int] = {}
        for at, cluster, attempt in launches:
            places[cluster] = places.get(cluster, 0) + 1
            first.setdefault(attempt.task, at)
        waits = [(at - plan.at) / SECOND for at in first.values()]
        settled = self.recorder.settled.get(job) if job is not None else None
        refused = self.clients.replies.get(2 * plan.number, "")
        return DemoJob(
            name=plan.spec.name,
            what=WORKLOAD[plan.number].what,
            job=job_text(job) if job is not None else "",
            submitted_to=plan.broker,
            ended_at=settled[1] if settled is not None else "",
            submitted=_report_seconds(plan.at),
            tasks=plan.spec.task_count,
            attempts=len(launches),
            places=dict(sorted(places.items())),
            first_start=min(waits, default=None),
            mean_start=round(sum(waits) / len(waits), 6) if waits else None,
            finished=(settled[0] - plan.at) / SECOND if settled is not None else None,
            outcome=f"refused: {refused}" if refused else settled[2] if settled is not None else "not ended",
        )

    def _decision_record(self, at: int, decision: DecisionRecord) -> DemoDecision:
        plan = self.oracle.jobs.get(decision.job)
        assert plan is not None, decision_text(decision)
        return DemoDecision(
            at=_report_seconds(at),
            broker=decision.broker,
            job=plan.spec.name,
            group=plan.spec.groups[decision.group].name,
            answered=decision.kind,
            tasks=decision.tasks,
            reason=decision.reason,
            considered=tuple((it.cluster, it.tasks, it.reason) for it in decision.considered),
        )

    def _promises(self) -> tuple[Promise, ...]:
        oracle = self.oracle
        launches, tasks = len(oracle.launches), len(oracle.settlements)
        journals = len(self.league.journalled_processes)
        return (
            Promise("every acknowledged task reaches a terminal state", f"{tasks} tasks"),
            Promise("at most one live attempt of a task", f"{launches} launches"),
            Promise("at most one effective completion of a task", f"{tasks} tasks"),
            Promise("no node is ever over-committed", f"{launches} launches on {len(oracle.nodes)} nodes"),
            Promise("tasks run only where their rules allow", f"{launches} launches"),
            Promise("nothing starts before its dependencies", f"{launches} launches"),
            Promise("a gang starts together, in one cluster", f"{len(oracle.gang_launches)} gangs"),
            Promise("replaying a journal gives the state of its machine", f"{journals} journals replayed"),
            Promise(
                "views converge, and no lease or message is left", f"{len(self.league.processes)} processes"
            ),
        )


def _report_seconds(at: int) -> float:
    return (at - WARM_UP) / SECOND
