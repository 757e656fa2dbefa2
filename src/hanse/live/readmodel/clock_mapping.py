"""Mapping from machine time to wall-clock time.

Events carry instants of the machine's clock, which has no relation to the calendar. The shell passes the
wall-clock time with every batch; the difference to the instant of the batch's last event is the clock's
offset plus the delay of the write. The delay is never negative, so the *least* difference seen is the best
estimate. The file stores instants, and a query converts them, so a better estimate corrects older rows: a
file that is rebuilt from an old journal shows the old times as soon as it has caught up.

Clocks drift, and operators set the wall clock. So the offset is kept by *span*: a new span begins with every
start of the process and after every ``SPAN_MAX`` of machine time. A span's offset is the least difference
seen in this span or in any later one.

A machine's clock must not run backwards. If it does (the host restarted), the instants after the jump are
shifted so that stored times never fall; the duration of the outage is then unknown, and the first span after
the jump begins where the last one ended.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from hanse.model.ids import SECOND

SPAN_MAX: Final = 3_600 * SECOND
"""Machine time after which a new span begins."""
SPANS_MAX: Final = 4_096
"""Number of spans kept; instants before the first span use its offset."""


class ClockMapping(msgspec.Struct):
    """Offsets of a machine's clock. A *moment* is an instant plus ``shift``."""

    since: list[int] = []
    """First moment of each span."""
    offsets: list[int] = []
    """For each span: least difference between wall-clock time and a moment, in microseconds."""
    shift: int = 0
    latest: int | None = None
    """Latest moment."""

    def to_moment(self, instant: int) -> int:
        """Convert the instant of an event to a moment. Must be called for every event, in order."""
        found = instant + self.shift
        if self.latest is not None and found < self.latest:
            self.shift += self.latest + 1 - found  # one later, so that a span can begin between the two
            found = self.latest + 1
        self.latest = found
        return found

    def past_moment(self, instant: int) -> int:
        """Convert an instant at or before the latest event to a moment."""
        found = instant + self.shift
        return found if self.latest is None else min(found, self.latest)

    def on_process_start(self) -> None:
        """Begin a new span: the offset of the clock may have changed with the restart of the process."""
        if self.latest is not None and (not self.since or self.since[-1] < self.latest):
            self._begin_span(self.latest)

    def observe_wall_time(self, wall: int) -> None:
        """Record the wall-clock time ``wall`` (unix microseconds), not earlier than the latest event."""
        if self.latest is None:
            return
        if not self.since or self.latest - self.since[-1] >= SPAN_MAX:
            self._begin_span(self.latest)
        self.offsets[-1] = min(self.offsets[-1], wall - self.latest)

    def _begin_span(self, moment: int) -> None:
        self.since.append(moment)
        self.offsets.append(_UNKNOWN_OFFSET)
        if len(self.since) > SPANS_MAX:
            del self.since[0], self.offsets[0]

    def wall_clock(self) -> "WallClock":
        """Build a converter from the offsets known now."""
        best, offsets = _UNKNOWN_OFFSET, list(self.offsets)
        for at in range(len(offsets) - 1, -1, -1):
            best = min(best, offsets[at])
            offsets[at] = best
        return WallClock(list(self.since), offsets)


class WallClock:
    """Converter from moments to wall-clock time."""

    def __init__(self, since: list[int], offsets: list[int]) -> None:
        self._since = since
        self._offsets = offsets

    def time_of(self, moment: int | None) -> int | None:
        """Convert a moment to unix microseconds; None without a moment or without a known offset."""
        if moment is None or not self._since:
            return None
        offset = self._offsets[max(0, bisect_right(self._since, moment) - 1)]
        return None if offset == _UNKNOWN_OFFSET else moment + offset


_UNKNOWN_OFFSET: Final = 1 << 62
"""Marker of an unknown offset."""
