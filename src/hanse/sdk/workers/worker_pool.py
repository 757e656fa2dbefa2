"""Pool of workers and the calls for them: it decides which worker gets which call. No sockets, no clock.

Small calls go in batches, as many as a worker makes in ``WINDOW_SECONDS``; long calls go one by one. An idle
worker gets calls that wait behind others. When a worker is lost, its calls are repeated in other workers. Any
of them may have caused the loss, so each is then sent alone, and only the call that causes a loss uses up its
retries. A call without retries is always sent alone: it runs at most once.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from hanse.sdk.function_pickling import RemoteFunction
from hanse.sdk.future import Future
from hanse.sdk.serialization import PickledValue

WINDOW_SECONDS: Final = 0.02
"""Seconds of work that are sent ahead to a worker."""
LONG_SECONDS: Final = 0.05
"""Duration above which calls are not sent ahead: the round trip does not matter for them."""
CREDIT_FIRST: Final = 4
"""Calls that a worker gets before the duration of its calls is known."""
CREDIT_MAX: Final = 2_048
WINDOW_BYTES: Final = 32 << 20
"""Bytes of results that may be under way from one worker, estimated from earlier results."""
STALE_SECONDS: Final = 0.005
"""Seconds without a result after which a worker counts as busy with a long call."""
SMOOTHING: Final = 0.3
"""Weight of the newest value in a running mean."""
SAMPLES_MAX: Final = 64
"""Durations kept of each function."""


class RemoteCall:
    """Call of a function in a worker."""

    __slots__ = (
        "alone",
        "begun",
        "cancelled",
        "function",
        "future",
        "inputs",
        "number",
        "packed",
        "retries",
        "sent_by_name",
    )

    def __init__(
        self, number: int, function: RemoteFunction, packed: PickledValue, future: Future[Any], retries: int
    ) -> None:
        self.number = number
        self.function = function
        self.packed = packed
        self.future = future
        self.retries = retries
        """Repetitions that are left if the worker is lost."""
        self.begun = False
        """True if a worker has it, or had it."""
        self.inputs: tuple[tuple[int, PickledValue], ...] = ()
        """Results of other calls that the worker reads from the shared store."""
        self.alone = retries == 0
        """True if it must not share a worker: it may run only once, or a worker was lost with it."""
        self.sent_by_name = False
        """True if its function went to the worker by name."""
        self.cancelled = False
        """True if it is to be cancelled when it comes back."""


class PooledWorker:
    """Worker as the pool sees it."""

    __slots__ = (
        "attempt",
        "closing",
        "cluster",
        "connection",
        "credit",
        "idle_since",
        "index",
        "job",
        "mean",
        "mean_bytes",
        "outstanding",
        "progressed_at",
        "recalling",
    )  # fmt: skip

    def __init__(self, job: str, index: int, attempt: int, cluster: str, connection: Any, now: float) -> None:
        self.job = job
        self.index = index
        self.attempt = attempt
        self.cluster = cluster
        self.connection = connection
        """Connection; opaque here."""
        self.outstanding: dict[int, RemoteCall] = {}
        """Calls that it has, in the order of execution."""
        self.mean: float | None = None
        """Mean seconds of its calls; None: none has ended."""
        self.mean_bytes = 0.0
        self.credit = CREDIT_FIRST
        self.idle_since = now
        self.progressed_at = now
        """Time when it last finished a call, or got one while it was idle."""
        self.recalling = False
        """True if calls were recalled and it has not answered."""
        self.closing = False

    @property
    def task(self) -> str:
        """Id of the worker's task, such as ``1-7.0``."""
        return f"{self.job}.{self.index}"

    def on_calls_finished(self, count: int, seconds: float, size: int, now: float) -> None:
        """Update means and credit after some calls have ended."""
        mean = seconds / count
        self.mean = mean if self.mean is None else (1 - SMOOTHING) * self.mean + SMOOTHING * mean
        self.mean_bytes = (1 - SMOOTHING) * self.mean_bytes + SMOOTHING * size / count
        self.progressed_at = now
        if not self.outstanding:
            self.idle_since = now
        if self.mean > LONG_SECONDS:
            self.credit = 1
            return
        by_time = int(WINDOW_SECONDS / max(self.mean, 1e-6))
        by_bytes = int(WINDOW_BYTES / max(self.mean_bytes, 1.0))
        self.credit = max(2, min(by_time, by_bytes, CREDIT_MAX))


class WorkerPool:
    """Workers of an executor and the calls that wait for them. For one thread."""

    def __init__(self) -> None:
        self.workers: list[PooledWorker] = []
        """Workers in the order in which they connected."""
        self._waiting: deque[RemoteCall] = deque()
        self._alone: deque[RemoteCall] = deque()
        """Calls that must be sent alone; they go first."""

    def __len__(self) -> int:
        """Number of calls that no worker has."""
        return len(self._waiting) + len(self._alone)

    def waiting_calls(self) -> Iterator[RemoteCall]:
        """Yield the calls that no worker has, the next one first."""
        yield from self._alone
        yield from self._waiting

    def add_call(self, call: RemoteCall) -> None:
        """Add a new call behind the others."""
        (self._alone if call.alone else self._waiting).append(call)

    def put_back(self, calls: list[RemoteCall]) -> None:
        """Put calls that a worker did not make before the others, in their order."""
        for call in reversed(calls):
            (self._alone if call.alone else self._waiting).appendleft(call)

    def clear(self) -> list[RemoteCall]:
        """Remove and return all waiting calls."""
        calls = list(self.waiting_calls())
        self._alone.clear()
        self._waiting.clear()
        return calls

    def pending_count(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self) + sum(len(worker.outstanding) for worker in self.workers)

    def work_seconds(self, unknown: float) -> float:
        """Estimate how long one worker needs for the waiting calls; ``unknown``: for a call never timed."""
        means = [worker.mean for worker in self.workers if worker.mean is not None]
        return len(self) * (sum(means) / len(means) if means else unknown)

    # --- assigning calls

    def assign(self, now: float) -> list[tuple[PooledWorker, list[RemoteCall]]]:
        """Assign waiting calls to workers. Ties between workers: the one that connected first."""
        assignments: list[tuple[PooledWorker, list[RemoteCall]]] = []
        if not self._waiting and not self._alone:
            return assignments
        for worker in self.workers:
            if not self._alone:
                break
            if not worker.outstanding and not worker.closing:
                calls = self._pop_calls(self._alone, 1)
                self._assign_calls(worker, calls, now, assignments)
        free = [worker for worker in self.workers if self._free_credit(worker, now) > 0]
        free.sort(key=lambda worker: len(worker.outstanding))
        for place, worker in enumerate(free):
            if not self._waiting:
                break
            share = -(-len(self._waiting) // (len(free) - place))
            calls = self._pop_calls(self._waiting, min(share, self._free_credit(worker, now)))
            self._assign_calls(worker, calls, now, assignments)
        return assignments

    def _free_credit(self, worker: PooledWorker, now: float) -> int:
        """Return how many further calls a worker may get: none behind a long call."""
        calls = worker.outstanding
        if worker.closing or (calls and next(iter(calls.values())).alone):
            return 0
        if calls and (worker.recalling or now - worker.progressed_at >= STALE_SECONDS):
            return 0
        return worker.credit - len(calls)

    def _pop_calls(self, source: deque[RemoteCall], count: int) -> list[RemoteCall]:
        """Remove and return the next calls that are not cancelled."""
        calls: list[RemoteCall] = []
        while source and len(calls) < count:
            call = source.popleft()
            if call.cancelled:
                call.future._set_cancelled()
            elif call.begun or call.future._set_running():
                call.begun = True
                calls.append(call)
        return calls

    def _assign_calls(
        self,
        worker: PooledWorker,
        calls: list[RemoteCall],
        now: float,
        assignments: list[tuple[PooledWorker, list[RemoteCall]]],
    ) -> None:
        if not calls:
            return
        if not worker.outstanding:
            worker.progressed_at = now
        cluster, task = worker.cluster, worker.task
        for call in calls:
            worker.outstanding[call.number] = call
            call.future._cluster = cluster
            call.future._task = task
        assignments.append((worker, calls))

    def find_recalls(self, now: float) -> tuple[list[tuple[PooledWorker, int]], float | None]:
        """Return the workers from which to recall calls because others are idle, and how many of each.

        Second: seconds until the next check, if a worker may turn out to be busy with a long call.
        """
        if len(self) or not any(not worker.outstanding and not worker.closing for worker in self.workers):
            return [], None
        recalls: list[tuple[PooledWorker, int]] = []
        recheck_seconds: float | None = None
        for worker in self.workers:
            count = len(worker.outstanding)
            if count < 2 or worker.recalling or worker.closing:
                continue
            stale = now - worker.progressed_at
            if stale >= STALE_SECONDS or (worker.mean or 0.0) * count >= STALE_SECONDS:
                worker.recalling = True
                recalls.append((worker, count // 2 if stale < STALE_SECONDS else count - 1))
            else:
                left = STALE_SECONDS - stale
                recheck_seconds = left if recheck_seconds is None else min(recheck_seconds, left)
        return recalls, recheck_seconds

    # --- answers of workers

    def on_returned(self, worker: PooledWorker, numbers: tuple[int, ...]) -> list[RemoteCall]:
        """Take back calls that had not begun; return those that are to be cancelled."""
        worker.recalling = False
        calls = [worker.outstanding.pop(number) for number in numbers if number in worker.outstanding]
        calls.sort(key=lambda call: call.number)
        cancelled = [call for call in calls if call.cancelled]
        kept = [call for call in calls if not call.cancelled]
        self.put_back(kept)
        return cancelled

    def on_worker_lost(self, worker: PooledWorker) -> list[RemoteCall]:
        """Remove a lost worker; return the calls that may not be repeated. The others wait for another
        worker."""
        self.workers.remove(worker)
        calls = list(worker.outstanding.values())
        worker.outstanding = {}
        blamed = len(calls) == 1
        retried: list[RemoteCall] = []
        failed: list[RemoteCall] = []
        for call in calls:
            if blamed:
                call.retries -= 1
            (failed if call.retries < 0 else retried).append(call)
            call.alone = True
        self.put_back(retried)
        return failed
