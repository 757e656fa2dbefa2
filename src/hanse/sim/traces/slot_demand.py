"""Demand of a trace for slots over time: tasks that would run if each started when it arrives.

One pass in bounded memory: starts and ends are counted in at most ``SPANS_MAX`` spans of equal width, which
doubles whenever a later end needs it. Means are exact at the borders of the spans and linear between them.
"""

from typing import Any, Final

import numpy as np

from hanse.sim.traces.chunk import SECOND, Ints, JobChunk

SPANS_MAX: Final = 4_096
"""Spans of time that are told apart."""
BUCKETS: Final = 20
"""Equal parts of the time from the first arrival to the last that are reported."""


class SlotDemand:
    """Demand that grows with every chunk and is read at the end."""

    def __init__(self) -> None:
        self._width = 1
        """Microseconds of a span."""
        self._change = np.zeros(SPANS_MAX)
        """Starts less ends in each span."""
        self._offset = np.zeros(SPANS_MAX)
        """Sum of the distances of these starts, less that of the ends, from the beginning of the span."""

    def add(self, chunk: JobChunk) -> None:
        """Add the tasks of a chunk."""
        if not chunk.task_count:
            return
        start = np.repeat(chunk.arrival, chunk.counts())
        end = start + chunk.duration
        while int(end.max()) >= SPANS_MAX * self._width:
            self._double()
        self._count(start, 1)
        self._count(end, -1)

    def _count(self, moments: Ints, sign: int) -> None:
        span = moments // self._width
        self._change += sign * np.bincount(span, minlength=SPANS_MAX)
        self._offset += sign * np.bincount(span, moments - span * self._width, minlength=SPANS_MAX)

    def _double(self) -> None:
        even, odd = slice(0, None, 2), slice(1, None, 2)
        offset = self._offset[even] + self._offset[odd] + self._change[odd] * self._width
        change = self._change[even] + self._change[odd]
        rest = np.zeros(SPANS_MAX - len(change))
        self._offset, self._change = np.concatenate([offset, rest]), np.concatenate([change, rest])
        self._width *= 2

    def as_dict(self, first: int, last: int) -> dict[str, Any] | None:
        """Return mean, maximum and ``BUCKETS`` means from the first arrival to the last; None without time.

        The maximum is that of the means of the spans.
        """
        if last <= first:
            return None
        running = np.cumsum(self._change) - self._change
        work = running * self._width + self._change * self._width - self._offset
        done = np.concatenate([np.zeros(1), np.cumsum(work)])
        edges = np.arange(SPANS_MAX + 1) * float(self._width)
        borders = np.linspace(first, last, BUCKETS + 1)
        means = np.diff(np.interp(borders, edges, done)) / np.diff(borders)
        inside = slice(first // self._width, last // self._width + 1)
        return {
            "bucket_seconds": (last - first) / BUCKETS / SECOND,
            "mean": float(means.mean()),
            "max": float((work[inside] / self._width).max()),
            "max_span_seconds": self._width / SECOND,
            "buckets": means.tolist(),
        }
