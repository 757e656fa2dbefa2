"""``hanse replay`` and ``hanse policies``: a trace under several policies, compared."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hanse.cli.commands.sweep import sweep_command
from hanse.cli.replay_options import (
    POLICY,
    replay_errors,
    replay_options,
    replay_settings,
    require_folders,
    split_names,
)
from hanse.cli.replay_progress import InterruptFlag, progress_bar, progress_watcher
from hanse.cli.trace_reading import open_journals
from hanse.cli.world_replay import replay_in_world
from hanse.client.exit_codes import ExitCode
from hanse.sim.replay import report as reports
from hanse.sim.replay.execution import REPEATS_MAX, ReplayRun, run_policies, summarise, write_json
from hanse.sim.replay.registry import ReplayPolicy, policies, select_policies
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload
from hanse.sim.replay.trace_workload import scale_to_load, workload_from_chunk
from hanse.sim.replay.whole_job_policies import (
    FAMILIES,
    BatchPolicy,
    BatchTrace,
    batch_names,
    select_batch_policies,
)
from hanse.sim.replay.whole_job_policies import scale_to_load as batch_at_load
from hanse.sim.traces import JobChunk, ReadOptions, ReadReport, load_from_reader, open_trace
from hanse.sim.traces.chunk import sort_by_arrival
from hanse.sim.worlds.drawing.stretches import STRETCHES
from hanse.sim.worlds.policy_registry import world_policies
from hanse.sim.worlds.world_runs import WARM_UP_MAX

BAD_ROWS_SHOWN: Final = 5
WITHOUT_FAULTS: Final = " unbroken"
"""Suffix of the name of a policy that ran without the faults, for comparison."""
FAULT_COSTS: Final = {
    "delay_mean": "mean delay, s", "delay_p99": "p99, s", "makespan": "makespan, s",
    "messages_per_task": "messages a task",
}  # fmt: skip
"""Costs of faults, with their labels."""


@click.command()
@click.argument("traces", metavar="TRACE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--nodes", type=click.IntRange(1), help="Nodes, one task each; needed without --world.")
@click.option(
    "--policy",
    "names",
    help=f"Policies, commas between.  [default: {POLICY}; in a world: all but variants]",
)
@click.option(
    "--world",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Run in the world of this file ('hanse world generate'); its jobs come from one or more traces.",
)
@click.option(
    "--stretch",
    type=click.Choice(STRETCHES),
    default="test",
    show_default=True,
    help="In a world: first 60 % of each trace, or the last 40 %.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(0, WARM_UP_MAX),
    default=2,
    show_default=True,
    help="In a world: stretches of the first 60 % on which policies that learn run first; 0: a cold start.",
)
@replay_options
@click.option("--brokers", type=click.IntRange(1), default=4, show_default=True, help="Brokers.")
@click.option(
    "--load",
    type=click.FloatRange(0, min_open=True),
    help="Rescale arrivals to this offered load.  [default: the trace's own; in a world 0.7]",
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
def replay(traces: tuple[Path, ...], names: str | None, **options: Any) -> None:
    """Replay a trace under one or more policies on the same network and compare the results.

    With --world: several traces in a world of unequal clusters; figures are compared with those of the first
    policy.
    """
    console = Console(stderr=True)
    if options["world"] is not None:
        with replay_errors():
            loaded = [(str(path), sort_by_arrival(_load_chunk(path, options, console))) for path in traces]
            replay_in_world(loaded, names, options, console)
        return
    if options["nodes"] is None:
        raise click.UsageError("--nodes says how many nodes there are; or name a world with --world")
    if len(traces) > 1:
        raise click.UsageError("several traces need a world: --world FILE")
    _replay_trace(traces[0], names or POLICY, options, console)


def _replay_trace(trace: Path, names: str, options: dict[str, Any], console: Console) -> None:
    """Replay one trace on equal nodes."""
    settings = replay_settings(options, options["brokers"], options["seed"])
    require_folders(options["json_file"], options["report"])
    stop = InterruptFlag()
    runs: list[ReplayRun] = []
    with replay_errors():
        selected, workload = _select_policies(split_names(names), trace, settings, options, console)
        with stop.catch_interrupts(), progress_bar(console, options["progress"]) as bar:
            watcher = progress_watcher(bar, workload, stop, plain=options["progress"] is True)
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


@click.command("policies")
def policies_command() -> None:
    """List the policies that a replay can compare."""
    for policy in policies().values():
        click.echo(f"{policy.name:<15} {policy.about}")
    for family in FAMILIES.values():
        for batch in family.values():
            click.echo(f"{batch.name:<15} {batch.about}")
    for in_world in world_policies().values():
        click.echo(f"{in_world.name:<15} in a world: {in_world.about}")


@click.group()
def main() -> None:
    """Replay traces."""


main.add_command(replay)
main.add_command(sweep_command)
main.add_command(policies_command)

if __name__ == "__main__":
    main()
