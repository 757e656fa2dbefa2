"""From a machine's own clock to the time of day.

Events carry instants of the machine's clock, which says nothing about the calendar. With every batch the
shell tells the time of day; the difference between that and the instant of the batch's last event is the
clock's offset plus however late the batch was written. Lateness is never negative, so the *least*
difference seen is the best guess. Instants are stored as they came and converted when somebody asks, so a
better guess corrects what was stored before: a file that is rebuilt from an old journal shows the old times
as soon as it has caught up.

Clocks drift, and the time of day is set now and then. So the offset is kept by *span*: a new one begins with
every start of the process and every ``SPAN_MAX`` of machine time. A span's offset is the least difference
seen in it or in any later span.

A machine's clock must not run backwards. If one does (it began anew with its host), the instants behind the
jump are moved up so that stored times never fall; how long the host was away is then unknown, and its first
span begins where the last one ended.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from hanse.model.ids import SECOND

SPAN_MAX: Final = 3_600 * SECOND
"""Machine time after which a new span begins."""
SPANS_MAX: Final = 4_096
"""Spans kept; instants before the first one use its offset."""


class Times(msgspec.Struct):
    """The offsets of a machine's clock. A *moment* is an instant moved up by ``shift``."""

    since: list[int] = []
    """The first moment of each span."""
    offsets: list[int] = []
    """For each span: the least difference between the time of day and a moment, in microseconds."""
    shift: int = 0
    latest: int | None = None
    """The latest moment."""

    def moment(self, instant: int) -> int:
        """The moment of an event; call it for every event, in order."""
        found = instant + self.shift
        if self.latest is not None and found < self.latest:
            self.shift += self.latest + 1 - found  # one later, so that a span can begin between them
            found = self.latest + 1
        self.latest = found
        return found

    def begin(self) -> None:
        """The process has started again: what was known of the clock may not hold any more."""
        if self.latest is not None and (not self.since or self.since[-1] < self.latest):
            self._add(self.latest)

    def told(self, wall: int) -> None:
        """It is ``wall`` o'clock (unix microseconds), no earlier than the latest event."""
        if self.latest is None:
            return
        if not self.since or self.latest - self.since[-1] >= SPAN_MAX:
            self._add(self.latest)
        self.offsets[-1] = min(self.offsets[-1], wall - self.latest)

    def _add(self, moment: int) -> None:
        self.since.append(moment)
        self.offsets.append(_UNTOLD)
        if len(self.since) > SPANS_MAX:
            del self.since[0], self.offsets[0]

    def wall(self) -> "WallTimes":
        """What converts moments, as known now."""
        best, offsets = _UNTOLD, list(self.offsets)
        for at in range(len(offsets) - 1, -1, -1):
            best = min(best, offsets[at])
            offsets[at] = best
        return WallTimes(list(self.since), offsets)


class WallTimes:
    """Converts moments to the time of day."""

    def __init__(self, since: list[int], offsets: list[int]) -> None:
        self._since = since
        self._offsets = offsets

    def of(self, moment: int | None) -> int | None:
        """Unix microseconds; None for no moment, or while nobody has told the time."""
        if moment is None or not self._since:
            return None
        offset = self._offsets[max(0, bisect_right(self._since, moment) - 1)]
        return None if offset == _UNTOLD else moment + offset


_UNTOLD: Final = 1 << 62
"""An offset that nobody has told."""
