"""Requests that wait for a machine's reply: each has a number, which the reply repeats."""

import asyncio
from typing import Final

from hanse.model.effects import JobAccepted, RequestRejected

PENDING_MAX: Final = 200_000
"""Requests without a reply; further ones are turned away."""
_COUNTER_BITS: Final = 40

RequestReply = JobAccepted | RequestRejected


class RequestBatch:
    """Requests that are answered together."""

    def __init__(self, count: int) -> None:
        self.replies: list[RequestReply | None] = [None] * count
        self._left = count
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    def set_reply(self, index: int, reply: RequestReply) -> None:
        """Set the reply to one request."""
        if self.replies[index] is None:
            self.replies[index] = reply
            self._left -= 1
            if not self._left:
                self._finish()

    async def wait(self, seconds: float) -> bool:
        """Wait for all replies; return False if they are late. The waiter resumes in the turn of the loop
        after the last reply, before anything that is scheduled after the reply."""
        if self._left:
            timer = self._loop.call_later(seconds, self._finish)
            try:
                await self._done
            finally:
                timer.cancel()
        return not self._left

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


class _PendingRequest:
    """Request without a reply, with its waiters."""

    __slots__ = ("client_id", "waiters")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.waiters: list[tuple[RequestBatch, int]] = []


class PendingRequests:
    """Pending requests of one run of a daemon. Numbers of earlier runs are never used again, so a reply that
    a crash delayed finds no request instead of a wrong one."""

    def __init__(self, epoch: int) -> None:
        self._next = epoch << _COUNTER_BITS
        self._open: dict[int, _PendingRequest] = {}
        self._by_client_id: dict[str, int] = {}
        """Client id -> number of the pending submission."""

    @property
    def is_full(self) -> bool:
        """True if no more requests can be accepted."""
        return len(self._open) >= PENDING_MAX

    def open(self, batch: RequestBatch, index: int, client_id: str = "") -> int:
        """Return a new number for one request of a batch."""
        self._next += 1
        self._open[self._next] = entry = _PendingRequest(client_id)
        entry.waiters.append((batch, index))
        if client_id:
            self._by_client_id[client_id] = self._next
        return self._next

    def join(self, batch: RequestBatch, index: int, client_id: str) -> int | None:
        """Wait for the reply to the pending submission with this client id; return its number, or None if
        there is none. The machine replies only to the latest of equal ones, so no second one is made."""
        number = self._by_client_id.get(client_id)
        if number is not None:
            self._open[number].waiters.append((batch, index))
        return number

    def on_reply(self, reply: RequestReply) -> None:
        """Give the machine's reply to the waiters."""
        request = self._close(reply.request)
        for batch, index in request.waiters if request is not None else ():
            batch.set_reply(index, reply)

    def drop(self, numbers: list[int], batch: RequestBatch) -> None:
        """Remove a batch from the waiters of these requests."""
        for number in numbers:
            entry = self._open.get(number)
            if entry is not None:
                entry.waiters = [waiter for waiter in entry.waiters if waiter[0] is not batch]
                if not entry.waiters:
                    self._close(number)

    def _close(self, number: int) -> _PendingRequest | None:
        entry = self._open.pop(number, None)
        if entry is not None and self._by_client_id.get(entry.client_id) == number:
            del self._by_client_id[entry.client_id]
        return entry
