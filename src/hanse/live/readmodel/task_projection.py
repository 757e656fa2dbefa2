"""Part of the projector that applies the facts about attempts of tasks: where they are, when they start and
how they end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hanse.api.row_records import CANCELLED, PLACED, RUNNING, SUCCEEDED
from hanse.live.readmodel.unended_job import STATE_OF_CODE, UnendedJob
from hanse.model.history_effects import (
    AttemptsEnded,
    NodesSubstituted,
    TasksCancelled,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
)
from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId
from hanse.model.messages import AttemptEnd, Outcome

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

_WITHOUT_EXIT_CODE: Final = (Outcome.LOST, Outcome.UNSTARTED)
_NONE8: Final = (None,) * 8


class TaskProjection:
    """Projection of the attempts of the jobs that one broker owns."""

    def __init__(self, projector: "Projector") -> None:
        self._projector = projector

    def appliers(self) -> dict[type, Callable[[Any], None]]:
        """Return the methods that apply facts, by type."""
        return {
            TasksPlaced: self._on_tasks_placed,
            NodesSubstituted: self._on_nodes_substituted,
            TasksStarted: self._on_tasks_started,
            AttemptsEnded: self._on_attempts_ended,
            TasksCancelled: self._on_tasks_cancelled,
            TasksResumed: self._on_tasks_resumed,
        }

    # --- beginnings ----------------------------------------------------------------------------------------

    def _on_tasks_placed(self, fact: TasksPlaced) -> None:
        batch = fact.batch
        job = self._projector.live_jobs.get(batch.job)
        if job is None:
            return
        cluster = self._projector.cluster_number(fact.cluster)
        attempts, clusters = job.attempt, job.cluster
        for index, attempt in zip(batch.tasks, batch.attempts, strict=True):
            attempts[index] = attempt
            clusters[index] = cluster
            job.set_state(index, PLACED)
        size = None if batch.size == job.spec.groups[batch.group].ask else batch.size
        job.add_placement(cluster, batch.tasks, batch.attempts, list(batch.nodes), size)
        self._projector.mark_changed(job)

    def _on_nodes_substituted(self, fact: NodesSubstituted) -> None:
        cluster = self._projector.cluster_number(fact.cluster)
        for task, node in fact.nodes:
            job = self._find_job(task)
            if job is not None and job.substitute_node(task & INDEX_MASK, cluster, node):
                self._projector.mark_changed(job)

    def _on_tasks_started(self, fact: TasksStarted) -> None:
        projector = self._projector
        for task, attempt, node in fact.entries:
            job = self._find_job(task)
            if job is None:
                continue
            index = task & INDEX_MASK
            cluster = job.cluster[index]
            job.set_state(index, RUNNING)
            projector.writes.start_task(
                task,
                (
                    job.id, index, attempt, RUNNING, cluster, node, _encode_size(job, index), projector.now,
                    *_NONE8[:7], job.failures.get(index),
                ),
            )  # fmt: skip
            if job.started is None:
                job.started = projector.now
            job.clusters_used[cluster] = None
            projector.mark_changed(job)

    def _on_tasks_resumed(self, fact: TasksResumed) -> None:
        """Show the attempts of a job that was taken over as running; their starts may not be known."""
        job = self._projector.live_jobs.get(fact.job)
        if job is None:
            return
        for task, attempt, name in fact.attempts:
            index = task & INDEX_MASK
            job.attempt[index] = attempt
            job.cluster[index] = cluster = self._projector.cluster_number(name)
            job.set_state(index, RUNNING)
            job.clusters_used[cluster] = None
            cells = (job.id, index, attempt, RUNNING, cluster, None, None, None, *_NONE8)
            self._projector.writes.start_task(task, cells)
        self._projector.mark_changed(job)

    # --- ends ----------------------------------------------------------------------------------------------

    def _on_attempts_ended(self, fact: AttemptsEnded) -> None:
        for task, code, end in fact.ends:
            job = self._find_job(task)
            if job is None:
                continue
            index, state = task & INDEX_MASK, STATE_OF_CODE[code]
            if end is not None and end.outcome is Outcome.FAILED and state != CANCELLED:
                job.failures[index] = job.failures.get(index, 0) + 1
            self.settle_task(job, index, state, end)
            if state == SUCCEEDED and end is not None and end.usage is not None and end.usage.run_time:
                self._add_duration(job, index, end.usage.run_time)

    def _add_duration(self, job: UnendedJob, index: int, run_time: int) -> None:
        spec, writes = job.spec, self._projector.writes
        key = (spec.tenant, spec.name, spec.groups[job.group_of(index)].name)
        writes.durations.setdefault(key, []).append(run_time)
        writes.duration_serials[key] = self._projector.serial

    def _on_tasks_cancelled(self, fact: TasksCancelled) -> None:
        """Cancel waiting tasks. A run that is known, or gets no rows, costs as much as one task."""
        job = self._projector.live_jobs.get(fact.job)
        if job is None:
            return
        for first, count in fact.runs:
            if job.end_run(first, first + count, CANCELLED, 0):
                continue
            for index in range(first, first + count):
                if job.state[index] != CANCELLED:
                    self.settle_task(job, index, CANCELLED)
        self._projector.mark_changed(job)

    def cancel_waiting(self, job: UnendedJob) -> None:
        """Cancel all tasks of a job that wait."""
        for index in job.cancel_waiting():
            self.settle_task(job, index, CANCELLED)
        self._projector.mark_changed(job)

    def settle_task(self, job: UnendedJob, index: int, state: int, end: AttemptEnd | None = None) -> None:
        """Set a task's state after an attempt (terminal or queued), and write its row."""
        now = self._projector.now
        started: int | None = None
        cells: tuple[int | str | None, ...] = (None,) * 6
        if end is not None:
            usage = end.usage
            code = None if end.outcome in _WITHOUT_EXIT_CODE else end.exit_code
            measured = (None,) * 3 if usage is None else (usage.cpu, usage.memory, usage.run_time)
            cells = (end.outcome, code, *measured, end.note or None)
            if usage is not None and usage.run_time and job.state[index] == RUNNING:
                started = now - usage.run_time
                job.started = min(started, job.started or started)  # the start may be reported late or never
        ended = now if end is not None or state >= SUCCEEDED else None
        job.set_state(index, state)
        self._projector.writes.end_task(
            TaskId(job.id << INDEX_BITS | index),
            (
                job.id, index, job.attempt[index], state, job.cluster[index], None, None, started, ended,
                *cells, job.failures.get(index),
            ),
        )  # fmt: skip
        self._projector.mark_changed(job)

    def _find_job(self, task: TaskId) -> UnendedJob | None:
        return self._projector.live_jobs.get(JobId(task >> INDEX_BITS))


def _encode_size(job: UnendedJob, index: int) -> bytes | None:
    size = job.sizes.get(index) if job.sizes else None
    return msgspec.msgpack.encode(size) if size is not None else None
