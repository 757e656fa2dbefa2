"""What one batch of events writes into the file, collected in memory first."""

from hanse.live.readmodel.live_job import LiveJob
from hanse.model.ids import INDEX_BITS, JobId, TaskId

TaskCells = tuple[int | str | bytes | None, ...]
"""A row of ``tasks``, in the order of its columns."""
DurationKey = tuple[str, str, str]
"""Tenant, name of the job, name of the group."""


class Sheet:
    """Rows to be written. A task that starts and ends in one batch is one row."""

    def __init__(self) -> None:
        self.tasks: list[TaskCells | None] = []
        """In order; None: struck out."""
        self._begun: dict[TaskId, int] = {}
        """Tasks that started in this batch -> their place in ``tasks``."""
        self.dirty: dict[JobId, LiveJob] = {}
        self.decisions: list[tuple[int | str | bytes | None, ...]] = []
        self.changes: list[tuple[int, int, int, int]] = []
        self.durations: dict[DurationKey, list[int]] = {}
        self.measured: dict[DurationKey, int] = {}
        """For each key of ``durations``: the serial of the last one."""
        self.wiped: dict[JobId, None] = {}
        """Jobs that begin anew: what the file says of their tasks is void."""
        self.removed: dict[JobId, None] = {}
        """Jobs that nobody shall see any more."""

    def start(self, task: TaskId, cells: TaskCells) -> None:
        """A task has started."""
        self._begun[task] = len(self.tasks)
        self.tasks.append(cells)

    def end(self, task: TaskId, cells: TaskCells) -> None:
        """An attempt is over, or a task was settled."""
        at = self._begun.pop(task, None)
        if at is None:
            self.tasks.append(cells)
            return
        begun = self.tasks[at]
        if begun is not None and begun[2] == cells[2]:
            self.tasks[at] = (*cells[:5], begun[5], begun[6], cells[7] or begun[7], *cells[8:])
        else:
            self.tasks.append(cells)

    def wipe(self, job: JobId) -> None:
        """Void all that was noted of a job's tasks, here and in the file."""
        self.wiped[job] = None
        for at, cells in enumerate(self.tasks):
            if cells is not None and cells[0] == job:
                self.tasks[at] = None
        for task in [task for task in self._begun if task >> INDEX_BITS == job]:
            del self._begun[task]

    def remove(self, job: JobId) -> None:
        """Take a job out of the file."""
        self.wipe(job)
        self.removed[job] = None
        self.dirty.pop(job, None)
        self.decisions = [cells for cells in self.decisions if cells[0] != job]
