"""Policy ``hanse``: the real brokers, wardens and runners of a live league, in virtual time.

The shell is small: one process, no journal, no encoding, no clocks that differ, because nothing fails in a
run without faults (``sim.replay.hanse_with_faults`` runs those with faults). Every message takes one delay,
also between a warden and its runner, which stands for the node: a task that finds room starts two messages
after its job's arrival (claim, order). Events of one moment happen in the order of their causes; tasks that
end at one moment in one cluster are reported in one message, as by a backend of a live league.

*End of a job.* Under the other policies a node reports the end of a task to the warden and to the scheduler
that accepted the job, one message each. In Hanse the broker hears of it from the warden, one message later.
To compare like with like a job ends here one message before its broker reports it (``JobSettled``), which is
one message after its last task: a job that finds room has a delay of three messages. The brokers themselves
act on the messages that have really arrived.

*Counted messages.* Every envelope from the first arrival on, batches once: claims, replies, demand, offers,
orders, reports, task updates, and those that other policies do not have (settling, orders to forget an end).
Counted separately, as heartbeats: beats and their replies, gossip, bare acknowledgements, wardens' deltas.

*Engine.* The machines, in the shell below; or, with the same outcome, the compiled league
(``sim.replay.compiled``), one to two hundred times as fast. ``ReplaySettings.engine`` chooses.

Runners do not hear of starts, only of ends, unless there are more tasks than a broker can expect without
reports (``UNREPORTED_TASKS_MAX``): in a run without faults every order is carried out at once.
"""

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from time import perf_counter_ns
from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.attempt_withdrawal import EXPECTED_MAX
from hanse.core.messaging.link import NEVER
from hanse.core.runner.runner import Runner
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    LaunchAttempt,
    RequestRejected,
    SendMessage,
    TaskSettled,
    TasksSettled,
    WakeAt,
)
from hanse.model.events import (
    BackendReported,
    Booted,
    JobSubmitted,
    MessageReceived,
    TasksChanged,
    Tick,
)
from hanse.model.ids import JobId, index_of, job_of
from hanse.model.messages import AttemptEnd, Envelope
from hanse.model.messages import Outcome as Ending
from hanse.policy.hashing import hash_numbers
from hanse.sim.baselines.task_level import engine
from hanse.sim.replay.compiled import find_objection, run_compiled
from hanse.sim.replay.hanse_with_faults import run_with_faults
from hanse.sim.replay.league_setup import JobSpecs, MessageCounts, check_workload, make_league, make_machines
from hanse.sim.replay.run_records import Progress, ReplayError, ReplayOutcome, ReplaySettings, ReplayWorkload

UNREPORTED_TASKS_MAX: Final = EXPECTED_MAX // 2
"""Largest number of tasks whose starts need not be reported: a broker can expect so many starts."""
CLIENT: Final = "replay"
"""Name of the client; a broker replies only to named clients."""
IDLE_BEATS_MAX: Final = 20
"""Beats without a running task after which an unfinished run counts as a bug of the simulator."""

ShellEvent = tuple[int, int, str, Envelope | AttemptEnd | int | None]
"""Time, number, target and content: a message, the end of a task, an arriving job, or None for a tick. The
number is unique, so that a comparison never goes further."""


class LeanShell:
    """Shell of all machines of a league, with their messages and the running tasks."""

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        self.reports_starts = workload.task_count > UNREPORTED_TASKS_MAX
        self.workload = workload
        self.league = make_league(settings, reports_starts=self.reports_starts)
        self.machines = make_machines(self.league, workload, settings)
        self.specs = JobSpecs(workload, settings)
        self.message_counts = MessageCounts()
        self.delay = settings.delay_us
        self.lead = self.league.lead
        self.heap: list[ShellEvent] = []
        self.lane: deque[ShellEvent] = deque()
        """Messages in transit; all take the same time, so they arrive in the order of sending."""
        self.ticks: dict[tuple[str, int], None] = {}
        """Pending ticks: a machine may ask for the same one several times."""
        self.number = 0
        self.start = [-1] * workload.task_count
        self.node = [-1] * workload.task_count
        self.job_end = [-1] * workload.job_count
        self.job_of: dict[JobId, int] = {}
        self.started_tasks = 0
        self.running_tasks = 0
        self.arrived_jobs = 0
        self.ended_jobs = 0
        self.progressed_at = 0
        """Time of the last start or end of a task, or arrival of a job."""
        self.decision_ns: list[int] = []
        for position, (name, machine) in enumerate(self.machines.items()):
            self._perform(0, name, machine.handle(Booted(0, 1, hash_numbers(settings.seed, position) >> 2)))
            if isinstance(machine, Runner):
                self._perform(0, name, machine.handle(BackendReported(0, (), ())))
        self._schedule_arrival()

    def run(self, progress: Progress | None = None) -> ReplayOutcome:
        """Run the whole workload; stop early if ``progress`` asks for it."""
        jobs = self.workload.job_count
        while self.ended_jobs < jobs:
            now = self._play(engine.EVENTS_PER_REPORT)
            is_waiting = self.arrived_jobs == jobs and not self.running_tasks and self.ended_jobs < jobs
            idle = now - self.progressed_at
            assert not is_waiting or idle < IDLE_BEATS_MAX * self.league.timings.beat, "a job can never end"
            if progress is not None and not progress(self.started_tasks):
                break
        return self._outcome()

    def _play(self, events: int) -> int:
        """Process this many events, or as many as end the last job; return the time of the last one."""
        heap, lane, wakes, perform = self.heap, self.lane, self.ticks, self._perform
        handle = {name: machine.handle for name, machine in self.machines.items()}
        jobs = self.workload.job_count
        now = 0
        for _ in range(events):
            if lane and lane[0] < heap[0]:  # beats never end, so the heap is never empty
                now, _number, name, envelope = lane.popleft()
                perform(now, name, handle[name](MessageReceived(now, envelope)))  # type: ignore[arg-type]
                if self.ended_jobs == jobs:
                    break
                continue
            now, _number, name, what = heappop(heap)
            if what is None:
                del wakes[name, now]
                perform(now, name, handle[name](Tick(now)))
            elif type(what) is AttemptEnd:
                self._on_task_ends(now, name, what)
            else:
                assert isinstance(what, int)
                self._on_arrival(now, what)
        return now

    def _on_task_ends(self, now: int, runner: str, first: AttemptEnd) -> None:
        """Handle all task ends of this moment, one event per runner, in the order of their first ends."""
        heap = self.heap
        ends = {runner: [first]}
        while heap[0][0] == now:
            what = heap[0][3]
            if type(what) is not AttemptEnd:
                break
            ends.setdefault(heappop(heap)[2], []).append(what)
        self.progressed_at = now
        for name, runner_ends in ends.items():
            self.running_tasks -= len(runner_ends)
            self._perform(now, name, self.machines[name].handle(TasksChanged(now, (), tuple(runner_ends))))

    def _on_arrival(self, now: int, job: int) -> None:
        """Handle the arrival of a job; brokers take turns. Messages count from the first arrival on."""
        if not job:
            self.message_counts = MessageCounts()
        self.arrived_jobs = job + 1
        self.progressed_at = now
        self._schedule_arrival()
        brokers = self.league.brokers
        name = brokers[job % len(brokers)]
        machine, event = self.machines[name], JobSubmitted(now, CLIENT, job, self.specs.make_spec(job))
        began = perf_counter_ns()
        effects = machine.handle(event)
        self.decision_ns.append(perf_counter_ns() - began)
        self._perform(now, name, effects)

    def _schedule_arrival(self) -> None:
        job = self.arrived_jobs
        if job < self.workload.job_count:
            self.number += 1
            heappush(self.heap, (self.workload.arrival[job] + self.lead, self.number, "", job))

    def _perform(self, now: int, name: str, effects: list[Effect]) -> None:
        """Perform the effects of a machine in order."""
        lane, count = self.lane, self.message_counts.count
        for effect in effects:
            kind = type(effect)
            if kind is SendMessage:
                envelope = effect.envelope  # type: ignore[union-attr]  # mypy does not narrow by ``kind``
                count(envelope)
                self.number += 1
                lane.append((now + self.delay, self.number, envelope.target, envelope))
            elif kind is TaskSettled or kind is TasksSettled:
                continue
            elif isinstance(effect, WakeAt):
                at = max(effect.at, now)
                if (name, at) not in self.ticks and at < NEVER:
                    self.ticks[name, at] = None
                    self.number += 1
                    heappush(self.heap, (at, self.number, name, None))
            elif isinstance(effect, LaunchAttempt):
                self._launch(now, name, effect)
            elif isinstance(effect, JobSettled):
                self.ended_jobs += 1
                self.job_end[self.job_of[effect.job]] = now - self.lead - self.delay
            elif isinstance(effect, JobAccepted):
                self.job_of[effect.job] = effect.request
            else:
                assert not isinstance(effect, RequestRejected), effect

    def _launch(self, now: int, runner: str, effect: LaunchAttempt) -> None:
        task = self.workload.offset[self.job_of[job_of(effect.task)]] + index_of(effect.task)
        assert self.start[task] < 0, f"task {task} starts twice"
        self.start[task] = now - self.lead
        self.node[task] = self.league.first_node[runner] + effect.node
        self.started_tasks += 1
        self.running_tasks += 1
        self.progressed_at = now
        self.number += 1
        end = AttemptEnd(effect.task, effect.attempt, Ending.SUCCEEDED)
        heappush(self.heap, (now + self.workload.duration[task], self.number, runner, end))
        if self.reports_starts:
            started = TasksChanged(now, ((effect.task, effect.attempt),), ())
            self._perform(now, runner, self.machines[runner].handle(started))

    def _outcome(self) -> ReplayOutcome:
        return self.message_counts.add_to_outcome(
            ReplayOutcome(
                np.asarray(self.start, np.int64),
                np.asarray(self.node, np.int64),
                np.asarray(self.job_end, np.int64),
                self.started_tasks,
                decision_ns=self.decision_ns,
                complete=self.ended_jobs == self.workload.job_count,
            )
        )


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the garbage collector: machines make few cycles; looking for them costs a tenth of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def run_hanse(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run the league of the settings, with their faults if there are any, on the engine that they name."""
    check_workload(workload)
    if settings.engine != "machines":
        why = find_objection(workload, settings)
        if not why:
            starts = workload.task_count > UNREPORTED_TASKS_MAX
            return run_compiled(workload, settings, progress, starts, IDLE_BEATS_MAX)
        if settings.engine == "compiled":
            raise ReplayError(f"the compiled league cannot run this ({why}): use --engine machines")
    if settings.faults:
        outcome = run_with_faults(workload, settings, progress)
    else:
        with _without_gc():
            outcome = LeanShell(workload, settings).run(progress)
    return msgspec.structs.replace(outcome, engine="machines")
