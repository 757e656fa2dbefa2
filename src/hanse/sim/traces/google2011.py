"""Google 2011 task events: jobs assembled from the events of their tasks.

Each CSV row without a header is an event: time (us), missing info, job, task index, machine, event type,
user, scheduling class, priority, CPU, memory and disk request (shares of the largest machine),
different-machine flag. A task's duration is the time from its last SCHEDULE to its end (FINISH, FAIL, KILL
or LOST). An EVICT ends an attempt, not the task. A job is complete when all tasks submitted so far have
ended, so jobs come in order of their ends; a task that is submitted again after its job was complete begins
a new entry with the same number. Only open jobs are held, in bounded memory.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, NameTable, TraceRow
from hanse.sim.traces.csv_datasets import split_fields
from hanse.sim.traces.read_options import ReadOptions
from hanse.sim.traces.read_report import ReadReport
from hanse.sim.traces.reader import (
    FileHead,
    ParsedRow,
    RejectedRow,
    TraceFormat,
    TraceReader,
    build_chunks,
    parse_finite,
    parse_integer,
)

FIELDS: Final = 13
OPEN_TASKS_MAX: Final = 1 << 20
"""Largest number of tasks that have not ended; beyond it the oldest job is closed with the tasks that ended,
and the others are counted."""
TIME_END: Final = 1 << 62
"""Limit of times; later ones mean "after the end of the trace"."""
SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING, UPDATE_RUNNING = range(9)
ENDS: Final = (FAIL, FINISH, KILL, LOST)
EXTRA: Final[dict[str, type]] = {"priority": int, "scheduling_class": int}
NOT_ENDED: Final = "tasks that had not ended when the trace did"
NEVER_RAN: Final = "tasks that ended without having run"
DISPLACED: Final = f"tasks still open when more than {OPEN_TASKS_MAX:,} were"


class _Event(msgspec.Struct):
    at: int
    job: int
    index: int
    kind: int
    user: str
    scheduling_class: int
    priority: int
    cpu: float
    memory: float


class _Job(msgspec.Struct):
    arrival: int
    user: int
    priority: int
    scheduling_class: int
    cpu: float = 0.0
    """Largest request of the job's tasks, so that no task gets too little."""
    memory: float = 0.0
    started: dict[int, int] = {}
    """Open tasks by index: time of their last SCHEDULE, -1 for none."""
    durations: list[int] = []


def _parse(text: str) -> _Event | RejectedRow:
    fields = split_fields(text)
    if fields is None or len(fields) != FIELDS:
        return RejectedRow(f"not {FIELDS} fields", text)
    numbers = [parse_integer(fields[place]) for place in (0, 2, 3, 5)]
    at, job, index, kind = numbers
    if at is None or job is None or index is None or kind is None:
        return RejectedRow("no number for time, job, task index or event type", text)
    if not 0 <= at < TIME_END:
        return RejectedRow("an event after the end of the trace")
    if not SUBMIT <= kind <= UPDATE_RUNNING:
        return RejectedRow("an unknown type of event", fields[5])
    return _Event(
        at,
        job,
        index,
        kind,
        fields[6],
        parse_integer(fields[7]) or 0,
        parse_integer(fields[8]) or 0,
        parse_finite(fields[9]) or 0.0,
        parse_finite(fields[10]) or 0.0,
    )


class _JobAssembler:
    """Open jobs, and the effect of each event on them."""

    def __init__(self, names: NameTable, options: ReadOptions, report: ReadReport) -> None:
        self.jobs: dict[int, _Job] = {}
        self.open_tasks = 0
        self.names = names
        self.options = options
        self.report = report

    def on_event(self, event: _Event) -> RejectedRow | TraceRow | None:
        """Return the result of an event: a complete job, a rejected row, or None."""
        if event.kind == SUBMIT:
            return self._on_submit(event)
        job = self.jobs.get(event.job)
        if job is None or event.index not in job.started:
            if event.kind in (UPDATE_PENDING, UPDATE_RUNNING):
                return None
            return RejectedRow(
                "an event of a task that was never submitted", f"job {event.job} task {event.index}"
            )
        if event.kind == SCHEDULE:
            job.started[event.index] = event.at
        elif event.kind == EVICT:
            job.started[event.index] = -1
        elif event.kind in ENDS:
            return self._on_end(event, job)
        return None

    def _on_submit(self, event: _Event) -> TraceRow | None:
        job = self.jobs.get(event.job)
        if job is None:
            job = _Job(event.at, self.names.number(event.user), event.priority, event.scheduling_class)
            self.jobs[event.job] = job
        job.cpu, job.memory = max(job.cpu, event.cpu), max(job.memory, event.memory)
        if event.index in job.started:
            return None
        job.started[event.index] = -1
        self.open_tasks += 1
        return self.close_job(next(iter(self.jobs)), DISPLACED) if self.open_tasks > OPEN_TASKS_MAX else None

    def _on_end(self, event: _Event, job: _Job) -> RejectedRow | TraceRow | None:
        began = job.started.pop(event.index)
        self.open_tasks -= 1
        refused: RejectedRow | None = None
        if began < 0:
            self.report.skip(NEVER_RAN)
        elif event.at < began:
            refused = RejectedRow("ends before it starts", f"job {event.job} task {event.index}")
        else:
            job.durations.append(event.at - began)
        if job.started:
            return refused
        return self._row(event.job, self.jobs.pop(event.job)) or refused

    def close_job(self, number: int, why: str) -> TraceRow | None:
        """Close a job without waiting for its open tasks."""
        job = self.jobs.pop(number)
        self.open_tasks -= len(job.started)
        self.report.skip(why, len(job.started))
        return self._row(number, job)

    def _row(self, number: int, job: _Job) -> TraceRow | None:
        if not job.durations:
            return None
        return TraceRow(
            job=number,
            arrival=job.arrival,
            durations=job.durations,
            count=len(job.durations),
            cpu=round(job.cpu * self.options.whole_cpu),
            memory=round(job.memory * self.options.whole_memory),
            user=job.user,
            extra=(job.priority, job.scheduling_class),
        )


def _chunks(reader: TraceReader) -> Iterator[JobChunk]:
    report = reader.report
    builder = ChunkBuilder(report, EXTRA, origin=0)
    assembler = _JobAssembler(builder.names, reader.options, report)

    def rows() -> Iterator[tuple[int, ParsedRow]]:
        line = 0
        for line, raw in reader.source.lines(report):
            text = raw.decode("utf-8", "replace").strip()
            if not text:
                continue
            event = _parse(text)
            made = event if isinstance(event, RejectedRow) else assembler.on_event(event)
            if made is None:
                report.rows += 1  # an event that completes no job is still a row
            else:
                yield line, made
        for number in list(assembler.jobs):
            made = assembler.close_job(number, NOT_ENDED)
            if made is not None:
                report.rows -= 1  # the events of this job have been counted
                yield line, made

    return build_chunks(reader, builder, rows())


def _recognise(head: FileHead) -> bool:
    rows = [line for line in head.lines[:20] if line.strip()]
    return bool(rows) and all(isinstance(_parse(row.strip()), _Event) for row in rows[:5])


GOOGLE_2011 = TraceFormat(
    "google-2011",
    "Google 2011 task_events, 13 columns without a header (CSV); by such rows",
    _recognise,
    _chunks,
)
