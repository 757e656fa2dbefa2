"""A rate limiter: one token bucket for each identity, in a table of bounded size.

A bucket fills at a steady rate up to its burst. A request is admitted while the bucket is above zero, and
takes its cost out, even below zero: an expensive request is admitted and paid for afterwards, so a client
that asks for much does not starve among those who ask for little.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

RATE: Final = 1_000.0
"""Tokens per second of an identity. A query costs about one: half a millisecond of a broker's time."""
BURST: Final = 5_000.0
"""Tokens that an identity may have saved up, and that it may owe at most."""
ANONYMOUS_RATE: Final = 50.0
"""The same for an address without an identity."""
ANONYMOUS_BURST: Final = 200.0
BUCKETS_MAX: Final = 4_096
"""Buckets in a table; the least recently used one is dropped, and its owner starts again with a full one."""


class RateLimiter:
    """The token buckets of one kind of client, by key. ``clock`` returns seconds."""

    def __init__(
        self,
        rate: float,
        burst: float,
        buckets_max: int = BUCKETS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets_max = buckets_max
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Key -> level of its bucket, and time of that level."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, cost: float) -> int:
        """Charge a request. Return 0 if it is admitted, else the whole seconds to wait; then nothing is
        charged."""
        now = self._clock()
        level = self._level(key, now)
        if level <= 0.0:
            return max(1, math.ceil(-level / self._rate))
        self._put(key, level - cost, now)
        return 0

    def charge(self, key: str, cost: float) -> None:
        """Charge for a request that turned out to be larger, admitted or not."""
        now = self._clock()
        self._put(key, self._level(key, now) - cost, now)

    def _level(self, key: str, now: float) -> float:
        level, since = self._buckets.get(key, (self._burst, now))
        return min(self._burst, level + (now - since) * self._rate)

    def _put(self, key: str, level: float, now: float) -> None:
        self._buckets[key] = (max(level, -self._burst), now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._buckets_max:
            self._buckets.popitem(last=False)
