"""Description of a trace or of a list of machines: tables for people, one JSON object for programs."""

from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hanse.sim.traces.describe import format_figure
from hanse.sim.traces.node_lists import NodeTable

SUMMARY_KEYS: Final = ("mean", "min", "p10", "p50", "p90", "p99", "p999", "max")
DISTRIBUTIONS: Final = {
    "tasks_per_job": "tasks of a job",
    "task_seconds": "task duration, s",
    "interarrival_seconds": "between arrivals, s",
}


def print_description(facts: dict[str, Any]) -> None:
    """Print counts, demand and percentiles of a trace as tables."""
    console = Console()
    console.print(f"{facts['trace']} ({facts['format']})", highlight=False, markup=False, soft_wrap=True)
    table = Table(show_header=False)
    stated = facts["jobs_that_state"]
    rows = {
        "jobs": facts["jobs"],
        "tasks": facts["tasks"],
        "span, s": facts["span_seconds"],
        "work, s of one slot": facts["work_seconds"],
        "mean demand, slots": facts["mean_demand_slots"],
        "mean demand, CPUs": facts["mean_demand_cpus"] if stated["cpu"] else None,
        "mean demand, GPUs": facts["mean_demand_gpus"] if stated["gpu"] else None,
        "jobs with an estimate": stated["estimate"],
        "users": facts["users"],
        "sites": facts["sites"],
        "DAG edges": facts["dag_edges"],
        "nodes, says the trace": facts["nodes_hint"],
        "bad rows": facts["report"]["bad"],
    }
    for key, value in rows.items():
        table.add_row(key, format_figure(value))
    if not facts["has_durations"]:
        table.add_row("durations", "not stated")
    console.print(table)
    distributions = Table("", *DISTRIBUTIONS.values())
    for key in SUMMARY_KEYS:
        distributions.add_row(key, *(format_figure(facts[kind][key]) for kind in DISTRIBUTIONS))
    console.print(distributions)
    if facts["slots_over_time"] is not None:
        _print_slots(console, facts["slots_over_time"])


def _print_slots(console: Console, slots: dict[str, Any]) -> None:
    """Print the slots that tasks would use if each started when it arrives."""
    console.print("demand for slots over time, if every task started when it arrives")
    table = Table("from, s", "slots")
    for at, mean in enumerate(slots["buckets"]):
        table.add_row(f"{at * slots['bucket_seconds']:,.0f}", f"{mean:,.1f}")
    table.add_section()
    table.add_row("mean", f"{slots['mean']:,.1f}")
    table.add_row("max", f"{slots['max']:,.1f}")
    console.print(table)


def print_nodes(source: str, nodes: NodeTable, as_json: bool) -> None:
    """Print what a list of machines holds."""
    facts = {
        "nodes": source,
        "machines": nodes.node_count,
        "gpus": nodes.gpu_count,
        "cpus": float((nodes.cpu * nodes.count).sum()) / 1_000,
        "memory_bytes": float((nodes.memory.astype(float) * nodes.count).sum()),
        "gpu_models": sorted({nodes.names[index] for index in nodes.model.tolist() if index >= 0}),
        "sites": sorted({nodes.names[index] for index in nodes.site.tolist() if index >= 0}),
        "report": msgspec.to_builtins(nodes.report),
    }
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())
    else:
        click.echo(f"{source} (list of machines)")
        table = Table(show_header=False)
        for key in ("machines", "cpus", "gpus", "memory_bytes"):
            table.add_row(key, f"{facts[key]:,.0f}")
        for key in ("gpu_models", "sites"):
            table.add_row(key, ", ".join(facts[key]) or "-")
        Console().print(table)
