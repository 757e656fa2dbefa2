"""Job of the league as an object."""

import io
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from hanse.api.rows import JobRow, TaskRow
from hanse.client.client import ENDED, WAIT_SECONDS_MAX
from hanse.client.job_form import with_client_id
from hanse.client.resubmission import form_again
from hanse.client.task_logs import Ask, Sink, copy
from hanse.client.transport import SilentError
from hanse.sdk.client_pool import LeagueDoors
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

    def __init__(self, doors: LeagueDoors, job: str) -> None:
        self._doors = doors
        self.id = job
        """Id of the job, such as ``1-7``."""

    def __repr__(self) -> str:
        return f"<hanse.Job {self.id}>"

    def row(self) -> JobRow:
        """Return the job's row in the list of jobs."""
        with self._doors.client() as client:
            return client.job(self.id).row

    @property
    def state(self) -> str:
        """State: ``queued``, ``running``, ``succeeded``, ``failed``, ``cancelled`` ..."""
        return self.row().state

    def tasks(self) -> list[TaskRow]:
        """Return the tasks by index."""
        rows: list[TaskRow] = []
        after: str | None = ""
        with self._doors.client() as client:
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
            with self._doors.client() as client:
                row = client.wait(self.id, max(0, min(WAIT_SECONDS_MAX, int(left + 0.999))))
            if row.state in ENDED:
                return row
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.id} has not ended in time; its state is {row.state}")

    def result(self, timeout: float | None = None) -> str:
        """Return the first task's standard output. Raises ``JobFailedError`` if the job did not succeed."""
        row = self.wait(timeout)
        if row.state != "succeeded":
            raise JobFailedError(self._ending(row))
        return self.logs(0, "stdout")

    def _ending(self, row: JobRow) -> str:
        said = [f"the job {self.id} {row.state}"]
        if row.cancel_reason:
            said.append(row.cancel_reason)
        for task in self.tasks():
            if task.state == "failed":
                code = f"exit code {task.code}" if (task.code or 0) >= 0 else f"signal {-(task.code or 0)}"
                said.append(f"task {task.index}: {code}{': ' if task.note else ''}{task.note}")
                break
        return "; ".join(said)

    def logs(self, task: int = 0, stream: str = "") -> str:
        """Return a task's ``stdout`` or ``stderr`` so far; with an empty ``stream``, one after the other."""
        target = io.BytesIO()
        with self._doors.client() as client:
            row = self._task(client, task)
            for one in (stream,) if stream else STREAMS:
                copy(client.doors, f"{self.id}.{task}", row, Ask(one), Sink(target, ""))
        return target.getvalue().decode(errors="replace")

    def follow(self, task: int = 0, stream: str = "stdout") -> Iterator[bytes]:
        """Yield the output of a task, as it comes, until the task ends."""
        with self._doors.client() as client:
            while not (row := self._task(client, task)).attempt:
                ended = client.wait(self.id, WATCH_SECONDS).state in ENDED
                if ended and not self._task(client, task).attempt:
                    return
        yield from _Followed(self._doors, f"{self.id}.{task}", row, stream)

    def _task(self, client: Any, task: int) -> TaskRow:
        rows = client.tasks(self.id, limit=1, after=str(task - 1) if task else "").tasks
        if not rows or rows[0].index != task:
            raise SdkError(f"{self.id} has no task {task}")
        row: TaskRow = rows[0]
        return row

    def why(self) -> str:
        """Explain why the job waits, why it runs where it runs, or why it ended."""
        with self._doors.client() as client:
            return " ".join(client.why(self.id).sentences)

    def cancel(self) -> None:
        """Cancel the job; a job that has ended stays as it is."""
        with self._doors.client() as client:
            client.cancel(self.id)

    def retry(self) -> "Job":
        """Submit the tasks that did not succeed again, as a new job."""
        with self._doors.client() as client:
            detail = client.job(self.id)
            if detail.row.state not in ENDED:
                raise SdkError(f"{self.id} has not ended; its state is {detail.row.state}")
            failed = [task.index for task in self.tasks() if task.state != "succeeded"]
            if not failed:
                raise SdkError(f"every task of {self.id} has succeeded")
            done = tuple(job for job, state in detail.after if state == "succeeded")
            form = form_again(detail.spec, failed, done)
            if isinstance(form, str):
                raise SdkError(form)
            return submitted(self._doors, [form])[0]

    def watch(self) -> Iterator[JobRow]:
        """Yield the job's row now and after each change of state; the last row is the end.

        The owning broker pushes changes. If that broker goes away, another one is searched for the job and
        watched.
        """
        seen: JobRow | None = None
        owner = ""
        while True:
            for row in self._seen(owner):
                if row != seen:
                    seen = row
                    yield row
                if row.state in ENDED:
                    return
                if row.owner != owner:
                    break
            if seen is not None and seen.owner == owner:  # the stream broke: give another broker a moment
                with self._doors.client() as client:
                    client.wait(self.id, WATCH_SECONDS)
            owner = seen.owner if seen is not None else ""

    def _seen(self, owner: str) -> Iterator[JobRow]:
        """Yield the job's row now and after each event, as long as this broker sends events."""
        target = f"/v1/events?topics=jobs&job={self.id}"
        with self._doors.client() as streaming:
            pieces: Iterator[bytes] = iter(())
            try:
                if owner in streaming.doors.context.brokers:
                    # opened before the job is read, so that no change is missed
                    _, pieces = streaming.doors.broker(owner).stream(target, EVENT_SECONDS_MAX)
                yield self.row()
                for piece in pieces:
                    if b"data:" in piece:
                        yield self.row()
            except SilentError:
                return


class _Followed(Iterator[bytes]):
    """Output of a running task, copied by a thread that pauses while nobody reads."""

    def __init__(self, doors: LeagueDoors, task: str, row: TaskRow, stream: str) -> None:
        self._pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(PIECES_MAX)
        self._given_up = False
        copying = threading.Thread(
            target=self._copy, args=(doors, task, row, stream), name="hanse follow", daemon=True
        )
        copying.start()

    def write(self, piece: bytes) -> int:
        """Queue a piece for the reader. Called by the thread."""
        if self._given_up:
            raise BrokenPipeError("the reader has stopped")
        self._pieces.put(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: no output is buffered. Called by the thread."""

    def _copy(self, doors: LeagueDoors, task: str, row: TaskRow, stream: str) -> None:
        ended: BaseException | None = None
        try:
            with doors.client() as client:
                sink = Sink(self, "")  # type: ignore[arg-type]  # it has write and flush, which is enough
                copy(client.doors, task, row, Ask(stream, following=True), sink)
        except BrokenPipeError:
            return
        except BaseException as error:  # noqa: BLE001  the reader raises it
            ended = error
        self._pieces.put(ended)

    def __next__(self) -> bytes:
        piece = self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        if piece is None:
            raise StopIteration
        return piece

    def __del__(self) -> None:
        self._given_up = True
        while not self._pieces.empty():  # the thread may wait for a free place
            self._pieces.get_nowait()


def submitted(doors: LeagueDoors, forms: list[dict[str, object]]) -> list[Job]:
    """Submit jobs in the form of job files. Raises ``JobRefusedError`` for the first that is refused."""
    with doors.client() as client:
        results = client.submit([with_client_id(form) for form in forms])
    for result in results:
        if not result.job:
            flaws = "; ".join(f"{flaw.field}: {flaw.rule}" for flaw in result.problems)
            raise JobRefusedError(flaws or result.refused)
    return [Job(doors, result.job) for result in results]
