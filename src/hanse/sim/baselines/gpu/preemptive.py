"""Policies that may take a running job's nodes away: SRTF, SRSF and Tiresias' least attained service.

At every arrival, end or change of queue the jobs are ranked again and the cluster is filled in that order. A
running job whose nodes are still idle at its turn keeps them; one whose nodes were taken gets others (which
counts as a restart); one that finds none waits and keeps its work so far.
"""

from collections.abc import Callable
from typing import Final

from hanse.sim.baselines.gpu.node_pool import NodePool, NodeRule, StretchLedger
from hanse.sim.baselines.gpu.non_preemptive import make_outcome, possible_jobs
from hanse.sim.baselines.gpu.workload import GPU, GpuOutcome, GpuSettings, GpuWorkload, Where

NEVER: Final = 1 << 62
"""Time later than any event."""


class JobProgress:
    """Progress of the jobs; all lists have one entry per job, times in microseconds."""

    def __init__(self, workload: GpuWorkload, settings: GpuSettings) -> None:
        self.left: list[int] = workload.work.tolist()
        """Remaining work."""
        self.setup = [0] * workload.job_count
        """Remaining start-up time before work goes on."""
        self.served = [0] * workload.job_count
        """GPU-microseconds held so far."""
        self.running = [False] * workload.job_count
        self.gpus: list[int] = [max(1, milli // 1_000) for milli in workload.total()[:, GPU].tolist()]
        """Whole GPUs; a job without any counts as one, so that its service grows with time."""
        self.limits = settings.queue_limits

    def level(self, job: int) -> int:
        """Return the queue of least attained service that a job is in."""
        return sum(self.served[job] >= limit for limit in self.limits)

    def advance(self, job: int, stretch: int) -> None:
        """Credit a running job with this much time."""
        waiting = min(stretch, self.setup[job])
        self.setup[job] -= waiting
        self.left[job] -= stretch - waiting
        self.served[job] += stretch * self.gpus[job]
        assert self.left[job] >= 0, "no job runs beyond its work"

    def until_fall(self, job: int) -> int:
        """Return the microseconds of running until the job enters the next queue."""
        level = self.level(job)
        if level == len(self.limits):
            return NEVER
        return -(-(self.limits[level] - self.served[job]) // self.gpus[job])


Rank = Callable[[JobProgress, int], tuple[int, ...]]
"""Rank of a job: smaller is served first; ties go to the earlier job."""


def shortest_time(state: JobProgress, job: int) -> tuple[int, ...]:
    """Return the SRTF rank: least remaining work."""
    return (state.left[job],)


def shortest_service(state: JobProgress, job: int) -> tuple[int, ...]:
    """Return the SRSF rank: least remaining work x GPUs."""
    return (state.left[job] * state.gpus[job],)


def least_attained(state: JobProgress, job: int) -> tuple[int, ...]:
    """Return the Tiresias-L rank: the queue of the attained service; in a queue running jobs stay ahead."""
    return (state.level(job), not state.running[job])


class PreemptiveRun:
    """One simulation."""

    def __init__(self, workload: GpuWorkload, settings: GpuSettings, rank: Rank) -> None:
        self._workload, self._settings, self._rank = workload, settings, rank
        self._state = JobProgress(workload, settings)
        self._pool = NodePool(workload, settings.capacity)
        self._ledger = StretchLedger(workload.job_count)
        self._shape: list[int] = workload.shapes()[0].tolist()
        self._where: dict[int, Where] = {}
        """Nodes of the running jobs."""
        self._present: list[int] = []
        """Jobs that have arrived and not ended."""
        self._preemptions = 0

    def run(self, *, falls: bool) -> GpuOutcome:
        """Run the whole workload; ``falls``: a change of queue is an event."""
        submit = self._workload.submit.tolist()
        possible = possible_jobs(self._workload, self._settings)
        arriving, now, passes = 0, 0, 0
        while arriving < len(submit) or self._present:
            upcoming = submit[arriving] if arriving < len(submit) else NEVER
            after = min(upcoming, self._next_event(now, falls=falls))
            assert after < NEVER, "a cluster that can hold every job never stands still"
            for job in self._where:
                self._state.advance(job, after - now)
            now = after
            for job in [job for job in self._where if not self._state.left[job]]:
                self._ledger.close(job, now, is_done=True)
                del self._where[job]
                self._present.remove(job)
            while arriving < len(submit) and submit[arriving] == now:
                if possible[arriving]:
                    self._present.append(arriving)
                arriving += 1
            self._fill(now)
            passes += 1
        return make_outcome(self._ledger, possible.count(False), self._preemptions, passes)

    def _next_event(self, now: int, *, falls: bool) -> int:
        """Return the time of the next end or change of queue."""
        when = NEVER
        for job in self._where:
            when = min(when, now + self._state.setup[job] + self._state.left[job])
            if falls:
                when = min(when, now + self._state.until_fall(job))
        return when

    def _fill(self, now: int) -> None:
        state, pool = self._state, self._pool
        self._present.sort(key=lambda job: (*self._rank(state, job), job))
        pool.clear()
        failed: set[int] = set()
        for job in self._present:
            held = self._where.get(job)
            if held is not None and pool.retake(job, held):
                continue
            where = None if self._shape[job] in failed else pool.place(job, NodeRule.BEST)
            if where is None:
                failed.add(self._shape[job])
            if held is not None:
                self._ledger.close(job, now, is_done=False)
                del self._where[job]
                self._preemptions += 1
            state.running[job] = where is not None
            if where is not None:
                state.setup[job] = self._settings.restart
                self._where[job] = where
                self._ledger.open(job, where, now)
