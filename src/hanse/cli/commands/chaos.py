"""``hanse chaos``: simulated leagues under faults, many seeds, in search of broken promises."""

import os
import sys
from pathlib import Path
from time import monotonic

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hanse.core.coverage_marks import ALL_MARKS
from hanse.model.ids import parse_task, task_text
from hanse.sim.chaos import SeedResult, check_seeds, combined_digest, describe_options, explain_seed
from hanse.sim.shipped_league import shipped_factories

VIOLATIONS_SHOWN_MAX = 20


@click.command("chaos")
@click.option(
    "--seeds", type=click.IntRange(1), default=500, show_default=True, help="How many seeds to run."
)
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=click.IntRange(0), help="Run only this one.")
@click.option("--explain", "explained", is_flag=True, help="With --seed: print the story of one task.")
@click.option(
    "--task", help="With --explain: the task, such as 2-17.3; default: that of the violation, or the busiest."
)
@click.option("--marks", is_flag=True, help="Print how often each rare branch was reached.")
@click.option("--jobs", type=click.IntRange(1), help="Processes to use; default: as many as there are cores.")
@click.option(
    "--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all results here."
)
def chaos(
    seeds: int,
    first_seed: int,
    seed: int | None,
    explained: bool,
    task: str | None,
    marks: bool,
    jobs: int | None,
    file: Path | None,
) -> None:
    """Inject faults into simulated leagues and report broken promises.

    Every seed is a whole league with its own faults. The same seed gives the same run and the same digest
    everywhere. Ends with status 1 if any promise was broken.
    """
    out = Console(soft_wrap=True, highlight=False)
    if explained:
        if seed is None:
            raise click.UsageError("--explain needs --seed: say which run to explain")
        sys.exit(_explain(out, seed, task))
    chosen = range(seed, seed + 1) if seed is not None else range(first_seed, first_seed + seeds)
    results = _run_seeds(chosen, jobs or _core_count())
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    if marks:
        _print_marks(out, results)
    sys.exit(_print_report(out, results))


def _core_count() -> int:
    return len(os.sched_getaffinity(0))


def _run_seeds(seeds: range, processes: int) -> list[SeedResult]:
    results = []
    columns = (
        TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[found]} violations"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("seeds", total=len(seeds), found=0)
        for result in check_seeds(seeds, shipped_factories(), min(processes, len(seeds))):
            results.append(result)
            found = sum(it.finding is not None for it in results)
            progress.update(bar, advance=1, found=found)
    return results


def _print_report(out: Console, results: list[SeedResult]) -> int:
    bad = [result for result in results if result.finding is not None]
    for result in bad[:VIOLATIONS_SHOWN_MAX]:
        finding = result.finding
        assert finding is not None
        out.print(f"[red]seed {result.seed}[/red] {finding.promise}: ", end="")
        out.print(finding.message, markup=False)
        if finding.trace:
            out.print(finding.trace.rstrip(), markup=False)
        out.print(f"  again: hanse chaos --seed {result.seed} --explain", markup=False)
    if len(bad) > VIOLATIONS_SHOWN_MAX:
        out.print(f"... and {len(bad) - VIOLATIONS_SHOWN_MAX} more")
    events, cpu = sum(it.events for it in results), sum(it.cpu for it in results)
    happened = sum(it.happened for it in results)
    hours = sum(it.simulated for it in results) / 3.6e9
    tasks = sum(it.tasks for it in results)
    out.print(f"{len(results)} seeds, {tasks:,} tasks, {events:,} events, {hours:.1f} simulated hours")
    out.print(
        f"{cpu:.1f} CPU-seconds, {events / cpu:,.0f} events per CPU-second handed to machines, "
        f"{happened / cpu:,.0f} including events outside them"
    )
    out.print(f"digest: {combined_digest(results)}")
    out.print(f"{len(bad)} violations")
    return 1 if bad else 0


def _print_marks(out: Console, results: list[SeedResult]) -> None:
    totals: dict[str, tuple[int, int]] = {}
    for result in results:
        for mark, times in result.marks.items():
            reached, seeds = totals.get(mark, (0, 0))
            totals[mark] = (reached + times, seeds + 1)
    table = Table("mark", "reached", "in seeds")
    for mark, (reached, seeds) in sorted(totals.items()):
        table.add_row(mark, f"{reached:,}", f"{seeds:,}")
    out.print(table)
    missing = [mark for mark in ALL_MARKS if mark not in totals]
    out.print(f"never reached: {', '.join(missing) or 'none'}", markup=False)


def _explain(out: Console, seed: int, task: str | None) -> int:
    subject = 0
    if task is not None:
        parsed = parse_task(task)
        if parsed is None:
            raise click.UsageError(f"--task: {task!r} is not a task id; write it like 2-17.3")
        subject = parsed
    begun = monotonic()
    result, lines = explain_seed(seed, shipped_factories(), subject)
    out.print(f"seed {seed} draws:", markup=False)
    for line in describe_options(seed):
        out.print(f"  {line}", markup=False)
    for line in lines:
        out.print(line, markup=False)
    finding = result.finding
    if finding is not None:
        where = f" (task {task_text(finding.task)})" if finding.task else ""  # type: ignore[arg-type]
        out.print(
            f"violation at {finding.at / 1e6:.6f} s: {finding.promise}: {finding.message}{where}",
            markup=False,
        )
        if finding.trace:
            out.print(finding.trace.rstrip(), markup=False)
    else:
        out.print("no violation")
    out.print(f"{result.events:,} events in {monotonic() - begun:.1f} s; digest: {result.digest}")
    return 1 if finding is not None else 0
