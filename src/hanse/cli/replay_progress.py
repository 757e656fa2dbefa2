"""Progress of ``hanse replay`` and ``hanse sweep``: a bar or lines of text, until Ctrl-C."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from hanse.sim.replay.registry import ReplayPolicy
from hanse.sim.replay.run_records import Progress as Watch
from hanse.sim.replay.run_records import ReplayWorkload
from hanse.sim.replay.whole_job_policies import BatchPolicy, BatchTrace

TEXT_PROGRESS_LINES: Final = 10
"""Progress lines of a run without a terminal."""


class InterruptFlag:
    """Flag set by Ctrl-C. The second Ctrl-C ends the program at once."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self.is_set

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def catch_interrupts(self) -> Iterator[None]:
        """Catch Ctrl-C for the time of a block."""
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def progress_bar(console: Console, wanted: bool | None) -> Progress:
    """Return a progress bar, which is shown as wanted; by default on a terminal only."""
    is_shown = console.is_terminal if wanted is None else wanted
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("left"),
        TimeRemainingColumn(), console=console, disable=not is_shown, transient=True,
    )  # fmt: skip


def progress_watcher(
    bar: Progress, workload: ReplayWorkload | BatchTrace, stop: InterruptFlag, *, plain: bool
) -> Any:
    """Return a function that adds a progress line for a run, and stops it on Ctrl-C; ``plain``: it also
    prints text lines now and then, if there is no terminal."""

    def watch(policy: ReplayPolicy | BatchPolicy, seed: int) -> Watch:
        line = bar.add_task(f"{policy.name} seed {seed}", total=workload.task_count)
        started, last_step = time.monotonic(), 0

        def on_tasks_started(tasks: int) -> bool:
            nonlocal last_step
            bar.update(line, completed=tasks)
            step = TEXT_PROGRESS_LINES * tasks // max(1, workload.task_count)
            if plain and not bar.console.is_terminal and step > last_step:
                last_step = step
                left = (time.monotonic() - started) * (workload.task_count - tasks) / tasks
                name = f"{policy.name} seed {seed}"
                click.echo(
                    f"{name}: {100 * tasks // workload.task_count} % begun, {left:.0f} s left", err=True
                )
            return not stop.is_set

        return on_tasks_started

    return watch
