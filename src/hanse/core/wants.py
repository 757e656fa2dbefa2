"""Who waits for room in one cluster: the registered demand of every broker, in one global order.

Keys come from the brokers' queue order; equal keys go by broker name, then by line number. Because every
warden serves the smallest key first, the league has one queue without anybody holding it.
"""

from operator import attrgetter
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
        lines = lines[:LINES_MAX]
        known = [want for want in self.order if want.broker == broker]
        if len(known) == len(lines) and all(map(_same, known, lines)):
            for want, line in zip(known, lines, strict=True):
                want.count, want.hold = line.count, line.hold
            return known
        fresh = [Want(broker, d.line, d.shape, d.key, d.count, d.hold) for d in lines]
        fresh.sort(key=_rank)
        self.order = [want for want in self.order if want.broker != broker] + fresh
        self.order.sort(key=_rank)
        return fresh

    def find(self, broker: str, line: int) -> Want | None:
        """A broker's want by its line number."""
        return next((want for want in self.order if want.line == line and want.broker == broker), None)

    def check(self) -> None:
        """Order and bounds."""
        ranks = [want.rank() for want in self.order]
        assert ranks == sorted(ranks)


_rank = attrgetter("key", "broker", "line")
"""``Want.rank``, quicker."""


def _same(want: Want, line: DemandLine) -> bool:
    """Whether a want and a line differ in nothing but how many wait."""
    shape = want.shape
    return want.line == line.line and want.key == line.key and (shape is line.shape or shape == line.shape)
