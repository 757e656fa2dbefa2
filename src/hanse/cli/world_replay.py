"""``hanse replay --world``: policies compared in a world of unequal clusters."""

import sys
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import Progress

from hanse.cli.replay_options import UnrunnableError, require_folders, split_names
from hanse.cli.replay_progress import InterruptFlag, progress_bar
from hanse.cli.tables import console, table
from hanse.cli.trace_reading import FileRefusedError
from hanse.client.exit_codes import ExitCode
from hanse.sim.replay.execution import write_json
from hanse.sim.replay.report import format_figure, format_with_interval
from hanse.sim.traces.chunk import JobChunk
from hanse.sim.worlds.columns import WorkColumns
from hanse.sim.worlds.measures import WorldResult, summarise_worlds
from hanse.sim.worlds.policy_records import JobsEnded, WorldPolicy, WorldRefusalError
from hanse.sim.worlds.policy_registry import select_world_policies, world_policies
from hanse.sim.worlds.world import WorldError
from hanse.sim.worlds.world_file import read_world
from hanse.sim.worlds.world_runs import WorldPlan, run_world_plan

LOAD: Final = 0.7
"""Load in a world if none is given."""
UNFIT_OPTIONS: Final = {
    "faults": "outages stand in the world file (outages:)",
    "report": "there is no page for worlds: use --json",
    "nodes": "the world file says which nodes there are",
}
"""Options that do not go with a world, and what to do instead."""
WORLD_TABLE: Final = {
    "completion_p95": "p95", "slowdown": "slowdown", "waiting_mean": "waiting", "transfer_mean": "transfer",
    "run_mean": "run", "allocated": "allocated", "useful": "useful", "remote": "remote",
    "starts_per_cpu_second": "starts/CPU s",
}  # fmt: skip
"""Columns of the table beside completion, with their headings; --json has all figures."""


def replay_in_world(
    traces: list[tuple[str, JobChunk]], names: str | None, options: dict[str, Any], errors: Console
) -> None:
    """Run the comparison that the options say, print it, and write it."""
    for option, instead in UNFIT_OPTIONS.items():
        if options[option] is not None:
            raise UnrunnableError(f"--{option} does not go with --world: {instead}")
    require_folders(options["json_file"])
    stop, results = InterruptFlag(), list[WorldResult]()
    try:
        plan = _make_plan(traces, names, options)
        with stop.catch_interrupts(), progress_bar(errors, options["progress"]) as bar:
            for result in run_world_plan(plan, _Watcher(bar, stop)):
                results.append(result)
                if options["json_file"] is not None:
                    write_json(options["json_file"], summarise_worlds(results, plan.policies[0].name))
    except WorldError as error:
        raise FileRefusedError(str(error)) from error
    except WorldRefusalError as error:
        raise UnrunnableError(str(error)) from error
    rows = summarise_worlds(results, plan.policies[0].name)
    click.echo(f"{results[0].work}; {options['repeat']} seeds, order {plan.order}, means ± 95 % intervals")
    _print_rows(rows)
    if stop():
        errors.print("Stopped: the last run shown is incomplete; its figures are those of the ended jobs.")
        sys.exit(ExitCode.INTERRUPTED)


def _make_plan(traces: list[tuple[str, JobChunk]], names: str | None, options: dict[str, Any]) -> WorldPlan:
    path: Path = options["world"]
    return WorldPlan(
        read_world(path),
        traces,
        select_world_policies(_default_names() if names is None else split_names(names)),
        LOAD if options["load"] is None else options["load"],
        options["stretch"],
        options["order"],
        range(options["seed"], options["seed"] + options["repeat"]),
        options["warm_up"],
        options["brokers"],
        round(options["delay_ms"] * 1000),
    )


def _default_names() -> list[str]:
    """Return the names of all policies but the variants."""
    return [name for name, policy in world_policies().items() if not policy.is_variant]


class _Watcher:
    """Adds a line of progress for each run, and stops the run on Ctrl-C."""

    def __init__(self, bar: Progress, stop: InterruptFlag) -> None:
        self._bar, self._stop = bar, stop

    def __call__(self, policy: WorldPolicy, seed: int, work: WorkColumns) -> JobsEnded:
        line = self._bar.add_task(f"{policy.name}, seed {seed}", total=work.job_count)

        def progress(ended: int) -> bool:
            self._bar.update(line, completed=ended)
            return not self._stop()

        return progress


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """Print a row for each policy, with intervals where a comparison needs them."""
    baseline = rows[0]["baseline"]
    versus = f"vs {baseline} %"
    heads = ("policy", "completion, s", versus, *WORLD_TABLE.values())
    lines = [
        (
            row["policy"],
            format_with_interval(row, "completion_mean"),
            format_with_interval(row, field) if (field := f"completion_mean_vs_{baseline}") in row else "-",
            *(format_figure(row[name]) for name in WORLD_TABLE),
        )
        for row in rows
    ]
    console().print(table(heads, lines, right=heads[1:]))
