"""``hanse demo``: a league in the simulator, without daemon or file, which places, runs and explains jobs."""

import sys
from pathlib import Path

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hanse.cli.demo_league import DemoLeague
from hanse.cli.demo_report import DemoDecision, DemoJob, DemoReport
from hanse.client.exit_codes import ExitCode

WHY_DEFAULT = "build"
"""Job that is explained by default."""
WIDE_COLUMNS = PIPE_WIDTH = 106
"""Columns of a terminal that has room for the whole table, and of output to a pipe."""
DECISIONS_SHOWN_MAX = 30
"""Decisions of the job that are printed; ``--json`` has all decisions of all jobs."""


@click.command("demo")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the run.")
@click.option("--why", metavar="JOB", default=WHY_DEFAULT, show_default=True, help="The job to explain.")
@click.option(
    "--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here as JSON."
)
def demo(seed: int, why: str, file: Path | None) -> None:
    """Watch a small simulated league place, run and explain mixed jobs.

    Two brokers and three clusters run in virtual time: arrays, a gang, a DAG, a constraint, a preemption, and
    a broker that crashes and whose jobs the other broker takes over. The same seed gives the same report.
    Ends with status 1 if a promise was broken or an accepted job did not succeed.
    """
    league = DemoLeague(seed)
    names = [plan.spec.name for plan in league.workload.plans]
    if why not in names:
        raise click.BadParameter(f"there is no job '{why}'; there are {', '.join(names)}", param_hint="--why")
    report = league.run()
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    out = Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = max(out.width, PIPE_WIDTH)
    _print_report(out, report, why)
    sys.exit(ExitCode.OK if is_success(report) else ExitCode.FAILED)


def is_success(report: DemoReport) -> bool:
    """True if every promise was kept and every accepted job succeeded."""
    return not report.violation and all(job.outcome == "succeeded" for job in report.jobs if job.job)


def _print_report(out: Console, report: DemoReport, why: str) -> None:
    out.print("[bold]A league of two brokers (east, west) and three clusters:[/bold]")
    out.print("  luebeck  4 nodes of 8 cores, one kept for latency work")
    out.print("  hamburg  3 nodes of 16 cores and 2 GPUs")
    out.print("  bremen   4 nodes of 4 cores, arm64")
    out.print()
    out.print(_table(report.jobs, out.width >= WIDE_COLUMNS))
    for job in report.jobs:
        if job.outcome.startswith("refused"):
            out.print(f"  {escape(job.name)} was {escape(job.outcome)}")
    out.print()
    out.print("[bold]Events[/bold] (seconds since the league was ready)")
    for event in report.happenings:
        out.print(f"  {event.at:7.2f}  {escape(event.text)}")
    out.print()
    out.print(f"[bold]Why {escape(why)} ran where it ran[/bold] (--why JOB explains another one)")
    decisions = [decision for decision in report.decisions if decision.job == why]
    for decision in decisions[:DECISIONS_SHOWN_MAX]:
        out.print(f"  {decision.at:7.2f}  {escape(decision_sentence(decision))}")
    if len(decisions) > DECISIONS_SHOWN_MAX:
        out.print(f"  ... and {len(decisions) - DECISIONS_SHOWN_MAX} more; --json FILE has all of them")
    out.print()
    if report.violation:
        out.print(f"[red]A promise was broken:[/red] {escape(report.violation)}")
    else:
        out.print("[bold]Promises, checked against what ran[/bold]")
        for promise in report.promises:
            out.print(f"  kept  {escape(promise.promise)} ({escape(promise.checked)})")
    out.print()
    out.print(
        f"{report.events:,} events, {report.simulated:.1f} simulated seconds; digest: {report.digest[:16]}"
    )


def _table(jobs: tuple[DemoJob, ...], wide: bool) -> Table:
    """Return a table with one row per job; a narrow terminal gets the most important columns."""
    note = "waited: from submission to a task's start, on average; ended: from submission"
    table = Table(title=note, title_justify="left", title_style="dim", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    clusters = list(dict.fromkeys(cluster for job in jobs for cluster in job.places))
    texts = ["job", "what it is", "broker"] if wide else ["job", "broker"]
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in ("tasks", "again", *clusters, "waited", "ended") if wide else ("tasks", *clusters, "waited"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for job in jobs:
        taken_over = job.ended_at and job.ended_at != job.submitted_to
        broker = f"{job.submitted_to} > {job.ended_at}" if taken_over else job.submitted_to
        outcome = job.outcome.split(":", maxsplit=1)[0]
        colour = "green" if outcome == "succeeded" else "yellow" if outcome == "refused" else "red"
        cells = [job.name, job.what, broker] if wide else [job.name, broker]
        cells += [str(job.tasks), str(max(0, job.attempts - job.tasks) or "")][: 2 if wide else 1]
        cells += [str(job.places.get(cluster, "")) for cluster in clusters]
        cells += [_seconds(job.mean_start), _seconds(job.finished)][: 2 if wide else 1]
        table.add_row(*map(escape, cells), f"[{colour}]{escape(outcome)}[/{colour}]")
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}s" if value < 1 else f"{value:.1f}s"


def decision_sentence(decision: DemoDecision) -> str:
    """Describe a decision in a sentence."""
    tasks = "1 task" if decision.tasks == 1 else f"{decision.tasks} tasks"
    subject = f"{tasks} of group {decision.group}" if decision.group != "main" else tasks
    verbs = {
        "accepted": f"accepts {subject}",
        "blocked": f"keeps {subject} back",
        "waiting": f"lets {subject} wait",
        "placed": f"places {subject}",
        "moved": f"queues {subject} again",
        "retried": f"tries {subject} again",
        "sized": f"sizes {subject}",
        "guarded": f"leaves {subject} to the rule",
        "ended": f"ends {subject}",
    }
    text = f"{decision.broker} {verbs[decision.answered]}: {decision.reason}"
    placed = ", ".join(f"{count} in {cluster}" for cluster, count, _ in decision.considered if count)
    none = ", ".join(cluster for cluster, count, _ in decision.considered if not count)
    considered = "; ".join(part for part in (placed, f"none in {none}" if none else "") if part)
    return f"{text} ({considered})." if considered else f"{text}."
