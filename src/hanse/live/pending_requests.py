"""Requests that wait for a machine's reply: each has a number, which the reply repeats."""

import asyncio
from typing import Final

from hanse.model.effects import JobAccepted, RequestRejected

WAITING_MAX: Final = 200_000
"""Requests without a reply; further ones are turned away."""
_COUNTER_BITS: Final = 40

Answer = JobAccepted | RequestRejected


class Batch:
    """Requests that are answered together."""

    def __init__(self, count: int) -> None:
        self.answers: list[Answer | None] = [None] * count
        self._left = count
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    def settle(self, index: int, answer: Answer) -> None:
        """Set the reply to one request."""
        if self.answers[index] is None:
            self.answers[index] = answer
            self._left -= 1
            if not self._left:
                self._end()

    async def wait(self, seconds: float) -> bool:
        """Wait for all replies; return False if they are late. The waiter resumes in the turn of the loop
        after the last reply, before anything that is scheduled after the reply."""
        if self._left:
            late = self._loop.call_later(seconds, self._end)
            try:
                await self._done
            finally:
                late.cancel()
        return not self._left

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


class _Open:
    """Request without a reply, with its waiters."""

    __slots__ = ("client_id", "waiters")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.waiters: list[tuple[Batch, int]] = []


class Requests:
    """Pending requests of one run of a daemon. Numbers of earlier runs are never used again, so a reply that
    a crash delayed finds no request instead of a wrong one."""

    def __init__(self, epoch: int) -> None:
        self._next = epoch << _COUNTER_BITS
        self._open: dict[int, _Open] = {}
        self._named: dict[str, int] = {}
        """Client id -> number of the pending submission."""

    @property
    def full(self) -> bool:
        """True if no more requests can be accepted."""
        return len(self._open) >= WAITING_MAX

    def open(self, batch: Batch, index: int, client_id: str = "") -> int:
        """Return a new number for one request of a batch."""
        self._next += 1
        self._open[self._next] = entry = _Open(client_id)
        entry.waiters.append((batch, index))
        if client_id:
            self._named[client_id] = self._next
        return self._next

    def share(self, batch: Batch, index: int, client_id: str) -> int | None:
        """Wait for the reply to the pending submission with this client id; return its number, or None if
        there is none. The machine replies only to the latest of equal ones, so no second one is made."""
        number = self._named.get(client_id)
        if number is not None:
            self._open[number].waiters.append((batch, index))
        return number

    def answer(self, answer: Answer) -> None:
        """Give the machine's reply to the waiters."""
        found = self._close(answer.request)
        for batch, index in found.waiters if found is not None else ():
            batch.settle(index, answer)

    def drop(self, numbers: list[int], batch: Batch) -> None:
        """Remove a batch from the waiters of these requests."""
        for number in numbers:
            entry = self._open.get(number)
            if entry is not None:
                entry.waiters = [waiter for waiter in entry.waiters if waiter[0] is not batch]
                if not entry.waiters:
                    self._close(number)

    def _close(self, number: int) -> _Open | None:
        entry = self._open.pop(number, None)
        if entry is not None and self._named.get(entry.client_id) == number:
            del self._named[entry.client_id]
        return entry
