"""Live shell: runs a machine on the event loop, and performs its effects when their event is on disk.

One event at a time: the shell stamps it, lets the machine handle it, and appends it to the journal, with no
await in between. The effects wait until the event is on disk. All events appended meanwhile are written and
synced as one group, so a busy member pays for few syncs, and an idle one answers after a single sync. A
second thread writes while there is much to write or the disk is slow; a few events on a fast disk are written
on the loop, which takes less time than waking the thread.
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
from hanse.live.checks_and_snapshots import Snapshots
from hanse.live.clock import Clock
from hanse.live.journal.errors import JournalFull
from hanse.live.journal.journal import Journal
from hanse.model.effects import Effect, JobAccepted, WakeAt, orders_of
from hanse.model.events import Event, JobSubmitted, MessageReceived, Tick
from hanse.model.history_effects import HISTORY_EFFECTS

UNCOMMITTED_MAX: Final = 50_000
"""Events whose write has not returned. Above half of it the shell turns new requests away; at the whole it
drops messages (their senders repeat them)."""
QUICK_SECONDS: Final = 0.002
"""Longest duration of a fast write."""
SLOW_DISK_SCORE: Final = 8.0
"""Score from which the second thread writes. A slow write adds to the score as many fast writes as it took, a
fast write subtracts one. So a disk that is always slow, or that stalls, gets the thread; a process that is
not scheduled now and then does not, because the thread would wait as long, and twice."""
SLOW_DISK_SCORE_MAX: Final = 64.0
SLOW_DISK_SCORE_FIRST: Final = 10.0
"""Score at the start, when nothing is known of the disk."""
INLINE_EVENTS_MAX: Final = 32
"""Number of events up to which the loop writes them itself."""
LAZY_SECONDS: Final = 0.05
"""Seconds that an event without effects may wait for others to share its write."""
DISK_FULL_RETRY_SECONDS: Final = 1.0
"""Seconds until a write that found the disk full is tried again."""

log = logging.getLogger(__name__)

EffectHandler = Callable[[Effect], None]
FailureHandler = Callable[[BaseException], None]
EventListener = Callable[[int, Event, list[Effect]], None]
_NOT_PERFORMED: Final = HISTORY_EFFECTS | {WakeAt}
"""Types of effects that nobody performs when their event is on disk: facts for readers, and ticks, which were
scheduled at once."""
_encode: Final = msgspec.msgpack.Encoder().encode


class Shell:
    """Shell of a machine without a journal: a runner, which rebuilds its state from its backend."""

    def __init__(self, machine: Machine, clock: Clock, perform: EffectHandler) -> None:
        self.machine = machine
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._perform = perform
        self._wake_times: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self.closed = False

    def handle(self, event: Event) -> None:
        """Let the machine handle an event, and perform its effects."""
        if not self.closed:
            self.perform(self.machine.handle(event))

    def perform(self, effects: list[Effect]) -> None:
        """Perform the machine's effects, in order."""
        for effect in effects:
            if type(effect) is WakeAt:
                self._wake_at(effect.at)
            else:
                self._perform(effect)

    def close(self) -> None:
        """Accept no more events."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake_at(self, at: int) -> None:
        if not self._wake_times or at < self._wake_times[0]:
            heappush(self._wake_times, at)
            self._arm_timer(at)
        elif at not in self._wake_times:
            heappush(self._wake_times, at)

    def _arm_timer(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(at - self.clock.now(), 0) / 1_000_000
        self._timer = self.loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self.clock.now()
        due = False
        while self._wake_times and self._wake_times[0] <= now:
            heappop(self._wake_times)
            due = True
        if due:
            self.handle(Tick(now))
        if self._wake_times and self._timer is None and not self.closed:
            self._arm_timer(self._wake_times[0])


class JournalledShell(Shell):
    """Shell of a broker or a warden: performs no effect before the event that caused it is on disk."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        perform: EffectHandler,
        journal: Journal,
        fail: FailureHandler,
        on_durable: EventListener | None = None,
        digests: Path | None = None,
    ) -> None:
        super().__init__(machine, clock, perform)
        self.journal = journal
        self._fail = fail
        self._on_durable = on_durable
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._uncommitted: deque[tuple[int, Event, list[Effect]]] = deque()
        self._committing = False
        self._slow_disk_score = SLOW_DISK_SCORE_FIRST
        """Score of slow writes; see ``SLOW_DISK_SCORE``."""
        self.disk_full = False
        """True while the latest write found the disk full."""
        self.on_disk_full: Callable[[], None] = lambda: None
        """Called when ``disk_full`` becomes true."""
        self._commit_timer: asyncio.Handle | None = None
        self._commit_soon = False
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Futures of ``wait_durable`` with the positions that they wait for, in order."""
        self.snapshots = Snapshots(machine, journal, fail)
        self._thread_time = 0.0
        """Processor time of this thread at the latest write, in seconds."""
        self.longest_seconds = 0.0
        """Most processor time, in seconds, that one event, snapshot or check has blocked the loop."""
        self._digests = digests.open("ab") if digests is not None else None
        self._submissions: dict[int, int] = {}
        """Submission requests not on disk yet, with their positions."""
        self.on_performed: Callable[[], None] = lambda: None
        """Called when all effects that a write allows are performed: outgoing messages may be sent."""
        self.on_early_acceptance: Callable[[int], None] = lambda _: None
        """Called with the position when an event that is not on disk yet makes a job accepted."""

    @property
    def is_busy(self) -> bool:
        """True if the disk is so far behind that new requests should be turned away."""
        return self.disk_full or len(self._uncommitted) * 2 > UNCOMMITTED_MAX

    @property
    def is_full(self) -> bool:
        """True if no event may be accepted until the disk has caught up."""
        return len(self._uncommitted) >= UNCOMMITTED_MAX or self.journal.is_half_full

    def handle(self, event: Event) -> None:
        """Let the machine handle an event, then append the event; its effects wait until it is on disk."""
        if self.closed:
            return
        record = _encode(event)
        self.journal.check_append(len(record))  # an event that cannot be journalled must not be handled
        begun = time.perf_counter()
        try:
            effects = self.machine.handle(event)
        except BaseException as error:
            # A bug of ours: the state cannot be trusted any more, and the event must not come back with
            # the journal. It had no effects.
            self._fail(error)
            self.close()
            raise
        if time.perf_counter() - begun > self.longest_seconds:
            self._stop_timing(begun)
        position = self.journal.append(record)
        self._uncommitted.append((position, event, effects))
        if type(event) is JobSubmitted:
            self._submissions[event.request] = position
        elif type(event) is MessageReceived:
            self._accept_early(position, effects)
        silent = True
        for effect in effects:
            if type(effect) is WakeAt:
                self._wake_at(effect.at)  # at once: it is local, and a tick is an event of its own
            elif silent and type(effect) not in HISTORY_EFFECTS:
                silent = False
        if not self._committing:
            # After the other events of this turn of the loop, so that they share the write. An event without
            # effects can wait longer: if a crash loses it, it never came.
            self._commit_within(LAZY_SECONDS if silent else 0.0)

    def _accept_early(self, position: int, effects: list[Effect]) -> None:
        """Answer a submitter at once when the standby has the job. The job is on the standby's disk and,
        since before it was sent there, on this one. The acknowledgement need not be durable: after a crash
        this broker asks again. The write is requested later, so the answer leaves first (see
        ``RequestBatch.wait``)."""
        for effect in effects:
            if type(effect) is JobAccepted and effect.request not in self._submissions:
                self._perform(effect)  # and again when this event is durable, which changes nothing
                self.on_early_acceptance(position)

    async def wait_durable(self) -> None:
        """Wait until all events handled so far are on disk."""
        if self.journal.durable < self.journal.position:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._waiters.append((self.journal.position, waiter))
            if not self._committing:
                self._commit_within(0.0)
            await waiter

    def _commit_within(self, seconds: float) -> None:
        """Schedule the next write, at most so many seconds from now."""
        if self._commit_timer is not None:
            if self._commit_soon or seconds:
                return  # already scheduled no later: all delayed writes wait equally long
            self._commit_timer.cancel()
        self._commit_soon = not seconds
        call = self.loop.call_soon if self._commit_soon else partial(self.loop.call_later, seconds)
        self._commit_timer = call(self._commit)

    def _commit(self) -> None:
        self._commit_timer = None
        if self.closed:
            return
        self._committing = True
        if self._slow_disk_score >= SLOW_DISK_SCORE or len(self._uncommitted) > INLINE_EVENTS_MAX:
            self._pool.submit(self._write).add_done_callback(self._on_thread_done)
            return
        try:
            durable, seconds = self._write()
        except JournalFull as error:
            self._wait_for_disk_space(error)
            return
        except BaseException as error:
            self._fail(error)  # first: a broken disk may not even close
            self.close()
            raise
        self._on_committed(durable, seconds)

    def _write(self) -> tuple[int, float]:
        """Write and sync; return the last durable position and the seconds that it took."""
        begun = time.monotonic()
        return self.journal.commit(), time.monotonic() - begun

    def _on_thread_done(self, future: "Future[tuple[int, float]]") -> None:
        try:
            self.loop.call_soon_threadsafe(self._on_written, future)
        except RuntimeError:  # the loop is closed: the daemon has ended
            return

    def _on_written(self, future: "Future[tuple[int, float]]") -> None:
        if self.closed:
            return
        error = future.exception()
        if isinstance(error, JournalFull):
            self._wait_for_disk_space(error)
            return
        if error is not None:
            self._fail(error)  # first: a broken disk may not even close
            self.close()
            return
        self._on_committed(*future.result())

    def _wait_for_disk_space(self, error: JournalFull) -> None:
        """Perform nothing until the full disk has space, and try the write again.

        Events accepted meanwhile wait with the rest, ``UNCOMMITTED_MAX`` at most.
        """
        if not self.disk_full:
            self.disk_full = True
            self.on_disk_full()
            log.error("the disk is full; waiting for free space: %s", error)
        self._commit_timer = self.loop.call_later(DISK_FULL_RETRY_SECONDS, self._commit)

    def _on_timer(self) -> None:
        """Delay the tick while no event may be accepted."""
        if self.is_full:
            self._timer = self.loop.call_later(DISK_FULL_RETRY_SECONDS, self._on_timer)
        else:
            super()._on_timer()

    def _on_committed(self, durable: int, seconds: float) -> None:
        """Perform the effects of all events up to a durable position."""
        self._thread_time = time.thread_time()
        self._update_disk_score(seconds)
        if self.disk_full:
            self.disk_full = False
            log.warning("the disk has free space again; everything goes on")
        uncommitted = self._uncommitted
        committed: list[tuple[int, Event, list[Effect]]] = []
        while uncommitted and uncommitted[0][0] <= durable:
            committed.append(uncommitted.popleft())
            position, event, effects = committed[-1]
            if self._digests is not None:
                self._digests.write(b"%d %08x\n" % (position, zlib.crc32(_encode(orders_of(effects)))))
            if type(event) is JobSubmitted:
                del self._submissions[event.request]
            for effect in effects:
                if type(effect) not in _NOT_PERFORMED:
                    self._perform(effect)
        self.on_performed()
        if self._on_durable is not None:
            for position, event, effects in committed:
                self._on_durable(position, event, effects)
        while self._waiters and self._waiters[0][0] <= durable:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        self._committing = False
        if uncommitted:
            self._commit_within(0.0)
        self._maintain()

    def _update_disk_score(self, seconds: float) -> None:
        """Decide from the duration of a write which thread does the next ones."""
        if seconds > QUICK_SECONDS:
            self._slow_disk_score = min(self._slow_disk_score + seconds / QUICK_SECONDS, SLOW_DISK_SCORE_MAX)
        else:
            self._slow_disk_score = max(self._slow_disk_score - 1.0, 0.0)

    def _stop_timing(self, begun: float) -> None:
        """Note how long the loop was blocked since ``begun``. Elapsed time is an upper bound of processor
        time, and so is what the thread has used since the latest write. Reading the thread's own clock is too
        expensive for every event."""
        took = time.perf_counter() - begun
        if took > self.longest_seconds:
            self.longest_seconds = max(
                self.longest_seconds, min(took, time.thread_time() - self._thread_time)
            )

    def _maintain(self) -> None:
        begun = time.perf_counter()
        self.snapshots.on_committed()
        self._stop_timing(begun)

    def close(self) -> None:
        """Accept no more events. What is on disk is complete; what is not had no effects."""
        super().close()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        self.snapshots.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._digests is not None:
            self._digests.close()
        self.journal.close()
