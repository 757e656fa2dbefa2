"""Snapshots of a machine's state and checks of its invariants, at intervals of events and of bytes.

A small machine is checked and dumped on the loop. When that has taken longer than ``INLINE_SECONDS``, a
forked child does it the next time (``machine_fork``). A thread of its own writes the snapshot, so that no
commit of the journal waits behind it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from hanse.core.machine import Machine
from hanse.live.journal.errors import JournalFull
from hanse.live.journal.journal import Journal
from hanse.live.machine_fork import ForkError, MachineFork

SNAPSHOT_EVENTS: Final = 50_000
"""Events between snapshots: the replay of a restart, about half a second."""
SNAPSHOT_BYTES: Final = 64 << 20
"""Bytes of records between snapshots, whatever their number: the replay of a restart. A larger state is
written when as many bytes of records have come, so snapshots at most double the bytes written, and a restart
reads that state anyway."""
CHECK_EVENTS: Final = 10_000
"""Events between two checks of the machine's invariants."""
INLINE_SECONDS: Final = 0.01
"""Processor time of a check or dump from which the next one gets a process of its own: a fifth of what one
event may take, so that a machine that grows fivefold between two of them stays below that."""
INLINE_BYTES: Final = 4 << 20
"""Size of a snapshot found at the start from which the first check gets a process of its own."""

log = logging.getLogger(__name__)


class Snapshots:
    """Checks and snapshots of one member's machine."""

    def __init__(self, machine: Machine, journal: Journal, fail: Callable[[BaseException], None]) -> None:
        self._machine = machine
        self._journal = journal
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._closed = False
        self._check_due = journal.position + CHECK_EVENTS
        self._due = journal.snapshot_position + SNAPSHOT_EVENTS
        """Counted from the newest snapshot and not from the start: a member that is killed again and again
        must not replay more each time."""
        self._bytes_due = max(SNAPSHOT_BYTES, journal.snapshot_bytes)
        self._seconds = INLINE_SECONDS if journal.snapshot_bytes > INLINE_BYTES else 0.0
        """Processor time that the latest check or dump took."""
        self._fork: MachineFork | None = None
        self._pending: tuple[int, bytes] | None = None
        """State that waits until the events before it are durable and in the read model."""
        self.forks = 0
        """Number of checks and dumps in a process of their own."""
        self.limit: Callable[[], int] = lambda: journal.durable
        """Return the highest position at which a snapshot may be made: at a broker, the read model's
        position, because records before a snapshot may be dropped."""

    def on_committed(self) -> None:
        """Check and dump what is due, after a write of the journal."""
        position = self._journal.position
        wants_check = position >= self._check_due
        wants_state = self._pending is None and (
            position >= self._due or self._journal.bytes >= self._bytes_due
        )
        if (wants_check or wants_state) and self._fork is None:
            self._check_due = position + CHECK_EVENTS
            if wants_state:
                self._due = position + SNAPSHOT_EVENTS
                self._bytes_due = self._journal.bytes + max(SNAPSHOT_BYTES, self._journal.snapshot_bytes)
            if self._seconds < INLINE_SECONDS or not self._start_fork(position, wants_state):
                self._work_inline(position, wants_check, wants_state)
        if self._pending is not None:
            self._write_pending()

    def close(self) -> None:
        """Stop, with a snapshot that is being written, and without one that is not."""
        self._closed = True
        if self._fork is not None:
            self._fork.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # --- the machine's state --------------------------------------------------------------------------------

    def _work_inline(self, position: int, wants_check: bool, wants_state: bool) -> None:
        begun = time.thread_time()
        if wants_check:
            self._machine.check()
        if wants_state:
            self._keep(position, self._machine.dump())
        self._seconds = time.thread_time() - begun

    def _start_fork(self, position: int, wants_state: bool) -> bool:
        """Fork a child for the work; False if the system has no room for one."""
        try:
            self._fork = MachineFork(self._machine, wants_state)
        except OSError as error:
            log.warning("the state is checked on the loop, because no process can be started: %s", error)
            return False
        self.forks += 1
        self._pool.submit(self._fork.read).add_done_callback(
            lambda future: self._call_on_loop(partial(self._on_fork_read, position, wants_state, future))
        )
        return True

    def _on_fork_read(self, position: int, wants_state: bool, future: "Future[tuple[float, bytes]]") -> None:
        self._fork = None
        if self._closed or future.cancelled():
            return
        try:
            self._seconds, state = future.result()
        except ForkError as error:  # the journal has all events; the next check tries again
            log.warning("no check and no snapshot was made: %s", error)
            self._due = self._check_due if wants_state else self._due
            return
        except (AssertionError, OSError) as error:
            self._fail(error)
            return
        if wants_state:
            self._keep(position, state)
            self._write_pending()

    def _keep(self, position: int, state: bytes) -> None:
        self._bytes_due = self._journal.bytes + max(SNAPSHOT_BYTES, len(state))
        self._pending = (position, state)

    # --- the file -------------------------------------------------------------------------------------------

    def _write_pending(self) -> None:
        """Write the snapshot if everything before it is durable and in the read model."""
        assert self._pending is not None
        position, state = self._pending
        if position <= self._journal.durable and position <= self.limit():
            self._pending = None
            self._pool.submit(self._journal.snapshot, position, state).add_done_callback(self._on_written)

    def _on_written(self, future: "Future[None]") -> None:
        error = future.exception()
        if isinstance(error, JournalFull):
            log.warning("no snapshot was made: %s", error)  # the journal has all events
        elif error is not None and not self._closed:
            self._call_on_loop(partial(self._fail, error))

    def _call_on_loop(self, call: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: the daemon has ended
            return
