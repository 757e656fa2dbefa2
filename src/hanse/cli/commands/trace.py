"""``hanse trace``: conversion, description, sampling and generation of traces.

Results go to standard output or to the named file; progress and reports about bad rows go to standard error.
Exit codes as everywhere (``hanse.client.exit_codes``): 74 when a trace cannot be read or written, 1 when
``--strict`` found bad rows, 2 for bad usage.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.sim.traces.chunk import SECOND, JobChunk, concatenate, sort_by_arrival
from hanse.sim.traces.describe import TraceDescription, format_figure
from hanse.sim.traces.formats import open_trace, usable_formats
from hanse.sim.traces.generate import FAMILY_NAMES, GeneratorSettings
from hanse.sim.traces.generate import generate as generated
from hanse.sim.traces.line_source import STDIN, TraceSource
from hanse.sim.traces.node_lists import NodeTable, is_node_list, read_nodes
from hanse.sim.traces.read_options import CancelledRule, EstimateRule, ProcessorRule, ReadOptions, TimeUnit
from hanse.sim.traces.read_report import TraceError
from hanse.sim.traces.reader import OpenTrace, read_head
from hanse.sim.traces.sample import Sampling
from hanse.sim.traces.sample import sample as sampled
from hanse.sim.traces.writers import WRITABLE_FORMS, Marks, TraceWriter

Command = TypeVar("Command", bound=Callable[..., Any])
SUMMARY_KEYS = ("mean", "min", "p10", "p50", "p90", "p99", "p999", "max")
DISTRIBUTIONS = {
    "tasks_per_job": "tasks of a job",
    "task_seconds": "task duration, s",
    "interarrival_seconds": "between arrivals, s",
}


class FileRefusedError(CommandError):
    """File that cannot be read or written."""

    exit_code = int(ExitCode.FILE)  # click's exit code where a command runs without ``hanse``

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.FILE)


@contextmanager
def _command_errors() -> Iterator[None]:
    """Turn errors into command errors."""
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


def _reading_options(command: Command) -> Command:
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


_RULE_FIELDS = tuple(
    field.name for field in msgspec.structs.fields(ReadOptions) if not field.name.startswith("whole_")
)


def _open_reader(path: str, options: dict[str, Any]) -> OpenTrace:
    """Return a reader for the options of ``_reading_options``, which are removed from ``options``."""
    rules = {name: options.pop(name) for name in _RULE_FIELDS}
    form, other_journals = options.pop("form"), options.pop("further")
    if path != STDIN and Path(path).is_dir():
        return open_journals([Path(path), *other_journals], form)
    if other_journals:
        raise click.UsageError("--with is for journals, and the trace is not a journal")
    return open_trace(path, form, msgspec.convert(rules, ReadOptions))


def open_journals(paths: list[Path], form: str | None = None) -> OpenTrace:
    """Return a reader of the journals in these directories."""
    from hanse.cli.journal_trace import FORMAT, JournalReader, is_journal  # noqa: PLC0415  slow to import

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


def _progress_bar() -> Progress:
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


def _with_progress(reader: OpenTrace) -> Iterator[JobChunk]:
    """Yield the reader's chunks, with progress."""
    with _progress_bar() as progress:
        task = progress.add_task(f"reading {reader.name}", total=1.0, done="")
        for chunk in reader:
            fraction = reader.fraction
            done = f"{reader.report.jobs:,} jobs"
            progress.update(
                task, completed=fraction or 0.0, total=None if fraction is None else 1.0, done=done
            )
            yield chunk


def _print_report(reader: OpenTrace, strict: bool) -> None:
    """Print the report on standard error."""
    for line in reader.report.lines():
        click.echo(line, err=True)
    if strict and reader.report.bad:
        raise CommandError("--strict: there were bad rows", ExitCode.FAILED)


def _with_marks(
    reader: OpenTrace, chunks: Iterable[JobChunk], begin: int = 0
) -> tuple[Iterable[JobChunk], Marks]:
    """Return the chunks, and the metadata of the trace that Hanse's own formats keep.

    The first chunk is read for it, because only then the trace's beginning is known. ``begin``: how much
    later the chunks begin than the trace, in microseconds.
    """
    stream = iter(chunks)
    first = next(stream, None)
    marks: Marks = {}
    if reader.unix_start is not None and reader.origin is not None:
        marks["unix_start"] = str(reader.unix_start + (reader.origin + begin) // SECOND)
    if reader.nodes_hint is not None:
        marks["nodes"] = str(reader.nodes_hint)
    if not reader.has_durations:
        marks["durations"] = "no"
    return (stream if first is None else chain([first], stream)), marks


def _write_trace(chunks: Iterable[JobChunk], out: str, form: str | None, marks: Marks) -> None:
    with TraceWriter(out, form, marks) as writer:
        for chunk in chunks:
            writer.write(chunk)
    click.echo(f"{writer.jobs:,} jobs, {writer.tasks:,} tasks written to {out} ({writer.form})", err=True)


@click.group()
def trace() -> None:
    """Convert, describe, sample and generate traces of jobs."""


@trace.command()
@click.argument("source", metavar="TRACE")
@click.argument("out", metavar="OUT")
@click.option("--to", type=click.Choice(WRITABLE_FORMS), help="Format to write.  [default: by OUT's name]")
@click.option("--sort", is_flag=True, help="Put jobs in order of arrival (holds the whole trace in memory).")
@_reading_options
def convert(source: str, out: str, to: str | None, sort: bool, strict: bool, **options: Any) -> None:
    """Write TRACE as Hanse's CSV or Parquet, or as .tr.

    TRACE and OUT may be - for standard input and output. TRACE may be the home of a league, or the directory
    of a broker in it: then its jobs come from the brokers' journals. .tr keeps arrivals and durations only.
    """
    with _command_errors():
        reader = _open_reader(source, options)
        chunks: Iterable[JobChunk] = _with_progress(reader)
        if sort:
            chunks = [sort_by_arrival(concatenate(list(chunks)))]
        marked, marks = _with_marks(reader, chunks)
        _write_trace(marked, out, to, marks)
        if reader.report.disordered and not sort:
            click.echo("use --sort to put the jobs in order of arrival", err=True)
        _print_report(reader, strict)


@trace.command()
@click.argument("source", metavar="TRACE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_reading_options
def describe(source: str, as_json: bool, strict: bool, **options: Any) -> None:
    """Describe TRACE: counts, span, demand, percentiles, bad rows.

    TRACE may also be a list of machines (Alibaba GPU 2023, Google 2019).
    """
    with _command_errors():
        if _is_node_list(source, options["form"]):
            _describe_nodes(source, read_nodes(source), as_json, strict)
            return
        reader = _open_reader(source, options)
        description = TraceDescription()
        for chunk in _with_progress(reader):
            description.add(chunk)
        facts = {
            "trace": source,
            "format": reader.format,
            **description.as_dict(),
            "nodes_hint": reader.nodes_hint,
            "has_durations": reader.has_durations,
            "report": msgspec.to_builtins(reader.report),
        }
        if as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())
        else:
            _print_facts(facts)
        _print_report(reader, strict)


def _is_node_list(source: str, form: str | None) -> bool:
    is_file = source != STDIN and form is None and not Path(source).is_dir()
    return is_file and is_node_list(read_head(TraceSource(source)))


def _print_facts(facts: dict[str, Any]) -> None:
    console = Console()
    console.print(f"{facts['trace']} ({facts['format']})", highlight=False, markup=False, soft_wrap=True)
    table = Table(show_header=False)
    stated = facts["jobs_that_state"]
    rows = {
        "jobs": facts["jobs"],
        "tasks": facts["tasks"],
        "span, s": facts["span_seconds"],
        "work, s of one slot": facts["work_seconds"],
        "mean demand, slots": facts["mean_demand_slots"],
        "mean demand, CPUs": facts["mean_demand_cpus"] if stated["cpu"] else None,
        "mean demand, GPUs": facts["mean_demand_gpus"] if stated["gpu"] else None,
        "jobs with an estimate": stated["estimate"],
        "users": facts["users"],
        "sites": facts["sites"],
        "DAG edges": facts["dag_edges"],
        "nodes, says the trace": facts["nodes_hint"],
        "bad rows": facts["report"]["bad"],
    }
    for key, value in rows.items():
        table.add_row(key, format_figure(value))
    if not facts["has_durations"]:
        table.add_row("durations", "not stated")
    console.print(table)
    distributions = Table("", *DISTRIBUTIONS.values())
    for key in SUMMARY_KEYS:
        distributions.add_row(key, *(format_figure(facts[kind][key]) for kind in DISTRIBUTIONS))
    console.print(distributions)


def _describe_nodes(source: str, nodes: NodeTable, as_json: bool, strict: bool) -> None:
    facts = {
        "nodes": source,
        "machines": nodes.node_count,
        "gpus": nodes.gpu_count,
        "cpus": float((nodes.cpu * nodes.count).sum()) / 1_000,
        "memory_bytes": float((nodes.memory.astype(float) * nodes.count).sum()),
        "gpu_models": sorted({nodes.names[index] for index in nodes.model.tolist() if index >= 0}),
        "sites": sorted({nodes.names[index] for index in nodes.site.tolist() if index >= 0}),
        "report": msgspec.to_builtins(nodes.report),
    }
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())
    else:
        click.echo(f"{source} (list of machines)")
        table = Table(show_header=False)
        for key in ("machines", "cpus", "gpus", "memory_bytes"):
            table.add_row(key, f"{facts[key]:,.0f}")
        for key in ("gpu_models", "sites"):
            table.add_row(key, ", ".join(facts[key]) or "-")
        Console().print(table)
    for line in nodes.report.lines():
        click.echo(line, err=True)
    if strict and nodes.report.bad:
        raise CommandError("--strict: there were bad rows", ExitCode.FAILED)


@trace.command()
@click.argument("source", metavar="TRACE")
@click.argument("out", metavar="OUT")
@click.option("--every", type=click.IntRange(min=1), default=1, help="Keep every k-th job.")
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Keep about this share of the jobs, by the seed.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--from", "begin", type=click.FloatRange(min=0), default=0.0, help="Keep arrivals from here, s."
)
@click.option("--until", type=click.FloatRange(min=0), help="Keep arrivals before this, s.")
@click.option("--to", type=click.Choice(WRITABLE_FORMS), help="Format to write.  [default: by OUT's name]")
@_reading_options
def sample(  # noqa: PLR0913 - one argument per option, as click hands them over
    *,
    source: str,
    out: str,
    every: int,
    fraction: float,
    seed: int,
    begin: float,
    until: float | None,
    to: str | None,
    strict: bool,
    **options: Any,
) -> None:
    """Write a part of TRACE: every k-th job, a fraction by seed, a window of time.

    A DAG stays or goes as a whole. A window's arrivals count from its beginning.
    """
    if every == 1 and fraction == 1.0 and begin == 0 and until is None:
        raise click.UsageError("say what to keep: --every K, --fraction F, --from S or --until S")
    if until is not None and until <= begin:
        raise click.UsageError(f"--until {until:g} is not after --from {begin:g}: the window is empty")
    sampling = Sampling(
        every=every,
        fraction=fraction,
        seed=seed,
        begin=round(begin * SECOND),
        end=None if until is None else round(until * SECOND),
    )
    with _command_errors():
        reader = _open_reader(source, options)
        marked, marks = _with_marks(reader, sampled(_with_progress(reader), sampling), sampling.begin)
        _write_trace(marked, out, to, marks)
        _print_report(reader, strict)


@trace.command()
@click.option("--family", type=click.Choice(FAMILY_NAMES), default=FAMILY_NAMES[0], show_default=True)
@click.option("--jobs", type=click.IntRange(min=2), default=1_000, show_default=True)
@click.option("--load", type=click.FloatRange(min=0, min_open=True), default=0.8, show_default=True)
@click.option("--nodes", type=click.IntRange(min=1), default=1_000, show_default=True, help="Slots to load.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--tasks-per-job", type=click.IntRange(min=1), help="poisson only; 10 when not given.")
@click.option(
    "--mean-seconds", type=click.FloatRange(min=0, min_open=True), help="poisson only; 10 when not given."
)
@click.option("--out", default="-", show_default=True, help="File to write; - is standard output.")
@click.option("--to", type=click.Choice(WRITABLE_FORMS), help="Format to write.  [default: by --out's name]")
def generate(  # noqa: PLR0913 - one argument per option, as click hands them over
    *,
    family: str,
    jobs: int,
    load: float,
    nodes: int,
    seed: int,
    tasks_per_job: int | None,
    mean_seconds: float | None,
    out: str,
    to: str | None,
) -> None:
    """Generate a trace: Poisson arrivals that load NODES slots to LOAD, sizes and durations of a family."""
    if family != FAMILY_NAMES[0] and (tasks_per_job is not None or mean_seconds is not None):
        raise click.UsageError(
            f"--tasks-per-job and --mean-seconds are for the family {FAMILY_NAMES[0]}; {family} has its own"
        )
    wish = GeneratorSettings(
        family=family,
        jobs=jobs,
        load=load,
        nodes=nodes,
        seed=seed,
        tasks_per_job=10 if tasks_per_job is None else tasks_per_job,
        mean_seconds=10.0 if mean_seconds is None else mean_seconds,
    )
    with _command_errors():
        _write_trace(_generate_with_progress(wish), out, to, {"nodes": str(nodes)})


def _generate_with_progress(wish: GeneratorSettings) -> Iterator[JobChunk]:
    """Yield the generated chunks, with progress."""
    with _progress_bar() as progress:
        task = progress.add_task(f"making {wish.family}", total=wish.jobs, done="computing the load")
        for chunk in generated(wish):
            progress.update(task, advance=chunk.jobs, done=f"{chunk.jobs + int(chunk.job[0]):,} jobs")
            yield chunk


@trace.command()
def formats() -> None:
    """List the formats that can be read."""
    from hanse.cli.journal_trace import ABOUT, FORMAT  # noqa: PLC0415  slow to import

    for name, about in (*((form.name, form.description) for form in usable_formats()), (FORMAT, ABOUT)):
        click.echo(f"{name:<13} {about}")


if __name__ == "__main__":
    trace(prog_name="hanse trace")
