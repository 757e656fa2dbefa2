"""A concurrency limiter: handles only a few requests of one identity at a time and queues the others.

The rate limiter bounds an identity in the long run; this module bounds it at one moment. However many
requests one identity sends at once, another's request finds at most a few of them ahead. While other
identities are active, a queue that is not empty pauses after each request for a multiple of the time that the
request took: an identity that asks for more than gets done has a share of the broker, and leaves the rest to
the others. A client that sends one request after another never waits and never pauses.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

CONCURRENT_MAX: Final = {False: 2, True: 1}
"""Requests of one queue that are handled at the same time: reads, and writes. A submission keeps several
members busy, and holds many jobs if the client has many."""
QUEUE_SECONDS_MAX: Final = 10.0
"""Seconds that a request may wait in the queue."""

PAUSE_FACTORS: Final = {False: 3.0, True: 6.0}
"""The pause as a multiple of the time of the request: reads, and writes. A submission makes work after its
answer: jobs are placed, started, ended and shown."""
PAUSE_SECONDS_MAX: Final = 0.25
CONTENTION_SECONDS: Final = 2.0
"""Seconds for which an identity counts as active after its last request."""

Key = tuple[str, bool]
"""Identity, and whether the queue is the one for writes, which may take longer."""


class QueueTimeoutError(Exception):
    """A request waited too long in the queue."""


class _WaitQueue:
    """Requests of one key: the number in progress, and those that wait."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class ConcurrencyLimiter:
    """The queues of one server. Empty queues are removed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._queues: dict[Key, _WaitQueue] = {}
        self._last = ("", -CONTENTION_SECONDS)
        """The identity that sent the last request, and its time."""
        self._last_other = ("", -CONTENTION_SECONDS)
        """The same for the last request of a different identity."""

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def slot(self, key: Key) -> AsyncIterator[None]:
        """Hold a slot for the block. Raise ``QueueTimeoutError`` if no slot is free in time."""
        self._note_request(key[0])
        queue = self._queues.setdefault(key, _WaitQueue())
        if queue.busy < CONCURRENT_MAX[key[1]]:
            queue.busy += 1
        else:
            await self._wait(key, queue)
        started_at = self._clock()
        try:
            yield
        finally:
            if queue.waiting and self._is_contended(key[0]):
                pause = min((self._clock() - started_at) * PAUSE_FACTORS[key[1]], PAUSE_SECONDS_MAX)
                asyncio.get_running_loop().call_later(pause, self._release, key, queue)
            else:
                self._release(key, queue)

    def _note_request(self, name: str) -> None:
        if name != self._last[0]:
            self._last_other = self._last
        self._last = (name, self._clock())

    def _is_contended(self, name: str) -> bool:
        """Return whether another identity has sent a request lately."""
        other = self._last_other if self._last[0] == name else self._last
        return self._clock() - other[1] < CONTENTION_SECONDS

    async def _wait(self, key: Key, queue: _WaitQueue) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(slot)
        try:
            async with asyncio.timeout(QUEUE_SECONDS_MAX):
                await slot
        except BaseException as error:
            if slot.done() and not slot.cancelled():
                self._release(key, queue)  # the slot came just as the wait was cancelled
            if isinstance(error, TimeoutError):
                raise QueueTimeoutError from None
            raise

    def _release(self, key: Key, queue: _WaitQueue) -> None:
        """Pass a slot to the first request in the queue that still waits, or free it."""
        while queue.waiting:
            first = queue.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        queue.busy -= 1
        if not queue.busy:
            del self._queues[key]
