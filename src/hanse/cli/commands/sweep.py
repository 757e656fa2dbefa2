"""``hanse sweep``: a trace over a grid of settings, in parallel."""

import os
import sys
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from hanse.cli.replay_options import (
    POLICY,
    replay_errors,
    replay_options,
    replay_settings,
    require_folders,
    split_names,
)
from hanse.cli.replay_progress import InterruptFlag, progress_bar
from hanse.client.exit_codes import ExitCode
from hanse.sim.replay import report as reports
from hanse.sim.replay.confidence_intervals import mean_with_interval
from hanse.sim.replay.sweep import SweepGrid, read_finished_runs, run_sweep

LOAD_MIN: Final = 1e-6
"""Least offered load of a sweep."""


def _parse_numbers(text: str, kind: type[int] | type[float], least: float) -> tuple[Any, ...]:
    try:
        numbers = tuple(kind(part) for part in split_names(text))
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a list of numbers with commas between") from error
    if any(not number >= least for number in numbers):
        raise click.UsageError(f"{text!r}: every number must be at least {least}")
    return numbers


@click.command("sweep")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--nodes", type=click.IntRange(1), required=True, help="Nodes, one task each.")
@click.option("--policy", "names", default=POLICY, show_default=True, help="Policies, commas between.")
@replay_options
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
    require_folders(out)
    fixed = replay_settings(options, brokers[0], 0)
    grid = SweepGrid(trace, tuple(split_names(names)), loads, brokers, seeds, fixed, options["whole_seconds"])
    stop = InterruptFlag()
    with replay_errors():
        keys = [cell.key() for cell in grid.cells()]
        before = read_finished_runs(out)
        count = sum(key in before for key in keys)
        console.print(f"{len(keys)} runs, {count} of them in {out.name} already")
        with stop.catch_interrupts(), progress_bar(console, None) as bar:
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
