"""Job of the league as an object."""

import io
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from hanse.api.row_records import JobRow, TaskRow
from hanse.client.client import ENDED_STATES, WAIT_SECONDS_MAX
from hanse.client.job_form import with_client_id
from hanse.client.retry_form import retry_form
from hanse.client.task_logs import LogRequest, OutputSink, copy_output
from hanse.client.transport import NoAnswerError
from hanse.sdk.client_pool import ClientPool
from hanse.sdk.errors import JobFailedError, JobRefusedError, SdkError

WATCH_SECONDS: Final = 1
"""Pause before the next search for a job whose broker sends no events."""
EVENT_SECONDS_MAX: Final = 60.0
"""Longest silence of an event stream before it counts as broken: a heart-beat comes every 15 s."""
PIECES_MAX: Final = 64
"""Pieces of followed output that wait for the reader; the stream pauses beyond it."""
STREAMS: Final = ("stdout", "stderr")


class Job:
    """Submitted job. Every method asks the league; threads may share the object."""

    def __init__(self, clients: ClientPool, job: str) -> None:
        self._clients = clients
        self.id = job
        """Id of the job, such as ``1-7``."""

    def __repr__(self) -> str:
        return f"<hanse.Job {self.id}>"

    def row(self) -> JobRow:
        """Return the job's row in the list of jobs."""
        with self._clients.borrow() as client:
            return client.job(self.id).row

    @property
    def state(self) -> str:
        """State: ``queued``, ``running``, ``succeeded``, ``failed``, ``cancelled`` ..."""
        return self.row().state

    def tasks(self) -> list[TaskRow]:
        """Return the tasks by index."""
        rows: list[TaskRow] = []
        after: str | None = ""
        with self._clients.borrow() as client:
            while after is not None:
                page = client.tasks(self.id, after=after)
                rows += page.tasks
                after = page.next
        return rows

    def wait(self, timeout: float | None = None) -> JobRow:
        """Wait until the job has ended. Raises ``TimeoutError``; the job goes on then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_SECONDS_MAX if deadline is None else deadline - time.monotonic()
            with self._clients.borrow() as client:
                row = client.wait(self.id, max(0, min(WAIT_SECONDS_MAX, int(left + 0.999))))
            if row.state in ENDED_STATES:
                return row
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.id} has not ended in time; its state is {row.state}")

    def result(self, timeout: float | None = None) -> str:
        """Return the first task's standard output. Raises ``JobFailedError`` if the job did not succeed."""
        row = self.wait(timeout)
        if row.state != "succeeded":
            raise JobFailedError(self._failure_text(row))
        return self.logs(0, "stdout")

    def _failure_text(self, row: JobRow) -> str:
        parts = [f"the job {self.id} {row.state}"]
        if row.cancel_reason:
            parts.append(row.cancel_reason)
        for task in self.tasks():
            if task.state == "failed":
                parts.append(f"task {task.index}: {_end_text(task)}{': ' if task.note else ''}{task.note}")
                break
        return "; ".join(parts)

    def logs(self, task: int = 0, stream: str = "") -> str:
        """Return a task's ``stdout`` or ``stderr`` so far; with an empty ``stream``, one after the other."""
        target = io.BytesIO()
        with self._clients.borrow() as client:
            row = self._task_row(client, task)
            for one in (stream,) if stream else STREAMS:
                copy_output(
                    client.endpoints, f"{self.id}.{task}", row, LogRequest(one), OutputSink(target, "")
                )
        return target.getvalue().decode(errors="replace")

    def follow(self, task: int = 0, stream: str = "stdout") -> Iterator[bytes]:
        """Yield the output of a task, as it comes, until the task ends."""
        with self._clients.borrow() as client:
            while not (row := self._task_row(client, task)).attempt:
                ended = client.wait(self.id, WATCH_SECONDS).state in ENDED_STATES
                if ended and not self._task_row(client, task).attempt:
                    return
        yield from _OutputFollower(self._clients, f"{self.id}.{task}", row, stream)

    def _task_row(self, client: Any, task: int) -> TaskRow:
        rows = client.tasks(self.id, limit=1, after=str(task - 1) if task else "").tasks
        if not rows or rows[0].index != task:
            raise SdkError(f"{self.id} has no task {task}")
        row: TaskRow = rows[0]
        return row

    def why(self) -> str:
        """Explain why the job waits, why it runs where it runs, or why it ended."""
        with self._clients.borrow() as client:
            return " ".join(client.why(self.id).sentences)

    def cancel(self) -> None:
        """Cancel the job; a job that has ended stays as it is."""
        with self._clients.borrow() as client:
            client.cancel(self.id)

    def retry(self) -> "Job":
        """Submit the tasks that did not succeed again, as a new job."""
        with self._clients.borrow() as client:
            detail = client.job(self.id)
            if detail.row.state not in ENDED_STATES:
                raise SdkError(f"{self.id} has not ended; its state is {detail.row.state}")
            failed = [task.index for task in self.tasks() if task.state != "succeeded"]
            if not failed:
                raise SdkError(f"every task of {self.id} has succeeded")
            done = tuple(job for job, state in detail.after if state == "succeeded")
            form = retry_form(detail.spec, failed, done)
            if isinstance(form, str):
                raise SdkError(form)
            return submit_forms(self._clients, [form])[0]

    def watch(self) -> Iterator[JobRow]:
        """Yield the job's row now and after each change of state; the last row is the end.

        The owning broker pushes changes. If that broker goes away, another one is searched for the job and
        watched.
        """
        last: JobRow | None = None
        owner = ""
        while True:
            for row in self._iterate_rows(owner):
                if row != last:
                    last = row
                    yield row
                if row.state in ENDED_STATES:
                    return
                if row.owner != owner:
                    break
            if last is not None and last.owner == owner:  # the stream broke: give another broker a moment
                with self._clients.borrow() as client:
                    client.wait(self.id, WATCH_SECONDS)
            owner = last.owner if last is not None else ""

    def _iterate_rows(self, owner: str) -> Iterator[JobRow]:
        """Yield the job's row now and after each event, as long as this broker sends events."""
        target = f"/v1/events?topics=jobs&job={self.id}"
        with self._clients.borrow() as streaming:
            pieces: Iterator[bytes] = iter(())
            try:
                if owner in streaming.endpoints.context.brokers:
                    # opened before the job is read, so that no change is missed
                    _, pieces = streaming.endpoints.broker(owner).stream(target, EVENT_SECONDS_MAX)
                yield self.row()
                for piece in pieces:
                    if b"data:" in piece:
                        yield self.row()
            except NoAnswerError:
                return


class _OutputFollower(Iterator[bytes]):
    """Output of a running task, copied by a thread that pauses while nobody reads."""

    def __init__(self, clients: ClientPool, task: str, row: TaskRow, stream: str) -> None:
        self._pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(PIECES_MAX)
        self._abandoned = False
        thread = threading.Thread(
            target=self._copy, args=(clients, task, row, stream), name="hanse follow", daemon=True
        )
        thread.start()

    def write(self, piece: bytes) -> int:
        """Queue a piece for the reader. Called by the thread."""
        if self._abandoned:
            raise BrokenPipeError("the reader has stopped")
        self._pieces.put(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: no output is buffered. Called by the thread."""

    def _copy(self, clients: ClientPool, task: str, row: TaskRow, stream: str) -> None:
        end_item: BaseException | None = None
        try:
            with clients.borrow() as client:
                sink = OutputSink(self, "")  # type: ignore[arg-type]  # it has write and flush, which is enough
                copy_output(client.endpoints, task, row, LogRequest(stream, follow=True), sink)
        except BrokenPipeError:
            return
        except BaseException as error:  # noqa: BLE001  the reader raises it
            end_item = error
        self._pieces.put(end_item)

    def __next__(self) -> bytes:
        piece = self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        if piece is None:
            raise StopIteration
        return piece

    def __del__(self) -> None:
        self._abandoned = True
        while not self._pieces.empty():  # the thread may wait for a free place
            self._pieces.get_nowait()


def _end_text(task: TaskRow) -> str:
    """Describe how a task's latest attempt ended; a lost attempt has no exit code."""
    if task.code is None:
        return task.outcome or "no exit code is known"
    return f"exit code {task.code}" if task.code >= 0 else f"signal {-task.code}"


def submit_forms(clients: ClientPool, forms: list[dict[str, object]]) -> list[Job]:
    """Submit jobs in the form of job files. Raises ``JobRefusedError`` for the first that is refused."""
    with clients.borrow() as client:
        results = client.submit([with_client_id(form) for form in forms])
    for result in results:
        if not result.job:
            flaws = "; ".join(f"{flaw.field}: {flaw.rule}" for flaw in result.problems)
            raise JobRefusedError(flaws or result.refused)
    return [Job(clients, result.job) for result in results]
