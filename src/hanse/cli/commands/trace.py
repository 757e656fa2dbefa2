"""``hanse trace``: conversion, description, sampling and generation of traces.

Results go to standard output or to the named file; progress and reports about bad rows go to standard error.
Exit codes as everywhere (``hanse.client.exit_codes``): 74 when a trace cannot be read or written, 1 when
``--strict`` found bad rows, 2 for bad usage.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from hanse.cli.trace_description import print_description, print_nodes
from hanse.cli.trace_reading import (
    open_reader,
    print_report,
    progress_bar,
    reading_options,
    trace_errors,
    with_progress,
)
from hanse.sim.traces.chunk import SECOND, JobChunk, concatenate, sort_by_arrival
from hanse.sim.traces.describe import TraceDescription
from hanse.sim.traces.formats import usable_formats
from hanse.sim.traces.generate import FAMILY_NAMES, GeneratorSettings
from hanse.sim.traces.generate import generate as generated
from hanse.sim.traces.line_source import STDIN, TraceSource
from hanse.sim.traces.node_lists import is_node_list, read_nodes
from hanse.sim.traces.reader import OpenTrace, read_head
from hanse.sim.traces.sample import Sampling
from hanse.sim.traces.sample import sample as sampled
from hanse.sim.traces.writers import WRITABLE_FORMS, Marks, TraceWriter


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
@reading_options
def convert(source: str, out: str, to: str | None, sort: bool, strict: bool, **options: Any) -> None:
    """Write TRACE as Hanse's CSV or Parquet, or as .tr.

    TRACE and OUT may be - for standard input and output. TRACE may be the home of a league, or the directory
    of a broker in it: then its jobs come from the brokers' journals. .tr keeps arrivals and durations only.
    """
    with trace_errors():
        reader = open_reader(source, options)
        chunks: Iterable[JobChunk] = with_progress(reader)
        if sort:
            chunks = [sort_by_arrival(concatenate(list(chunks)))]
        marked, marks = _with_marks(reader, chunks)
        _write_trace(marked, out, to, marks)
        if reader.report.disordered and not sort:
            click.echo("use --sort to put the jobs in order of arrival", err=True)
        print_report(reader.report, strict)


@trace.command()
@click.argument("source", metavar="TRACE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reading_options
def describe(source: str, as_json: bool, strict: bool, **options: Any) -> None:
    """Describe TRACE: counts, span, demand, percentiles, bad rows.

    TRACE may also be a list of machines (Alibaba GPU 2023, Google 2019).
    """
    with trace_errors():
        if _is_node_list(source, options["form"]):
            nodes = read_nodes(source)
            print_nodes(source, nodes, as_json)
            print_report(nodes.report, strict)
            return
        reader = open_reader(source, options)
        description = TraceDescription()
        for chunk in with_progress(reader):
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
            print_description(facts)
        print_report(reader.report, strict)


def _is_node_list(source: str, form: str | None) -> bool:
    is_file = source != STDIN and form is None and not Path(source).is_dir()
    return is_file and is_node_list(read_head(TraceSource(source)))


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
@reading_options
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
    with trace_errors():
        reader = open_reader(source, options)
        marked, marks = _with_marks(reader, sampled(with_progress(reader), sampling), sampling.begin)
        _write_trace(marked, out, to, marks)
        print_report(reader.report, strict)


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
    with trace_errors():
        _write_trace(_generate_with_progress(wish), out, to, {"nodes": str(nodes)})


def _generate_with_progress(wish: GeneratorSettings) -> Iterator[JobChunk]:
    """Yield the generated chunks, with progress."""
    with progress_bar() as progress:
        task = progress.add_task(f"making {wish.family}", total=wish.jobs, done="computing the load")
        for chunk in generated(wish):
            progress.update(
                task, advance=chunk.job_count, done=f"{chunk.job_count + int(chunk.job[0]):,} jobs"
            )
            yield chunk


@trace.command()
def formats() -> None:
    """List the formats that can be read."""
    from hanse.cli.journal_trace_reader import ABOUT, FORMAT  # noqa: PLC0415  slow to import

    for name, about in (*((form.name, form.description) for form in usable_formats()), (FORMAT, ABOUT)):
        click.echo(f"{name:<13} {about}")


if __name__ == "__main__":
    trace(prog_name="hanse trace")
