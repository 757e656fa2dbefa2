"""Policies that never take a node away: FIFO, SJF, best fit, DRF and Tetris.

At one instant first all ending jobs leave, then all arriving jobs join, then the policy starts jobs.
"""

from bisect import insort
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hanse.sim.baselines.gpu.node_pool import Flags, NodePool, NodeRule, StretchLedger
from hanse.sim.baselines.gpu.workload import GpuOutcome, GpuSettings, GpuWorkload, Ints, Where

Floats = npt.NDArray[np.float64]


class WaitingQueue(Protocol):
    """Policy: the queue of the waiting jobs, which also starts them."""

    def on_arrival(self, job: int) -> None:
        """Add an arriving job."""

    def on_end(self, job: int) -> None:
        """Remove an ended job."""

    def start(self, pool: NodePool) -> list[tuple[int, Where]]:
        """Take room for the jobs that start now, and return them."""


def run_queue(workload: GpuWorkload, settings: GpuSettings, queue: WaitingQueue) -> GpuOutcome:
    """Run the whole workload."""
    pool = NodePool(workload, settings.capacity)
    possible = possible_jobs(workload, settings)
    ledger = StretchLedger(workload.job_count)
    submit, work = workload.submit.tolist(), workload.work.tolist()
    ends: list[tuple[int, int]] = []
    arriving, passes = 0, 0
    while arriving < len(submit) or ends:
        now = submit[arriving] if arriving < len(submit) else ends[0][0]
        if ends and ends[0][0] < now:
            now = ends[0][0]
        while ends and ends[0][0] == now:
            job = heappop(ends)[1]
            pool.release(job, ledger.close(job, now, is_done=True))
            queue.on_end(job)
        while arriving < len(submit) and submit[arriving] == now:
            if possible[arriving]:
                queue.on_arrival(arriving)
            arriving += 1
        passes += 1
        for job, where in queue.start(pool):
            ledger.open(job, where, now)
            heappush(ends, (now + work[job], job))
    return make_outcome(ledger, possible.count(False), 0, passes)


def make_outcome(ledger: StretchLedger, refused: int, preemptions: int, passes: int) -> GpuOutcome:
    """Return the recorded stretches as columns."""
    return GpuOutcome(
        start=np.asarray(ledger.start, np.int64),
        end=np.asarray(ledger.end, np.int64),
        stretch_job=np.asarray(ledger.job, np.int64),
        stretch_begin=np.asarray(ledger.begin, np.int64),
        stretch_end=np.asarray(ledger.until, np.int64),
        stretch_where=tuple(ledger.where),
        refused=refused,
        preemptions=preemptions,
        passes=passes,
    )


def possible_jobs(workload: GpuWorkload, settings: GpuSettings) -> list[bool]:
    """Return the jobs that the empty cluster can hold."""
    pool = NodePool(workload, settings.capacity)
    shape, number = workload.shapes()
    known: list[bool | None] = [None] * number
    possible: list[bool] = []
    for job, kind in enumerate(shape.tolist()):
        verdict = known[kind]
        if verdict is None:
            where = pool.place(job, NodeRule.FIRST)
            verdict = where is not None
            known[kind] = verdict
            pool.clear()
        possible.append(verdict)
    return possible


class ListQueue:
    """Sorted list; the first job that does not fit blocks, or is skipped."""

    def __init__(self, workload: GpuWorkload, rank: list[int], rule: NodeRule, *, blocking: bool) -> None:
        self._rank = rank
        self._rule = rule
        self._blocking = blocking
        self._waiting: list[tuple[int, int]] = []
        self._shape: list[int] = workload.shapes()[0].tolist()

    def on_arrival(self, job: int) -> None:
        """Add an arriving job by rank; ties go to the earlier job."""
        insort(self._waiting, (self._rank[job], job))

    def on_end(self, job: int) -> None:
        """Do nothing: running jobs are not kept."""

    def start(self, pool: NodePool) -> list[tuple[int, Where]]:
        """Start jobs in order of rank."""
        started: list[tuple[int, Where]] = []
        left: list[tuple[int, int]] = []
        failed: set[int] = set()
        for place, entry in enumerate(self._waiting):
            job = entry[1]
            where = None if self._shape[job] in failed else pool.place(job, self._rule)
            if where is not None:
                started.append((job, where))
                continue
            if self._blocking:
                left.extend(self._waiting[place:])
                break
            failed.add(self._shape[job])
            left.append(entry)
        self._waiting = left
        return started


class FairQueue:
    """Dominant resource fairness (Ghodsi et al. 2011): the user with the smallest largest share is next.

    A user's jobs go in order of arrival; one that does not fit delays only its own user. Ties go to the user
    who came first in the trace.
    """

    def __init__(self, workload: GpuWorkload, settings: GpuSettings) -> None:
        cluster = np.maximum(settings.capacity.sum(axis=0), 1)
        self._share = (workload.total() / cluster).tolist()
        self._user: list[int] = workload.user.tolist()
        self._held: dict[int, list[float]] = {}
        self._waiting: dict[int, list[int]] = {}

    def on_arrival(self, job: int) -> None:
        """Add an arriving job behind the user's other jobs."""
        user = self._user[job]
        self._held.setdefault(user, [0.0] * len(self._share[job]))
        self._waiting.setdefault(user, []).append(job)

    def on_end(self, job: int) -> None:
        """Reduce the user's shares."""
        self._change(job, -1.0)

    def start(self, pool: NodePool) -> list[tuple[int, Where]]:
        """Start one job at a time, as shares change with each."""
        started: list[tuple[int, Where]] = []
        able = [user for user, jobs in self._waiting.items() if jobs]
        while able:
            user = min(able, key=self._dominant_share)
            job = self._waiting[user][0]
            where = pool.place(job, NodeRule.FIRST)
            if where is None:
                able.remove(user)
                continue
            started.append((job, where))
            self._change(job, 1.0)
            del self._waiting[user][0]
            if not self._waiting[user]:
                able.remove(user)
        return started

    def _dominant_share(self, user: int) -> float:
        # sums of floats in different orders differ in the last digits; shares that close are equal
        return round(max(self._held[user]), 12)

    def _change(self, job: int, sign: float) -> None:
        held = self._held[self._user[job]]
        for resource, share in enumerate(self._share[job]):
            held[resource] += sign * share


class TetrisQueue:
    """Tetris (Grandl et al. 2014): the job and node with the best alignment of demand and idle amounts, with
    a bonus for little work.

    The score of a job is the inner product of its demand and the idle amounts of its best node, both as
    shares of the largest node, minus its work (duration x sum of its shares) scaled so that the means of
    both over the waiting jobs are equal. Ties go to the earlier job.
    """

    def __init__(self, workload: GpuWorkload) -> None:
        self._workload = workload
        self._shape = workload.shapes()[0]
        self._waiting: list[int] = []

    def on_arrival(self, job: int) -> None:
        """Add an arriving job."""
        self._waiting.append(job)

    def on_end(self, job: int) -> None:
        """Do nothing: running jobs are not kept."""

    def start(self, pool: NodePool) -> list[tuple[int, Where]]:
        """Start the best job until nothing fits; a gang that fits only in part waits."""
        started: list[tuple[int, Where]] = []
        failed: set[int] = set()
        while True:
            able = np.asarray([job for job in self._waiting if int(self._shape[job]) not in failed], np.int64)
            if not len(able):
                return started
            score, fits = self._scores(pool, able)
            if not bool(fits.any()):
                return started
            job = int(able[fits][int(np.argmax(score[fits]))])
            where = pool.place(job, NodeRule.ALIGNED)
            if where is None:
                failed.add(int(self._shape[job]))
                continue
            started.append((job, where))
            self._waiting.remove(job)

    def _scores(self, pool: NodePool, jobs: Ints) -> tuple[Floats, Flags]:
        workload = self._workload
        _, first, inverse = np.unique(self._shape[jobs], return_index=True, return_inverse=True)
        aligned = np.full(len(first), -1.0)
        idle = pool.free / pool.scale
        for index, place in enumerate(first.tolist()):
            demand = workload.demand[jobs[place]]
            room = pool.fits(demand)
            if bool(room.any()):
                aligned[index] = float((idle[room] @ (demand / pool.scale)).max())
        alignment = aligned[inverse]
        size = (workload.total()[jobs] / pool.scale).sum(axis=1) * workload.work[jobs]
        fits = alignment >= 0
        mean_size = float(size[fits].mean()) if bool(fits.any()) else 0.0
        weight = float(alignment[fits].mean()) / mean_size if mean_size > 0 else 0.0
        return alignment - weight * size, fits
