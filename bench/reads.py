"""How many submissions, starts and ends the read models take in one second of CPU time.

``python bench/reads.py --json FILE`` writes what it prints. The stream is synthetic, with the events and
commands that a broker has in each part of a task's life, in batches as a daemon would hand them over:

``submit``: jobs are submitted, accepted and told to wait for room.
``claim``: their tasks are claimed in lots.
``start``: wardens tell that tasks have started.
``end``: wardens tell that tasks have ended, with what they used; the broker settles them and their jobs.

``life`` is all of it. Each part's batches hold nothing but that part, so every task is written at each stage
(``life`` of ``together`` has whole lives in one batch, which is how short tasks go). Rates are tasks (for
``submit``: jobs) per second of CPU time of this process, the best of several repeats, file included;
``questions`` are milliseconds of one answer.
"""

import gc
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import as_program

from hanse.core.broker import job_table
from hanse.live.readmodel.read_model import ReadModel
from hanse.model.decision_record import ConsideredCluster, DecisionKind, DecisionRecord
from hanse.model.effects import Effect, JobAccepted, JobSettled, RecordDecision, SendMessage, TaskSettled
from hanse.model.events import Event, JobSubmitted, MessageReceived
from hanse.model.history_effects import AttemptsEnded, JobAdded, TasksPlaced, TasksStarted
from hanse.model.ids import JobId, job_id, task_id
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import (
    AttemptEnd,
    Claim,
    Envelope,
    Outcome,
    ResourceUsage,
    Shape,
    TaskBatch,
    TaskTemplate,
    TaskUpdates,
)
from hanse.model.resources import Resources

Step = tuple[int, Event, list[Effect]]
TASKS = 20_000
"""Tasks in one repeat."""
SHAPES = (1, 100)
"""Tasks a job."""
LOT_TASKS = 100
BATCH_TASKS = 1_000
"""Tasks in one batch: a fifth of a second at 5,000 tasks a second."""
REPEATS = 3
KEPT_JOBS = 20_000
"""Small enough that most of the measured work has to prune as well."""
NODES = 1_000
ENDS_BAR = 50_000
SUBMITS_BAR = 10_000
PARTS = ("submit", "claim", "start", "end")


class Stream:
    """Writes the history of a broker of which nothing is known but its read models."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.position = self.now = self.request = self.serial = self.sent = self.received = 0
        self.ask = Resources(cpu=1_000, memory=1 << 30)
        self.brief = TaskTemplate(Shape(self.ask), "b1#1")
        self.considered = (
            ConsideredCluster("north", 0, "no room in view"),
            ConsideredCluster("south", 0, "no room in view"),
        )

    def step(self, event: Event, commands: list[Effect]) -> Step:
        """The next entry of the journal."""
        self.position += 1
        return self.position, event, commands

    def news(self, started: tuple[Any, ...], ended: tuple[AttemptEnd, ...], commands: list[Effect]) -> Step:
        """A warden's news."""
        self.received += 1
        body = TaskUpdates(started, ended)
        return self.step(
            MessageReceived(self.now, Envelope("north", "b1", 0, self.received, self.sent, body)), commands
        )

    def submit(self, jobs: list[JobId]) -> list[Step]:
        """Jobs are accepted and wait."""
        steps = []
        for job in jobs:
            self.request += 1
            self.now += 10
            spec = JobSpec((TaskGroup(count=self.width, ask=self.ask),), name=f"job{job % 50}", tenant="t1")
            decision = DecisionRecord(
                self.now, "b1", job, 0, DecisionKind.WAITING, self.width, "no room in any cluster's view",
                self.considered,
            )  # fmt: skip
            commands: list[Effect] = [
                JobAdded(job, spec, "b1#1", self.now),
                JobAccepted("me", self.request, job),
                RecordDecision(decision),
            ]
            steps.append(self.step(JobSubmitted(self.now, "me", self.request, spec), commands))
        return steps

    def claim(self, jobs: list[JobId]) -> list[Step]:
        """All tasks are claimed, each job by a step of its own."""
        steps = []
        for job in jobs:
            lots, commands = [], list[Effect]()
            for at in range(0, self.width, LOT_TASKS):
                tasks = tuple(range(at, min(self.width, at + LOT_TASKS)))
                nodes = tuple(index % NODES for index in tasks)
                lots.append(TaskBatch(job, 0, self.brief, tasks, (1,) * len(tasks), nodes, self.ask))
            self.sent += 1
            decision = DecisionRecord(
                self.now, "b1", job, 0, DecisionKind.PLACED, self.width, "bound room granted by north"
            )
            claim = Claim(self.sent, (("b1#1", 1),), self.now, tuple(lots))
            commands = [
                *[TasksPlaced("north", lot) for lot in lots],
                RecordDecision(decision),
                SendMessage(Envelope("b1", "north", 0, self.sent, self.received, claim)),
            ]
            steps.append(self.step(MessageReceived(self.now, _NOTHING), commands))
        return steps

    def start(self, jobs: list[JobId]) -> list[Step]:
        """All tasks start, told by the hundred."""
        starts = [(task_id(job, index), 1, index % NODES) for job in jobs for index in range(self.width)]
        lots = [tuple(starts[at : at + LOT_TASKS]) for at in range(0, len(starts), LOT_TASKS)]
        return [self.news(lot, (), [TasksStarted(lot)]) for lot in lots]

    def end(self, jobs: list[JobId]) -> list[Step]:
        """All tasks succeed, told by the hundred, and are made known at once."""
        steps = []
        usage = ResourceUsage(900_000, 1 << 28, 1_000_000)
        tasks = [task_id(job, index) for job in jobs for index in range(self.width)]
        for at in range(0, len(tasks), LOT_TASKS):
            part = tasks[at : at + LOT_TASKS]
            ends = tuple([AttemptEnd(task, 1, Outcome.SUCCEEDED, 0, usage) for task in part])
            commands: list[Effect] = [AttemptsEnded([(end.task, job_table.SUCCEEDED, end) for end in ends])]
            commands += [TaskSettled(task, 1, Outcome.SUCCEEDED) for task in part]
            last = self.width - 1
            commands += [
                JobSettled(JobId(task >> 20), Outcome.SUCCEEDED) for task in part if task & 0xFFFFF == last
            ]
            steps.append(self.news((), ends, commands))
        return steps

    def next_jobs(self, tasks: int) -> list[JobId]:
        """Numbers for jobs with so many tasks together."""
        first = self.serial
        self.serial += max(1, tasks // self.width)
        return [job_id(1, serial) for serial in range(first, self.serial)]


_NOTHING = Envelope("north", "b1", 0, 0, 0, TaskUpdates((), ()))
"""A soft message: of no interest to the read models."""


def timed(work: Callable[[], None]) -> float:
    """CPU-seconds that something takes."""
    gc.collect()
    gc.disable()
    begin = time.process_time()
    work()
    spent = time.process_time() - begin
    gc.enable()
    return spent


def feed(reads: ReadModel, batches: list[list[Step]]) -> Callable[[], None]:
    """What applies these batches."""

    def work() -> None:
        for batch in batches:
            reads.apply(batch, 1_700_000_000_000_000)

    return work


def measure(width: int, directory: Path) -> dict[str, float]:
    """Tasks (or jobs) per CPU-second by part, best of the repeats."""
    reads = ReadModel(directory / f"apart{width}.sqlite", "b1", kept_jobs_max=KEPT_JOBS)
    stream, best = Stream(width), dict[str, float]()
    for _ in range(REPEATS):
        groups = [stream.next_jobs(BATCH_TASKS) for _ in range(TASKS // BATCH_TASKS)]
        whole = 0.0
        for part in PARTS:
            batches = [getattr(stream, part)(jobs) for jobs in groups]
            spent = timed(feed(reads, batches))
            whole += spent
            units = sum(len(jobs) for jobs in groups) * (1 if part == "submit" else width)
            best[part] = max(best.get(part, 0.0), units / spent)
        best["life"] = max(best.get("life", 0.0), TASKS / whole)
    done = reads.tenant_totals()[0].tasks
    assert done == {"succeeded": min(REPEATS * TASKS, KEPT_JOBS * width)}, done
    reads.close()
    reads = ReadModel(directory / f"together{width}.sqlite", "b1", kept_jobs_max=KEPT_JOBS)
    stream = Stream(width)
    for _ in range(REPEATS):
        batches = []
        for _ in range(TASKS // BATCH_TASKS):
            jobs = stream.next_jobs(BATCH_TASKS)
            batches.append([step for part in PARTS for step in getattr(stream, part)(jobs)])
        best["together"] = max(best.get("together", 0.0), TASKS / timed(feed(reads, batches)))
    reads.close()
    return best


def questions(directory: Path) -> dict[str, float]:
    """Milliseconds of each question to a file with 100,000 ended jobs and 20,000 running tasks."""
    reads = ReadModel(directory / "questions.sqlite", "b1")
    ended, running = Stream(1), Stream(1)
    for _ in range(100):
        jobs = ended.next_jobs(BATCH_TASKS)
        reads.apply([step for part in PARTS for step in getattr(ended, part)(jobs)], 1)
    running.__dict__.update(ended.__dict__)
    running.width = 100
    jobs = running.next_jobs(20_000)
    reads.apply([step for part in PARTS[:3] for step in getattr(running, part)(jobs)], 1)
    ask: dict[str, Callable[[], object]] = {
        "jobs": reads.jobs,
        "jobs_running": lambda: reads.jobs(state="running"),
        "jobs_of_a_rare_name": lambda: reads.jobs(name="none"),
        "job": lambda: reads.job(jobs[0]),
        "tasks": lambda: reads.tasks(jobs[0], limit=100),
        "decisions": lambda: reads.decisions(jobs[0]),
        "counts": reads.tenant_totals,
        "running_on": lambda: reads.running_tasks("north", 7),
        "durations": lambda: reads.durations("job7", "t1", "main"),
        "changes_since": lambda: reads.changes_since(0, 100),
    }
    found = {}
    for name, question in ask.items():
        question()

        def five(question: Callable[[], object] = question) -> None:
            for _ in range(5):
                question()

        best = min(timed(five) for _ in range(REPEATS))
        found[name] = round(best / 5 * 1_000, 3)
    reads.close()
    begin = time.process_time()
    ReadModel(directory / "questions.sqlite", "b1").close()
    found["reopening"] = round((time.process_time() - begin) * 1_000, 1)
    return found


def run() -> dict[str, Any]:
    """Every figure."""
    result: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
        "unit": "tasks (submit: jobs) per CPU-second",
        "batch_tasks": BATCH_TASKS,
        "bars": {"end": ENDS_BAR, "submit": SUBMITS_BAR},
        "by_tasks_a_job": {},
    }
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for width in SHAPES:
            rates = measure(width, directory)
            result["by_tasks_a_job"][str(width)] = {part: round(rate) for part, rate in rates.items()}
        result["questions_milliseconds"] = questions(directory)
    return result


if __name__ == "__main__":
    as_program(run, "What the read models take in one second of CPU time.")
