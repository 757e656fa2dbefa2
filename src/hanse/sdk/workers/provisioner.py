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

from hanse.api.rows import TaskRow
from hanse.client.client import ENDED, Client
from hanse.client.endpoints import Doors
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.responses import SubmitResult
from hanse.sdk.task_output import output_tail

OBITUARY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 2.0)
"""Pauses between requests for a lost worker's exit."""
LEAGUE_SECONDS_MAX: Final = 60.0
"""Silence of the league after which calls that wait for workers fail."""
PAUSE_SECONDS_MAX: Final = 5.0
"""Longest pause between attempts to reach the league; the first is a twentieth of it."""
HANDS_PER_JOB_MAX: Final = 1_000
TAIL_BYTES: Final = 2_000
"""Bytes of a worker's standard error that are shown if it does not start."""


_ADVICE: Final[dict[int | None, str]] = {
    126: "the user of the tasks, 'nobody' if the daemons are root, may not run it. Give the executor a "
    "'python' that all users may run, or the cluster a 'user' who may run it ('hanse up --user NAME')",
    127: "give the executor a 'python' that exists on the machines of the league, with Hanse installed",
}
"""Hints for exit codes of programs that could not be started."""


class Ending(NamedTuple):
    """Exit of a worker's task."""

    task: str
    state: str = ""
    code: int | None = None
    note: str = ""
    said: str = ""
    """End of its standard error."""

    def sentence(self) -> str:
        """Describe the exit in words."""
        parts = [f"worker {self.task} is {self.state}" if self.state else f"worker {self.task} is gone"]
        if self.code is not None:
            parts.append(f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}")
        if self.note:
            parts.append(self.note)
        text = ", ".join(parts)
        if self.code in _ADVICE:
            text += f" ({_ADVICE[self.code]})"
        return f"{text}; it wrote:\n{self.said.rstrip()}" if self.said else text


class Hired(NamedTuple):
    """Workers that the league starts, as tasks 0, 1, ... of this job. No job: there is no room now."""

    job: str
    hands: int


class Refusal(NamedTuple):
    """Reason why the league starts no workers."""

    reason: str
    lasting: bool
    """True if a repetition is useless."""


Answer = Callable[[Any], None]


class Keeper(threading.Thread):
    """Thread that talks to the league."""

    def __init__(self, doors: Doors, form: dict[str, object]) -> None:
        super().__init__(name="hanse keeper", daemon=True)
        self._doors = doors.another()
        self._client = Client(self._doors)
        self._form = form
        """Job of workers, without its count and client id."""
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ending = threading.Event()
        self.trouble: Callable[[BaseException], None] = lambda _: None
        """Callback for bugs."""

    # --- requests, from any thread

    def hire(self, count: int, limited: bool, needed: bool, answer: Answer) -> None:
        """Request workers; the callback gets a ``WorkerJob`` or a ``WorkerRefusal``.

        ``limited``: only as many as there is room for now; ``needed``: at least one, even if it must wait.
        """
        client_id = f"sdk-{uuid.uuid4().hex}"
        begun = time.monotonic()
        self._ask(lambda: self._hire(count, limited, needed, _Try(client_id, begun, answer)))

    def mourn(self, job: str, index: int, attempt: int, answer: Answer) -> None:
        """Find out how a worker ended; the callback gets a ``WorkerExit``, if necessary with few details."""
        self._ask(lambda: self._mourn(job, index, attempt, answer, 0))

    def look(self, job: str, indices: frozenset[int], answer: Answer) -> None:
        """Check which of these workers of a job have ended; the callback gets their exits."""
        self._ask(lambda: self._look(job, indices, answer))

    def dismiss(self, jobs: list[str]) -> None:
        """Cancel jobs of workers."""
        for job in jobs:
            self._ask(partial(self._cancel, job, 0))

    def end(self) -> None:
        """End after the requests made so far; delayed requests are dropped."""
        self._ending.set()
        self._asked.put(None)

    # --- the thread

    def _ask(self, work: Callable[[], None]) -> None:
        self._asked.put(work)

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), work))

    def run(self) -> None:
        """Perform the requests in order."""
        try:
            while True:
                due = self._later[0][0] - time.monotonic() if self._later else None
                if due is not None and due <= 0:
                    self._do(heapq.heappop(self._later)[2])
                    continue
                try:
                    work = self._asked.get(timeout=due)
                except queue.Empty:
                    continue
                if work is None:
                    return
                self._do(work)
        finally:
            self._doors.close()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  a bug here must not leave a thread waiting
            self.trouble(error)

    def _hire(self, count: int, limited: bool, needed: bool, tried: "_Try") -> None:
        if self._ending.is_set():
            return
        try:
            if limited:
                room = sum(one.slots for one in self._client.plan({**self._form, "count": 1}).candidates)
                count = max(min(count, room), 1 if needed else 0)
        except CommandError as error:
            self._put_off(error, tried, lambda: self._hire(count, limited, needed, tried))
            return
        if count <= 0:
            tried.answer(Hired("", 0))
            return
        self._submit(min(count, HANDS_PER_JOB_MAX), tried)

    def _submit(self, count: int, tried: "_Try") -> None:
        """Submit the job with the same count and client id until the league accepts or refuses it."""
        try:
            result = self._client.submit([{**self._form, "count": count, "client_id": tried.client_id}])[0]
        except CommandError as error:
            self._put_off(error, tried, lambda: self._submit(count, tried))
            return
        if result.unsure:
            self._after(PAUSE_SECONDS_MAX / 20, lambda: self._submit(count, tried))
            return
        if self._ending.is_set() and result.job:
            self._cancel(result.job, 1)
            return
        tried.answer(Hired(result.job, count) if result.job else Refusal(_refused(result), lasting=True))

    def _put_off(self, error: CommandError, tried: "_Try", again: Callable[[], None]) -> None:
        """Retry a transient failure later, unless the league has never answered."""
        passing = error.status in (ExitCode.UNAVAILABLE, ExitCode.UNSURE)
        silent = time.monotonic() - tried.begun
        if not passing or silent > LEAGUE_SECONDS_MAX or not self._doors.heard:
            hint = f" ({error.hint})" if error.hint else ""
            tried.answer(Refusal(f"{error.message}{hint}", lasting=not passing))
            return
        self._after(min(PAUSE_SECONDS_MAX, max(PAUSE_SECONDS_MAX / 20, silent)), again)

    def _mourn(self, job: str, index: int, attempt: int, answer: Answer, tries: int) -> None:
        row = self._row(job, index)
        ended = row is not None and (row.state in ENDED or row.attempt > attempt)
        if row is not None and (ended or tries >= len(OBITUARY_SECONDS)):
            answer(Ending(f"{job}.{index}", row.state if row.state in ENDED else "lost", row.code, row.note))
        elif tries >= len(OBITUARY_SECONDS):
            answer(Ending(f"{job}.{index}"))
        else:
            self._after(OBITUARY_SECONDS[tries], lambda: self._mourn(job, index, attempt, answer, tries + 1))

    def _row(self, job: str, index: int) -> TaskRow | None:
        try:
            rows = self._client.tasks(job, limit=1, after=str(index - 1) if index else "").tasks
        except CommandError:
            return None
        return rows[0] if rows and rows[0].index == index else None

    def _look(self, job: str, indices: frozenset[int], answer: Answer) -> None:
        endings: list[tuple[int, Ending]] = []
        try:
            rows = self._client.tasks(job).tasks
        except CommandError:
            rows = ()
        for row in rows:
            if row.index in indices and row.state in ENDED:
                said = output_tail(self._doors, f"{job}.{row.index}", row, TAIL_BYTES)
                endings.append((row.index, Ending(f"{job}.{row.index}", row.state, row.code, row.note, said)))
        answer(endings)

    def _cancel(self, job: str, tries: int) -> None:
        try:
            self._client.cancel(job)
        except CommandError:  # no answer: its workers end anyway without an executor
            if tries == 0:
                self._after(PAUSE_SECONDS_MAX / 20, lambda: self._cancel(job, tries + 1))


class _Try(NamedTuple):
    """Request for workers that may be repeated."""

    client_id: str
    begun: float
    answer: Answer


def _refused(result: SubmitResult) -> str:
    if result.problems:
        return "; ".join(f"{flaw.field}: {flaw.rule}" for flaw in result.problems)
    return result.refused
