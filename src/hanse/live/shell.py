"""The live shell: stamp, journal, handle, perform, and nothing awaits in between.

Events are taken on the event loop's thread one at a time. A journalled machine's commands wait until the
journal has its event on disk: everything that was appended meanwhile is written and synced as one group, so
a busy member pays for few syncs and an idle one answers after a single one. One other thread does it, for
as long as there is much to write or the disk is slow; a little on a quick disk is written on the spot, which
takes less time than waking the thread.
"""

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.machine import Machine
from hanse.live.clock import Clock
from hanse.live.journal.errors import JournalFull
from hanse.live.journal.journal import Journal
from hanse.model.effects import Effect, JobAccepted, WakeAt
from hanse.model.events import Event, JobSubmitted, MessageReceived, Tick

UNSAFE_MAX: Final = 50_000
"""Events whose write has not come back. Beyond half of it new requests are turned away; messages are dropped
at the whole (their senders repeat them)."""
SNAPSHOT_EVENTS: Final = 50_000
"""Events between snapshots: what a restart must replay, about half a second."""
SNAPSHOT_BYTES: Final = 64 << 20
"""Bytes of records between snapshots, whatever their number: what a restart must replay. A state that is
larger than this is written when as many bytes of records have come, so that snapshots at most double what is
written; whoever restarts reads that state anyway."""
QUICK_SECONDS: Final = 0.002
"""A write that takes longer was a slow one."""
DOUBT_FEW: Final = 8.0
"""How much doubt about the disk makes the next write the other thread's. A slow write adds as many quick ones
as it took, a quick one takes one away: a disk that is always slow or stalls is doubted, and a processor that
was somewhere else now and then is not taken for a slow disk. For that the other thread is no help: it would
be waited for as long, and twice."""
DOUBT_MAX: Final = 64.0
DOUBT_FIRST: Final = 10.0
"""Nothing is known of the disk at first."""
FEW_EVENTS: Final = 32
"""Up to so many events are written on the spot."""
LAZY_SECONDS: Final = 0.05
"""How long an event may wait for others to share its write, if nothing is to be performed because of it."""
CHECK_EVENTS: Final = 10_000
"""Events between two checks of the machine's invariants."""
ASK_SECONDS: Final = 0.001
"""How seldom the thread's clock is asked: by so much the longest event may seem longer than it was."""
ROOM_SECONDS: Final = 1.0
"""How long to wait before a write that found the disk full is tried again."""

log = logging.getLogger(__name__)

Perform = Callable[[Effect], None]
Fail = Callable[[BaseException], None]
Told = Callable[[int, Event, list[Effect]], None]
_encode: Final = msgspec.msgpack.Encoder().encode


class Shell:
    """Runs a machine without a journal: a runner, whose truth is its backend."""

    def __init__(self, machine: Machine, clock: Clock, perform: Perform) -> None:
        self.machine = machine
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._perform = perform
        self._wakes: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self.closed = False

    def take(self, event: Event) -> None:
        """An event has happened."""
        if not self.closed:
            self.perform(self.machine.handle(event))

    def perform(self, commands: list[Effect]) -> None:
        """Do what the machine asked for, in order."""
        for command in commands:
            if type(command) is WakeAt:
                self._wake_at(command.at)
            else:
                self._perform(command)

    def close(self) -> None:
        """Take nothing more."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake_at(self, at: int) -> None:
        if not self._wakes or at < self._wakes[0]:
            heappush(self._wakes, at)
            self._arm(at)
        elif at not in self._wakes:
            heappush(self._wakes, at)

    def _arm(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(at - self.clock.now(), 0) / 1_000_000
        self._timer = self.loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self.clock.now()
        due = False
        while self._wakes and self._wakes[0] <= now:
            heappop(self._wakes)
            due = True
        if due:
            self.take(Tick(now))
        if self._wakes and self._timer is None and not self.closed:
            self._arm(self._wakes[0])


class JournalledShell(Shell):
    """Runs a broker or a warden: nothing is performed before the event that caused it is on disk."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        perform: Perform,
        journal: Journal,
        fail: Fail,
        told: Told | None = None,
        digests: Path | None = None,
    ) -> None:
        super().__init__(machine, clock, perform)
        self.journal = journal
        self._fail = fail
        self._told = told
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._unsafe: deque[tuple[int, Event, list[Effect]]] = deque()
        self._committing = False
        self._doubt = DOUBT_FIRST
        """Whether the disk is a slow one."""
        self.disk_full = False
        """Whether the latest write found no room."""
        self.filled: Callable[[], None] = lambda: None
        """Told when that is first so."""
        self._commit_timer: asyncio.Handle | None = None
        self._commit_soon = False
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Who waits for a position to be on disk, in order."""
        self._snapshot_due = journal.snapshot_position + SNAPSHOT_EVENTS
        """Counted from the newest snapshot and not from the start: a member that is killed again and again
        must not replay more each time."""
        self._snapshot_bytes_due = max(SNAPSHOT_BYTES, journal.snapshot_bytes)
        self._check_due = journal.position + CHECK_EVENTS
        self.snapshot_allowed: Callable[[], int] = lambda: journal.durable
        """Up to which position the past is no longer needed: the read model's, at a broker."""
        self._pending_snapshot: tuple[int, bytes] | None = None
        self._asked_at = self._used = 0.0
        """When the thread's clock was last asked, and what it said, in seconds."""
        self.longest = 0.0
        """The most processor time, in seconds, that one event has kept the loop, or a snapshot or check of
        the state between two events: for so long nobody else was answered."""
        self._digests = digests.open("ab") if digests is not None else None
        self._submissions: dict[int, int] = {}
        """Requests to take a job that are not on disk yet -> their positions."""
        self.performed: Callable[[], None] = lambda: None
        """Told when all that a write allowed was performed: what was said may leave."""
        self.promised: Callable[[int], None] = lambda _: None
        """Told when a job is called accepted because of an event that is not on disk yet."""

    @property
    def busy(self) -> bool:
        """Whether the disk is so far behind that new requests should be turned away."""
        return self.disk_full or len(self._unsafe) * 2 > UNSAFE_MAX

    @property
    def full(self) -> bool:
        """Whether nothing more may be taken until the disk has caught up."""
        return len(self._unsafe) >= UNSAFE_MAX or self.journal.is_crowded

    def take(self, event: Event) -> None:
        """Journal an event and hand it over; what comes of it is performed when it is safe."""
        if self.closed:
            return
        record = _encode(event)
        self.journal.ensure_room(len(record))  # what cannot be on record must not have happened
        begun = self._begin()
        try:
            commands = self.machine.handle(event)
        except BaseException as error:
            # A bug of ours: the state is not to be trusted any more, and the event must not come back with
            # the journal. Nobody was told of anything because of it.
            self._fail(error)
            self.close()
            raise
        self._note_time(begun)
        position = self.journal.append(record)
        self._unsafe.append((position, event, commands))
        if type(event) is JobSubmitted:
            self._submissions[event.request] = position
        elif type(event) is MessageReceived:
            self._accept_early(position, commands)
        silent = True
        for command in commands:
            if type(command) is WakeAt:
                self._wake_at(command.at)  # at once: nobody hears of it, and a tick is an event of its own
            else:
                silent = False
        if not self._committing:
            # After the other events of this turn of the loop, so that they share the write. If nobody is told
            # anything because of this event it can wait longer: if a crash loses it, it never came.
            self._commit_within(LAZY_SECONDS if silent else 0.0)

    def _accept_early(self, position: int, commands: list[Effect]) -> None:
        """Tell a submitter at once that the standby has the job: it is on disk there and, since before it was
        sent there, here. That this broker knows so is worth no wait: after a crash it would ask again. The
        write is asked for behind this, so the answer leaves first (see ``requests.Batch.wait``)."""
        for command in commands:
            if type(command) is JobAccepted and command.request not in self._submissions:
                self._perform(command)  # and once more when this event is safe, which changes nothing
                self.promised(position)

    async def safe(self) -> None:
        """Wait until all that was taken so far is on disk."""
        if self.journal.durable < self.journal.position:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._waiters.append((self.journal.position, waiter))
            if not self._committing:
                self._commit_within(0.0)
            await waiter

    def _commit_within(self, seconds: float) -> None:
        """Write at the latest in so many seconds."""
        if self._commit_timer is not None:
            if self._commit_soon or seconds:
                return  # it will not be later: all that may wait wait equally long
            self._commit_timer.cancel()
        self._commit_soon = not seconds
        call = self.loop.call_soon if self._commit_soon else partial(self.loop.call_later, seconds)
        self._commit_timer = call(self._commit)

    def _commit(self) -> None:
        self._commit_timer = None
        if self.closed:
            return
        self._committing = True
        if self._doubt >= DOUBT_FEW or len(self._unsafe) > FEW_EVENTS:
            self._pool.submit(self._write).add_done_callback(self._from_thread)
            return
        try:
            durable, seconds = self._write()
        except JournalFull as error:
            self._await_room(error)
            return
        except BaseException as error:
            self._fail(error)  # first: a broken disk may not even close
            self.close()
            raise
        self._committed(durable, seconds)

    def _write(self) -> tuple[int, float]:
        """Write and sync; the last position that is safe now, and how long it took."""
        begun = time.monotonic()
        return self.journal.commit(), time.monotonic() - begun

    def _from_thread(self, future: "Future[tuple[int, float]]") -> None:
        try:
            self.loop.call_soon_threadsafe(self._written, future)
        except RuntimeError:  # the loop is closed: the daemon has ended
            return

    def _written(self, future: "Future[tuple[int, float]]") -> None:
        if self.closed:
            return
        error = future.exception()
        if isinstance(error, JournalFull):
            self._await_room(error)
            return
        if error is not None:
            self._fail(error)  # first: a broken disk may not even close
            self.close()
            return
        self._committed(*future.result())

    def _await_room(self, error: JournalFull) -> None:
        """The disk is full: nothing is performed until there is room, which is looked for again and again.

        What is taken meanwhile waits with the rest, ``UNSAFE_MAX`` events at most.
        """
        if not self.disk_full:
            self.disk_full = True
            self.filled()
            log.error("the disk is full; waiting for room: %s", error)
        self._commit_timer = self.loop.call_later(ROOM_SECONDS, self._commit)

    def _tick(self) -> None:
        """Take no time either while nothing more may be taken: it is taken when the disk has caught up."""
        if self.full:
            self._timer = self.loop.call_later(ROOM_SECONDS, self._tick)
        else:
            super()._tick()

    def _committed(self, durable: int, seconds: float) -> None:
        """All up to a position is on disk: what came of it may be performed."""
        self._judge_disk(seconds)
        if self.disk_full:
            self.disk_full = False
            log.warning("there is room on the disk again; everything goes on")
        unsafe = self._unsafe
        safe: list[tuple[int, Event, list[Effect]]] = []
        while unsafe and unsafe[0][0] <= durable:
            safe.append(unsafe.popleft())
            position, event, commands = safe[-1]
            if self._digests is not None:
                self._digests.write(b"%d %08x\n" % (position, zlib.crc32(_encode(commands))))
            if type(event) is JobSubmitted:
                del self._submissions[event.request]
            for command in commands:
                if type(command) is not WakeAt:
                    self._perform(command)
        self.performed()
        if self._told is not None:
            for position, event, commands in safe:
                self._told(position, event, commands)
        while self._waiters and self._waiters[0][0] <= durable:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        self._committing = False
        if unsafe:
            self._commit_within(0.0)
        self._keep_house()

    def _judge_disk(self, seconds: float) -> None:
        """Whose the next writes are, after one that took so long."""
        if seconds > QUICK_SECONDS:
            self._doubt = min(self._doubt + seconds / QUICK_SECONDS, DOUBT_MAX)
        else:
            self._doubt = max(self._doubt - 1.0, 0.0)

    def _begin(self) -> float:
        """The time now, in seconds. The thread's own clock is dear to ask: now and then is enough, because
        time on the clock of the wall is at least as long."""
        now = time.perf_counter()
        if now - self._asked_at > ASK_SECONDS:
            self._asked_at, self._used = now, time.thread_time()
        return now

    def _note_time(self, begun: float) -> None:
        took = time.perf_counter() - begun
        if took > self.longest:
            self.longest = max(self.longest, min(took, time.thread_time() - self._used))

    def _keep_house(self) -> None:
        begun = self._begin()
        self._keep_up()
        self._note_time(begun)

    def _keep_up(self) -> None:
        position = self.journal.position
        if position >= self._check_due:
            self._check_due = position + CHECK_EVENTS
            self.machine.check()
        due = position >= self._snapshot_due or self.journal.bytes >= self._snapshot_bytes_due
        if due and self._pending_snapshot is None:
            state = self.machine.dump()
            self._snapshot_due = position + SNAPSHOT_EVENTS
            self._snapshot_bytes_due = self.journal.bytes + max(SNAPSHOT_BYTES, len(state))
            self._pending_snapshot = (position, state)
        if self._pending_snapshot is not None:
            at, state = self._pending_snapshot
            if at <= self.journal.durable and at <= self.snapshot_allowed():
                self._pending_snapshot = None
                self._pool.submit(self.journal.snapshot, at, state).add_done_callback(self._snapshot_taken)

    def _snapshot_taken(self, future: "Future[None]") -> None:
        error = future.exception()
        if isinstance(error, JournalFull):
            log.warning("no snapshot was made: %s", error)  # the journal has all of it; the next one is tried
        elif error is not None and not self.closed:
            self.loop.call_soon_threadsafe(self._fail, error)

    def close(self) -> None:
        """Take nothing more; what is on disk is complete, what is not was never acted on."""
        super().close()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._digests is not None:
            self._digests.close()
        self.journal.close()
