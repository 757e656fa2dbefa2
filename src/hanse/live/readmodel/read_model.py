"""Read model of one broker: a SQLite file that answers users' queries, updated from the broker's history.

The shell passes every event with its effects, after the commit. Nothing here is authoritative: a lost file is
rebuilt from the journal. A batch is one transaction, so the file is always complete up to ``applied``, and a
repeated batch changes nothing.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from hanse.api.row_records import (
    DecisionRow,
    JobDetail,
    JobRow,
    JobStateChange,
    RunningTaskRow,
    TaskRow,
    TenantTotals,
)
from hanse.live.readmodel import event_log, queries, sqlite_writer, task_queries
from hanse.live.readmodel.bootstrap import projector_from_state
from hanse.live.readmodel.connection_pool import ConnectionPool
from hanse.live.readmodel.event_log import EventPage
from hanse.live.readmodel.explanation import TaskSummary
from hanse.live.readmodel.projector import Projector
from hanse.live.readmodel.schema import open_writer
from hanse.live.readmodel.task_counts import count_tasks
from hanse.model.effects import Effect
from hanse.model.events import Event
from hanse.model.ids import JobId

EventBatch = Sequence[tuple[int, Event, list[Effect]]]
"""Journal position, event, and the broker's effects; in journal order."""


class ReadModel:
    """Read model. One thread may call ``apply``; any thread may call the queries."""

    def __init__(self, path: Path, broker: str, *, kept_jobs_max: int = 100_000) -> None:
        """Open the file, or create an empty one if it is missing, damaged, or of another version or broker.

        ``kept_jobs_max``: number of ended jobs kept, the latest ones; and of kept copies of peers' jobs.
        """
        self.path = path
        self.broker = broker
        self.kept_jobs_max = kept_jobs_max
        self._db, _ = open_writer(path, broker)
        self._projector: Projector | None
        try:
            self._projector, self.applied = sqlite_writer.load_projector(self._db, broker)
            self._commit(self._projector, self.applied)
        except BaseException:
            self._db.close()
            raise
        self._pool = ConnectionPool(path)

    # --- writing -------------------------------------------------------------------------------------------

    def apply(self, batch: EventBatch, wall: int) -> None:
        """Apply events in journal order, all or none; events at or below ``applied`` are skipped.

        ``wall``: wall-clock time in unix microseconds. After an error the file is unchanged, and the same
        batch may be applied again.
        """
        projector = self._projector
        if projector is None:
            projector, self.applied = sqlite_writer.load_projector(self._db, self.broker)
        self._projector = None  # after a failure, its state is ahead of the file
        applied = self.applied
        for position, event, effects in batch:
            if position > applied:
                projector.apply(position, event, effects)
                applied = position
        if applied > self.applied:
            projector.clock.observe_wall_time(wall)
            self._commit(projector, applied)
            self.applied = applied
        self._projector = projector

    def reset_to_state(self, state: bytes, position: int, clusters: tuple[str, ...]) -> None:
        """Rebuild the file from a broker's dumped state after ``position``, if the journal has nothing older.

        ``clusters``: clusters of the broker's configuration. ``bootstrap`` lists the data that is lost.
        """
        self._projector = None
        projector = projector_from_state(self.broker, state, position, clusters)
        self._commit(projector, position, replace=True)
        self._projector, self.applied = projector, position

    def _commit(self, projector: Projector, applied: int, replace: bool = False) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            if replace:
                sqlite_writer.clear_tables(db)
            sqlite_writer.write(db, projector, applied, self.kept_jobs_max)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file, and mark it as closed so that the next opening skips the check."""
        self._pool.close()
        try:
            self._db.execute("UPDATE meta SET shut = 1")
        except sqlite3.Error:  # a full disk or a damaged file: it is checked at the next opening
            pass
        finally:
            self._db.close()

    # --- queries -------------------------------------------------------------------------------------------

    def jobs(
        self, *, state: str | None = None, tenant: str | None = None, name: str | None = None,
        limit: int = 50, after: str | None = None,
    ) -> list[JobRow]:  # fmt: skip
        """List matching jobs, newest first. ``after``: ``cursor`` or id of the last row seen."""
        with self._pool.read_transaction() as db:
            return queries.jobs(db, state, tenant, name, limit, after)

    def job(self, job: JobId) -> JobDetail | None:
        """Return one job; None if it is unknown."""
        with self._pool.read_transaction() as db:
            return queries.job(db, job)

    def tasks(
        self, job: JobId, *, state: str | None = None, limit: int = 50, after: int | None = None
    ) -> list[TaskRow]:
        """List a job's tasks by index. ``after``: last index seen."""
        with self._pool.read_transaction() as db:
            return task_queries.tasks(db, job, state, limit, after)

    def task_summary(self, job: JobId) -> TaskSummary:
        """Count a job's tasks by place and end, for ``explain``."""
        with self._pool.read_transaction() as db:
            return count_tasks(db, job)

    def decisions(self, job: JobId, limit: int = 50) -> list[DecisionRow]:
        """List the latest decisions about a job, oldest first."""
        with self._pool.read_transaction() as db:
            return queries.decisions(db, job, limit)

    def decisions_after(self, job: JobId, after: int, limit: int = 50) -> list[DecisionRow]:
        """List the decisions about a job after a serial, oldest first."""
        with self._pool.read_transaction() as db:
            return queries.decisions_after(db, job, after, limit)

    def events_after(self, after: int, limit: int, from_oldest: bool = False) -> EventPage:
        """List all changes and decisions after a serial, in order; see ``event_log``."""
        with self._pool.read_transaction() as db:
            return event_log.events_after(db, after, limit, from_oldest)

    def running_tasks(
        self, cluster: str | None = None, node: int | None = None, limit: int = 1_000
    ) -> list[RunningTaskRow]:
        """List running tasks of the jobs that this broker has owned, in all clusters or in one place."""
        with self._pool.read_transaction() as db:
            return task_queries.running_tasks(db, cluster, node, limit)

    def tenant_totals(self) -> list[TenantTotals]:
        """Count the jobs that this broker owns and their tasks, by tenant and state."""
        with self._pool.read_transaction() as db:
            return queries.tenant_totals(db, self.broker)

    def durations(self, job_name: str, tenant: str, group: str) -> list[int]:
        """List measured run times (microseconds) of succeeded tasks, oldest first; empty: none known."""
        with self._pool.read_transaction() as db:
            return queries.durations(db, job_name, tenant, group)

    def changes_since(self, serial: int, limit: int = 1_000) -> list[JobStateChange]:
        """List job state changes with a higher serial, in order. The list is complete if ``serial`` is at
        least ``oldest_change() - 1``, or if it is 0 and nothing was dropped yet."""
        with self._pool.read_transaction() as db:
            return event_log.changes_since(db, serial, limit)

    def oldest_change(self) -> int:
        """Return the serial of the oldest change on record; 0: none."""
        with self._pool.read_transaction() as db:
            return event_log.oldest_change(db)
