"""Who waits for room in one cluster: the registered demand of every broker, in one global order.

Keys come from the brokers' queue order; equal keys go by broker name, then by line number. Because every
warden serves the smallest key first, the league has one queue without anybody holding it.
"""

from itertools import chain
from operator import attrgetter
from typing import Final

import msgspec

from hanse.model.messages import DemandLine, QueueKey, Shape

LINES_MAX: Final = 64
"""Demand lines of one broker; a broker sends its best ones."""


class DemandEntry(msgspec.Struct, gc=False):
    """One broker's waiting tasks of one shape. ``count`` falls with every grant."""

    broker: str
    line: int
    shape: Shape
    key: QueueKey
    count: int
    hold: bool

    def rank(self) -> tuple[QueueKey, str, int]:
        """The global order."""
        return (self.key, self.broker, self.line)


class DemandTable:
    """All demand at one warden, best key first."""

    def __init__(self) -> None:
        self.entries: list[DemandEntry] = []
        self._of: dict[str, list[DemandEntry]] = {}
        """The same wants by broker, best first."""

    def replace(self, broker: str, lines: tuple[DemandLine, ...]) -> list[DemandEntry]:
        """Take a broker's demand as it now is; returns its wants, best first."""
        lines = lines[:LINES_MAX]
        known = self.entries_of(broker)
        if len(known) == len(lines) and all(map(_is_same_line, known, lines)):
            for entry, line in zip(known, lines, strict=True):
                entry.count, entry.hold = line.count, line.hold
            return known
        fresh = [DemandEntry(broker, d.line, d.shape, d.key, d.count, d.hold) for d in lines]
        fresh.sort(key=_rank)
        self._of[broker] = fresh
        self.entries = sorted(chain.from_iterable(self._of.values()), key=_rank)
        return fresh

    def entries_of(self, broker: str) -> list[DemandEntry]:
        """A broker's wants, best first; not to be changed."""
        found = self._of.get(broker)
        return found if found is not None else []

    def find(self, broker: str, line: int) -> DemandEntry | None:
        """A broker's want by its line number."""
        for entry in self._of.get(broker, ()):
            if entry.line == line:
                return entry
        return None

    def restore(self, order: list[DemandEntry]) -> None:
        """Take dumped wants."""
        self.entries, self._of = order, {}
        for entry in order:
            self._of.setdefault(entry.broker, []).append(entry)

    def check(self) -> None:
        """Order and bounds."""
        ranks = [entry.rank() for entry in self.entries]
        assert ranks == sorted(ranks)
        assert self.entries == sorted(chain.from_iterable(self._of.values()), key=_rank)


_rank = attrgetter("key", "broker", "line")
"""``DemandEntry.rank``, quicker."""


def _is_same_line(entry: DemandEntry, line: DemandLine) -> bool:
    """Whether a want and a line differ in nothing but how many wait."""
    shape = entry.shape
    return entry.line == line.line and entry.key == line.key and (shape is line.shape or shape == line.shape)
