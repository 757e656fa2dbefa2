"""Write batch: the rows that one batch of events writes into the file, collected in memory first."""

from hanse.live.readmodel.unended_job import UnendedJob
from hanse.model.ids import INDEX_BITS, JobId, TaskId

TaskCells = tuple[int | str | bytes | None, ...]
"""Row of the table ``tasks``, in the order of its columns."""
DurationKey = tuple[str, str, str]
"""Tenant, job name, group name."""


class WriteBatch:
    """Collected rows. A task that starts and ends in one batch gets one row."""

    def __init__(self) -> None:
        self.tasks: list[TaskCells | None] = []
        """Rows of tasks in order; None: deleted."""
        self._started: dict[TaskId, int] = {}
        """Task that started in this batch -> index in ``tasks``."""
        self.dirty_jobs: dict[JobId, UnendedJob] = {}
        self.decisions: list[tuple[int | str | bytes | None, ...]] = []
        self.changes: list[tuple[int, int, int, int]] = []
        self.durations: dict[DurationKey, list[int]] = {}
        self.duration_serials: dict[DurationKey, int] = {}
        """For each key of ``durations``: serial of the latest one."""
        self.wiped_jobs: dict[JobId, None] = {}
        """Jobs that restart: the rows of their tasks in the file are deleted."""
        self.removed_jobs: dict[JobId, None] = {}
        """Jobs to delete from the file."""

    def start_task(self, task: TaskId, cells: TaskCells) -> None:
        """Add the start of an attempt."""
        self._started[task] = len(self.tasks)
        self.tasks.append(cells)

    def end_task(self, task: TaskId, cells: TaskCells) -> None:
        """Add the end of an attempt, or of a task."""
        at = self._started.pop(task, None)
        if at is None:
            self.tasks.append(cells)
            return
        started = self.tasks[at]
        if started is not None and started[2] == cells[2]:
            self.tasks[at] = (*cells[:5], started[5], started[6], cells[7] or started[7], *cells[8:])
        else:
            self.tasks.append(cells)

    def wipe_job(self, job: JobId) -> None:
        """Delete all rows of a job's tasks, in this batch and in the file."""
        self.wiped_jobs[job] = None
        for at, cells in enumerate(self.tasks):
            if cells is not None and cells[0] == job:
                self.tasks[at] = None
        for task in [task for task in self._started if task >> INDEX_BITS == job]:
            del self._started[task]

    def remove_job(self, job: JobId) -> None:
        """Delete a job, in this batch and in the file."""
        self.wipe_job(job)
        self.removed_jobs[job] = None
        self.dirty_jobs.pop(job, None)
        self.decisions = [cells for cells in self.decisions if cells[0] != job]
