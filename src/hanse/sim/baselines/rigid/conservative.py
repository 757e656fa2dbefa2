"""Conservative backfilling: every waiting job has a reservation, and none is ever delayed.

The plan is a profile: the number of free processors over time. A new job takes the earliest time with enough
free processors for its whole estimate. When a job ends early, the waiting jobs are moved forward one by one
in the waiting order; each keeps its reservation unless an earlier one is free, so none is delayed.
"""

from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from typing import Final

from hanse.sim.baselines.rigid.engine import NEVER
from hanse.sim.baselines.rigid.queue_order import RigidOrder, RigidQueue
from hanse.sim.baselines.rigid.workload import RigidWorkload

STARTED: Final = -1
"""Reservation of a job that has started."""


class Profile:
    """Free processors over time: ``free[i]`` holds from ``times[i]`` until ``times[i + 1]``, the last one
    forever."""

    def __init__(self, processors: int, now: int = 0) -> None:
        self.times = [now]
        self.free = [processors]

    def advance(self, now: int) -> None:
        """Drop the times before now."""
        index = bisect_right(self.times, now) - 1
        if index > 0:
            del self.times[:index], self.free[:index]
        self.times[0] = max(self.times[0], now)

    def earliest_start(self, width: int, length: int) -> int:
        """Return the first time at which ``width`` processors stay free for ``length``."""
        times, free = self.times, self.free
        last = len(times)
        index = 0
        while True:
            while free[index] < width:
                index += 1
            begin = times[index]
            until = begin + length
            probe = index + 1
            while probe < last and times[probe] < until:
                if free[probe] < width:
                    break
                probe += 1
            else:
                return begin
            index = probe

    def add(self, begin: int, until: int, amount: int) -> None:
        """Add ``amount`` free processors (negative: remove) from ``begin`` until ``until``."""
        begin = max(begin, self.times[0])
        if begin >= until:
            return
        first, after = self._cut(begin), self._cut(until)
        for index in range(first, after):
            self.free[index] += amount
            assert self.free[index] >= 0, "the plan never over-commits"
        for index in (after, first):
            if 0 < index < len(self.times) and self.free[index] == self.free[index - 1]:
                del self.times[index], self.free[index]

    def _cut(self, time: int) -> int:
        index = bisect_left(self.times, time)
        if index == len(self.times) or self.times[index] != time:
            self.times.insert(index, time)
            self.free.insert(index, self.free[index - 1])
        return index


class ConservativePlanner:
    """Planner of conservative backfilling with compression in the waiting order."""

    def __init__(self, workload: RigidWorkload, order: RigidOrder, processors: int) -> None:
        self.promise = [-1] * workload.job_count
        self.backfilled = 0
        self._waiting = RigidQueue(workload, order)
        self._width: list[int] = workload.processors.tolist()
        # a job of no length still needs a reservation: one microsecond
        self._length: list[int] = [max(length, 1) for length in workload.estimate.tolist()]
        self._place = [STARTED] * workload.job_count
        self._due = [0] * workload.job_count
        self._profile = Profile(processors, int(workload.submit[0]) if workload.job_count else 0)
        self._has_early_end = False
        self._places: list[tuple[int, int]] = []
        """Heap of (reservation, job); an entry whose job has since moved or started is stale."""

    def on_arrival(self, job: int, now: int) -> None:
        """Add a job to the queue and promise it the earliest reservation."""
        self._compress(now)
        self._reserve(job)
        self.promise[job] = self._place[job]
        self._waiting.add(job)

    def on_end(self, job: int, now: int) -> None:
        """Free the rest of the plan of a job that has ended."""
        self._profile.advance(now)
        due = self._due[job]
        if due > now:
            self._profile.add(now, due, self._width[job])
            self._has_early_end = True

    def next_wake(self) -> int:
        """Return the next reservation: jobs before it may have ended early without moving it."""
        while self._places and self._place[self._places[0][1]] != self._places[0][0]:
            heappop(self._places)
        return self._places[0][0] if self._places else NEVER

    def choose(self, now: int, free: int) -> list[int]:
        """Return the jobs whose reservation has come."""
        del free
        self._compress(now)
        queue = self._waiting.jobs_in_order(now)
        chosen = [job for job in queue if self._place[job] <= now]
        assert all(self._place[job] == now for job in chosen), "no reservation is missed"
        if chosen:
            passed = 0
            for place, job in enumerate(queue):
                if self._place[job] <= now:
                    self.backfilled += place > passed
                    passed += 1
            self._waiting.drop(chosen)
            for job in chosen:
                self._due[job] = now + self._length[job]
                self._place[job] = STARTED
        return chosen

    def _compress(self, now: int) -> None:
        """Move every waiting job to its earliest reservation after an early end."""
        self._profile.advance(now)
        if not self._has_early_end:
            return
        self._has_early_end = False
        for job in self._waiting.jobs_in_order(now):
            old = self._place[job]
            if old == now:
                continue
            self._profile.add(old, old + self._length[job], self._width[job])
            self._reserve(job)
            assert self._place[job] <= old, "compression never delays"

    def _reserve(self, job: int) -> None:
        begin = self._profile.earliest_start(self._width[job], self._length[job])
        self._place[job] = begin
        heappush(self._places, (begin, job))
        self._profile.add(begin, begin + self._length[job], -self._width[job])
