"""Orders of the waiting jobs. Every tie goes to the job submitted first.

An order is *fixed* if a job's rank never changes while it waits, and *ageing* if it depends on the time; an
ageing order costs a sort at every decision.
"""

from bisect import insort
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.baselines.rigid.workload import Ints, RigidWorkload

Ranks = npt.NDArray[np.float64] | Ints


class RigidOrder(msgspec.Struct, frozen=True):
    """Order of waiting jobs: lower rank is served first. Exactly one of the two functions is given."""

    fixed: Callable[[RigidWorkload], Ranks] | None = None
    """Function that ranks every job."""
    ageing: Callable[[RigidWorkload, int, Ints], Ranks] | None = None
    """Function that ranks the given jobs at a time in microseconds."""


def _arrival(workload: RigidWorkload) -> Ranks:
    return workload.submit


def _request(workload: RigidWorkload) -> Ranks:
    return workload.request


def _longest(workload: RigidWorkload) -> Ranks:
    return -workload.request


def _narrow(workload: RigidWorkload) -> Ranks:
    return workload.processors


def _area(workload: RigidWorkload) -> Ranks:
    return workload.request * workload.processors


def _wfp3(workload: RigidWorkload, now: int, jobs: Ints) -> Ranks:
    """Return the WFP3 rank (Tang et al. 2009): (wait / requested time)^3 x processors, largest first."""
    ratio = (now - workload.submit[jobs]) / np.maximum(workload.request[jobs], 1)
    return -(ratio**3) * workload.processors[jobs]


def _expansion(workload: RigidWorkload, now: int, jobs: Ints) -> Ranks:
    """Return the rank by expansion factor (wait + request) / request, largest first."""
    request = np.maximum(workload.request[jobs], 1)
    return -(now - workload.submit[jobs] + request) / request


ORDERS: Final[dict[str, RigidOrder]] = {
    "fcfs": RigidOrder(fixed=_arrival),
    "shortest": RigidOrder(fixed=_request),
    "longest": RigidOrder(fixed=_longest),
    "narrowest": RigidOrder(fixed=_narrow),
    "smallest-area": RigidOrder(fixed=_area),
    "wfp3": RigidOrder(ageing=_wfp3),
    "expansion": RigidOrder(ageing=_expansion),
}
"""Built-in waiting orders by name; a planner takes any other ``RigidOrder`` too."""


class RigidQueue:
    """Queue of waiting jobs: ``jobs_in_order(now)`` returns them in the order of service."""

    def __init__(self, workload: RigidWorkload, order: RigidOrder) -> None:
        assert (order.fixed is None) != (order.ageing is None), "an order is either fixed or ageing"
        self._workload = workload
        self._ageing = order.ageing
        self._rank: list[float] = [] if order.fixed is None else order.fixed(workload).tolist()
        self._queue: list[tuple[float, int]] = []
        self._jobs: list[int] = []

    def __len__(self) -> int:
        return len(self._jobs) if self._ageing is not None else len(self._queue)

    def add(self, job: int) -> None:
        """Add a job."""
        if self._ageing is not None:
            insort(self._jobs, job)
        else:
            insort(self._queue, (self._rank[job], job))

    def jobs_in_order(self, now: int) -> list[int]:
        """Return all waiting jobs in the order of service."""
        if self._ageing is None:
            return [job for _, job in self._queue]
        if not self._jobs:
            return []
        jobs = np.asarray(self._jobs, np.int64)
        ranked = np.argsort(self._ageing(self._workload, now, jobs), kind="stable")
        return [int(job) for job in jobs[ranked]]

    def head(self, now: int) -> int:
        """Return the first job; the queue must not be empty."""
        return self._queue[0][1] if self._ageing is None else self.jobs_in_order(now)[0]

    def drop(self, jobs: list[int]) -> None:
        """Remove these jobs."""
        if len(jobs) == 1 and self._queue and self._queue[0][1] == jobs[0]:
            del self._queue[0]
            return
        gone = frozenset(jobs)
        if self._ageing is None:
            self._queue = [entry for entry in self._queue if entry[1] not in gone]
        else:
            self._jobs = [job for job in self._jobs if job not in gone]
