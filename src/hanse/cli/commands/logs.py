"""``hanse logs``: the output of a job's tasks, also while they run.

Standard output of a task goes to standard output and its standard error to standard error, unless one of them
is selected. Output is fetched from the cluster where the task ran.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

import click

from hanse.api.rows import TaskRow
from hanse.cli.common_options import TASK, context_option, league
from hanse.client.client import ENDED, PAGE_ROWS, Client
from hanse.client.endpoints import Doors
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.task_logs import Ask, Sink, copy

FOLLOWED_MAX: Final = 64
"""Outputs followed at once; further tasks wait for their turn."""
LOOK_SECONDS_MAX: Final = 1
"""Longest pause between two checks for newly started tasks."""
FIRST_LOOK_SECONDS: Final = 0.05
TRIES_MAX: Final = 30
"""Requests for an output that its cluster does not have yet, or whose connection was lost."""


class Output(NamedTuple):
    """Streams and attempt that are wanted."""

    streams: tuple[str, ...] = ("stdout", "stderr")
    attempt: int | None = None
    """None: the latest attempt."""


@click.command("logs")
@click.argument("job", type=TASK, metavar="JOB[.TASK]")
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing until the job ends.")
@click.option("--stdout", "only", flag_value="stdout", help="Only standard output.")
@click.option("--stderr", "only", flag_value="stderr", help="Only standard error, on standard output.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="An earlier attempt; default: the latest."
)
@context_option
def logs(job: str, following: bool, only: str | None, attempt: int | None) -> None:
    """Print the output of a job, or of one of its tasks.

    If a job has several tasks, every line begins with the task's index. Ends with 102 if there is no such job
    or no output.
    """
    wanted = Output((only,) if only else ("stdout", "stderr"), attempt)
    job, _, index = job.partition(".")
    chosen = int(index) if index else None
    with league() as client:
        if following:
            follow(client.doors, job, chosen, wanted)
            return
        _print_all(client, job, chosen, wanted)


def _print_all(client: Client, job: str, chosen: int | None, wanted: Output) -> None:
    """Print all output so far, task by task."""
    marked = chosen is None and client.job(job).row.total > 1
    begun = found = 0
    for row in _tasks(client, job, chosen):
        if not row.attempt:
            continue
        begun += 1
        for stream in wanted.streams:
            sink = Sink(_target(stream, wanted), f"[{row.index}] " if marked else "")
            if copy(client.doors, f"{job}.{row.index}", row, Ask(stream, wanted.attempt), sink):
                found += 1
    if not begun:
        which = f"{job}.{chosen}" if chosen is not None else job
        raise CommandError(
            f"{which} has not started yet",
            ExitCode.JOB_NOT_FOUND,
            f"'hanse why {job}' explains what it waits for",
        )
    if not found:
        raise CommandError(
            f"there is no output of {job}", ExitCode.JOB_NOT_FOUND, "output is kept for a limited time"
        )


def _tasks(client: Client, job: str, chosen: int | None) -> Iterator[TaskRow]:
    """Yield the tasks of a job by index, or the one that is wanted."""
    after: str | None = "" if not chosen else str(chosen - 1)
    while after is not None:
        page = client.tasks(job, after=after, limit=1_000 if chosen is None else 1)
        if chosen is not None:
            rows = [row for row in page.tasks if row.index == chosen]
            if not rows:
                total = client.job(job).row.total
                raise CommandError(
                    f"{job} has no task {chosen}", ExitCode.JOB_NOT_FOUND, f"it has {total}, counted from 0"
                )
            yield from rows
            return
        yield from page.tasks
        after = page.next


def _target(stream: str, wanted: Output) -> BinaryIO:
    plain = stream == "stdout" or len(wanted.streams) == 1
    return sys.stdout.buffer if plain else sys.stderr.buffer


# --- following ---------------------------------------------------------------------------------------------


def follow(doors: Doors, job: str, chosen: int | None, wanted: Output) -> None:
    """Print the output of a job, or of one of its tasks, until it ends."""
    _Followed(doors, job, chosen, wanted).run()


class _Followed:
    """Follower of a job: one thread for each output, and one that finds new attempts."""

    def __init__(self, doors: Doors, job: str, chosen: int | None, wanted: Output) -> None:
        self._client = Client(doors)
        self._doors = doors
        self._job = job
        self._chosen = chosen
        self._wanted = wanted
        self._outputs: dict[tuple[int, int, str], _OneOutput] = {}
        """Outputs by task, attempt and stream."""
        self._trouble: list[BaseException] = []
        self._changed = threading.Event()
        """Set when an output has ended: there may be something new."""

    def run(self) -> None:
        """Print output until the job, or the wanted task, has ended and all its output is shown."""
        total = self._client.job(self._job).row.total
        marked = self._chosen is None and total > 1
        pause = FIRST_LOOK_SECONDS
        while True:
            self._changed.clear()
            over = self._over()  # asked first: an end reported here holds for the tasks read after it
            started = self._look(marked, self._rows(over or total <= PAGE_ROWS))
            if self._trouble:
                raise self._trouble[0]
            if over and not self._left():
                return
            pause = FIRST_LOOK_SECONDS if started else min(2 * pause, LOOK_SECONDS_MAX)
            self._changed.wait(pause)

    def _over(self) -> bool:
        if self._chosen is None:
            return self._client.job(self._job).row.state in ENDED
        return all(row.state in ENDED for row in _tasks(self._client, self._job, self._chosen))

    def _left(self) -> bool:
        """True if more output may come: from an open stream, or from one to ask for once more.

        An attempt whose output never came is given up when the task has a later one.
        """
        return any(output.running or (output.open and output.latest) for output in self._outputs.values())

    def _rows(self, everything: bool) -> Iterable[TaskRow]:
        """Return the tasks to follow: of a large job only the running ones, and all when it has ended."""
        if everything or self._chosen is not None:
            return _tasks(self._client, self._job, self._chosen)
        return self._client.tasks(self._job, state="running").tasks

    def _look(self, marked: bool, rows: Iterable[TaskRow]) -> bool:
        """Follow newly started attempts, up to ``FOLLOWED_MAX``; True if there were any."""
        started = False
        running = sum(output.running for output in self._outputs.values())
        for output in self._outputs.values():
            output.latest = False
        for row in rows:
            attempt = self._wanted.attempt or row.attempt
            if not row.attempt >= attempt > 0 or row.state in ("blocked", "queued", "placed"):
                continue
            for stream in self._wanted.streams:
                sink = Sink(_target(stream, self._wanted), f"[{row.index}] " if marked else "")
                output = self._outputs.setdefault((row.index, attempt, stream), _OneOutput(sink))
                output.latest = True
                if output.open and not output.running and running < FOLLOWED_MAX:
                    started = True
                    running += 1
                    self._start(output, row, Ask(stream, self._wanted.attempt, following=True))
        return started

    def _start(self, output: "_OneOutput", row: TaskRow, ask: Ask) -> None:
        output.running = True
        output.tries += 1
        threading.Thread(target=self._copy, args=(output, row, ask), daemon=True).start()

    def _copy(self, output: "_OneOutput", row: TaskRow, ask: Ask) -> None:
        """Copy one output, in its own thread with its own connections."""
        doors = self._doors.another()
        try:
            found = copy(doors, f"{self._job}.{row.index}", row, ask, output.sink)
            output.done = found or row.state in ENDED
        except BaseException as error:  # noqa: BLE001  no failure in a thread may be lost
            self._trouble.append(error)
        finally:
            doors.close()
            output.running = False
            self._changed.set()


class _OneOutput:
    """One stream of one attempt, and the progress of its copy."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.running = False
        self.done = False
        self.tries = 0
        self.latest = True
        """True if the last check found this attempt; an earlier one is not asked for again."""

    @property
    def open(self) -> bool:
        """True if more of the output may come."""
        return self.running or not (self.done or self.tries >= TRIES_MAX)
