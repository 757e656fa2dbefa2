"""Feeder of the read model: writes durable events to SQLite, in batches, on a separate thread.

A transaction costs as much as a hundred events, and takes processor time from the event loop. So a batch is
written at once for a query or an awaited event, soon while there are watchers, and otherwise when it is large
enough. Events that say nothing about any job (beats, gossip) are written with the next event that does.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from hanse.live.readmodel.read_model import ReadModel
from hanse.live.shell import FailureHandler
from hanse.model.effects import Effect, JobAccepted, JobSettled, RecordDecision, RequestRejected
from hanse.model.events import Event
from hanse.model.history_effects import HISTORY_EFFECTS, JobsTransferred
from hanse.model.ids import SECOND, JobId
from hanse.security.wall_time import wall_now

LINGER_SECONDS: Final = 0.01
"""Seconds to collect events before a write while there are watchers."""
IDLE_LINGER_SECONDS: Final = 0.2
"""The same without watchers. A query does not wait for it: the query triggers the write."""
FLUSH_EVENTS: Final = 256
"""Number of collected events that triggers a write: at most so many delay a query."""
SILENT_EVENTS_MAX: Final = 1_000
"""Number of events about no job that may wait for an event about a job."""
BATCH_MAX: Final = 5_000
"""Maximal number of events in one transaction."""
BACKLOG_MAX: Final = 200_000
"""Number of events not yet in the read model; beyond it, new requests are refused until it has caught up."""
DISK_FULL_RETRY_SECONDS: Final = 1.0
"""Seconds before a write that found the disk full is tried again."""
QUERY_THREADS: Final = 2
"""Number of threads that run queries."""

_VISIBLE_EFFECTS: Final = HISTORY_EFFECTS | {RecordDecision, JobSettled, JobAccepted, RequestRejected}
"""Effects that change the visible state of jobs, and replies: who got one may ask next."""

log = logging.getLogger(__name__)
T = TypeVar("T")
FeedItem = tuple[int, Event, list[Effect]]


class ReadModelFeeder:
    """Keeps a ``ReadModel`` up to date, and wakes the waiters of jobs that have ended."""

    def __init__(self, read_model: ReadModel, fail: FailureHandler) -> None:
        self.read_model = read_model
        self.applied = read_model.applied
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="reads")
        self._query_threads = ThreadPoolExecutor(QUERY_THREADS, thread_name_prefix="questions")
        self._backlog: list[FeedItem] = []
        self._needed_position = 0
        """Last position of an event about a job: no query needs to wait for a later one."""
        self._promised_position = 0
        """Position whose event was answered before it was durable: queries must include it."""
        self._last_event_at = 0
        """Wall-clock time at which the last event arrived."""
        self._writing = False
        self._is_disk_full = False
        """True if the latest write found the disk full."""
        self._written_at = wall_now()
        """Wall-clock time of the latest write; before the first write, of the start."""
        self.is_journal_full: Callable[[], bool] = lambda: False
        """Callback of the daemon: True while the journal waits for disk space, so that no event arrives."""
        self._timer: asyncio.Handle | None = None
        self._is_timer_immediate = False
        """True if the timer fires in the next iteration of the loop."""
        self._job_waiters: dict[JobId, list[asyncio.Future[None]]] = {}
        self._awaited_position = 0
        """Last position with an event that a job's waiter waits for."""
        self._position_waiters: list[tuple[int, asyncio.Future[None]]] = []
        """Futures to resolve when the file has reached a position, in order."""
        self.listeners: list[Callable[[list[FeedItem]], None]] = []
        """Callbacks for each batch that has become readable, on the loop's thread."""
        self.watcher_count = 0
        """Number of watchers that want every event soon; the watchers maintain it."""

    def on_event_durable(self, position: int, event: Event, effects: list[Effect]) -> None:
        """Collect a durable event and its performed effects; schedule the write."""
        self._last_event_at = wall_now()
        backlog = self._backlog
        backlog.append((position, event, effects))
        if _changes_jobs(effects):
            self._needed_position = position
            if self._job_waiters and any(job in self._job_waiters for job in self._affected_jobs(effects)):
                self._awaited_position = position
        elif not self.watcher_count and len(backlog) < SILENT_EVENTS_MAX:
            return
        if self._writing:
            return
        if self._must_flush:
            if not self._is_timer_immediate:
                if self._timer is not None:
                    self._timer.cancel()
                self._is_timer_immediate, self._timer = True, self._loop.call_soon(self._write)
        elif self._timer is None:
            self._schedule_write()

    @property
    def _must_flush(self) -> bool:
        """True if the collected events are to be written without waiting for more."""
        has_waiters = self._position_waiters or self._awaited_position > self.applied
        return bool(has_waiters) or len(self._backlog) >= FLUSH_EVENTS

    def _schedule_write(self) -> None:
        linger = LINGER_SECONDS if self.watcher_count else IDLE_LINGER_SECONDS
        self._timer = self._loop.call_later(linger, self._write)

    def require_position(self, position: int) -> None:
        """Make queries include the event at ``position``: its result was answered before it was durable."""
        self._promised_position = position

    async def wait_until_caught_up(self) -> None:
        """Wait until all events so far can be read, so that a client finds the result of its own requests.
        Return at once while the disk is full: queries then answer from the latest write."""
        needed = max(self._needed_position, self._promised_position)
        if self.applied >= needed or self.disk_full:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._position_waiters.append((needed, waiter))
        if self._timer is not None:
            self._timer.cancel()
            self._write()
        await waiter

    @property
    def disk_full(self) -> bool:
        """True while the disk is full, so that answers are as old as the latest write."""
        return self._is_disk_full or self.is_journal_full()

    @property
    def age(self) -> int:
        """Seconds since the latest write: the age of answers while the disk is full."""
        return max(wall_now() - self._written_at, 0) // SECOND

    def release_waiters(self) -> None:
        """Resolve all waits for positions without a write: the disk is full."""
        waiters, self._position_waiters = self._position_waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def lag(self) -> int:
        """Number of events up to the last one about a job that cannot be read yet."""
        return max(self._needed_position - self.applied, 0)

    def replay(self, position: int, event: Event, effects: list[Effect]) -> None:
        """Collect an event during recovery; full batches are written on the caller's thread."""
        if position > self.applied:
            self._backlog.append((position, event, effects))
            if len(self._backlog) >= BATCH_MAX:
                self.catch_up()

    def reset_to_state(self, state: bytes, position: int, clusters: tuple[str, ...]) -> None:
        """Rebuild the read model from a machine's state after ``position``."""
        self.read_model.reset_to_state(state, position, clusters)
        self.applied = position

    def catch_up(self) -> None:
        """Write the events that ``replay`` has collected."""
        batch, self._backlog = self._backlog, []
        if batch:
            self.read_model.apply(batch, wall_now())
            self.applied = batch[-1][0]

    @property
    def is_busy(self) -> bool:
        """True if the backlog is too long."""
        return len(self._backlog) >= BACKLOG_MAX

    def _write(self) -> None:
        self._timer, self._is_timer_immediate = None, False
        if not self._backlog or self._writing:
            return
        self._writing = True
        batch, self._backlog = self._backlog[:BATCH_MAX], self._backlog[BATCH_MAX:]
        future = self._writer.submit(self.read_model.apply, batch, self._last_event_at)
        future.add_done_callback(lambda done: self._on_write_done(batch, done))

    def _on_write_done(self, batch: list[FeedItem], write: "Future[None]") -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_written, batch, write)
        except RuntimeError:  # the loop is closed: the daemon has ended
            return

    def _on_written(self, batch: list[FeedItem], write: "Future[None]") -> None:
        self._writing = False
        error = write.exception()
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            if not self._is_disk_full:
                log.warning("the disk is full; the read model is written when there is space")
            self._is_disk_full = True
            self._backlog[:0] = batch
            self.release_waiters()
            self._timer = self._loop.call_later(DISK_FULL_RETRY_SECONDS, self._write)
            return
        if error is not None:
            self._fail(error)
            return
        self.applied = batch[-1][0]
        self._is_disk_full, self._written_at = False, wall_now()
        if self._job_waiters:
            for _, _, effects in batch:
                for job in self._affected_jobs(effects):
                    self._wake_job_waiters(job)
        while self._position_waiters and self._position_waiters[0][0] <= self.applied:
            waiter = self._position_waiters.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)
        for listener in self.listeners:
            listener(batch)
        if self._must_flush:
            self._write()
        elif self._needed_position > self.applied:
            self._schedule_write()

    def _affected_jobs(self, effects: list[Effect]) -> list[JobId]:
        """Return the jobs whose waiters must check again: ended jobs; after a takeover all jobs."""
        found = []
        for effect in effects:
            if type(effect) is JobSettled:
                found.append(effect.job)
            elif type(effect) is JobsTransferred:
                return list(self._job_waiters)
        return found

    def _wake_job_waiters(self, job: JobId) -> None:
        for waiter in self._job_waiters.pop(job, ()):
            if not waiter.done():
                waiter.set_result(None)

    @contextmanager
    def watch_job(self, job: JobId) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done when a job may have ended. Watch first, then query the job: no event in
        between is missed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._job_waiters.setdefault(job, []).append(waiter)
        try:
            yield waiter
        finally:
            waiters = self._job_waiters.get(job, [])
            if waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._job_waiters[job]

    async def query(self, read: Callable[[], T]) -> T:
        """Run a query on another thread, after the read model has caught up."""
        await self.wait_until_caught_up()
        return await self.query_stale(read)

    async def query_stale(self, read: Callable[[], T]) -> T:
        """Run a query on another thread at once, even if the read model is a little behind."""
        return await self._loop.run_in_executor(self._query_threads, read)

    def close(self) -> None:
        """Wait for the running write, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self._writer.shutdown(wait=True)
        self._query_threads.shutdown(wait=True, cancel_futures=True)
        self.read_model.close()


def _changes_jobs(effects: list[Effect]) -> bool:
    """Return True if an event changes the visible state of jobs."""
    for effect in effects:  # noqa: SIM110  for every event: any() is slower
        if type(effect) in _VISIBLE_EFFECTS:
            return True
    return False
