"""The commands ``hanse replay`` and ``hanse sweep``: a trace through one policy after another, or through a
grid."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from hanse.sim.replay import report as reports
from hanse.sim.replay.batch import FAMILIES, BatchPolicy, BatchTrace, batch_names, chosen_batch
from hanse.sim.replay.batch import at_load as batch_at_load
from hanse.sim.replay.records import ORDERS, ReplayError, Settings, Workload
from hanse.sim.replay.records import Progress as Watch
from hanse.sim.replay.registry import Policy, chosen, policies
from hanse.sim.replay.runs import REPEATS_MAX, Run, runs_of, summary, write_json
from hanse.sim.replay.statistics import mean_with_interval
from hanse.sim.replay.sweep import Grid, finished, sweep
from hanse.sim.replay.workloads import at_load, read_workload
from hanse.sim.trace import ReadReport, TraceError, load_with_report

EXIT_STOPPED: Final = 130
"""What a shell expects of a program ended by Ctrl-C."""
BAD_ROWS_SHOWN: Final = 5

_SHARED_OPTIONS: Final = (
    click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option("--nodes", type=click.IntRange(1), required=True, help="Nodes, one task each."),
    click.option("--clusters", type=click.IntRange(1), default=10, show_default=True, help="Clusters."),
    click.option("--policy", "names", default="central", show_default=True, help="Policies, commas between."),
    click.option("--order", type=click.Choice(ORDERS), default="fewest-remaining", show_default=True,
                 help="Queue order, for policies that let one choose."),
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
)  # fmt: skip


def _with_shared_options(command: Any) -> Any:
    for option in reversed(_SHARED_OPTIONS):
        command = option(command)
    return command


def _settings(options: dict[str, Any], brokers: int, seed: int) -> Settings:
    return Settings(
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
        node_gpus=options.get("node_gpus", 8),
        node_cpus=options.get("node_cpus", 0),
        node_memory_gib=options.get("node_memory", 0),
        node_list=str(options.get("node_list") or ""),
        faults=str(options.get("faults") or ""),
    )


class _Stop:
    """Whether Ctrl-C was pressed. The second time it ends the program at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take Ctrl-C for the time of a block."""
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
@click.option(
    "--faults", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Faults to inject."
)
@click.option("--seed", type=int, default=0, show_default=True, help="First seed.")
@click.option(
    "--repeat", type=click.IntRange(1, REPEATS_MAX), default=1, show_default=True, help="Seeds to run."
)
@click.option("--limit", type=click.IntRange(1), help="Only the first jobs of the trace.")
@click.option(
    "--node-gpus", type=click.IntRange(0), default=8, show_default=True, help="GPUs of a node (GPU jobs)."
)
@click.option(
    "--node-cpus", type=click.IntRange(0), default=0, help="CPUs of a node (GPU jobs); 0: not counted."
)
@click.option(
    "--node-memory", type=click.IntRange(0), default=0, help="GiB of a node (GPU jobs); 0: not counted."
)
@click.option(
    "--node-list",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Machines, for the placement of pods (fgd and its peers).",
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here."
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page here.")
@click.option("--progress/--no-progress", default=None, help="Show progress (by default on a terminal only).")
def replay(trace: Path, names: str, **options: Any) -> None:
    """Run a trace through one or more policies on the same network and compare them."""
    console = Console(stderr=True)
    settings = _settings(options, options["brokers"], options["seed"])
    stop = _Stop()
    runs: list[Run] = []
    try:
        selected, workload = _selected(_split(names), trace, settings, options, console)
        with stop.listening(), _progress(console, options["progress"]) as bar:
            watch = _watcher(bar, workload, stop)
            for run in runs_of(selected, workload, settings, options["repeat"], watch):
                runs.append(run)
                _write(runs, settings, options)
    except (ReplayError, TraceError) as refusal:
        raise click.ClickException(str(refusal)) from refusal
    rows = summary(runs)
    _print_table(rows, f"{workload.name}: {settings.nodes} nodes, load {reports.shown(rows[0]['load'])}")
    if stop():
        console.print(
            "Stopped: the last policy shown is incomplete, its figures are those of the jobs that had ended."
        )
        sys.exit(EXIT_STOPPED)


def _split(names: str) -> list[str]:
    """Names between commas, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def _selected(
    names: list[str], trace: Path, settings: Settings, options: dict[str, Any], console: Console
) -> tuple[Sequence[Policy | BatchPolicy], Workload | BatchTrace]:
    """The policies of these names and the trace in the form that they take."""
    if not names or any(name not in batch_names() for name in names):
        return chosen(names, settings), _workload(trace, options, console)
    chunk, account = load_with_report(trace, options["limit"])
    _tell_bad_rows(trace, account, console)
    whole = BatchTrace(trace.name, chunk)
    batch = chosen_batch(names, whole, settings)
    if options["load"] is not None:
        whole = batch_at_load(whole, settings, options["load"], batch[0])
    return batch, whole


def _workload(trace: Path, options: dict[str, Any], console: Console) -> Workload:
    workload, account = read_workload(trace, whole_seconds=options["whole_seconds"], limit=options["limit"])
    _tell_bad_rows(trace, account, console)
    if options["load"] is not None:
        workload = at_load(workload, options["nodes"], options["load"])
    return workload


def _tell_bad_rows(trace: Path, account: ReadReport, console: Console) -> None:
    if account.bad:
        console.print(f"{trace.name}: {account.bad} rows could not be used")
        for row in account.first[:BAD_ROWS_SHOWN]:
            console.print(f"  line {row.line}: {row.reason} {row.detail}")


def _progress(console: Console, wanted: bool | None) -> Progress:
    shown = console.is_terminal if wanted is None else wanted
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("left"),
        TimeRemainingColumn(), console=console, disable=not shown, transient=True,
    )  # fmt: skip


def _watcher(bar: Progress, workload: Workload | BatchTrace, stop: _Stop) -> Any:
    """For every run a line of progress, and the way to stop it."""

    def watch(policy: Policy | BatchPolicy, seed: int) -> Watch:
        line = bar.add_task(f"{policy.name} seed {seed}", total=workload.tasks)

        def begun(tasks: int) -> bool:
            bar.update(line, completed=tasks)
            return not stop.asked

        return begun

    return watch


def _write(runs: list[Run], settings: Settings, options: dict[str, Any]) -> None:
    """Bring both files up to date after every run, so that whatever happens next they are of use."""
    rows = summary(runs)
    if options["json_file"] is not None:
        write_json(options["json_file"], rows)
    if options["report"] is not None:
        command = shlex.join(["hanse", *sys.argv[1:]])
        reports.write_page(options["report"], reports.page(rows, runs, settings, command))


def _print_table(rows: list[dict[str, Any]], title: str) -> None:
    table = Table(title=title)
    for index, (_, heading) in enumerate(reports.COLUMNS):
        table.add_column(heading, justify="left" if index < 2 else "right", no_wrap=index < 2)
    for row in rows:
        table.add_row(*(reports.shown_with_interval(row, field) for field, _ in reports.COLUMNS))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _numbers(text: str, kind: type[int] | type[float]) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in _split(text))
    except ValueError as error:
        raise click.ClickException(f"{text!r} is not a list of numbers with commas between") from error


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
    """Run a grid (load x policy x brokers x seeds) in parallel; a second start goes on where the first was
    stopped."""
    console = Console(stderr=True)
    brokers = _numbers(options["brokers"], int)
    grid = Grid(
        trace,
        tuple(_split(names)),
        _numbers(options["loads"], float) or (None,),
        brokers,
        _numbers(options["seeds"], int),
        _settings(options, brokers[0], 0),
        options["whole_seconds"],
    )
    try:
        keys = [cell.key() for cell in grid.cells()]
    except ReplayError as refusal:
        raise click.ClickException(str(refusal)) from refusal
    before = finished(out)
    console.print(f"{len(keys)} runs, {sum(key in before for key in keys)} of them in {out.name} already")
    stop = _Stop()
    with stop.listening(), _progress(console, None) as bar:
        line = bar.add_task("sweep", total=len(keys), completed=sum(key in before for key in keys))
        for count, _, _ in sweep(grid, out, options["processes"] or os.cpu_count() or 1, stop):
            bar.update(line, completed=count)
    done = finished(out)
    _print_grid([done[key] for key in keys if key in done])
    if stop():
        kept = sum(key in done for key in keys)
        console.print(f"Stopped: {kept} of {len(keys)} runs are in {out.name}; start again to go on.")
        sys.exit(EXIT_STOPPED)


def _print_grid(entries: list[dict[str, Any]]) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        cell = entry["policy"], entry["order"], entry["brokers"], reports.shown(entry["load"])
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
            figures.append(reports.shown(mean) + (f" ± {reports.shown(interval)}" if interval else ""))
        table.add_row(*(str(part) for part in cell), str(len(group)), *figures)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


@click.command("policies")
def policies_command() -> None:
    """List the policies of a replay."""
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
