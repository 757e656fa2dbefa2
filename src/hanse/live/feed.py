"""Feeds the read model: what is safe on the journal goes to SQLite, in groups, on a thread of its own."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from hanse.live.clock import wall_now
from hanse.live.reads.reads import Reads
from hanse.live.shell import Fail
from hanse.model.commands import Command, JobSettled
from hanse.model.events import Event, Received
from hanse.model.ids import JobId
from hanse.model.messages import Taken

LINGER_SECONDS: Final = 0.01
"""How long to collect before writing: what people read may be this much behind."""
BATCH_MAX: Final = 5_000
"""Events in one transaction."""
BACKLOG_MAX: Final = 200_000
"""Events not yet in the read model; beyond it new requests are turned away until it has caught up."""
READERS: Final = 2
"""Threads that answer questions."""

T = TypeVar("T")
Item = tuple[int, Event, list[Command]]


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
        self._told_last = reads.applied
        self._promised = 0
        """Up to where a reader may already rely on what is to come."""
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: dict[JobId, list[asyncio.Future[None]]] = {}
        self._behind: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits for the file to have got to a position."""
        self.heard: list[Callable[[list[Item]], None]] = []
        """Who is told of what can be read from now on, on the loop's thread."""

    def told(self, position: int, event: Event, commands: list[Command]) -> None:
        """An event is safe and its commands were performed."""
        self._told_last = position
        self._backlog.append((position, event, commands))
        if not self._writing and self._timer is None:
            self._timer = self._loop.call_later(0 if self._behind else LINGER_SECONDS, self._write)

    def promised(self, position: int) -> None:
        """Somebody was told what this event says before it is safe: whoever asks must find it."""
        self._promised = position

    async def caught_up(self) -> None:
        """Wait until all that was told so far can be read: whoever was answered finds what it did."""
        if not self._backlog and not self._writing and self._promised <= self._told_last:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._behind.append((max(self._told_last, self._promised), waiter))
        if self._timer is not None:
            self._timer.cancel()
            self._write()
        await waiter

    def replay(self, position: int, event: Event, commands: list[Command]) -> None:
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
        self._timer = None
        if not self._backlog or self._writing:
            return
        self._writing = True
        batch, self._backlog = self._backlog[:BATCH_MAX], self._backlog[BATCH_MAX:]
        future = self._writer.submit(self.reads.apply, batch, wall_now())
        future.add_done_callback(lambda done: self._from_thread(batch, done))

    def _from_thread(self, batch: list[Item], done: "Future[None]") -> None:
        try:
            self._loop.call_soon_threadsafe(self._written, batch, done)
        except RuntimeError:  # the loop is closed: the daemon has ended
            return

    def _written(self, batch: list[Item], done: "Future[None]") -> None:
        self._writing = False
        error = done.exception()
        if error is not None:
            self._fail(error)
            return
        self.applied = batch[-1][0]
        for _, event, commands in batch:
            for command in commands:
                if type(command) is JobSettled:
                    self._wake(command.job)
            if type(event) is Received and type(event.envelope.body) is Taken:
                for job in list(self._waiters):
                    self._wake(job)  # it may have changed hands: look again
        while self._behind and self._behind[0][0] <= self.applied:
            waiter = self._behind.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)
        for hear in self.heard:
            hear(batch)
        if self._backlog:
            self._write()

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
