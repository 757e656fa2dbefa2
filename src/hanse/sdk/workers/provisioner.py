"""Provisioner: the thread that asks the league for workers, for their exits, and to cancel them.

Requests to the league may take seconds, and the dispatcher's thread must not wait for them. Answers are
posted to that thread as functions to call there.
"""

import heapq
import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from hanse.api.records import SubmitResult
from hanse.api.row_records import TaskRow
from hanse.client.client import ENDED_STATES, LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.sdk.task_output import read_stderr_tail

EXIT_POLL_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 2.0)
"""Pauses between requests for a lost worker's exit."""
LEAGUE_SECONDS_MAX: Final = 60.0
"""Silence of the league after which calls that wait for workers fail."""
PAUSE_SECONDS_MAX: Final = 5.0
"""Longest pause between attempts to reach the league; the first is a twentieth of it."""
WORKERS_PER_JOB_MAX: Final = 1_000
STDERR_TAIL_BYTES: Final = 2_000
"""Bytes of a worker's standard error that are shown if it does not start."""


_EXIT_CODE_HINTS: Final[dict[int | None, str]] = {
    126: "the user of the tasks, 'nobody' if the daemons are root, may not run it. Give the executor a "
    "'python' that all users may run, or the cluster a 'user' who may run it ('hanse up --user NAME')",
    127: "give the executor a 'python' that exists on the machines of the league, with Hanse installed",
}
"""Hints for exit codes of programs that could not be started."""


class WorkerExit(NamedTuple):
    """Exit of a worker's task."""

    task: str
    state: str = ""
    code: int | None = None
    note: str = ""
    stderr_tail: str = ""
    """End of its standard error."""

    def to_sentence(self) -> str:
        """Describe the exit in words."""
        parts = [f"worker {self.task} is {self.state}" if self.state else f"worker {self.task} is gone"]
        if self.code is not None:
            parts.append(f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}")
        if self.note:
            parts.append(self.note)
        text = ", ".join(parts)
        if self.code in _EXIT_CODE_HINTS:
            text += f" ({_EXIT_CODE_HINTS[self.code]})"
        return f"{text}; it wrote:\n{self.stderr_tail.rstrip()}" if self.stderr_tail else text


class WorkerJob(NamedTuple):
    """Workers that the league starts, as tasks 0, 1, ... of this job. No job: there is no room now."""

    job: str
    worker_count: int


class WorkerRefusal(NamedTuple):
    """Reason why the league starts no workers."""

    reason: str
    lasting: bool
    """True if a repetition is useless."""


AnswerCallback = Callable[[Any], None]


class Provisioner(threading.Thread):
    """Thread that talks to the league."""

    def __init__(self, endpoints: Endpoints, form: dict[str, object]) -> None:
        super().__init__(name="hanse keeper", daemon=True)
        self._endpoints = endpoints.copy()
        self._client = LeagueClient(self._endpoints)
        self._form = form
        """Job of workers, without its count and client id."""
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopping = threading.Event()
        self.on_error: Callable[[BaseException], None] = lambda _: None
        """Callback for bugs."""

    # --- requests, from any thread

    def request_workers(self, count: int, limited: bool, needed: bool, callback: AnswerCallback) -> None:
        """Request workers; the callback gets a ``WorkerJob`` or a ``WorkerRefusal``.

        ``limited``: only as many as there is room for now; ``needed``: at least one, even if it must wait.
        """
        client_id = f"sdk-{uuid.uuid4().hex}"
        started_at = time.monotonic()
        self._enqueue(
            lambda: self._request_workers(
                count, limited, needed, _WorkerRequest(client_id, started_at, callback)
            )
        )

    def find_exit(self, job: str, index: int, attempt: int, callback: AnswerCallback) -> None:
        """Find out how a worker ended; the callback gets a ``WorkerExit``, if necessary with few details."""
        self._enqueue(lambda: self._find_exit(job, index, attempt, callback, 0))

    def check_workers(self, job: str, indices: frozenset[int], callback: AnswerCallback) -> None:
        """Check which of these workers of a job have ended; the callback gets their exits."""
        self._enqueue(lambda: self._check_workers(job, indices, callback))

    def cancel_jobs(self, jobs: list[str]) -> None:
        """Cancel jobs of workers."""
        for job in jobs:
            self._enqueue(partial(self._cancel, job, 0))

    def stop(self) -> None:
        """End after the requests made so far; delayed requests are dropped."""
        self._stopping.set()
        self._requests.put(None)

    # --- the thread

    def _enqueue(self, work: Callable[[], None]) -> None:
        self._requests.put(work)

    def _schedule(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._scheduled, (time.monotonic() + seconds, next(self._order), work))

    def run(self) -> None:
        """Perform the requests in order."""
        try:
            while True:
                due = self._scheduled[0][0] - time.monotonic() if self._scheduled else None
                if due is not None and due <= 0:
                    self._perform(heapq.heappop(self._scheduled)[2])
                    continue
                try:
                    work = self._requests.get(timeout=due)
                except queue.Empty:
                    continue
                if work is None:
                    return
                self._perform(work)
        finally:
            self._endpoints.close()

    def _perform(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  a bug here must not leave a thread waiting
            self.on_error(error)

    def _request_workers(self, count: int, limited: bool, needed: bool, request: "_WorkerRequest") -> None:
        if self._stopping.is_set():
            return
        try:
            if limited:
                room = sum(one.slots for one in self._client.plan({**self._form, "count": 1}).candidates)
                count = max(min(count, room), 1 if needed else 0)
        except CommandError as error:
            self._retry_later(error, request, lambda: self._request_workers(count, limited, needed, request))
            return
        if count <= 0:
            request.callback(WorkerJob("", 0))
            return
        self._submit(min(count, WORKERS_PER_JOB_MAX), request)

    def _submit(self, count: int, request: "_WorkerRequest") -> None:
        """Submit the job with the same count and client id until the league accepts or refuses it."""
        try:
            result = self._client.submit([{**self._form, "count": count, "client_id": request.client_id}])[0]
        except CommandError as error:
            self._retry_later(error, request, lambda: self._submit(count, request))
            return
        if result.unsure:
            self._schedule(PAUSE_SECONDS_MAX / 20, lambda: self._submit(count, request))
            return
        if self._stopping.is_set() and result.job:
            self._cancel(result.job, 1)
            return
        request.callback(
            WorkerJob(result.job, count) if result.job else WorkerRefusal(_refusal_text(result), lasting=True)
        )

    def _retry_later(self, error: CommandError, request: "_WorkerRequest", retry: Callable[[], None]) -> None:
        """Retry a transient failure later, unless the league has never answered."""
        is_transient = error.status in (ExitCode.UNAVAILABLE, ExitCode.UNSURE)
        elapsed = time.monotonic() - request.started_at
        if not is_transient or elapsed > LEAGUE_SECONDS_MAX or not self._endpoints.has_answered:
            hint = f" ({error.hint})" if error.hint else ""
            request.callback(WorkerRefusal(f"{error.message}{hint}", lasting=not is_transient))
            return
        self._schedule(min(PAUSE_SECONDS_MAX, max(PAUSE_SECONDS_MAX / 20, elapsed)), retry)

    def _find_exit(self, job: str, index: int, attempt: int, callback: AnswerCallback, tries: int) -> None:
        row = self._task_row(job, index)
        ended = row is not None and (row.state in ENDED_STATES or row.attempt > attempt)
        if row is not None and (ended or tries >= len(EXIT_POLL_SECONDS)):
            callback(
                WorkerExit(
                    f"{job}.{index}", row.state if row.state in ENDED_STATES else "lost", row.code, row.note
                )
            )
        elif tries >= len(EXIT_POLL_SECONDS):
            callback(WorkerExit(f"{job}.{index}"))
        else:
            self._schedule(
                EXIT_POLL_SECONDS[tries], lambda: self._find_exit(job, index, attempt, callback, tries + 1)
            )

    def _task_row(self, job: str, index: int) -> TaskRow | None:
        try:
            rows = self._client.tasks(job, limit=1, after=str(index - 1) if index else "").tasks
        except CommandError:
            return None
        return rows[0] if rows and rows[0].index == index else None

    def _check_workers(self, job: str, indices: frozenset[int], callback: AnswerCallback) -> None:
        exits: list[tuple[int, WorkerExit]] = []
        try:
            rows = self._client.tasks(job).tasks
        except CommandError:
            rows = ()
        for row in rows:
            if row.index in indices and row.state in ENDED_STATES:
                stderr_tail = read_stderr_tail(self._endpoints, f"{job}.{row.index}", row, STDERR_TAIL_BYTES)
                exits.append(
                    (row.index, WorkerExit(f"{job}.{row.index}", row.state, row.code, row.note, stderr_tail))
                )
        callback(exits)

    def _cancel(self, job: str, tries: int) -> None:
        try:
            self._client.cancel(job)
        except CommandError:  # no answer: its workers end anyway without an executor
            if tries == 0:
                self._schedule(PAUSE_SECONDS_MAX / 20, lambda: self._cancel(job, tries + 1))


class _WorkerRequest(NamedTuple):
    """Request for workers that may be repeated."""

    client_id: str
    started_at: float
    callback: AnswerCallback


def _refusal_text(result: SubmitResult) -> str:
    if result.problems:
        return "; ".join(f"{flaw.field}: {flaw.rule}" for flaw in result.problems)
    return result.refused
