"""Who waits for room in one cluster: the registered demand of every broker, in one global order.

Keys come from the brokers' queue order; equal keys go by broker name, then by line number. Because every
warden serves the smallest key first, the league has one queue without anybody holding it.
"""

from itertools import chain
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
        self._of: dict[str, list[Want]] = {}
        """The same wants by broker, best first."""

    def replace(self, broker: str, lines: tuple[DemandLine, ...]) -> list[Want]:
        """Take a broker's demand as it now is; returns its wants, best first."""
        lines = lines[:LINES_MAX]
        known = self.of(broker)
        if len(known) == len(lines) and all(map(_same, known, lines)):
            for want, line in zip(known, lines, strict=True):
                want.count, want.hold = line.count, line.hold
            return known
        fresh = [Want(broker, d.line, d.shape, d.key, d.count, d.hold) for d in lines]
        fresh.sort(key=_rank)
        self._of[broker] = fresh
        self.order = sorted(chain.from_iterable(self._of.values()), key=_rank)
        return fresh

    def of(self, broker: str) -> list[Want]:
        """A broker's wants, best first; not to be changed."""
        found = self._of.get(broker)
        return found if found is not None else []

    def find(self, broker: str, line: int) -> Want | None:
        """A broker's want by its line number."""
        for want in self._of.get(broker, ()):
            if want.line == line:
                return want
        return None

    def restore(self, order: list[Want]) -> None:
        """Take dumped wants."""
        self.order, self._of = order, {}
        for want in order:
            self._of.setdefault(want.broker, []).append(want)

    def check(self) -> None:
        """Order and bounds."""
        ranks = [want.rank() for want in self.order]
        assert ranks == sorted(ranks)
        assert self.order == sorted(chain.from_iterable(self._of.values()), key=_rank)


_rank = attrgetter("key", "broker", "line")
"""``Want.rank``, quicker."""


def _same(want: Want, line: DemandLine) -> bool:
    """Whether a want and a line differ in nothing but how many wait."""
    shape = want.shape
    return want.line == line.line and want.key == line.key and (shape is line.shape or shape == line.shape)
