"""Jobs from the journals of brokers: their events, and the effects of a machine that handles them again.

A broker's journal holds events only; the number and the end of a job show in the effects of a machine that
handles the events again. A caller with such a machine passes both to a ``JournalJobs``, event by event, for
one broker or for several in the order of time; it returns one row per group of every job that has ended.

A job arrives when it is submitted. A task's duration is the run time that its backend measured for the
attempt that made it terminal, else the time between the broker's reports of its start and of its end; the
durations of earlier attempts are not kept. Jobs that have not ended and tasks that never ran are left out
and counted. A job that one broker accepted and its standby ended after a takeover is one job, with the
journal of one of the two or of both: the standby was given a copy.

Rows come in order of arrival as far as memory permits: a job that has ended waits for earlier ones that have
not, until ``HELD_TASKS_MAX`` tasks wait.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

from hanse.core.broker.state import BrokerState
from hanse.model.effects import Effect, JobAccepted, JobSettled, RequestRejected, TaskSettled, TasksSettled
from hanse.model.events import Event, JobSubmitted, MessageReceived
from hanse.model.ids import JobId, TaskId, index_of, job_of
from hanse.model.job import JobSpec
from hanse.model.messages import (
    AttemptEnd,
    OwnershipReply,
    Replica,
    ReplicateJobs,
    ReplicaUpdate,
    TaskUpdates,
)
from hanse.sim.traces.chunk_builder import NameTable, TraceRow
from hanse.sim.traces.read_report import ReadReport

GROUP_BITS: Final = 10
"""Bits of the group's position in ``job << 10 | group``, for several groups; job numbers are smaller."""
PENDING_MAX: Final = 100_000
"""Submissions without a reply; beyond this the oldest are dropped, and their jobs count as unknown."""
HELD_TASKS_MAX: Final = 1 << 18
"""Tasks of ended jobs that wait for earlier jobs to end; beyond this the earliest jobs are released."""
ENDED_MAX: Final = 1 << 20
"""Ended jobs that are remembered, so that a second report after a takeover does not repeat them."""
EXTRA_KINDS: Final[dict[str, type]] = {"priority": int, "gang": int, "class": int, "status": int}
EXTRA_NAMED: Final = ("class", "status")
NOT_ENDED: Final = "jobs that had not ended"
NEVER_RAN: Final = "jobs without a task that ran"
NEVER_TIMED: Final = "jobs without a run time in the journal"
UNKNOWN: Final = "jobs without a beginning in the journal"
TASK_NEVER_RAN: Final = "tasks that never ran, of jobs that ran"
TASK_UNTIMED: Final = "tasks whose run time is not in the journal"
AFTER_DROPPED: Final = "dependencies on other jobs (the jobs stay)"
_UNTIMED: Final = -1
_IDLE: Final = -2


class ClockShift(msgspec.Struct, frozen=True):
    """Shift from a broker's own clock to the clock shared by all brokers: ``instant + shift``."""

    shift: int = 0


class _LiveJob(msgspec.Struct):
    """Job that has not ended."""

    spec: JobSpec
    arrival: int
    attempts: dict[int, list[int]] = {}
    """Task -> its latest attempt, time of its start (-1: unknown), its run time (-1: unknown)."""
    run_times: dict[int, int] = {}
    """Terminal task -> its run time, ``_UNTIMED`` or ``_IDLE``."""


class _PendingSubmission(msgspec.Struct):
    """Submission without a reply."""

    spec: JobSpec
    arrival: int


class JournalJobs:
    """Collector of jobs: ``add_event`` takes events and effects, ``ready_rows`` returns rows."""

    def __init__(self, report: ReadReport, names: NameTable) -> None:
        self.report = report
        self.names = names
        self._live: dict[JobId, _LiveJob] = {}
        self._copies: dict[JobId, _LiveJob] = {}
        """Copies at standbys of jobs that no broker has reported as its own."""
        self._arrivals: list[tuple[int, JobId]] = []
        """Heap of all live jobs, and of some that have ended."""
        self._pending: dict[tuple[str, str, int], _PendingSubmission] = {}
        """Submissions by broker, client and request."""
        self._latest_requests: dict[tuple[str, str], tuple[str, str, int]] = {}
        """Broker and client id -> the latest request with that id."""
        self._held_rows: list[tuple[int, int, list[TraceRow]]] = []
        """Heap of the rows of ended jobs: arrival, job, rows."""
        self._held_tasks = 0
        self._ended_jobs: dict[JobId, None] = {}
        self._message_handlers: dict[type, Callable[[int, Any], None]] = {
            TaskUpdates: self._on_task_updates,
            OwnershipReply: self._on_ownership_reply,
            ReplicateJobs: self._on_replicate_jobs,
            ReplicaUpdate: self._on_replica_update,
        }

    def add_state(self, state: BrokerState, clock_shift: ClockShift) -> None:
        """Add the first state of a broker: its own jobs and its copies of other brokers' jobs."""
        for record in state.jobs.values():
            if record.id not in self._live and record.id not in self._ended_jobs:
                self._start_job(record.id, record.spec, record.accepted_at + clock_shift.shift)
        for standby_shard in state.standby_shards.values():
            for replica in standby_shard.jobs.values():
                self._add_copy(replica, standby_shard.accepted_at[replica.job] + clock_shift.shift)

    def add_event(self, broker: str, event: Event, effects: list[Effect], clock_shift: ClockShift) -> None:
        """Add one event and its effects."""
        now = event.at + clock_shift.shift
        if isinstance(event, MessageReceived):
            handler = self._message_handlers.get(type(event.envelope.body))
            if handler is not None:
                handler(now, event.envelope.body)
        elif isinstance(event, JobSubmitted):
            self._on_submitted(broker, event, now)
        for effect in effects:
            if isinstance(effect, TaskSettled):
                self._on_task_settled(effect)
            elif isinstance(effect, TasksSettled):
                for settled in effect.expand():
                    self._on_task_settled(settled)
            elif isinstance(effect, JobSettled):
                self._on_job_settled(effect)
            elif isinstance(effect, JobAccepted | RequestRejected):
                pending = self._forget((broker, effect.client, effect.request))
                if (
                    pending is not None
                    and isinstance(effect, JobAccepted)
                    and effect.job not in self._ended_jobs
                ):
                    self._start_job(effect.job, pending.spec, pending.arrival)

    def ready_rows(self) -> Iterator[TraceRow]:
        """Yield rows of ended jobs that no earlier job holds back any more."""
        arrivals = self._arrivals
        while self._held_rows:
            while arrivals and arrivals[0][1] not in self._live:
                heappop(arrivals)
            if arrivals and arrivals[0][0] < self._held_rows[0][0] and self._held_tasks <= HELD_TASKS_MAX:
                return
            yield from self._release_first()

    def remaining_rows(self) -> Iterator[TraceRow]:
        """Yield all rows that are left at the end, and count jobs that have not ended."""
        self.report.skip(NOT_ENDED, len(self._live))
        self._live.clear()
        while self._held_rows:
            yield from self._release_first()

    def _release_first(self) -> list[TraceRow]:
        rows = heappop(self._held_rows)[2]
        self._held_tasks -= sum(row.count for row in rows)
        return rows

    # --- submissions ----------------------------------------------------------------------------------------

    def _on_submitted(self, broker: str, event: JobSubmitted, now: int) -> None:
        key, name = (broker, event.client, event.request), (broker, event.spec.client_id)
        arrival = now
        if event.spec.client_id:
            earlier = self._pending.pop(self._latest_requests.get(name, key), None)
            if earlier is not None:  # a repetition before the reply; the reply goes to the latest request
                arrival = earlier.arrival
            self._latest_requests[name] = key
        self._pending[key] = _PendingSubmission(event.spec, arrival)
        if len(self._pending) > PENDING_MAX:
            self._forget(next(iter(self._pending)))

    def _forget(self, key: tuple[str, str, int]) -> _PendingSubmission | None:
        pending = self._pending.pop(key, None)
        if pending is not None and pending.spec.client_id:
            self._latest_requests.pop((key[0], pending.spec.client_id), None)
        return pending

    def _start_job(self, job: JobId, spec: JobSpec, arrival: int) -> None:
        self._copies.pop(job, None)
        self._live[job] = _LiveJob(spec, arrival)
        heappush(self._arrivals, (arrival, job))

    def _on_replicate_jobs(self, now: int, message: ReplicateJobs) -> None:
        for replica in message.jobs:
            self._add_copy(replica, now - replica.age)

    def _add_copy(self, replica: Replica, arrival: int) -> None:
        if replica.job not in self._live and replica.job not in self._ended_jobs:
            self._copies.setdefault(replica.job, _LiveJob(replica.spec, arrival))

    def _on_replica_update(self, _: int, message: ReplicaUpdate) -> None:
        for job in message.forget:
            self._copies.pop(job, None)

    def _find_job(self, job: JobId) -> _LiveJob | None:
        return self._live.get(job) or self._copies.get(job)

    # --- reports of attempts --------------------------------------------------------------------------------

    def _on_task_updates(self, now: int, updates: TaskUpdates) -> None:
        for task, attempt, _ in updates.started:
            entry = self._find_attempt(task, attempt)
            if entry is not None and entry[1] < 0:
                entry[1] = now
        self._on_attempt_ends(now, updates.ended)

    def _on_ownership_reply(self, now: int, reply: OwnershipReply) -> None:
        self._on_attempt_ends(now, reply.ended)

    def _on_attempt_ends(self, now: int, ends: tuple[AttemptEnd, ...]) -> None:
        for end in ends:
            entry = self._find_attempt(end.task, end.attempt)
            if entry is None or entry[2] >= 0:
                continue  # an unknown task, or a repeated report: messages may come twice
            measured = end.usage.run_time if end.usage is not None else 0
            entry[2] = measured or (now - entry[1] if entry[1] >= 0 else _UNTIMED)

    def _find_attempt(self, task: TaskId, attempt: int) -> list[int] | None:
        """Return the entry of a known job's attempt, unless a later one is known."""
        job = self._find_job(job_of(task))
        if job is None:
            return None
        entry = job.attempts.get(index_of(task))
        if entry is None or entry[0] < attempt:
            entry = job.attempts[index_of(task)] = [attempt, -1, _UNTIMED]
        return entry if entry[0] == attempt else None

    # --- ends ----------------------------------------------------------------------------------------------

    def _on_task_settled(self, effect: TaskSettled) -> None:
        job, index = self._find_job(job_of(effect.task)), index_of(effect.task)
        if job is None:
            return
        if not effect.attempt:
            job.run_times.setdefault(index, _IDLE)
            return
        entry = job.attempts.get(index)
        known = entry is not None and entry[0] == effect.attempt
        run_time = entry[2] if entry is not None and known else _UNTIMED
        job.run_times[index] = max(run_time, job.run_times.get(index, _UNTIMED))

    def _on_job_settled(self, effect: JobSettled) -> None:
        if effect.job in self._ended_jobs:
            return
        self._ended_jobs[effect.job] = None
        if len(self._ended_jobs) > ENDED_MAX:
            del self._ended_jobs[next(iter(self._ended_jobs))]
        job = self._find_job(effect.job)
        self._live.pop(effect.job, None)
        self._copies.pop(effect.job, None)
        if job is None:
            self.report.skip(UNKNOWN)
            return
        rows = self._rows(effect.job, job, str(effect.outcome))
        if rows:
            heappush(self._held_rows, (job.arrival, effect.job, rows))
            self._held_tasks += sum(row.count for row in rows)

    def _rows(self, number: JobId, job: _LiveJob, outcome: str) -> list[TraceRow]:
        spec = job.spec
        if all(run_time < 0 for run_time in job.run_times.values()):
            self.report.skip(NEVER_TIMED if _UNTIMED in job.run_times.values() else NEVER_RAN)
            return []
        self.report.skip(AFTER_DROPPED, bool(spec.after))
        extra = (
            spec.priority, int(spec.gang), self.names.number(str(spec.klass)), self.names.number(outcome)
        )  # fmt: skip
        user, name = self.names.number(spec.tenant), self.names.number(spec.name)
        several = len(spec.groups) > 1
        positions = {group.name: position for position, group in enumerate(spec.groups)}
        rows, first = [], 0
        for position, group in enumerate(spec.groups):
            durations = self._durations(job, range(first, first + group.count))
            first += group.count
            if not durations:
                continue
            rows.append(
                TraceRow(
                    job=number << GROUP_BITS | position if several else number,
                    arrival=job.arrival,
                    durations=durations,
                    count=len(durations),
                    cpu=group.ask.cpu,
                    memory=group.ask.memory,
                    gpu=group.ask.gpu * 1_000,
                    estimate=group.duration or 0,
                    user=user,
                    group=name,
                    parent=number,
                    extra=extra,
                    key=position,
                    needs=tuple(positions[need] for need in group.needs),
                )
            )
        return rows

    def _durations(self, job: _LiveJob, tasks: range) -> list[int]:
        run_times = [job.run_times.get(index, _UNTIMED) for index in tasks]
        self.report.skip(TASK_NEVER_RAN, run_times.count(_IDLE))
        self.report.skip(TASK_UNTIMED, run_times.count(_UNTIMED))
        return [time for time in run_times if time >= 0]
