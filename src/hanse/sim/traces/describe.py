"""Description of a trace, in one pass and bounded memory: counts, span, mean demand, percentiles.

Percentiles come from a histogram: exact up to ``EXACT_BELOW``, beyond it in classes of 1 % width, so that a
percentile is off by at most 0.5 %. Counts, sums, means and extremes are exact.
"""

import math
from typing import Any, Final

import numpy as np

from hanse.sim.traces.chunk import SECOND, TIME_MAX, Ints, JobChunk
from hanse.sim.traces.slot_demand import SlotDemand

EXACT_BELOW: Final = 2_048
GROWTH: Final = 1.01
_CLASSES: Final = math.ceil(math.log(TIME_MAX / EXACT_BELOW) / math.log(GROWTH)) + 2
PERCENTILES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


class Distribution:
    """Distribution of any number of non-negative integers."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = 0
        self.most = 0
        self._exact = np.zeros(EXACT_BELOW, np.int64)
        self._by_class = np.zeros(_CLASSES, np.int64)

    def add(self, values: Ints) -> None:
        """Add these values."""
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        self.least = low if not self.count else min(self.least, low)
        self.most = max(self.most, high)
        self.count += len(values)
        self.total += float(values.sum(dtype=np.float64))
        small = values < EXACT_BELOW
        self._exact += np.bincount(values[small], minlength=EXACT_BELOW)
        big = values[~small]
        if len(big):
            place = (np.log(big / EXACT_BELOW) / math.log(GROWTH)).astype(np.int64)
            self._by_class += np.bincount(np.minimum(place, _CLASSES - 1), minlength=_CLASSES)

    @property
    def mean(self) -> float:
        """Mean of the values; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """Return the least value that ``share`` per cent of the values do not exceed."""
        if not self.count:
            return 0.0
        rank = max(1, math.ceil(share / 100 * self.count))
        heap = np.cumsum(np.concatenate([self._exact, self._by_class]))
        place = int(np.searchsorted(heap, rank))
        if place < EXACT_BELOW:
            return float(place)
        middle: float = EXACT_BELOW * GROWTH ** (place - EXACT_BELOW + 0.5)
        return min(max(middle, float(self.least)), float(self.most))

    def summary(self, unit: float = 1.0) -> dict[str, float]:
        """Return mean, extremes and percentiles in the given unit."""
        out = {"mean": self.mean / unit, "min": self.least / unit}
        out |= {f"p{str(share).replace('.', '')}": self.percentile(share) / unit for share in PERCENTILES}
        return out | {"max": self.most / unit}


class TraceDescription:
    """Description that grows with every chunk and is read at the end."""

    def __init__(self) -> None:
        self.tasks_per_job = Distribution()
        self.duration = Distribution()
        self.gap = Distribution()
        self.slots = SlotDemand()
        self.edges = 0
        self.first: int | None = None
        self.last = 0
        self._cpu_work = 0.0
        self._gpu_work = 0.0
        self._latest: int | None = None
        self._users: set[str] = set()
        self._sites: set[str] = set()
        self._jobs_that_state = {"cpu": 0, "memory": 0, "gpu": 0, "estimate": 0}

    def add(self, chunk: JobChunk) -> None:
        """Add a chunk."""
        if not chunk.job_count:
            return
        self.tasks_per_job.add(chunk.counts())
        self.duration.add(chunk.duration)
        self.slots.add(chunk)
        arrival = chunk.arrival if self._latest is None else np.append(self._latest, chunk.arrival)
        gaps = np.diff(arrival)
        self.gap.add(gaps[gaps >= 0])
        self._latest = int(chunk.arrival[-1])
        low, high = int(chunk.arrival.min()), int(chunk.arrival.max())
        self.first = low if self.first is None else min(self.first, low)
        self.last = max(self.last, high)
        work = np.add.reduceat(chunk.duration.astype(np.float64), chunk.offset[:-1])
        self._cpu_work += float(work @ chunk.cpu.astype(np.float64))
        self._gpu_work += float(work @ chunk.gpu.astype(np.float64))
        for key in self._jobs_that_state:
            self._jobs_that_state[key] += int(np.count_nonzero(getattr(chunk, key)))
        self._users.update(chunk.name(index) for index in np.unique(chunk.user).tolist() if index >= 0)
        self._sites.update(chunk.name(index) for index in np.unique(chunk.site).tolist() if index >= 0)
        self.edges += 0 if chunk.needs is None else len(chunk.needs[0])

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return (self.last - (self.first or 0)) / SECOND

    @property
    def work(self) -> float:
        """Seconds that one slot needs for all tasks."""
        return self.duration.total / SECOND

    def demand(self, work: float | None = None) -> float | None:
        """Return work per second of span: the slots that are busy on average; None if there is no span."""
        return (self.work if work is None else work) / self.span if self.span > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Return everything for ``--json``; times in seconds."""
        jobs = self.tasks_per_job.count
        return {
            "jobs": jobs,
            "tasks": self.duration.count,
            "span_seconds": self.span,
            "work_seconds": self.work,
            "mean_demand_slots": self.demand(),
            "slots_over_time": self.slots.as_dict(self.first or 0, self.last)
            if self.duration.total
            else None,
            "mean_demand_cpus": self.demand(self._cpu_work / SECOND / 1_000),
            "mean_demand_gpus": self.demand(self._gpu_work / SECOND / 1_000),
            "tasks_per_job": self.tasks_per_job.summary(),
            "task_seconds": self.duration.summary(SECOND),
            "interarrival_seconds": self.gap.summary(SECOND),
            "jobs_that_state": dict(self._jobs_that_state),
            "users": len(self._users),
            "sites": len(self._sites),
            "dag_edges": self.edges,
        }


def format_figure(value: float | None) -> str:
    """Format a number for a person: at most six significant digits."""
    if value is None:
        return "-"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1_000 else f"{value:.4g}"
