"""Text of ``hanse show``."""

import signal
from typing import Final

from rich.console import Console, RenderableType
from rich.markup import escape

from hanse.api.row_records import DecisionRow, JobRow, TaskRow
from hanse.cli.formatting import (
    age_text,
    ask_text,
    count_text,
    elapsed_text,
    memory_text,
    progress_text,
    span_text,
    time_text,
)
from hanse.cli.show_data import STATE_ORDER, JobPage
from hanse.cli.tables import state_markup, table
from hanse.client.retry_form import command_text
from hanse.model.job import JobSpec, Together

COMMAND_CHARACTERS_MAX: Final = 100
GROUPS_MAX: Final = 30
_OK_OUTCOME: Final = "succeeded"


def print_page(out: Console, page: JobPage) -> None:
    """Print the whole page."""
    row = page.detail.row
    out.print(f"[bold]{row.id}  {escape(row.name)}[/]  {state_markup(row.state)}  {progress_text(row)}")
    for name, text in _header_lines(page):
        out.print(f"  [dim]{name:<10}[/] {escape(text)}")
    if page.sentences:
        out.print()
        for sentence in page.sentences:
            out.print(f"  {escape(sentence)}")
    out.print(_groups_table(page))
    if page.tasks:
        out.print(_tasks_table(page))
    if page.decisions:
        out.print(decisions_table(page.decisions))
    out.print(f"[dim]{_next_commands(row)}[/]")


def _topology_text(spec: JobSpec) -> str:
    """Return where the tasks of a gang run together, and over what they are spread."""
    text = "" if spec.together is Together.CLUSTER else f" on one {spec.together}"
    most = f", at most {spec.spread_max} for each" if spec.spread_max else ""
    return f"{text}, spread over {spec.spread}{most}" if spec.spread else text


def _header_lines(page: JobPage) -> list[tuple[str, str]]:
    """Return the header lines, without empty ones."""
    row, spec = page.detail.row, page.detail.spec
    facts = [("submitted", f"{time_text(row.submitted)} ({age_text(row.submitted)})")]
    if row.started is not None:
        facts.append(
            ("started", f"{time_text(row.started)} (waited {elapsed_text(row.submitted, row.started)})")
        )
    if row.ended is not None:
        since = row.started if row.started is not None else row.submitted
        facts.append(("ended", f"{time_text(row.ended)} (took {elapsed_text(since, row.ended)})"))
    if row.cancel_reason:
        facts.append(("cancelled", row.cancel_reason))
    facts.append(("tenant", f"{row.tenant}, {row.klass}, priority {row.priority}"))
    if row.clusters:
        facts.append(("clusters", ", ".join(row.clusters)))
    facts.append(("broker", row.owner))
    rules = [
        f"gang{_topology_text(spec)}" if spec.gang else "",
        f"at most {spec.retries} retries of a task" if spec.retries else "",
        f"deadline {span_text(spec.deadline / 1e6)} after submission" if spec.deadline is not None else "",
        "preemptible" if spec.preemptible else "",
        f"only in {', '.join(spec.clusters_allowed)}" if spec.clusters_allowed else "",
        f"never in {', '.join(spec.clusters_forbidden)}" if spec.clusters_forbidden else "",
    ]
    if any(rules):
        facts.append(("rules", "; ".join(rule for rule in rules if rule)))
    if page.detail.after:
        facts.append(("after", ", ".join(f"{job} ({word or 'unknown'})" for job, word in page.detail.after)))
    usage = page.usage
    if usage.tasks:
        some = f" (of {usage.tasks:,} of {row.total:,} tasks)" if usage.tasks < row.total else ""
        used = f"{span_text(usage.cpu / 1e6)} CPU time in {span_text(usage.ran / 1e6)} of running"
        facts.append(("used", f"{used}, at most {memory_text(usage.memory)} at once{some}"))
    return facts


def _groups_table(page: JobPage) -> RenderableType:
    """Return a table of the groups: their requests and the states of their tasks."""
    groups = page.detail.groups
    words = [word for word in STATE_ORDER if any(group.states.get(word) for group in groups)]
    rows = []
    for group in groups[:GROUPS_MAX]:
        command = command_text(group.command) if group.command else "-"
        cells = [group.name, str(group.count), *(str(group.states.get(word) or "") for word in words)]
        cells += [ask_text(group.ask, group.ask_max), group.where, ", ".join(group.needs), _shorten(command)]
        rows.append([escape(cell) for cell in cells])
    note = f"and {len(groups) - GROUPS_MAX} more groups" if len(groups) > GROUPS_MAX else ""
    columns = ("group", "tasks", *words, "asks for", "where", "needs", "command")
    return table(columns, rows, right=("tasks", *words), note=note)


def _shorten(command: str) -> str:
    line = command.replace("\n", " ")
    return line if len(line) <= COMMAND_CHARACTERS_MAX else f"{line[:COMMAND_CHARACTERS_MAX]}..."


def _tasks_table(page: JobPage) -> RenderableType:
    """Return a table of the tasks, failures first."""
    several = len(page.detail.groups) > 1
    rows = []
    for task in page.tasks:
        place = f"{task.cluster}/{task.node}" if task.node is not None else task.cluster
        usage = task.usage
        ran = "" if task.started is None else elapsed_text(task.started, task.ended)
        rows.append((
            str(task.index),
            escape(task.group) if several else "",
            state_markup(task.state),
            escape(place),
            str(task.attempt or ""),
            escape(_end_text(task)),
            span_text(usage.run_time / 1e6) if usage is not None else ran,
            memory_text(usage.memory) if usage is not None and usage.memory else "",
            escape(task.note),
        ))  # fmt: skip
    left = page.detail.row.total - len(page.tasks)
    note = f"and {count_text(left, 'more task')}; --tasks N shows more" if left > 0 else ""
    columns = ("task", "group", "state", "where", "attempt", "end", "ran", "memory", "note")
    return table(columns, rows, right=("task", "attempt", "ran", "memory"), note=note)


def _end_text(task: TaskRow) -> str:
    """Describe how an attempt ended, in a few words."""
    if task.code is None or not task.outcome:
        return task.outcome
    if task.code < 0:
        return f"signal {-task.code} ({_signal_name(-task.code)})"
    return "exit 0" if task.code == 0 and task.outcome == _OK_OUTCOME else f"{task.outcome}, exit {task.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def decisions_table(decisions: tuple[DecisionRow, ...]) -> RenderableType:
    """Return a table of recorded decisions, the oldest first."""
    rows = []
    for row in decisions:
        considered = ", ".join(
            f"{it.cluster}: {it.tasks}" + (f" ({it.reason})" if it.reason else "") for it in row.considered
        )
        cells = (
            time_text(row.at)[-8:],
            row.broker,
            str(row.tasks),
            str(row.answered),
            row.reason,
            considered,
        )
        rows.append([escape(cell) for cell in cells])
    return table(("when", "broker", "tasks", "answer", "reason", "considered"), rows, right=("tasks",))


def _next_commands(row: JobRow) -> str:
    """Return the commands that are useful next."""
    if row.state == "failed":
        return f"hanse logs {row.id}   hanse retry {row.id}"
    if row.state in ("succeeded", "cancelled"):
        return f"hanse logs {row.id}"
    return f"hanse logs -f {row.id}   hanse wait {row.id}   hanse cancel {row.id}"
