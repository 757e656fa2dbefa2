"""The read models of one broker: a file that answers people's questions, kept up by the broker's history.

The shell hands over every event with the commands that came of it, after the commit. Nothing here is
authoritative: the file may be lost, and is then built anew from the journal. A batch is one transaction, so
the file is always complete up to ``applied`` and a batch that comes twice changes nothing.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from hanse.api.rows import Change, DecisionRow, JobDetail, JobRow, Running, TaskRow, Totals
from hanse.live.readmodel import queries, sqlite_writer
from hanse.live.readmodel.bootstrap import from_state
from hanse.live.readmodel.connection_pool import Pool
from hanse.live.readmodel.event_log import Happened, happened
from hanse.live.readmodel.explanation import TaskSummary
from hanse.live.readmodel.projector import Projector
from hanse.live.readmodel.schema import open_writer
from hanse.live.readmodel.task_counts import summary
from hanse.model.effects import Effect
from hanse.model.events import Event
from hanse.model.ids import JobId

Batch = Sequence[tuple[int, Event, list[Effect]]]
"""Journal position, event, and what the broker made of it; in journal order."""


class Reads:
    """The read models. ``apply`` is for one thread; questions may come from any."""

    def __init__(self, path: Path, broker: str, *, kept_jobs_max: int = 100_000) -> None:
        """Open the file, or build an empty one if it is missing, damaged, or not of this version and broker.

        ``kept_jobs_max``: jobs kept that have ended, the latest ones; and as many copies of peers' jobs.
        """
        self.path = path
        self.broker = broker
        self.kept_jobs_max = kept_jobs_max
        self._base, _ = open_writer(path, broker)
        self._projector: Projector | None
        try:
            self._projector, self.applied = sqlite_writer.load(self._base, broker)
            self._commit(self._projector, self.applied)
        except BaseException:
            self._base.close()
            raise
        self._pool = Pool(path)

    # --- writing -------------------------------------------------------------------------------------------

    def apply(self, batch: Batch, wall: int) -> None:
        """Take events in journal order, all or none; those at or below ``applied`` are skipped.

        ``wall`` is the time of day in unix microseconds. After an error the file is as it was before, and
        the same batch may be tried again.
        """
        projector = self._projector
        if projector is None:
            projector, self.applied = sqlite_writer.load(self._base, self.broker)
        self._projector = None  # if this fails, memory is ahead of the file
        applied = self.applied
        for position, event, commands in batch:
            if position > applied:
                projector.take(position, event, commands)
                applied = position
        if applied > self.applied:
            projector.times.told(wall)
            self._commit(projector, applied)
            self.applied = applied
        self._projector = projector

    def begin(self, state: bytes, position: int, clusters: tuple[str, ...]) -> None:
        """Begin anew from a broker's dumped state after ``position``, when the journal has nothing older.

        ``clusters``: those of the broker's configuration. See ``bootstrap`` for what is not shown then.
        """
        self._projector = None
        projector = from_state(self.broker, state, position, clusters)
        self._commit(projector, position, anew=True)
        self._projector, self.applied = projector, position

    def _commit(self, projector: Projector, applied: int, anew: bool = False) -> None:
        base = self._base
        base.execute("BEGIN IMMEDIATE")
        try:
            if anew:
                sqlite_writer.clear(base)
            sqlite_writer.write(base, projector, applied, self.kept_jobs_max)
            base.execute("COMMIT")
        except BaseException:
            if base.in_transaction:
                base.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Let go of the file. It is not checked at the next opening, because nothing was left half done."""
        self._pool.close()
        try:
            self._base.execute("UPDATE meta SET shut = 1")
        except sqlite3.Error:  # a full disk or a damaged file: it is checked at the next opening
            pass
        finally:
            self._base.close()

    # --- questions -----------------------------------------------------------------------------------------

    def jobs(
        self, *, state: str | None = None, tenant: str | None = None, name: str | None = None,
        limit: int = 50, after: str | None = None,
    ) -> list[JobRow]:  # fmt: skip
        """Jobs that match, the newest first. ``after``: the ``cursor`` of the last row seen, or its id."""
        with self._pool.reading() as base:
            return queries.jobs(base, state, tenant, name, limit, after)

    def job(self, job: JobId) -> JobDetail | None:
        """One job; None if nothing is known of it."""
        with self._pool.reading() as base:
            return queries.job(base, job)

    def tasks(
        self, job: JobId, *, state: str | None = None, limit: int = 50, after: int | None = None
    ) -> list[TaskRow]:
        """A job's tasks by index. ``after``: the last index seen."""
        with self._pool.reading() as base:
            return queries.tasks(base, job, state, limit, after)

    def summary(self, job: JobId) -> TaskSummary:
        """A job's tasks counted by place and end: for ``why``."""
        with self._pool.reading() as base:
            return summary(base, job)

    def decisions(self, job: JobId, limit: int = 50) -> list[DecisionRow]:
        """The latest decisions about a job, in the order in which they were made."""
        with self._pool.reading() as base:
            return queries.decisions(base, job, limit)

    def decisions_after(self, job: JobId, after: int, limit: int = 50) -> list[DecisionRow]:
        """The decisions about a job behind a serial, the oldest first."""
        with self._pool.reading() as base:
            return queries.decisions_after(base, job, after, limit)

    def happened(self, after: int, limit: int, since_kept: bool = False) -> Happened:
        """All changes and decisions behind a serial, in order; see ``event_log``."""
        with self._pool.reading() as base:
            return happened(base, after, limit, since_kept)

    def running_on(
        self, cluster: str | None = None, node: int | None = None, limit: int = 1_000
    ) -> list[Running]:
        """Tasks that run, everywhere or there, of the jobs that this broker has acted for."""
        with self._pool.reading() as base:
            return queries.running_on(base, cluster, node, limit)

    def counts(self) -> list[Totals]:
        """Jobs and tasks by tenant and state, of the jobs that this broker acts for."""
        with self._pool.reading() as base:
            return queries.counts(base, self.broker)

    def durations(self, job_name: str, tenant: str, group: str) -> list[int]:
        """Measured run times (microseconds) of tasks that succeeded, the oldest first; empty: none known."""
        with self._pool.reading() as base:
            return queries.durations(base, job_name, tenant, group)

    def changes_since(self, serial: int, limit: int = 1_000) -> list[Change]:
        """Job state changes with a higher serial, in order. Nothing is missing if ``serial`` is at least
        ``changes_kept_from() - 1``, or was 0 and nothing was dropped yet."""
        with self._pool.reading() as base:
            return queries.changes_since(base, serial, limit)

    def changes_kept_from(self) -> int:
        """The serial of the oldest change on record; 0: none."""
        with self._pool.reading() as base:
            return queries.changes_kept_from(base)
