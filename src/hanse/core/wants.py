"""Who waits for room in one cluster: the registered demand of every broker, in one global order.

Keys come from the brokers' queue order; equal keys go by broker name, then by line number. Because every
warden serves the smallest key first, the league has one queue without anybody holding it.
"""

from bisect import insort
from typing import Final

import msgspec

from hanse.model.messages import DemandLine, Key, Shape

LINES_MAX: Final = 64
"""Demand lines of one broker; a broker sends its best ones."""


class Want(msgspec.Struct, gc=False):
    """One broker's waiting tasks of one shape. ``count`` falls with every grant."""

    broker: str
    line: int
    shape: Shape
    key: Key
    count: int
    hold: bool

    def rank(self) -> tuple[Key, str, int]:
        """The global order."""
        return (self.key, self.broker, self.line)


class Wants:
    """All demand at one warden, best key first."""

    def __init__(self) -> None:
        self.order: list[Want] = []

    def replace(self, broker: str, lines: tuple[DemandLine, ...]) -> list[Want]:
        """Take a broker's demand as it now is; returns its wants, best first."""
        self.order = [want for want in self.order if want.broker != broker]
        fresh = [Want(broker, d.line, d.shape, d.key, d.count, d.hold) for d in lines[:LINES_MAX]]
        for want in fresh:
            insort(self.order, want, key=Want.rank)
        fresh.sort(key=Want.rank)
        return fresh

    def find(self, broker: str, line: int) -> Want | None:
        """A broker's want by its line number."""
        return next((want for want in self.order if want.line == line and want.broker == broker), None)

    def check(self) -> None:
        """Order and bounds."""
        ranks = [want.rank() for want in self.order]
        assert ranks == sorted(ranks)
