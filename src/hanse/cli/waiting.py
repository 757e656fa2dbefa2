"""Waiting for jobs to end, with progress on a terminal, and the exit status of ended jobs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from hanse.api.row_records import JobRow
from hanse.cli.common_options import is_on_terminal
from hanse.cli.formatting import elapsed_text
from hanse.client.client import ENDED_STATES, WAIT_SECONDS_MAX, LeagueClient
from hanse.client.errors import CommandError, warn
from hanse.client.exit_codes import ExitCode

PROGRESS_SECONDS: Final = 1
"""Seconds between progress updates on a terminal; elsewhere one request waits up to a minute."""
SILENCE_SECONDS_MAX: Final = 60.0
"""Seconds without an answer after which waiting ends: enough time to restart the league."""
PAUSE_SECONDS_MAX: Final = 2.0
"""Seconds between two attempts to reach a silent league; the first pause is a tenth of it."""
DEADLINE_REASON: Final = "deadline"
"""Text that the reason of a cancellation contains if the job's deadline caused it."""


def status_of(row: JobRow) -> ExitCode:
    """Return the exit status for the end of a job."""
    if row.state == "succeeded":
        return ExitCode.OK
    if row.state == "failed":
        return ExitCode.JOB_FAILED
    if row.state == "cancelled":
        late = DEADLINE_REASON in row.cancel_reason
        return ExitCode.JOB_DEADLINE if late else ExitCode.JOB_CANCELLED
    return ExitCode.JOB_NOT_FINISHED


def first_failure(statuses: list[ExitCode]) -> ExitCode:
    """Return the status for several jobs: that of the first, in the given order, that did not succeed."""
    return next((status for status in statuses if status is not ExitCode.OK), ExitCode.OK)


def wait_for_jobs(client: LeagueClient, jobs: list[str], seconds: float | None) -> list[JobRow]:
    """Return the jobs when all have ended; raise with ``TIMEOUT`` when the time is over before."""
    deadline = None if seconds is None else time.monotonic() + seconds
    rows: list[JobRow] = []
    try:
        with _progress_display(len(jobs)) as show:
            for job in jobs:
                rows.append(_wait_for_job(client, job, deadline, lambda row: show(rows, row)))
    except KeyboardInterrupt:
        left = [job for job in jobs if job not in [row.id for row in rows]]
        warn(f"no longer waiting; {', '.join(left)} goes on ('hanse cancel' ends it)")
        raise
    return rows


def _wait_for_job(
    client: LeagueClient, job: str, deadline: float | None, show: Callable[[JobRow], None]
) -> JobRow:
    wait_seconds_max = PROGRESS_SECONDS if is_on_terminal() else WAIT_SECONDS_MAX
    silent_since: float | None = None
    pause = PAUSE_SECONDS_MAX / 10
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        wait_seconds = wait_seconds_max if left is None else max(0, min(wait_seconds_max, int(left + 0.999)))
        try:
            row = client.wait(job, wait_seconds)
        except CommandError as error:
            now = time.monotonic()
            silent_since = silent_since or now
            may_retry = error.status == ExitCode.UNAVAILABLE and now - silent_since < SILENCE_SECONDS_MAX
            if not may_retry or (deadline is not None and now >= deadline):
                raise
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
            continue
        silent_since, pause = None, PAUSE_SECONDS_MAX / 10
        show(row)
        if row.state in ENDED_STATES:
            return row
        if deadline is not None and time.monotonic() >= deadline:
            raise CommandError(
                f"{job} has not ended in time: it is {row.state}",
                ExitCode.TIMEOUT,
                f"it goes on; 'hanse wait {job}' waits again, 'hanse why {job}' explains its state",
            )


ShowProgress = Callable[[list[JobRow], JobRow], None]


@contextmanager
def _progress_display(count: int) -> Iterator[ShowProgress]:
    """Yield a function that shows the progress of the jobs on a terminal; elsewhere it does nothing."""
    if not is_on_terminal():
        yield lambda _rows, _row: None
        return
    from rich.console import Console  # noqa: PLC0415  only a terminal needs it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  as above

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("waiting", total=None, said="")

        def show(done: list[JobRow], row: JobRow) -> None:
            ended = row.succeeded + row.failed + row.cancelled
            name = f"{row.id} ({len(done) + 1} of {count})" if count > 1 else row.id
            text = f"{ended}/{row.total} ended, {row.running} running"
            bar.update(line, description=name, total=row.total, completed=ended, said=text)

        yield show


def print_end(row: JobRow) -> None:
    """Print how a job ended, in one line."""
    parts = [f"{count} {word}" for word, count in (
        ("succeeded", row.succeeded), ("failed", row.failed), ("cancelled", row.cancelled)
    ) if count]  # fmt: skip
    reason = f"; {row.cancel_reason}" if row.cancel_reason else ""
    click.echo(
        f"{row.id} {row.name} {row.state} after {elapsed_text(row.submitted, row.ended)} "
        f"({', '.join(parts)}){reason}"
    )
    if row.state == "failed":
        click.echo(f"  'hanse show {row.id}' shows how, 'hanse retry {row.id}' tries again", err=True)
