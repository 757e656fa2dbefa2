"""Reading of traces by commands: options, errors, progress and the report about bad rows.

Progress and reports go to standard error.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.formats import open_trace
from hanse.sim.traces.line_source import STDIN
from hanse.sim.traces.read_options import CancelledRule, EstimateRule, ProcessorRule, ReadOptions, TimeUnit
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import OpenTrace

Command = TypeVar("Command", bound=Callable[..., Any])


class FileRefusedError(CommandError):
    """File that cannot be read or written."""

    exit_code = int(ExitCode.FILE)  # click's exit code where a command runs without ``hanse``

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.FILE)


@contextmanager
def trace_errors() -> Iterator[None]:
    """Turn errors of reading and writing traces into command errors."""
    try:
        yield
    except TraceError as error:
        raise FileRefusedError(str(error)) from error
    except BrokenPipeError:
        # the reader closed the pipe; the null device keeps the interpreter's last flush quiet
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open until the exit
        sys.exit(0)
    except OSError as error:
        place = error.filename or "the output"
        raise FileRefusedError(f"{place}: {error.strerror or error}") from error


def _enum_choice(kind: Any) -> click.Choice[str]:
    return click.Choice([member.value for member in kind])


def reading_options(command: Command) -> Command:
    """Add the options of every command that reads a trace."""
    options = (
        click.option(
            "--format", "form", metavar="NAME", help="Format of the trace; recognised when not given."
        ),
        click.option("--truncate-seconds", is_flag=True, help=".tr: durations cut down to whole seconds."),
        click.option(
            "--processors",
            type=_enum_choice(ProcessorRule),
            default=ProcessorRule.REQUESTED.value,
            show_default=True,
            help="SWF: number of processors to use.",
        ),
        click.option(
            "--estimates",
            type=_enum_choice(EstimateRule),
            default=EstimateRule.REQUESTED.value,
            show_default=True,
            help="SWF: estimate of a job to use.",
        ),
        click.option("--kill-at-estimate", is_flag=True, help="SWF: no job runs longer than it requested."),
        click.option(
            "--cancelled",
            type=_enum_choice(CancelledRule),
            default=CancelledRule.RAN.value,
            show_default=True,
            help="SWF: cancelled jobs to keep.",
        ),
        click.option("--skip-zero-runtime", is_flag=True, help="SWF: leave out jobs of run time 0."),
        click.option(
            "--time-unit",
            type=_enum_choice(TimeUnit),
            default=TimeUnit.AUTO.value,
            show_default=True,
            help="GAIA: unit of its times.",
        ),
        click.option(
            "--with",
            "further",
            type=click.Path(file_okay=False, path_type=Path),
            multiple=True,
            metavar="DIR",
            help="Journals of further brokers of the same league.",
        ),
        click.option("--strict", is_flag=True, help="Exit with 1 if there was a bad row."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_RULE_FIELDS: Final = tuple(
    field.name for field in msgspec.structs.fields(ReadOptions) if not field.name.startswith("whole_")
)


def open_reader(path: str, options: dict[str, Any]) -> OpenTrace:
    """Return a reader for the options of ``reading_options``, which are removed from ``options``."""
    rules = {name: options.pop(name) for name in _RULE_FIELDS}
    form, other_journals = options.pop("form"), options.pop("further")
    if path != STDIN and Path(path).is_dir():
        return open_journals([Path(path), *other_journals], form)
    if other_journals:
        raise click.UsageError("--with is for journals, and the trace is not a journal")
    return open_trace(path, form, msgspec.convert(rules, ReadOptions))


def open_journals(paths: list[Path], form: str | None = None) -> OpenTrace:
    """Return a reader of the journals in these directories."""
    from hanse.cli.journal_trace_reader import FORMAT, JournalReader, is_journal  # noqa: PLC0415  slow to import

    unreadable = [str(path) for path in paths if not is_journal(path)]
    if unreadable or form not in (None, FORMAT):
        problem = (
            f"{unreadable[0]} is a folder without a journal"
            if unreadable
            else f"a folder is not a {form} trace"
        )
        raise TraceError(
            f"{problem}: give the path of a trace file, - for standard input, or the home of a league"
        )
    return JournalReader(paths)


def progress_bar() -> Progress:
    """Return a progress bar on standard error, shown only on a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def with_progress(reader: OpenTrace) -> Iterator[JobChunk]:
    """Yield the reader's chunks, with progress."""
    with progress_bar() as progress:
        task = progress.add_task(f"reading {reader.name}", total=1.0, done="")
        for chunk in reader:
            fraction = reader.fraction
            done = f"{reader.report.jobs:,} jobs"
            progress.update(
                task, completed=fraction or 0.0, total=None if fraction is None else 1.0, done=done
            )
            yield chunk


def print_report(report: ReadReport, strict: bool) -> None:
    """Print the report on standard error; ``strict``: fail if it has a bad row."""
    for line in report.lines():
        click.echo(line, err=True)
    if strict and report.bad:
        raise CommandError("--strict: there were bad rows", ExitCode.FAILED)
