"""Two planners that plan no further than the head of the queue: blocking, and EASY backfilling.

EASY (Lifka 1995; Mu'alem and Feitelson 2001): when the head does not fit, its start is planned from the
estimated ends of the running jobs (the *shadow* time), and a job behind it may start now if it ends by the
shadow time or uses only processors that the head will not need then (the *extra* ones).
"""

from bisect import insort

from hanse.sim.baselines.rigid.engine import NEVER
from hanse.sim.baselines.rigid.queue_order import RigidOrder, RigidQueue
from hanse.sim.baselines.rigid.workload import RigidWorkload


class BlockingPlanner:
    """Planner that starts jobs in the waiting order; the first that does not fit blocks all behind it."""

    def __init__(self, workload: RigidWorkload, order: RigidOrder) -> None:
        self.promise = [-1] * workload.job_count
        self.backfilled = 0
        self.waiting = RigidQueue(workload, order)
        self._width: list[int] = workload.processors.tolist()

    def on_arrival(self, job: int, now: int) -> None:
        """Add an arriving job to the queue."""
        del now
        self.waiting.add(job)

    def on_end(self, job: int, now: int) -> None:
        """Do nothing: running jobs are not kept."""

    def next_wake(self) -> int:
        """Return NEVER: only arrivals and ends matter."""
        return NEVER

    def choose(self, now: int, free: int) -> list[int]:
        """Return the longest run of jobs from the head that fits."""
        chosen: list[int] = []
        while len(self.waiting):
            head = self.waiting.head(now)
            if self._width[head] > free:
                break
            free -= self._width[head]
            self.waiting.drop([head])
            chosen.append(head)
        return chosen


class EasyPlanner:
    """Planner of EASY backfilling: only the head of the queue has a reservation."""

    def __init__(self, workload: RigidWorkload, order: RigidOrder) -> None:
        self.promise = [-1] * workload.job_count
        self.backfilled = 0
        self._blocking = BlockingPlanner(workload, order)
        self._waiting = self._blocking.waiting
        self._width: list[int] = workload.processors.tolist()
        self._estimate: list[int] = workload.estimate.tolist()
        self._due: list[int] = [0] * workload.job_count
        self._running: list[tuple[int, int]] = []
        """Running jobs as (estimated end, job), earliest first."""

    def on_arrival(self, job: int, now: int) -> None:
        """Add an arriving job to the queue."""
        self._blocking.on_arrival(job, now)

    def on_end(self, job: int, now: int) -> None:
        """Remove a job that ended, by its estimate or before."""
        del now
        self._running.remove((self._due[job], job))

    def next_wake(self) -> int:
        """Return NEVER: only arrivals and ends matter."""
        return NEVER

    def choose(self, now: int, free: int) -> list[int]:
        """Return the jobs that fit from the head on, then jobs that do not delay the new head."""
        chosen = self._blocking.choose(now, free)
        for job in chosen:
            free -= self._width[job]
            self._begin(job, now)
        if not len(self._waiting):
            return chosen
        if not free and self.promise[self._waiting.head(now)] >= 0:
            return chosen
        return chosen + self._backfill(now, free)

    def _begin(self, job: int, now: int) -> None:
        self._due[job] = now + self._estimate[job]
        insort(self._running, (self._due[job], job))

    def _backfill(self, now: int, free: int) -> list[int]:
        queue = self._waiting.jobs_in_order(now)
        shadow, extra = self._shadow(self._width[queue[0]], free)
        if self.promise[queue[0]] < 0:
            self.promise[queue[0]] = shadow
        chosen: list[int] = []
        for job in queue[1:]:
            if not free:
                break
            width = self._width[job]
            beyond = now + self._estimate[job] > shadow
            if width > free or (beyond and width > extra):
                continue
            free -= width
            if beyond:
                extra -= width
            chosen.append(job)
            self._begin(job, now)
        if chosen:
            self._waiting.drop(chosen)
            self.backfilled += len(chosen)
        return chosen

    def _shadow(self, need: int, free: int) -> tuple[int, int]:
        """Return the time at which ``need`` processors are free by the estimates, and those left over then.

        All jobs due at that very instant count as ended.
        """
        shadow = -1
        for due, job in self._running:
            if shadow >= 0 and due > shadow:
                break
            free += self._width[job]
            if free >= need:
                shadow = due
        assert shadow >= 0, "a job that fits the machine fits when all others have ended"
        return shadow, free - need
