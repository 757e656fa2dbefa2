"""Feeds the read model: what is safe on the journal goes to SQLite, in groups, on a thread of its own.

A transaction costs as much as a hundred events, and takes the processor from the loop's thread. So it is made
when somebody wants to read or hears what it was waiting for, soon when somebody watches, and else when there
is enough for one. What says nothing about any job (beats, gossip) goes along with the next that does.
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
"""How long to collect before writing while somebody watches."""
LAZY_SECONDS: Final = 0.2
"""The same while nobody does. Whoever asks does not wait for it: a question makes the write happen."""
ENOUGH_EVENTS: Final = 256
"""Collected events that are written at once: so many at most stand before a question."""
QUIET_MAX: Final = 1_000
"""Events that say nothing about any job and may wait for one that does."""
BATCH_MAX: Final = 5_000
"""Events in one transaction."""
BACKLOG_MAX: Final = 200_000
"""Events not yet in the read model; beyond it new requests are turned away until it has caught up."""
ROOM_SECONDS: Final = 1.0
"""How long to wait before a write that found the disk full is tried again."""
READERS: Final = 2
"""Threads that answer questions."""

_SHOWN: Final = frozenset(
    (JobAccepted, RequestRejected, RecordDecision, TaskSettled, TasksSettled, JobSettled)
)
"""Commands that change what people see of jobs."""
_QUIET: Final = frozenset((Tick, AdviceReceived))
"""Events that do not, by themselves."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Item = tuple[int, Event, list[Effect]]


class Feed:
    """Keeps a ``Reads`` up to date, and wakes whoever waits for a job to end."""

    def __init__(self, reads: Reads, fail: Fail) -> None:
        self.reads = reads
        self.applied = reads.applied
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="reads")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="questions")
        self._backlog: list[Item] = []
        self._needed = 0
        """The last position that says anything about a job: further than this nobody need wait."""
        self._promised = 0
        """Up to where a reader may already rely on what is to come."""
        self._told_at = 0
        """The time of day when the last event was told."""
        self._writing = False
        self._no_room = False
        """Whether the latest write found the disk full."""
        self._written_at = wall_now()
        """The time of day of the latest write; of the start, before there was one."""
        self.journal_full: Callable[[], bool] = lambda: False
        """Whether the journal waits for room, so that nothing is told meanwhile; the daemon puts its own."""
        self._timer: asyncio.Handle | None = None
        self._at_once = False
        """Whether the timer is for this very turn of the loop."""
        self._waiters: dict[JobId, list[asyncio.Future[None]]] = {}
        self._awaited = 0
        """The last position that somebody is to be woken for."""
        self._behind: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits for the file to have got to a position."""
        self.heard: list[Callable[[list[Item]], None]] = []
        """Who is told of what can be read from now on, on the loop's thread."""
        self.watchers = 0
        """How many want to hear of everything soon; kept by them."""

    def told(self, position: int, event: Event, commands: list[Effect]) -> None:
        """An event is safe and its commands were performed."""
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
        """Whether what was told is to be written without waiting for more."""
        waited_for = self._behind or self._awaited > self.applied
        return bool(waited_for) or len(self._backlog) >= ENOUGH_EVENTS

    def _write_later(self) -> None:
        linger = LINGER_SECONDS if self.watchers else LAZY_SECONDS
        self._timer = self._loop.call_later(linger, self._write)

    def promised(self, position: int) -> None:
        """Somebody was told what this event says before it is safe: whoever asks must find it."""
        self._promised = position

    async def caught_up(self) -> None:
        """Wait until all that was told so far can be read: whoever was answered finds what it did. Not while
        the disk is full: who knows when there is room, and what was written before is an answer."""
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
        """Whether the disk has no room, so that answers are as old as the latest write."""
        return self._no_room or self.journal_full()

    @property
    def age(self) -> int:
        """Seconds since the latest write: how old answers are while the disk is full."""
        return max(wall_now() - self._written_at, 0) // SECOND

    def release(self) -> None:
        """Let go of all who wait for what is to be written: the disk is full."""
        behind, self._behind = self._behind, []
        for _, waiter in behind:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def lag(self) -> int:
        """Events that were told and say something, and cannot be read yet; and those told before them."""
        return max(self._needed - self.applied, 0)

    def replay(self, position: int, event: Event, commands: list[Effect]) -> None:
        """The same while a member comes back: written at once, because nothing else goes on."""
        if position > self.applied:
            self._backlog.append((position, event, commands))
            if len(self._backlog) >= BATCH_MAX:
                self.catch_up()

    def begin(self, state: bytes, position: int, clusters: tuple[str, ...]) -> None:
        """Begin anew from a machine's state after ``position``."""
        self.reads.begin(state, position, clusters)
        self.applied = position

    def catch_up(self) -> None:
        """Write what ``replay`` has collected."""
        batch, self._backlog = self._backlog, []
        if batch:
            self.reads.apply(batch, wall_now())
            self.applied = batch[-1][0]

    @property
    def busy(self) -> bool:
        """Whether the read model is too far behind."""
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
                log.warning("no room on the disk for the read model; it is written when there is")
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
        """The jobs whose waiters must look again: those that have ended, and all when some change hands."""
        if type(event) is MessageReceived and type(event.envelope.body) is OwnershipTransferred:
            return list(self._waiters)
        return [command.job for command in commands if type(command) is JobSettled]

    def _wake(self, job: JobId) -> None:
        for waiter in self._waiters.pop(job, ()):
            if not waiter.done():
                waiter.set_result(None)

    @contextmanager
    def watching(self, job: JobId) -> Iterator[asyncio.Future[None]]:
        """A future that is done when something final has happened to a job. Watch first, then ask how the job
        is: what happens in between is not missed."""
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
        """Ask the read model, away from the loop's thread."""
        await self.caught_up()
        return await self.peek(question)

    async def peek(self, question: Callable[[], T]) -> T:
        """Ask it as it is, even if it is a little behind."""
        return await self._loop.run_in_executor(self._readers, question)

    def close(self) -> None:
        """Write what is left, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True, cancel_futures=True)
        self.reads.close()


def _says_something(event: Event, commands: list[Effect]) -> bool:
    """Whether an event may change what people see of jobs; unnumbered messages never do."""
    kind = type(event)
    if kind is MessageReceived:
        if event.envelope.seq > 0:  # type: ignore[union-attr]  # the type is the test
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
