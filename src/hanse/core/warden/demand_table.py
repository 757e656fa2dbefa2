"""Table of the demand of all brokers in one cluster, in one global order.

Keys come from the brokers' queue order; equal keys are ordered by broker name, then by line number. Every
warden serves the smallest key first, so the league has one queue that no member holds.
"""

from itertools import chain
from operator import attrgetter
from typing import Final

import msgspec

from hanse.model.messages import DemandLine, NodePreference, QueueKey, Shape

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
    preference: NodePreference | None = None

    def rank(self) -> tuple[QueueKey, str, int]:
        """Return the position in the global order."""
        return (self.key, self.broker, self.line)


class DemandTable:
    """All demand at one warden, best key first."""

    def __init__(self) -> None:
        self.entries: list[DemandEntry] = []
        self._by_broker: dict[str, list[DemandEntry]] = {}
        """Entries by broker, best first."""

    def replace(self, broker: str, lines: tuple[DemandLine, ...]) -> list[DemandEntry]:
        """Replace a broker's demand; return its entries, best first."""
        lines = lines[:LINES_MAX]
        known = self.entries_of(broker)
        if len(known) == len(lines) and all(map(_is_same_line, known, lines)):
            for entry, line in zip(known, lines, strict=True):
                entry.count, entry.hold, entry.preference = line.count, line.hold, line.preference
            return known
        fresh = [DemandEntry(broker, d.line, d.shape, d.key, d.count, d.hold, d.preference) for d in lines]
        fresh.sort(key=_rank)
        self._by_broker[broker] = fresh
        self.entries = sorted(chain.from_iterable(self._by_broker.values()), key=_rank)
        return fresh

    def entries_of(self, broker: str) -> list[DemandEntry]:
        """Return a broker's entries, best first; read only."""
        found = self._by_broker.get(broker)
        return found if found is not None else []

    def find(self, broker: str, line: int) -> DemandEntry | None:
        """Return a broker's entry by its line number."""
        for entry in self._by_broker.get(broker, ()):
            if entry.line == line:
                return entry
        return None

    def restore(self, order: list[DemandEntry]) -> None:
        """Restore dumped entries."""
        self.entries, self._by_broker = order, {}
        for entry in order:
            self._by_broker.setdefault(entry.broker, []).append(entry)

    def check(self) -> None:
        """Assert order and consistency."""
        ranks = [entry.rank() for entry in self.entries]
        assert ranks == sorted(ranks)
        assert self.entries == sorted(chain.from_iterable(self._by_broker.values()), key=_rank)


_rank = attrgetter("key", "broker", "line")
"""Faster ``DemandEntry.rank``."""


def _is_same_line(entry: DemandEntry, line: DemandLine) -> bool:
    """True if an entry and a line differ in nothing but the waiting tasks, ``hold`` and the preference."""
    shape = entry.shape
    return entry.line == line.line and entry.key == line.key and (shape is line.shape or shape == line.shape)
