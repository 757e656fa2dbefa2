"""Clock of a simulated process: it has an offset and a rate of its own."""

from typing import Final

import msgspec

MILLION: Final = 1_000_000


class ProcessClock(msgspec.Struct, frozen=True):
    """Clock of a process: ``local = offset + true * rate / 1,000,000``. It runs while the process is down."""

    offset: int = 0
    rate: int = MILLION
    """Local microseconds in a true second."""

    def local_time(self, true_time: int) -> int:
        """Return the clock's reading at a true time."""
        return self.offset + true_time * self.rate // MILLION

    def true_time(self, local_time: int) -> int:
        """Return the first true time at which the clock reads at least ``local_time``."""
        return -((self.offset - local_time) * MILLION // self.rate)
