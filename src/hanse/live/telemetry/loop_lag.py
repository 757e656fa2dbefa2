"""The lag of a member's event loop: the time in which it answers nobody, for any reason.

A timer on the loop measures its own delay. Unlike the processor time of events (``shell``), the lag includes
all that blocks the loop: HTTP, the links, threads that hold the interpreter, a busy processor.
"""

import asyncio
from typing import Final

LOOK_SECONDS: Final = 0.05
"""Seconds between two checks, as a rule: a lag is measured at most this much too short."""
LOOK_BUSY_SECONDS: Final = 0.005
"""Seconds to the next check after a late one: a loop that was blocked once may be blocked again."""
LATE_SECONDS: Final = 0.002
"""A timer that is no later than this is on time."""
LONG_SECONDS: Final = 0.05
"""Seconds that no event may take."""


class LoopLag:
    """The lag of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.longest = 0.0
        """Seconds, since the start."""
        self.long = 0
        """Number of lags longer than ``LONG_SECONDS``."""
        self._due = loop.time() + LOOK_SECONDS
        self._timer = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        pause = self.note(now - self._due)
        self._due = now + pause
        self._timer = self._loop.call_at(self._due, self._look)

    def note(self, late: float) -> float:
        """Record a check that was this many seconds late; return the seconds to the next one."""
        self.longest = max(self.longest, late)
        self.long += late > LONG_SECONDS
        return LOOK_BUSY_SECONDS if late > LATE_SECONDS else LOOK_SECONDS

    def close(self) -> None:
        """Stop the checks."""
        self._timer.cancel()
