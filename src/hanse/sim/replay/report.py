"""Self-contained HTML page about a replay: table, plots, and the settings needed to repeat it."""

from html import escape
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.sim.replay.execution import ReplayRun, write_atomically
from hanse.sim.replay.plots import Axis, Line, distribution, plot
from hanse.sim.replay.run_records import ReplaySettings

COLUMNS: Final = (
    ("policy", "policy"), ("order", "order"), ("delay_mean", "delay mean s"), ("delay_p50", "p50"),
    ("delay_p90", "p90"), ("delay_p99", "p99"), ("delay_p999", "p99.9"), ("short_delay_p99", "short p99"),
    ("jct_mean", "completion mean s"), ("makespan", "makespan s"), ("utilisation", "utilisation"),
    ("messages_per_task", "messages/task"), ("rejects_per_task", "rejects/task"),
    ("tasks_per_cpu_second", "tasks/CPU s"),
)  # fmt: skip
"""Fields of tables, with their headings."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 70rem;
       margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; display: block;
        overflow-x: auto; }
svg polyline { fill: none; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d7dde5; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; max-width: 760px; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: #333c48; } svg .title { font-size: 14px; font-weight: 600; }
svg .axis { stroke: #56606e; fill: none; } svg .grid { stroke: #e4e8ee; fill: none; }
pre { background: #f3f5f8; padding: .8rem; overflow-x: auto; } .note { color: #8a3b12; }
"""


def format_figure(value: Any) -> str:
    """Format a number for a reader: four significant digits."""
    if value is None:
        return "-"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}"


def format_with_interval(row: dict[str, Any], field: str) -> str:
    """Format a number and, after repeats, its 95 % interval."""
    interval = row.get(f"{field}_ci95")
    return (
        format_figure(row[field])
        if not interval
        else f"{format_figure(row[field])} ± {format_figure(interval)}"
    )


def render_page(
    rows: list[dict[str, Any]], runs: list[ReplayRun], settings: ReplaySettings, effect: str
) -> str:
    """Return the page as text. Curves are those of each policy's first seed."""
    heading = f"Replay of {rows[0]['trace']}" if rows else "Replay without a result"
    stopped = [row["policy"] for row in rows if not row["complete"]]
    note = f'<p class="note">Stopped early: {escape(", ".join(stopped))}.</p>' if stopped else ""
    offered = (
        f"offered load {format_figure(rows[0]['load'])}, {rows[0]['jobs']} jobs, {rows[0]['tasks']} tasks"
        if rows
        else ""
    )
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(heading)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(heading)}</h1><p>{settings.nodes} nodes, {settings.clusters} clusters,",
            f"{settings.brokers} brokers; {offered}.</p>{note}",
            _table(rows),
            *(f"<figure>{svg}</figure>" for svg in _plots(runs)),
            "<h2>To repeat it</h2>",
            f"<pre>{escape(effect)}</pre>",
            f"<pre>{escape(msgspec.json.format(msgspec.json.encode(settings), indent=2).decode())}</pre>",
            "<p>Job delay is completion - arrival - longest task. Messages are without heartbeats.</p>",
            "</body></html>",
        )
    )


def write_page(path: Path, text: str) -> None:
    """Write the page atomically."""
    write_atomically(path, text.encode())


def _table(rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for _, title in COLUMNS)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(format_with_interval(row, field))}</td>" for field, _ in COLUMNS)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plots(runs: list[ReplayRun]) -> list[str]:
    first: dict[str, ReplayRun] = {}
    for run in runs:
        first.setdefault(run.result.policy, run)
    if not first:
        return []
    floor = 1e-3
    slowest = max(
        [float(run.curves.delays[-1]) for run in first.values() if len(run.curves.delays)], default=1.0
    )
    longest = max(float(run.curves.times[-1]) for run in first.values())
    deepest = max(float(run.curves.waiting.max()) for run in first.values())
    time = Axis("seconds since the first arrival", 0, max(longest, 1e-6))
    return [
        plot(
            "Job delay: share of jobs at or below",
            [distribution(name, run.curves.delays, floor) for name, run in first.items()],
            Axis("seconds (logarithmic)", floor, max(slowest * 1.05, floor * 10), logarithmic=True),
            Axis("share of jobs", 0, 1),
        ),
        plot(
            "Utilisation",
            [Line(name, run.curves.times, run.curves.utilisation) for name, run in first.items()],
            time,
            Axis("share of nodes that run a task", 0, 1),
        ),
        plot(
            "Queue length",
            [Line(name, run.curves.times, run.curves.waiting) for name, run in first.items()],
            time,
            Axis("tasks waiting", 0, max(deepest * 1.05, 1)),
        ),
    ]
