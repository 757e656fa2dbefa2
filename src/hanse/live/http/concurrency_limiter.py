"""Taking turns: of one identity only a few requests are worked on at a time, and the others stand in line.

A bucket bounds what an identity gets in the long run; this bounds what it gets at one moment. However many
requests somebody sends at once, somebody else's finds at most a few of them before it. And while others are
there, a line in which somebody waits rests after each request for some times as long as that took: who asks
for more than gets done has a share of the broker, and leaves the rest of it to those who wait for nobody. A
client that asks one thing after another never stands in line, and never rests.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = {False: 2, True: 1}
"""Requests of one line that are worked on at the same time: questions, and what changes something. A
submission keeps several members busy, and holds many jobs if somebody has many."""
LINE_SECONDS_MAX: Final = 10.0
"""How long a request stands in line."""

RESTS: Final = {False: 3.0, True: 6.0}
"""For how many times as long as a request took its place in line rests. A submission goes on to make work
behind its answer: it is placed, started, ended and shown."""
REST_SECONDS_MAX: Final = 0.25
COMPANY_SECONDS: Final = 2.0
"""How long somebody is taken to be there after their last request."""

Key = tuple[str, bool]
"""Whose line it is; whether it is the one for what changes something, which may take longer."""


class LateError(Exception):
    """A turn did not come in time."""


class _Line:
    """Requests of one key: how many are worked on, and who waits for their turn."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """The lines of one door. A line that is empty is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[Key, _Line] = {}
        self._last = ("", -COMPANY_SECONDS)
        """Who asked last, and when."""
        self._other = ("", -COMPANY_SECONDS)
        """The same of the last who was somebody else."""

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[None]:
        """Work in turn. Raises ``LateError`` if the turn does not come in time."""
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
        """Whether somebody else has asked lately."""
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
                self._pass_on(key, line)  # the turn came at the very moment when nobody wanted it any more
            if isinstance(error, TimeoutError):
                raise LateError from None
            raise

    def _pass_on(self, key: Key, line: _Line) -> None:
        """A turn is over: the first in line who still waits has it."""
        while line.waiting:
            first = line.waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
        line.busy -= 1
        if not line.busy:
            del self._lines[key]
