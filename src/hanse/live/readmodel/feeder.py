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

from hanse.live.readmodel.read_model import Reads
from hanse.live.shell import Fail
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    RecordDecision,
    RequestRejected,
    SendMessage,
    TaskSettled,
    TasksSettled,
)
from hanse.model.events import AdviceReceived, Event, MessageReceived, Tick
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import OwnershipTransferred
from hanse.security.wall_time import wall_now

LINGER_SECONDS: Final = 0.01
"""Seconds to collect events before a write while there are watchers."""
LAZY_SECONDS: Final = 0.2
"""The same without watchers. A query does not wait for it: the query triggers the write."""
ENOUGH_EVENTS: Final = 256
"""Number of collected events that triggers a write: at most so many delay a query."""
QUIET_MAX: Final = 1_000
"""Number of events about no job that may wait for an event about a job."""
BATCH_MAX: Final = 5_000
"""Maximal number of events in one transaction."""
BACKLOG_MAX: Final = 200_000
"""Number of events not yet in the read model; beyond it, new requests are refused until it has caught up."""
ROOM_SECONDS: Final = 1.0
"""Seconds before a write that found the disk full is tried again."""
READERS: Final = 2
"""Number of threads that run queries."""

_SHOWN: Final = frozenset(
    (JobAccepted, RequestRejected, RecordDecision, TaskSettled, TasksSettled, JobSettled)
)
"""Effects that change the visible state of jobs."""
_QUIET: Final = frozenset((Tick, AdviceReceived))
"""Events that do not change the visible state of jobs, without such an effect."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Item = tuple[int, Event, list[Effect]]


class Feed:
    """Keeps a ``ReadModel`` up to date, and wakes the waiters of jobs that have ended."""

    def __init__(self, reads: Reads, fail: Fail) -> None:
        self.reads = reads
        self.applied = reads.applied
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="reads")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="questions")
        self._backlog: list[Item] = []
        self._needed = 0
        """Last position of an event about a job: no query needs to wait for a later one."""
        self._promised = 0
        """Position whose event was answered before it was durable: queries must include it."""
        self._told_at = 0
        """Wall-clock time at which the last event arrived."""
        self._writing = False
        self._no_room = False
        """True if the latest write found the disk full."""
        self._written_at = wall_now()
        """Wall-clock time of the latest write; before the first write, of the start."""
        self.journal_full: Callable[[], bool] = lambda: False
        """Callback of the daemon: True while the journal waits for disk space, so that no event arrives."""
        self._timer: asyncio.Handle | None = None
        self._at_once = False
        """True if the timer fires in the next iteration of the loop."""
        self._waiters: dict[JobId, list[asyncio.Future[None]]] = {}
        self._awaited = 0
        """Last position with an event that a job's waiter waits for."""
        self._behind: list[tuple[int, asyncio.Future[None]]] = []
        """Futures to resolve when the file has reached a position, in order."""
        self.heard: list[Callable[[list[Item]], None]] = []
        """Callbacks for each batch that has become readable, on the loop's thread."""
        self.watchers = 0
        """Number of watchers that want every event soon; the watchers maintain it."""

    def told(self, position: int, event: Event, commands: list[Effect]) -> None:
        """Collect a durable event and its performed effects; schedule the write."""
        self._told_at = wall_now()
        backlog = self._backlog
        backlog.append((position, event, commands))
        if _says_something(event, commands):
            self._needed = position
            if self._waiters and any(job in self._waiters for job in self._concerned(event, commands)):
                self._awaited = position
        elif not self.watchers and len(backlog) < QUIET_MAX:
            return
        if self._writing:
            return
        if self._urgent:
            if not self._at_once:
                if self._timer is not None:
                    self._timer.cancel()
                self._at_once, self._timer = True, self._loop.call_soon(self._write)
        elif self._timer is None:
            self._write_later()

    @property
    def _urgent(self) -> bool:
        """True if the collected events are to be written without waiting for more."""
        waited_for = self._behind or self._awaited > self.applied
        return bool(waited_for) or len(self._backlog) >= ENOUGH_EVENTS

    def _write_later(self) -> None:
        linger = LINGER_SECONDS if self.watchers else LAZY_SECONDS
        self._timer = self._loop.call_later(linger, self._write)

    def promised(self, position: int) -> None:
        """Make queries include the event at ``position``: its result was answered before it was durable."""
        self._promised = position

    async def caught_up(self) -> None:
        """Wait until all events so far can be read, so that a client finds the result of its own requests.
        Return at once while the disk is full: queries then answer from the latest write."""
        needed = max(self._needed, self._promised)
        if self.applied >= needed or self.full:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._behind.append((needed, waiter))
        if self._timer is not None:
            self._timer.cancel()
            self._write()
        await waiter

    @property
    def full(self) -> bool:
        """True while the disk is full, so that answers are as old as the latest write."""
        return self._no_room or self.journal_full()

    @property
    def age(self) -> int:
        """Seconds since the latest write: the age of answers while the disk is full."""
        return max(wall_now() - self._written_at, 0) // SECOND

    def release(self) -> None:
        """Resolve all waits for positions without a write: the disk is full."""
        behind, self._behind = self._behind, []
        for _, waiter in behind:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def lag(self) -> int:
        """Number of events up to the last one about a job that cannot be read yet."""
        return max(self._needed - self.applied, 0)

    def replay(self, position: int, event: Event, commands: list[Effect]) -> None:
        """Collect an event during recovery; full batches are written on the caller's thread."""
        if position > self.applied:
            self._backlog.append((position, event, commands))
            if len(self._backlog) >= BATCH_MAX:
                self.catch_up()

    def begin(self, state: bytes, position: int, clusters: tuple[str, ...]) -> None:
        """Rebuild the read model from a machine's state after ``position``."""
        self.reads.begin(state, position, clusters)
        self.applied = position

    def catch_up(self) -> None:
        """Write the events that ``replay`` has collected."""
        batch, self._backlog = self._backlog, []
        if batch:
            self.reads.apply(batch, wall_now())
            self.applied = batch[-1][0]

    @property
    def busy(self) -> bool:
        """True if the backlog is too long."""
        return len(self._backlog) >= BACKLOG_MAX

    def _write(self) -> None:
        self._timer, self._at_once = None, False
        if not self._backlog or self._writing:
            return
        self._writing = True
        batch, self._backlog = self._backlog[:BATCH_MAX], self._backlog[BATCH_MAX:]
        future = self._writer.submit(self.reads.apply, batch, self._told_at)
        future.add_done_callback(lambda done: self._from_thread(batch, done))

    def _from_thread(self, batch: list[Item], done: "Future[None]") -> None:
        try:
            self._loop.call_soon_threadsafe(self._written, batch, done)
        except RuntimeError:  # the loop is closed: the daemon has ended
            return

    def _written(self, batch: list[Item], done: "Future[None]") -> None:
        self._writing = False
        error = done.exception()
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            if not self._no_room:
                log.warning("the disk is full; the read model is written when there is space")
            self._no_room = True
            self._backlog[:0] = batch
            self.release()
            self._timer = self._loop.call_later(ROOM_SECONDS, self._write)
            return
        if error is not None:
            self._fail(error)
            return
        self.applied = batch[-1][0]
        self._no_room, self._written_at = False, wall_now()
        if self._waiters:
            for _, event, commands in batch:
                for job in self._concerned(event, commands):
                    self._wake(job)
        while self._behind and self._behind[0][0] <= self.applied:
            waiter = self._behind.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)
        for hear in self.heard:
            hear(batch)
        if self._urgent:
            self._write()
        elif self._needed > self.applied:
            self._write_later()

    def _concerned(self, event: Event, commands: list[Effect]) -> list[JobId]:
        """Return the jobs whose waiters must check again: ended jobs; after a takeover all jobs."""
        if type(event) is MessageReceived and type(event.envelope.body) is OwnershipTransferred:
            return list(self._waiters)
        return [command.job for command in commands if type(command) is JobSettled]

    def _wake(self, job: JobId) -> None:
        for waiter in self._waiters.pop(job, ()):
            if not waiter.done():
                waiter.set_result(None)

    @contextmanager
    def watching(self, job: JobId) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done when a job may have ended. Watch first, then query the job: no event in
        between is missed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.setdefault(job, []).append(waiter)
        try:
            yield waiter
        finally:
            waiters = self._waiters.get(job, [])
            if waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[job]

    async def ask(self, question: Callable[[], T]) -> T:
        """Run a query on another thread, after the read model has caught up."""
        await self.caught_up()
        return await self.peek(question)

    async def peek(self, question: Callable[[], T]) -> T:
        """Run a query on another thread at once, even if the read model is a little behind."""
        return await self._loop.run_in_executor(self._readers, question)

    def close(self) -> None:
        """Wait for the running write, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True, cancel_futures=True)
        self.reads.close()


def _says_something(event: Event, commands: list[Effect]) -> bool:
    """Return True if an event may change the visible state of jobs; unsequenced messages never do."""
    kind = type(event)
    if kind is MessageReceived:
        if event.envelope.seq > 0:  # type: ignore[union-attr]  # ``kind`` was compared
            return True
    elif kind not in _QUIET:
        return True
    for command in commands:
        if type(command) is SendMessage:
            if command.envelope.seq > 0:
                return True
        elif type(command) in _SHOWN:
            return True
    return False
