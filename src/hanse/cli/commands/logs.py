"""``hanse logs``: the output of a job's tasks, also while they run.

Standard output of a task goes to standard output and its standard error to standard error, unless one of them
is selected. Output is fetched from the cluster where the task ran.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

import click

from hanse.api.row_records import TaskRow
from hanse.cli.common_options import TASK, context_option, league_client
from hanse.client.client import ENDED_STATES, LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.job_listing import PAGE_ROWS
from hanse.client.task_logs import LogRequest, OutputSink, copy_output

FOLLOWED_MAX: Final = 64
"""Outputs followed at once; further tasks wait for their turn."""
POLL_SECONDS_MAX: Final = 1
"""Longest pause between two checks for newly started tasks."""
FIRST_POLL_SECONDS: Final = 0.05
TRIES_MAX: Final = 30
"""Requests for an output that its cluster does not have yet, or whose connection was lost."""


class WantedOutput(NamedTuple):
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
    wanted = WantedOutput((only,) if only else ("stdout", "stderr"), attempt)
    job, _, index = job.partition(".")
    chosen = int(index) if index else None
    with league_client() as client:
        if following:
            follow(client.endpoints, job, chosen, wanted)
            return
        _print_all(client, job, chosen, wanted)


def _print_all(client: LeagueClient, job: str, chosen: int | None, wanted: WantedOutput) -> None:
    """Print all output so far, task by task."""
    marked = chosen is None and client.job(job).row.total > 1
    started = copied = 0
    for row in _tasks(client, job, chosen):
        if not row.attempt:
            continue
        started += 1
        for stream in wanted.streams:
            sink = OutputSink(_target_stream(stream, wanted), f"[{row.index}] " if marked else "")
            if copy_output(
                client.endpoints, f"{job}.{row.index}", row, LogRequest(stream, wanted.attempt), sink
            ):
                copied += 1
    if not started:
        name = f"{job}.{chosen}" if chosen is not None else job
        raise CommandError(
            f"{name} has not started yet",
            ExitCode.JOB_NOT_FOUND,
            f"'hanse why {job}' explains what it waits for",
        )
    if not copied:
        raise CommandError(
            f"there is no output of {job}", ExitCode.JOB_NOT_FOUND, "output is kept for a limited time"
        )


def _tasks(client: LeagueClient, job: str, chosen: int | None) -> Iterator[TaskRow]:
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


def _target_stream(stream: str, wanted: WantedOutput) -> BinaryIO:
    is_standard_output = stream == "stdout" or len(wanted.streams) == 1
    return sys.stdout.buffer if is_standard_output else sys.stderr.buffer


# --- following ---------------------------------------------------------------------------------------------


def follow(endpoints: Endpoints, job: str, chosen: int | None, wanted: WantedOutput) -> None:
    """Print the output of a job, or of one of its tasks, until it ends."""
    _JobFollower(endpoints, job, chosen, wanted).run()


class _JobFollower:
    """Follower of a job: one thread for each output, and one that finds new attempts."""

    def __init__(self, endpoints: Endpoints, job: str, chosen: int | None, wanted: WantedOutput) -> None:
        self._client = LeagueClient(endpoints)
        self._endpoints = endpoints
        self._job = job
        self._chosen = chosen
        self._wanted = wanted
        self._outputs: dict[tuple[int, int, str], _FollowedOutput] = {}
        """Outputs by task, attempt and stream."""
        self._errors: list[BaseException] = []
        self._changed = threading.Event()
        """Set when an output has ended: there may be something new."""

    def run(self) -> None:
        """Print output until the job, or the wanted task, has ended and all its output is shown."""
        total = self._client.job(self._job).row.total
        marked = self._chosen is None and total > 1
        pause = FIRST_POLL_SECONDS
        while True:
            self._changed.clear()
            ended = self._has_ended()  # asked first: an end reported here holds for the tasks read after it
            started = self._follow_started(marked, self._tasks_to_follow(ended or total <= PAGE_ROWS))
            if self._errors:
                raise self._errors[0]
            if ended and not self._has_more_output():
                return
            pause = FIRST_POLL_SECONDS if started else min(2 * pause, POLL_SECONDS_MAX)
            self._changed.wait(pause)

    def _has_ended(self) -> bool:
        if self._chosen is None:
            return self._client.job(self._job).row.state in ENDED_STATES
        return all(row.state in ENDED_STATES for row in _tasks(self._client, self._job, self._chosen))

    def _has_more_output(self) -> bool:
        """True if more output may come: from an open stream, or from one to ask for once more.

        An attempt whose output never came is given up when the task has a later one.
        """
        return any(
            output.running or (output.is_open and output.is_latest) for output in self._outputs.values()
        )

    def _tasks_to_follow(self, everything: bool) -> Iterable[TaskRow]:
        """Return the tasks to follow: of a large job only the running ones, and all when it has ended."""
        if everything or self._chosen is not None:
            return _tasks(self._client, self._job, self._chosen)
        return self._client.tasks(self._job, state="running").tasks

    def _follow_started(self, marked: bool, rows: Iterable[TaskRow]) -> bool:
        """Follow newly started attempts, up to ``FOLLOWED_MAX``; True if there were any."""
        started = False
        running = sum(output.running for output in self._outputs.values())
        for output in self._outputs.values():
            output.is_latest = False
        for row in rows:
            attempt = self._wanted.attempt or row.attempt
            if not row.attempt >= attempt > 0 or row.state in ("blocked", "queued", "placed"):
                continue
            for stream in self._wanted.streams:
                sink = OutputSink(_target_stream(stream, self._wanted), f"[{row.index}] " if marked else "")
                output = self._outputs.setdefault((row.index, attempt, stream), _FollowedOutput(sink))
                output.is_latest = True
                if output.is_open and not output.running and running < FOLLOWED_MAX:
                    started = True
                    running += 1
                    self._start_thread(output, row, LogRequest(stream, self._wanted.attempt, follow=True))
        return started

    def _start_thread(self, output: "_FollowedOutput", row: TaskRow, ask: LogRequest) -> None:
        output.running = True
        output.tries += 1
        threading.Thread(target=self._copy, args=(output, row, ask), daemon=True).start()

    def _copy(self, output: "_FollowedOutput", row: TaskRow, ask: LogRequest) -> None:
        """Copy one output, in its own thread with its own connections."""
        endpoints = self._endpoints.copy()
        try:
            copied = copy_output(endpoints, f"{self._job}.{row.index}", row, ask, output.sink)
            output.done = copied or row.state in ENDED_STATES
        except BaseException as error:  # noqa: BLE001  no failure in a thread may be lost
            self._errors.append(error)
        finally:
            endpoints.close()
            output.running = False
            self._changed.set()


class _FollowedOutput:
    """One stream of one attempt, and the progress of its copy."""

    def __init__(self, sink: OutputSink) -> None:
        self.sink = sink
        self.running = False
        self.done = False
        self.tries = 0
        self.is_latest = True
        """True if the last check found this attempt; an earlier one is not asked for again."""

    @property
    def is_open(self) -> bool:
        """True if more of the output may come."""
        return self.running or not (self.done or self.tries >= TRIES_MAX)
