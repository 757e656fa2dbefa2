"""Autoscaler of an executor: when to ask the league for workers, and when to release some.

The pool grows while more work waits than its workers, present and starting, do in half a second. It shrinks
when workers are idle for a while. One request for workers is open at a time. As long as workers are missing,
the tasks of their job are checked, ever more rarely, for workers that ended before they connected.
"""

from typing import Final

from hanse.sdk.workers.provisioner import WORKERS_PER_JOB_MAX, WorkerExit, WorkerJob, WorkerRefusal
from hanse.sdk.workers.worker_pool import PooledWorker, WorkerPool

GROW_SECONDS: Final = 0.5
"""Waiting work above which another worker is worthwhile."""
UNKNOWN_SECONDS: Final = 1.0
"""Assumed duration of a call before one has ended."""
WORKERS_MAX: Final = 10_000
"""Workers of one executor."""
CHECK_SECONDS_FIRST: Final = 0.5
CHECK_SECONDS_MAX: Final = 10.0
START_FAILURES_MAX: Final = 3
"""Workers in a row that end before they connect, until the waiting calls fail."""
JOBS_MAX: Final = 1_000
"""Jobs of workers that are remembered."""
NO_ROOM_SECONDS: Final = 5.0
"""Pause before the next request when the league has no room, or started no workers."""


class MissingWorkers:
    """Workers of one job that have not connected yet."""

    def __init__(self, indices: set[int], now: float) -> None:
        self.indices = indices
        self.pause = CHECK_SECONDS_FIRST
        self.check_at = now + CHECK_SECONDS_FIRST
        self.checking = False


class Autoscaler:
    """Autoscaler. Used by the dispatcher's thread only; it decides and performs nothing itself."""

    def __init__(self, min_workers: int, max_workers: int | None, idle_seconds: float) -> None:
        self.min_workers = min_workers
        self.max_workers = max_workers
        """Largest number of workers; None: as many as the league has room for at each request."""
        self.idle_seconds = idle_seconds
        self.missing: dict[str, MissingWorkers] = {}
        """Missing workers by job."""
        self.jobs: dict[str, int] = {}
        """Latest jobs of workers, with the number of workers of each."""
        self.request_pending = False
        self.start_failures = 0
        self.refusal = ""
        """Reason why there are no workers, if it is permanent."""
        self._latest_attempts: dict[str, dict[int, int]] = {}
        """Latest admitted attempt by job and index."""
        self._has_unanswered_request = False
        """True if a request for workers ended without an answer: its job may exist nevertheless."""
        self._early_workers: set[tuple[str, int]] = set()
        """Workers that connected before the answer that names their job."""
        self._next_request_at = 0.0
        self._given_up = False
        """True if workers do not start: then only waiting calls are a reason to try again."""

    def starting_count(self) -> int:
        """Return the number of workers that the league starts and that have not connected."""
        return sum(len(missing.indices) for missing in self.missing.values())

    def workers_to_request(self, pool: WorkerPool, now: float) -> int:
        """Return how many more workers to request now."""
        if self.request_pending or self.refusal or now < self._next_request_at:
            return 0
        waiting = len(pool)
        if not waiting and self._given_up:
            return 0
        useful = min(waiting, int(pool.work_seconds(UNKNOWN_SECONDS) / GROW_SECONDS))
        if waiting and all(worker.closing for worker in pool.workers):
            useful = max(useful, 1)
        maximum = WORKERS_MAX if self.max_workers is None else self.max_workers
        present = sum(not worker.closing for worker in pool.workers)
        target = min(maximum, max(self.min_workers, present + useful))
        return max(0, target - present - self.starting_count())

    def on_worker_job(self, worker_job: WorkerJob, now: float) -> None:
        """Record the league's answer."""
        self.request_pending = False
        if not worker_job.job:
            self._next_request_at = now + NO_ROOM_SECONDS
            return
        indices = {
            index
            for index in range(worker_job.worker_count)
            if (worker_job.job, index) not in self._early_workers
        }
        self._early_workers.clear()  # one request at a time: they all belong to this job
        self.jobs[worker_job.job] = worker_job.worker_count
        if len(self.jobs) > JOBS_MAX:
            oldest = next(iter(self.jobs))
            del self.jobs[oldest]
            self._latest_attempts.pop(oldest, None)
        if indices:
            self.missing[worker_job.job] = MissingWorkers(indices, now)

    def on_refusal(self, refusal: WorkerRefusal, now: float) -> str:
        """Record a refusal; return the reason with which waiting calls may have to fail."""
        self.request_pending = False
        self._next_request_at = now + NO_ROOM_SECONDS
        if refusal.lasting:
            self.refusal = refusal.reason
        else:
            self._has_unanswered_request = True
        return refusal.reason

    def admit(self, job: str, index: int, attempt: int) -> str:
        """Admit a worker that has proved its key, each attempt once; return the reason if it is refused."""
        count = self.jobs.get(job)
        if count is None and (self.request_pending or self._has_unanswered_request):
            count = WORKERS_PER_JOB_MAX  # it connected before the answer that names its job
        name = f"worker {job[:32]}.{index}, attempt {attempt}"
        if count is None or not 0 <= index < count:
            return f"{name}, which this executor did not request"
        attempts = self._latest_attempts.setdefault(job, {})
        if attempt <= attempts.get(index, -1):
            return f"a further connection of {name}, after attempt {attempts[index]} had connected"
        attempts[index] = attempt
        return ""

    def on_worker_connected(self, job: str, index: int) -> None:
        """Record that a worker has connected."""
        self.start_failures = 0
        self._given_up = False
        missing = self.missing.get(job)
        if missing is None:
            if job not in self.jobs:
                self._early_workers.add((job, index))
            return
        missing.indices.discard(index)
        if not missing.indices:
            del self.missing[job]

    def find_due_checks(self, now: float) -> list[tuple[str, frozenset[int]]]:
        """Return the jobs whose missing workers are to be checked."""
        due = []
        for job, missing in self.missing.items():
            if not missing.checking and now >= missing.check_at:
                missing.checking = True
                due.append((job, frozenset(missing.indices)))
        return due

    def on_checked(self, job: str, all_exits: list[tuple[int, WorkerExit]], now: float) -> str:
        """Record workers that ended before they connected; return the reason if waiting calls must fail."""
        missing = self.missing.get(job)
        if missing is None:
            return ""
        missing.checking = False
        missing.pause = min(CHECK_SECONDS_MAX, 2 * missing.pause)
        missing.check_at = now + missing.pause
        exits = [(index, worker_exit) for index, worker_exit in all_exits if index in missing.indices]
        for index, _ in exits:
            missing.indices.discard(index)
        if not missing.indices:
            del self.missing[job]
        self.start_failures += len(exits)
        if self.start_failures < START_FAILURES_MAX or not exits:
            return ""
        self._next_request_at = now + NO_ROOM_SECONDS
        self.start_failures = 0
        self._given_up = True
        return exits[-1][1].to_sentence()

    def find_idle(self, pool: WorkerPool, now: float) -> list[PooledWorker]:
        """Return the workers to release."""
        if len(pool):
            return []
        staying = [worker for worker in pool.workers if not worker.closing]
        idle = [
            worker
            for worker in staying
            if not worker.outstanding and now - worker.idle_since >= self.idle_seconds
        ]
        return idle[: max(0, len(staying) - self.min_workers)]

    def next_action_at(self, pool: WorkerPool, now: float) -> float | None:
        """Return when to act next if no event comes."""
        times = [missing.check_at for missing in self.missing.values() if not missing.checking]
        if self._next_request_at > now and not self.request_pending and not self.refusal:
            times.append(self._next_request_at)
        staying = [worker for worker in pool.workers if not worker.closing]
        if len(staying) > self.min_workers and not len(pool):
            times += [worker.idle_since + self.idle_seconds for worker in staying if not worker.outstanding]
        return min(times) if times else None
