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

AT_ONCE: Final = {False: 2, True: 1}
"""Requests of one queue that are handled at the same time: reads, and writes. A submission keeps several
members busy, and holds many jobs if the client has many."""
LINE_SECONDS_MAX: Final = 10.0
"""Seconds that a request may wait in the queue."""

RESTS: Final = {False: 3.0, True: 6.0}
"""The pause as a multiple of the time of the request: reads, and writes. A submission makes work after its
answer: jobs are placed, started, ended and shown."""
REST_SECONDS_MAX: Final = 0.25
COMPANY_SECONDS: Final = 2.0
"""Seconds for which an identity counts as active after its last request."""

Key = tuple[str, bool]
"""Identity, and whether the queue is the one for writes, which may take longer."""


class LateError(Exception):
    """A request waited too long in the queue."""


class _Line:
    """Requests of one key: the number in progress, and those that wait."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """The queues of one server. Empty queues are removed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[Key, _Line] = {}
        self._last = ("", -COMPANY_SECONDS)
        """The identity that sent the last request, and its time."""
        self._other = ("", -COMPANY_SECONDS)
        """The same for the last request of a different identity."""

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[None]:
        """Hold a slot for the block. Raise ``QueueTimeoutError`` if no slot is free in time."""
        self._note(key[0])
        line = self._lines.setdefault(key, _Line())
        if line.busy < AT_ONCE[key[1]]:
            line.busy += 1
        else:
            await self._wait(key, line)
        begun = self._clock()
        try:
            yield
        finally:
            if line.waiting and self._in_company(key[0]):
                rest = min((self._clock() - begun) * RESTS[key[1]], REST_SECONDS_MAX)
                asyncio.get_running_loop().call_later(rest, self._pass_on, key, line)
            else:
                self._pass_on(key, line)

    def _note(self, name: str) -> None:
        if name != self._last[0]:
            self._other = self._last
        self._last = (name, self._clock())

    def _in_company(self, name: str) -> bool:
        """Return whether another identity has sent a request lately."""
        seen = self._other if self._last[0] == name else self._last
        return self._clock() - seen[1] < COMPANY_SECONDS

    async def _wait(self, key: Key, line: _Line) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(mine)
        try:
            async with asyncio.timeout(LINE_SECONDS_MAX):
                await mine
        except BaseException as error:
            if mine.done() and not mine.cancelled():
                self._pass_on(key, line)  # the slot came just as the wait was cancelled
            if isinstance(error, TimeoutError):
                raise LateError from None
            raise

    def _pass_on(self, key: Key, line: _Line) -> None:
        """Pass a slot to the first request in the queue that still waits, or free it."""
        while line.waiting:
            first = line.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        line.busy -= 1
        if not line.busy:
            del self._lines[key]
