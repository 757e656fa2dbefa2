"""How long a member's loop is kept: for so long nobody is answered, whatever keeps it.

A timer on the loop itself looks how late it is. Unlike the processor time of events (``shell``) that counts
all that keeps the loop: doors, the wire, threads that hold the interpreter, a processor that is elsewhere.
"""

import asyncio
from typing import Final

LOOK_SECONDS: Final = 0.05
"""Between two looks, as a rule: a lag is seen as at most this much shorter than it was."""
LOOK_BUSY_SECONDS: Final = 0.005
"""The same after a look that was late: where the loop was kept once it may be again."""
LATE_SECONDS: Final = 0.002
"""A timer that is no later than this is on time."""
LONG_SECONDS: Final = 0.05
"""What no event may take."""


class LoopLag:
    """The lag of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.longest = 0.0
        """Seconds, since the start."""
        self.long = 0
        """How often the loop was kept for longer than ``LONG_SECONDS``."""
        self._due = loop.time() + LOOK_SECONDS
        self._timer = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        pause = self.note(now - self._due)
        self._due = now + pause
        self._timer = self._loop.call_at(self._due, self._look)

    def note(self, late: float) -> float:
        """A look came so much too late; in how many seconds to look again."""
        self.longest = max(self.longest, late)
        self.long += late > LONG_SECONDS
        return LOOK_BUSY_SECONDS if late > LATE_SECONDS else LOOK_SECONDS

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()
