"""Requests that wait for a machine's answer: each has a number, which the answer repeats."""

import asyncio
from typing import Final

from hanse.model.commands import Accepted, Rejected

WAITING_MAX: Final = 200_000
"""Requests without an answer; further ones are turned away."""
_COUNTER_BITS: Final = 40

Answer = Accepted | Rejected


class Batch:
    """Some requests that are answered together."""

    def __init__(self, count: int) -> None:
        self.answers: list[Answer | None] = [None] * count
        self._left = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not count:
            self._done.set_result(None)

    def settle(self, index: int, answer: Answer) -> None:
        """One of them has its answer."""
        if self.answers[index] is None:
            self.answers[index] = answer
            self._left -= 1
            if not self._left and not self._done.done():
                self._done.set_result(None)

    async def wait(self, seconds: float) -> bool:
        """Whether all had their answers in time."""
        done, _ = await asyncio.wait([self._done], timeout=seconds)
        return bool(done)


class Requests:
    """The open requests of one run of a daemon. Numbers of earlier runs are never used again, so that an
    answer that a crash delayed finds nobody instead of somebody else."""

    def __init__(self, epoch: int) -> None:
        self._next = epoch << _COUNTER_BITS
        self._open: dict[int, tuple[Batch, int]] = {}

    @property
    def full(self) -> bool:
        """Whether no more can be taken."""
        return len(self._open) >= WAITING_MAX

    def open(self, batch: Batch, index: int) -> int:
        """A number for one request of a batch."""
        self._next += 1
        self._open[self._next] = (batch, index)
        return self._next

    def answer(self, answer: Answer) -> None:
        """The machine has answered."""
        found = self._open.pop(answer.request, None)
        if found is not None:
            batch, index = found
            batch.settle(index, answer)

    def drop(self, numbers: list[int]) -> None:
        """Nobody waits for these any more."""
        for number in numbers:
            self._open.pop(number, None)
