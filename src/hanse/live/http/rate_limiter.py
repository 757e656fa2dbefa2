"""How much each identity may ask: a token bucket for everybody, in a table that does not grow without end.

A bucket fills at a steady rate up to its burst. A request is admitted while there is anything in it, and
takes its cost out, even below nothing: what costs much is admitted and paid for afterwards, so nobody who
asks for something large starves among those who ask for little.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

RATE: Final = 1_000.0
"""Tokens a second of an identity. A question costs about one: half a millisecond of a broker's time."""
BURST: Final = 5_000.0
"""Tokens that an identity may have saved up, and that it may owe at most."""
STRANGER_RATE: Final = 50.0
"""The same of an address from which nobody has said who they are."""
STRANGER_BURST: Final = 200.0
BUCKETS_MAX: Final = 4_096
"""Buckets in a table; the one not used for longest goes, and whoever it was begins anew with a full one."""


class Buckets:
    """Buckets by key. ``clock`` gives seconds."""

    def __init__(
        self,
        rate: float,
        burst: float,
        most: int = BUCKETS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        self._clock = clock
        self._table: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Key -> what was in its bucket, and when."""

    def __len__(self) -> int:
        return len(self._table)

    def take(self, key: str, cost: float) -> int:
        """Pay for a request. 0: it is admitted. Else the whole seconds after which it would be; then nothing
        is taken."""
        now = self._clock()
        level = self._level(key, now)
        if level <= 0.0:
            return max(1, math.ceil(-level / self._rate))
        self._put(key, level - cost, now)
        return 0

    def charge(self, key: str, cost: float) -> None:
        """Pay for what turned out to be larger, admitted or not."""
        now = self._clock()
        self._put(key, self._level(key, now) - cost, now)

    def _level(self, key: str, now: float) -> float:
        level, since = self._table.get(key, (self._burst, now))
        return min(self._burst, level + (now - since) * self._rate)

    def _put(self, key: str, level: float, now: float) -> None:
        self._table[key] = (max(level, -self._burst), now)
        self._table.move_to_end(key)
        if len(self._table) > self._most:
            self._table.popitem(last=False)
