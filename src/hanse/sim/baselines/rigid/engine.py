"""Simulated batch system: time, processors and their holders. A planner only chooses the jobs that start.

At one instant the order is fixed: first all ending jobs return their processors, then all arriving jobs join
the queue, then the planner decides once. A job of no length ends at the instant it starts, in a further
round of the same instant.
"""

from heapq import heappop, heappush
from typing import Final, Protocol

import numpy as np

from hanse.sim.baselines.rigid.workload import NOT_RUN, RigidOutcome, RigidSettings, RigidWorkload

NEVER: Final = 1 << 62
"""Time later than any instant."""


class Planner(Protocol):
    """Planner that chooses the jobs to start. It hears of every arrival and end; asked once per instant."""

    promise: list[int]
    """First start promised to each job, -1 for none."""
    backfilled: int

    def on_arrival(self, job: int, now: int) -> None:
        """Add an arriving job to the queue."""

    def on_end(self, job: int, now: int) -> None:
        """Free the processors of an ended job."""

    def next_wake(self) -> int:
        """Return the time of the next decision without an arrival or end; NEVER if none is needed."""

    def choose(self, now: int, free: int) -> list[int]:
        """Return the jobs that start now; together they hold at most ``free`` processors."""


def run_machine(workload: RigidWorkload, settings: RigidSettings, planner: Planner) -> RigidOutcome:
    """Run the whole workload on ``settings.processors`` processors."""
    submit, run = workload.submit.tolist(), workload.run.tolist()
    width = workload.processors.tolist()
    jobs = len(submit)
    start, free, passes, refused, arriving = [NOT_RUN] * jobs, settings.processors, 0, 0, 0
    ends: list[tuple[int, int]] = []
    while True:
        now = min(submit[arriving] if arriving < jobs else NEVER, planner.next_wake())
        if ends and ends[0][0] < now:
            now = ends[0][0]
        if now == NEVER:
            break
        while ends and ends[0][0] == now:
            job = heappop(ends)[1]
            free += width[job]
            planner.on_end(job, now)
        while arriving < jobs and submit[arriving] == now:
            if width[arriving] <= settings.processors:
                planner.on_arrival(arriving, now)
            else:
                refused += 1
            arriving += 1
        passes += 1
        for job in planner.choose(now, free):
            assert start[job] == NOT_RUN, "a job starts once"
            start[job] = now
            free -= width[job]
            heappush(ends, (now + run[job], job))
        assert free >= 0, "processors are not over-committed"
    started = np.asarray(start, np.int64)
    return RigidOutcome(
        start=started,
        end=np.where(started == NOT_RUN, NOT_RUN, started + workload.run),
        promise=np.asarray(planner.promise, np.int64),
        refused=refused,
        passes=passes,
        backfilled=planner.backfilled,
    )
