"""Measurement of loop lag: the time for which something kept a member's event loop from answering.

A timer on the loop measures how late it fires. Unlike the processor time of events (``shell``) the lag
includes everything that keeps the loop: HTTP requests, RPC, threads that hold the interpreter, a processor
that is elsewhere. A member that does nothing must cost nothing, so the timer is slow while the process uses
little processor time.
"""

import asyncio
import time
from typing import Final

LOOK_IDLE_SECONDS: Final = 1.0
"""Between two looks while the member is idle: a lag that begins then may be seen shorter by as much."""
CHECK_SECONDS: Final = 0.05
"""Between two looks while the member works: a lag is seen as at most this much shorter than it was."""
CHECK_BUSY_SECONDS: Final = 0.005
"""The same after a late look: a loop that was kept once is often kept again."""
IDLE_SHARE: Final = 0.05
"""Share of a core below which a member is idle."""
ON_TIME_SECONDS_MAX: Final = 0.01
"""A timer that is no later than this is on time."""
LONG_SECONDS: Final = 0.05
"""The most that one event may take."""


class LoopLag:
    """The lag of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.longest = 0.0
        """Seconds, since the start."""
        self.long_lags = 0
        """Number of lags that were longer than ``LONG_SECONDS``."""
        self._looked_at = loop.time()
        self._cpu_seconds = time.process_time()
        """Processor time of the process at the last look."""
        self._due = self._looked_at + CHECK_SECONDS
        self._timer = loop.call_at(self._due, self._check)

    def _check(self) -> None:
        now, cpu_seconds = self._loop.time(), time.process_time()
        share = (cpu_seconds - self._cpu_seconds) / max(now - self._looked_at, 1e-6)
        pause = self.record(now - self._due, share)
        self._looked_at, self._cpu_seconds = now, cpu_seconds
        self._due = now + pause
        self._timer = self._loop.call_at(self._due, self._check)

    def record(self, late: float, share: float) -> float:
        """Record a look that came ``late`` seconds late; return the seconds until the next look.

        ``share`` is the share of a core that the process used since the look before.
        """
        self.longest = max(self.longest, late)
        self.long_lags += late > LONG_SECONDS
        if share < IDLE_SHARE:
            return LOOK_IDLE_SECONDS
        return CHECK_BUSY_SECONDS if late > ON_TIME_SECONDS_MAX else CHECK_SECONDS

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
