"""``hanse replay`` and ``hanse sweep``: a trace under several policies, or over a grid of settings."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from hanse.cli.commands.trace import FileRefusedError, open_journals
from hanse.cli.common_options import TextParam
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.registry import NODE_RANKERS, QUEUE_ORDERS, Registry
from hanse.sim.replay import report as reports
from hanse.sim.replay.confidence_intervals import mean_with_interval
from hanse.sim.replay.execution import REPEATS_MAX, ReplayRun, run_policies, summarise, write_json
from hanse.sim.replay.records import ENGINES, ReplayError, ReplaySettings, ReplayWorkload
from hanse.sim.replay.records import Progress as Watch
from hanse.sim.replay.registry import ReplayPolicy, policies, select_policies
from hanse.sim.replay.sweep import SweepGrid, read_finished_runs, run_sweep
from hanse.sim.replay.trace_workload import scale_to_load, workload_from_chunk
from hanse.sim.replay.whole_job_policies import (
    FAMILIES,
    BatchPolicy,
    BatchTrace,
    batch_names,
    select_batch_policies,
)
from hanse.sim.replay.whole_job_policies import scale_to_load as batch_at_load
from hanse.sim.traces import JobChunk, ReadOptions, ReadReport, TraceError, load_from_reader, open_trace

BAD_ROWS_SHOWN: Final = 5
WITHOUT_FAULTS: Final = " unbroken"
"""Suffix of the name of a policy that ran without the faults, for comparison."""
FAULT_COSTS: Final = {
    "delay_mean": "mean delay, s", "delay_p99": "p99, s", "makespan": "makespan, s",
    "messages_per_task": "messages a task",
}  # fmt: skip
"""Costs of faults, with their labels."""
TEXT_PROGRESS_LINES: Final = 10
"""Progress lines of a run without a terminal."""
LOAD_MIN: Final = 1e-6
"""Least offered load of a sweep."""


class PolicyName(TextParam):
    """Name of a policy: of our own or of an installed package, which is found when it is needed."""

    def __init__(self, name: str, registry: Registry[Any]) -> None:
        self.name = name
        self._registry = registry

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return all names, as for a ``click.Choice``."""
        del param, ctx
        return f"[{'|'.join(self._registry.names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or refuse it with the known ones."""
        problem = self._registry.find_problem(str(value))
        return self.fail(problem, param, ctx) if problem else str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names."""
        del ctx, param
        return [CompletionItem(name) for name in self._registry.names() if name.startswith(incomplete)]


_SHARED_OPTIONS: Final = (
    click.argument("trace", type=click.Path(path_type=Path)),
    click.option("--nodes", type=click.IntRange(1), required=True, help="Nodes, one task each."),
    click.option("--clusters", type=click.IntRange(1), default=10, show_default=True, help="Clusters."),
    click.option("--policy", "names", default="central", show_default=True, help="Policies, commas between."),
    click.option("--order", type=PolicyName("order", QUEUE_ORDERS), default="fewest-remaining",
                 show_default=True, help="Queue order, for policies that have a choice."),
    click.option("--delay-ms", type=click.FloatRange(0), default=0.5, show_default=True,
                 help="One-way delay of a message."),
    click.option("--short-cutoff", type=click.FloatRange(0), default=90.5811, show_default=True,
                 help="Seconds: jobs whose mean task is shorter than this are short."),
    click.option("--short-percent", type=click.FloatRange(0, 50), default=2.0, show_default=True,
                 help="Per cent of nodes kept for short jobs (hawk, eagle, pigeon)."),
    click.option("--reserve-percent", type=click.FloatRange(0, 50), default=0.0, show_default=True,
                 help="Per cent of each cluster's nodes kept for short jobs (hanse)."),
    click.option("--pigeon-group", type=click.IntRange(1), default=100, show_default=True,
                 help="Nodes per group (pigeon)."),
    click.option("--heartbeat", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True,
                 help="Seconds between heartbeats (megha, hanse)."),
    click.option("--gossip", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
                 help="Seconds between gossip (shared)."),
    click.option("--whole-seconds", is_flag=True, help="Cut durations of .tr traces to whole seconds."),
    click.option("--node-gpus", type=click.IntRange(0), default=8, show_default=True,
                 help="GPUs of a node (GPU jobs)."),
    click.option("--node-cpus", type=click.IntRange(0), default=0,
                 help="CPUs of a node (GPU jobs); 0: not counted."),
    click.option("--node-memory", type=click.IntRange(0), default=0,
                 help="GiB of a node (GPU jobs); 0: not counted."),
    click.option("--node-list", type=click.Path(dir_okay=False, path_type=Path),
                 help="Machines, for the placement of pods (fgd and its peers)."),
    click.option("--node-ranker", type=PolicyName("ranker", NODE_RANKERS), default=FirstNodeRanker.name,
                 show_default=True, help="Choice of nodes at the wardens (hanse)."),
    click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True,
                 help="Engine of hanse: its compiled twin or the Python machines; equal results."),
)  # fmt: skip


class UnrunnableError(CommandError):
    """Replay that cannot run; nothing was done."""

    exit_code = int(ExitCode.USAGE)  # click's exit code where a command runs without ``hanse``

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


@contextmanager
def _command_errors() -> Iterator[None]:
    """Turn refusals into command errors: nothing was done, so the command must change."""
    try:
        yield
    except ReplayError as reason:
        raise UnrunnableError(str(reason)) from reason
    except TraceError as reason:
        raise FileRefusedError(str(reason)) from reason
    except OSError as reason:
        place = reason.filename or "the output"
        raise FileRefusedError(f"{place}: {reason.strerror or reason}") from reason


def _require_folders(*paths: Path | None) -> None:
    """Refuse early a path that could not be written after hours of work."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise FileRefusedError(f"{path}: the folder {path.parent} does not exist")


def _with_shared_options(command: Any) -> Any:
    for option in reversed(_SHARED_OPTIONS):
        command = option(command)
    return command


def _settings(options: dict[str, Any], brokers: int, seed: int) -> ReplaySettings:
    return ReplaySettings(
        nodes=options["nodes"],
        clusters=options["clusters"],
        brokers=brokers,
        order=options["order"],
        delay_us=round(options["delay_ms"] * 1000),
        seed=seed,
        short_cutoff_us=round(options["short_cutoff"] * 1_000_000),
        short_percent=options["short_percent"],
        reserve_percent=options["reserve_percent"],
        pigeon_group=options["pigeon_group"],
        heartbeat_us=round(options["heartbeat"] * 1_000_000),
        gossip_us=round(options["gossip"] * 1_000_000),
        node_gpus=options["node_gpus"],
        node_cpus=options["node_cpus"],
        node_memory_gib=options["node_memory"],
        node_list=str(options["node_list"] or ""),
        node_ranker=options["node_ranker"],
        engine=options["engine"],
        faults=str(options.get("faults") or ""),
    )


class _InterruptFlag:
    """Flag set by Ctrl-C. The second Ctrl-C ends the program at once."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
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


@click.command()
@_with_shared_options
@click.option("--brokers", type=click.IntRange(1), default=4, show_default=True, help="Brokers.")
@click.option(
    "--load", type=click.FloatRange(0, min_open=True), help="Rescale arrivals to this offered load."
)
@click.option("--faults", type=click.Path(dir_okay=False, path_type=Path), help="Faults to inject.")
@click.option(
    "--baseline/--no-baseline",
    default=True,
    show_default=True,
    help="With faults: also run the same league without faults, and print what the faults cost.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="First seed.")
@click.option(
    "--repeat", type=click.IntRange(1, REPEATS_MAX), default=1, show_default=True, help="Seeds to run."
)
@click.option("--limit", type=click.IntRange(1), help="Only the first jobs of the trace.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here."
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page here.")
@click.option("--progress/--no-progress", default=None, help="Show progress (by default on a terminal only).")
def replay(trace: Path, names: str, **options: Any) -> None:
    """Replay a trace under one or more policies on the same network and compare the results."""
    console = Console(stderr=True)
    settings = _settings(options, options["brokers"], options["seed"])
    _require_folders(options["json_file"], options["report"])
    stop = _InterruptFlag()
    runs: list[ReplayRun] = []
    with _command_errors():
        selected, workload = _select_policies(_split_names(names), trace, settings, options, console)
        with stop.catch_interrupts(), _progress_bar(console, options["progress"]) as bar:
            watcher = _progress_watcher(bar, workload, stop, plain=options["progress"] is True)
            for policies_of, chosen_settings in _replay_passes(selected, settings, options["baseline"]):
                for run in run_policies(policies_of, workload, chosen_settings, options["repeat"], watcher):
                    runs.append(run)
                    _write_results(runs, settings, options)
                if stop():
                    break
    rows = summarise(runs)
    _print_table(
        rows, f"{workload.name}: {settings.nodes} nodes, load {reports.format_figure(rows[0]['load'])}"
    )
    for line in _fault_costs(rows):
        click.echo(line)
    if stop():
        console.print(_stop_message(runs))
        sys.exit(ExitCode.INTERRUPTED)


def _replay_passes(
    selected: Sequence[ReplayPolicy | BatchPolicy], settings: ReplaySettings, baseline: bool
) -> list[tuple[Sequence[ReplayPolicy | BatchPolicy], ReplaySettings]]:
    """Return the runs: everything once; with faults then once more in a league of which nothing breaks.

    That is not the league that a replay without faults runs: it pays for standbys, beats and reported starts.
    """
    if not settings.faults or not baseline:
        return [(selected, settings)]
    without_faults = [
        msgspec.structs.replace(policy, name=f"{policy.name}{WITHOUT_FAULTS}")
        for policy in selected
        if isinstance(policy, ReplayPolicy)
    ]
    return [(selected, settings), (without_faults, msgspec.structs.replace(settings, faults=os.devnull))]


def _fault_costs(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for every policy that ran with and without faults."""
    by_name = {row["policy"]: row for row in rows}
    for row in rows:
        without_faults = by_name.get(f"{row['policy']}{WITHOUT_FAULTS}")
        if without_faults is None or not (row["complete"] and without_faults["complete"]):
            continue
        changes = {}
        for field, what in FAULT_COSTS.items():
            change = row[field] - without_faults[field]
            changes[what] = f"{'+' if change >= 0 else ''}{reports.format_figure(change)}"
        extra_starts = round((row["starts_per_task"] - without_faults["starts_per_task"]) * row["tasks"])
        yield (
            f"{row['policy']} with these faults, compared with the same league without faults: "
            + ", ".join(f"{what} {change}" for what, change in changes.items())
            + f"; {extra_starts} tasks more were started; all {row['jobs_ended']} jobs ended."
        )


def _stop_message(runs: list[ReplayRun]) -> str:
    if runs[-1].result.complete:
        return "Stopped: the runs shown are complete; the others were not run."
    return "Stopped: the last run shown is incomplete; its figures are those of the ended jobs."


def _split_names(names: str) -> list[str]:
    """Return the names between commas, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def _select_policies(
    names: list[str], trace: Path, settings: ReplaySettings, options: dict[str, Any], console: Console
) -> tuple[Sequence[ReplayPolicy | BatchPolicy], ReplayWorkload | BatchTrace]:
    """Return the policies of these names, and the trace in the form that they take."""
    if not names or any(name not in batch_names() for name in names):
        selected = select_policies(names, settings)
        workload = workload_from_chunk(_load_chunk(trace, options, console), trace.name)
        if options["load"] is not None:
            workload = scale_to_load(workload, settings.nodes, options["load"])
        return selected, workload
    batch_trace = BatchTrace(trace.name, _load_chunk(trace, options, console))
    batch = select_batch_policies(names, batch_trace, settings)
    if options["load"] is not None:
        batch_trace = batch_at_load(batch_trace, settings, options["load"], batch[0])
    return batch, batch_trace


def _load_chunk(trace: Path, options: dict[str, Any], console: Console) -> JobChunk:
    """Load the trace, or its first entries, and report unusable rows."""
    if trace.is_dir():
        reader = open_journals([trace])
    else:
        reader = open_trace(trace, options=ReadOptions(truncate_seconds=options["whole_seconds"]))
    chunk = load_from_reader(reader, options["limit"])
    _print_bad_rows(trace, reader.report, console)
    return chunk


def _print_bad_rows(trace: Path, report: ReadReport, console: Console) -> None:
    if report.bad:
        console.print(f"{trace.name}: {report.bad} rows could not be used")
        for row in report.first[:BAD_ROWS_SHOWN]:
            console.print(f"  line {row.line}: {row.reason} {row.detail}")


def _progress_bar(console: Console, wanted: bool | None) -> Progress:
    is_shown = console.is_terminal if wanted is None else wanted
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("left"),
        TimeRemainingColumn(), console=console, disable=not is_shown, transient=True,
    )  # fmt: skip


def _progress_watcher(
    bar: Progress, workload: ReplayWorkload | BatchTrace, stop: _InterruptFlag, *, plain: bool
) -> Any:
    """Return a function that adds a progress line for a run, and stops it on Ctrl-C; ``plain``: it also
    prints text lines now and then, if there is no terminal."""

    def watch(policy: ReplayPolicy | BatchPolicy, seed: int) -> Watch:
        line = bar.add_task(f"{policy.name} seed {seed}", total=workload.tasks)
        started, last_step = time.monotonic(), 0

        def on_tasks_started(tasks: int) -> bool:
            nonlocal last_step
            bar.update(line, completed=tasks)
            step = TEXT_PROGRESS_LINES * tasks // max(1, workload.tasks)
            if plain and not bar.console.is_terminal and step > last_step:
                last_step = step
                left = (time.monotonic() - started) * (workload.tasks - tasks) / tasks
                name = f"{policy.name} seed {seed}"
                click.echo(f"{name}: {100 * tasks // workload.tasks} % begun, {left:.0f} s left", err=True)
            return not stop.is_set

        return on_tasks_started

    return watch


def _write_results(runs: list[ReplayRun], settings: ReplaySettings, options: dict[str, Any]) -> None:
    """Write both files after every run, so that they are useful whatever happens next."""
    rows = summarise(runs)
    if options["json_file"] is not None:
        write_json(options["json_file"], rows)
    if options["report"] is not None:
        command = shlex.join(["hanse", *sys.argv[1:]])
        reports.write_page(options["report"], reports.render_page(rows, runs, settings, command))


def _print_table(rows: list[dict[str, Any]], title: str) -> None:
    table = Table(title=title)
    for index, (_, heading) in enumerate(reports.COLUMNS):
        table.add_column(heading, justify="left" if index < 2 else "right", no_wrap=index < 2)
    for row in rows:
        table.add_row(*(reports.format_with_interval(row, field) for field, _ in reports.COLUMNS))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _parse_numbers(text: str, kind: type[int] | type[float], least: float) -> tuple[Any, ...]:
    try:
        numbers = tuple(kind(part) for part in _split_names(text))
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a list of numbers with commas between") from error
    if any(not number >= least for number in numbers):
        raise click.UsageError(f"{text!r}: every number must be at least {least}")
    return numbers


@click.command("sweep")
@_with_shared_options
@click.option("--loads", default="", help="Offered loads, commas between; none = as in the trace.")
@click.option("--brokers", default="4", show_default=True, help="Numbers of brokers, commas between.")
@click.option("--seeds", default="0", show_default=True, help="Seeds, commas between.")
@click.option(
    "--processes", type=click.IntRange(1), default=None, help="Runs at a time; by default one per processor."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Result file, JSON lines."
)
def sweep_command(trace: Path, names: str, out: Path, **options: Any) -> None:
    """Replay a trace over a grid (load x policy x brokers x seeds) in parallel; a second start resumes."""
    console = Console(stderr=True)
    brokers, seeds = _parse_numbers(options["brokers"], int, 1), _parse_numbers(options["seeds"], int, 0)
    loads = _parse_numbers(options["loads"], float, LOAD_MIN) or (None,)
    if not brokers or not seeds:
        raise click.UsageError("a sweep needs at least one number of brokers and one seed")
    _require_folders(out)
    fixed = _settings(options, brokers[0], 0)
    grid = SweepGrid(
        trace, tuple(_split_names(names)), loads, brokers, seeds, fixed, options["whole_seconds"]
    )
    stop = _InterruptFlag()
    with _command_errors():
        keys = [cell.key() for cell in grid.cells()]
        before = read_finished_runs(out)
        count = sum(key in before for key in keys)
        console.print(f"{len(keys)} runs, {count} of them in {out.name} already")
        with stop.catch_interrupts(), _progress_bar(console, None) as bar:
            line = bar.add_task("sweep", total=len(keys), completed=count)
            for done, _, _ in run_sweep(grid, out, options["processes"] or os.cpu_count() or 1, stop):
                bar.update(line, completed=done)
    after = read_finished_runs(out)
    _print_grid([after[key] for key in keys if key in after])
    if stop():
        kept = sum(key in after for key in keys)
        console.print(f"Stopped: {kept} of {len(keys)} runs are in {out.name}; start again to resume.")
        sys.exit(ExitCode.INTERRUPTED)


def _print_grid(entries: list[dict[str, Any]]) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        cell = entry["policy"], entry["order"], entry["brokers"], reports.format_figure(entry["load"])
        groups.setdefault(cell, []).append(entry)
    fields = (
        "delay_mean",
        "delay_p50",
        "delay_p99",
        "short_delay_p99",
        "utilisation",
        "messages_per_task",
        "rejects_per_task",
    )
    table = Table(title="Means over seeds, ± 95 %")
    for heading in ("policy", "order", "brokers", "load", "seeds", *fields):
        table.add_column(heading)
    for cell, group in groups.items():
        figures = []
        for field in fields:
            values = [entry[field] for entry in group if entry[field] is not None]
            mean, interval = mean_with_interval(values) if values else (None, 0.0)
            figures.append(
                reports.format_figure(mean) + (f" ± {reports.format_figure(interval)}" if interval else "")
            )
        table.add_row(*(str(part) for part in cell), str(len(group)), *figures)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


@click.command("policies")
def policies_command() -> None:
    """List the policies that a replay can compare."""
    for policy in policies().values():
        click.echo(f"{policy.name:<15} {policy.about}")
    for family in FAMILIES.values():
        for batch in family.values():
            click.echo(f"{batch.name:<15} {batch.about}")


@click.group()
def main() -> None:
    """Replay traces."""


main.add_command(replay)
main.add_command(sweep_command)
main.add_command(policies_command)

if __name__ == "__main__":
    main()
