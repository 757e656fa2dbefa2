"""Tables of a world and of the work in it, for ``hanse world describe``."""

from typing import Any, Final

from hanse.cli.tables import console, table
from hanse.sim.traces.describe import format_figure

GIB: Final = 1 << 30
GB: Final = 1_000_000_000
MB: Final = 1_000_000


def print_world(facts: dict[str, Any]) -> None:
    """Print clusters, node classes and links."""
    out = console()
    out.print(
        f"world {facts['world']}: {facts['nodes']:,} nodes, {facts['cores']:,} cores, "
        f"{facts['racks']} racks, mean speed {facts['mean_speed']:.3f}; round trips: {facts['round_trips']}",
        markup=False,
    )
    heads = ("cluster", "region", "nodes", "racks", "cores", "memory", "GPUs", "speed", "network", "WAN")
    rows = [
        (
            found["name"],
            found["region"],
            f"{found['nodes']:,}",
            str(found["racks"]),
            f"{found['cores']:,}",
            _memory(found["memory_bytes"]),
            str(found["gpus"] or ""),
            f"{found['mean_speed']:.3f}",
            f"{found['topology']} {found['oversubscription']:g}:1",
            f"{found['wan_bytes_per_second'] * 8 / GB:g} Gb/s",
        )
        for found in facts["clusters"]
    ]
    out.print(table(heads, rows, right=("nodes", "racks", "cores", "memory", "GPUs", "speed", "WAN")))
    _print_classes(facts["node_classes"])
    if facts["links"]:
        _print_links(facts)


def _print_classes(classes: list[dict[str, Any]]) -> None:
    kinds = list(classes[0]["speed"])
    heads = ("node class", "nodes", "cores", "memory", "bandwidth", "GPUs", *(f"{kind} x" for kind in kinds))
    rows = [
        (
            found["name"],
            f"{found['nodes']:,}",
            str(found["cores"]),
            _memory(found["memory_bytes"]),
            f"{found['memory_bandwidth'] / GB:g} GB/s",
            f"{found['gpus']} {found['gpu_kind']}" if found["gpus"] else "",
            *(f"{found['speed'][kind]:g}" for kind in kinds),
        )
        for found in classes
    ]
    console().print(table(heads, rows, right=heads[1:]))


def _print_links(facts: dict[str, Any]) -> None:
    """Print round trip and flow between each two clusters."""
    names = [found["name"] for found in facts["clusters"]]
    links = {(link["from"], link["to"]): link for link in facts["links"]}

    def cell(here: str, there: str) -> str:
        if here == there:
            return "-"
        link = links[here, there]
        return f"{link['round_trip_seconds'] * 1_000:g} ms {link['flow_bytes_per_second'] / MB:.0f} MB/s"

    rows = [(here, *(cell(here, there) for there in names)) for here in names]
    console().print(
        table(("from, to", *names), rows, right=names, note="round trip, and the most that one flow has")
    )


def print_work(facts: dict[str, Any]) -> None:
    """Print the work by home cluster and by kind."""
    out = console()
    out.print(facts["work"], markup=False)
    figures = {
        "jobs": f"{facts['jobs']:,}",
        "tasks": f"{facts['tasks']:,}",
        "load": f"{facts['load']:.4f}",
        "core-hours": _core_hours(facts["core_seconds"]),
        "input, GB/s": f"{facts['input_bytes_per_second'] / GB:.2f}",
        "task, s (p50, p99)": f"{facts['task_seconds']['p50']:.4g}, {facts['task_seconds']['p99']:.4g}",
        "jobs without history": f"{facts['jobs_without_history']:,}",
        "gangs": f"{facts['gangs']:,}",
        "deadlines": f"{facts['deadlines']:,}",
        "needs": f"{facts['needs']:,}",
        "outages": f"{facts['outages']:,}",
    }
    out.print(table(("the work", ""), list(figures.items()), right=("",)))
    heads = ("home", "jobs", "tasks", "mean task, s", "core-hours", "input, GB", "load")
    rows = [(*_counts(found), f"{found['load']:.3f}") for found in facts["clusters"]]
    out.print(table(heads, rows, right=heads[1:]))
    heads = ("kind of work", *heads[1:])
    out.print(table(heads, [(*_counts(found), "") for found in facts["work_kinds"]], right=heads[1:]))


def _counts(found: dict[str, Any]) -> tuple[str, ...]:
    return (
        found["name"],
        f"{found['jobs']:,}",
        f"{found['tasks']:,}",
        format_figure(round(found["mean_task_seconds"], 1)),
        _core_hours(found["core_seconds"]),
        f"{found['input_bytes'] / GB:,.0f}",
    )


def _core_hours(core_seconds: float) -> str:
    return f"{core_seconds / 3_600:,.0f}"


def _memory(amount: int) -> str:
    return f"{amount / GIB:,.0f} GiB"
