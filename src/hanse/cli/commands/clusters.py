"""``hanse status``, ``clusters`` and ``nodes``: the state of the league and its parts."""

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from hanse.cli.common_options import league_client, league_options, print_json
from hanse.client.errors import CommandError, warn
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hanse.api.drain_facts import DrainFacts
    from hanse.api.hardware import HardwareAnswer
    from hanse.api.records import ClusterAnswer, ClusterDetail, LeagueAnswer, NodeAnswer
    from hanse.client.client import LeagueClient

DRAINS_SHOWN_MAX: Final = 8
"""Drains of one cluster that are described in sentences."""
NODES_LISTED_MAX: Final = 8
"""Nodes named in one sentence."""
STATES: Final = ("blocked", "queued", "placed", "running", "succeeded", "failed", "cancelled")


@click.command("status")
@league_options
@click.pass_context
def status(ctx: click.Context, /, as_json: bool) -> None:
    """Show the state of the league: its brokers, its clusters, its jobs.

    Ends with 1 if a broker does not answer, a cluster is out of reach or a member may not act, and with 69 if
    no broker answers.
    """
    with league_client() as client:
        answers, silent = client.all_league_views()
        details = _fetch_details(client, next(iter(answers.values())).clusters)
    first = _merge_answers(answers)
    jobs = {state: sum(answer.jobs.get(state, 0) for answer in answers.values()) for state in STATES}
    lost = [cluster.name for cluster in first.clusters if not cluster.reachable]
    if as_json:
        print_json(_status_json(first, answers, silent, jobs, details))
    else:
        _print_status(first, answers, silent, jobs, details)
    ctx.exit(ExitCode.FAILED if silent or lost or first.fenced else ExitCode.OK)


def _merge_answers(answers: "dict[str, LeagueAnswer]") -> "LeagueAnswer":
    """Return the first broker's answer, with the other files that the broker with the newest league file
    lists, and with the fenced members of all brokers: each knows only those of its time."""
    import msgspec  # noqa: PLC0415  help need not wait for it

    newest = max(answers.values(), key=lambda answer: answer.file_version)
    fenced: dict[str, str] = {}
    for answer in answers.values():
        fenced = answer.fenced | fenced
    return msgspec.structs.replace(
        next(iter(answers.values())),
        file_version=newest.file_version,
        other_files=newest.other_files,
        fenced=fenced,
    )


def _status_json(
    first: "LeagueAnswer",
    answers: "dict[str, LeagueAnswer]",
    silent: dict[str, str],
    jobs: dict[str, int],
    details: "dict[str, ClusterDetail]",
) -> dict[str, Any]:
    return {
        "league": first.league,
        "brokers": [
            {
                "name": broker.name,
                "door": broker.door,
                "answers": broker.name in answers,
                "reason": silent.get(broker.name, ""),
                "version": answers[broker.name].version if broker.name in answers else None,
            }
            for broker in first.brokers
        ],
        "clusters": _clusters_json(first.clusters, details),
        "jobs": jobs,
        "file_version": first.file_version,
        "other_files": first.other_files,
        "fenced": first.fenced,
    }


def _print_status(
    first: "LeagueAnswer",
    answers: "dict[str, LeagueAnswer]",
    silent: dict[str, str],
    jobs: dict[str, int],
    details: "dict[str, ClusterDetail]",
) -> None:
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.cli.tables import console, state_markup, table  # noqa: PLC0415  as above

    out = console()
    jobs_text = "  ".join(f"{count} {state_markup(word)}" for word, count in jobs.items() if count) or "none"
    out.print(f"[bold]league {escape(first.league)}[/]   jobs: {jobs_text}")
    rows = []
    for broker in first.brokers:
        answer = answers.get(broker.name)
        reason = escape(silent.get(broker.name, "not in this context"))
        state_text = "[green]answers[/]" if answer else f"[red]silent[/] ({reason})"
        state_text = "[red]may not act[/]" if broker.name in first.fenced else state_text
        state_text += " [yellow](another league file)[/]" if broker.name in first.other_files else ""
        todo = str(sum(answer.jobs.get(word, 0) for word in STATES[:4])) if answer else ""
        rows.append((escape(broker.name), escape(broker.door), state_text, todo))
    out.print(table(("broker", "door", "state", "jobs to do"), rows, right=("jobs to do",)))
    out.print(_clusters_table(first.clusters, details, first.fenced, first.other_files))
    for sentence in _drain_sentences(_drains(first.clusters, details)):
        out.print(escape(sentence))
    for name, problem in first.other_files.items():
        warn(f"the league file is version {first.file_version}, but {name}: {problem}")
    for name, problem in first.fenced.items():
        warn(f"{name} may not act: {problem}")


@click.command("clusters")
@league_options
def clusters(as_json: bool) -> None:
    """List the clusters: their resources, what is free, and when they were last heard of."""
    with league_client() as client:
        answer = client.league()
        details = _fetch_details(client, answer.clusters)
    if as_json:
        print_json({"clusters": _clusters_json(answer.clusters, details)})
        return
    from hanse.cli.tables import console  # noqa: PLC0415  only to draw

    console().print(_clusters_table(answer.clusters, details))
    for sentence in _drain_sentences(_drains(answer.clusters, details)):
        click.echo(sentence)
    for name, detail in details.items():
        for warning in detail.warnings:
            warn(f"{name}: {warning}")


def _fetch_details(
    client: "LeagueClient", answers: "tuple[ClusterAnswer, ...]"
) -> "dict[str, ClusterDetail]":
    """Fetch the details of reachable clusters from the clusters themselves."""
    from hanse.client.transport import NoAnswerError  # noqa: PLC0415  help need not wait for it

    details: dict[str, ClusterDetail] = {}
    for answer in answers:
        if answer.reachable:
            with suppress(NoAnswerError):  # then the broker's data is used
                details[answer.name] = client.cluster(answer.name, answer.door)
    return details


def _count_withheld(detail: "ClusterDetail | None") -> int:
    """Count the nodes that the cluster's operators keep from the league, as the cluster reports them."""
    return sum(node.withheld != "" for node in detail.nodes) if detail is not None else 0


def _count_draining(detail: "ClusterDetail | None") -> int:
    """Count the nodes of a cluster that take no new tasks."""
    return sum(node.draining is True for node in detail.nodes) if detail is not None else 0


def _clusters_json(
    answers: "tuple[ClusterAnswer, ...]", details: "dict[str, ClusterDetail]"
) -> list[dict[str, Any]]:
    """Return a broker's data on each cluster, and the cluster's own where it answers (else null)."""
    import msgspec  # noqa: PLC0415  as above

    rows: list[dict[str, Any]] = []
    for answer in answers:
        detail = details.get(answer.name)
        row = msgspec.to_builtins(answer)
        row["draining"] = (
            answer.draining if detail is None else 0 < len(detail.nodes) == _count_draining(detail)
        )
        row["nodes_draining"] = None if detail is None else _count_draining(detail)
        row["drains"] = msgspec.to_builtins(_drains((answer,), details)[answer.name])
        row["running"] = None if detail is None else detail.running
        row["backend"] = None if detail is None else detail.backend
        row["warnings"] = None if detail is None else list(detail.warnings)
        rows.append(row)
    return rows


Drains = dict[str, "tuple[DrainFacts, ...]"]


def _drains(answers: "tuple[ClusterAnswer, ...]", details: "dict[str, ClusterDetail]") -> Drains:
    """Return the drains of each cluster, as it reports them or else as a broker does."""
    return {
        answer.name: details[answer.name].drains if answer.name in details else answer.drains
        for answer in answers
    }


def _drain_sentences(drains_by_cluster: Drains) -> list[str]:
    """Return sentences with the reason, the person and the times of each drain."""
    sentences = []
    for name, drains in drains_by_cluster.items():
        for drain in drains[:DRAINS_SHOWN_MAX]:
            place = _join_names([f"{name}/{node}" for node in drain.nodes]) if drain.nodes else name
            sentences.append(f"{place} {'are' if len(drain.nodes) > 1 else 'is'} drained{drain.text()}.")
        if len(drains) > DRAINS_SHOWN_MAX:
            sentences.append(f"{name} has {len(drains) - DRAINS_SHOWN_MAX} more drains: see --json.")
    return sentences


def _join_names(places: list[str]) -> str:
    more = len(places) - NODES_LISTED_MAX
    return ", ".join(places[:NODES_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _clusters_table(
    answers: "tuple[ClusterAnswer, ...]",
    details: "dict[str, ClusterDetail]",
    fenced: Collection[str] = (),
    other_files: Collection[str] = (),
) -> "RenderableType":
    """Return a table. ``fenced``: members that may not act; ``other_files``: those with another file."""
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.cli.formatting import cpus_free, gpus_free, memory_free, span_text  # noqa: PLC0415  as above
    from hanse.cli.tables import table  # noqa: PLC0415  as above

    numbers = ("nodes", "running", "CPUs free", "memory free", "GPUs free", "heard of")
    rows = []
    for answer in answers:
        detail = details.get(answer.name)
        state = "[green]open[/]" if answer.reachable else "[red]out of reach[/]"
        if answer.reachable and (answer.draining or _count_draining(detail)):
            part = (
                f" ({_count_draining(detail)} of {answer.nodes})"
                if _count_draining(detail) < answer.nodes
                else ""
            )
            state = f"[yellow]draining[/]{part}"
        elif answer.reachable and (withheld := _count_withheld(detail)):
            state = f"[yellow]withheld[/] ({withheld} of {answer.nodes})"
        state = "[red]may not act[/]" if answer.name in fenced else state
        state += " [yellow](another league file)[/]" if answer.name in other_files else ""
        running = str(detail.running) if detail is not None else ""
        last_seen = f"{span_text(answer.seen_seconds)} ago" if answer.seen_seconds is not None else "never"
        other = ", ".join(
            f"{answer.free.custom.get(name, 0)}/{amount} {name}"
            for name, amount in answer.capacity.custom.items()
        )
        room = (answer.free, answer.capacity)
        amounts = (cpus_free(*room), memory_free(*room), gpus_free(*room))
        rows.append(
            (escape(answer.name), state, str(answer.nodes), running, *amounts, last_seen, escape(other))
        )
    return table(("cluster", "state", *numbers, "other"), rows, right=numbers)


@click.command("nodes")
@click.argument("names", nargs=-1, metavar="[CLUSTER...]")
@click.option("--hardware", "shows_hardware", is_flag=True, help="Also list the machines and their hardware.")
@league_options
def nodes(names: tuple[str, ...], shows_hardware: bool, as_json: bool) -> None:
    """List the nodes of all clusters, or of some, as the clusters report them.

    Nodes of a cluster that does not answer are shown as a broker last knew them. Devices that tasks get are
    listed with the tasks that have them. With --hardware, and in --json, there are also the machines of the
    runners, with what they have detected.
    """
    with league_client() as client:
        rows, drains, machines = _fetch_nodes(client, names)
    if as_json:
        print_json({"nodes": rows, "hardware": machines})
        return
    from hanse.cli.hardware_text import device_lines, hardware_lines  # noqa: PLC0415  only to draw
    from hanse.cli.tables import console  # noqa: PLC0415  as above

    console().print(_nodes_table(rows))
    for line in (*device_lines(rows), *(hardware_lines(machines) if shows_hardware else ())):
        click.echo(line)
    for sentence in (*_drain_sentences(drains), *_withheld_sentences(rows)):
        click.echo(sentence)


def _fetch_nodes(
    client: "LeagueClient", names: tuple[str, ...]
) -> "tuple[list[NodeAnswer], Drains, dict[str, HardwareAnswer]]":
    """Fetch all nodes, drains and machines from each cluster, or the nodes from a broker where the cluster
    does not answer."""
    import msgspec  # noqa: PLC0415  help need not wait for it

    from hanse.client.transport import NoAnswerError  # noqa: PLC0415  as above

    known = client.league().clusters
    endpoints = {cluster.name: cluster.door for cluster in known}
    drains = {name: listed for name, listed in _drains(known, {}).items() if name in names or not names}
    unknown = [name for name in names if name not in endpoints]
    if unknown:
        raise CommandError(
            f"there is no cluster '{unknown[0]}' in this league",
            ExitCode.USAGE,
            f"there are: {', '.join(endpoints) or 'none'}",
        )
    rows: list[NodeAnswer] = []
    machines: dict[str, HardwareAnswer] = {}
    for name in names or endpoints:
        try:
            detail = client.cluster(name, endpoints[name])
            rows += [msgspec.structs.replace(node, cluster=name) for node in detail.nodes]
            drains[name] = detail.drains
            machines |= detail.hardware
        except NoAnswerError as error:
            warn(f"{name} does not answer ({error}); its nodes are shown as a broker last knew them")
            rows += client.nodes(name).nodes
    return rows, drains, machines


def _nodes_table(rows: "list[NodeAnswer]") -> "RenderableType":
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.cli.formatting import cpus_free, gpus_free, memory_free  # noqa: PLC0415  as above
    from hanse.cli.tables import table  # noqa: PLC0415  as above

    numbers = ("CPUs free", "memory free", "GPUs free")
    cells = []
    for row in rows:
        state = (
            "[dim]as last heard of[/]" if row.up is None else "[green]open[/]" if row.up else "[red]down[/]"
        )
        if row.up and row.withheld:
            state = "[yellow]withheld[/]"
        if row.up and row.draining:
            state = "[yellow]draining[/]"
        shown = {**row.attributes, **row.capacity.custom}
        attributes = ", ".join(f"{name}={_attribute_text(value)}" for name, value in shown.items())
        room = (row.free, row.capacity)
        amounts = (cpus_free(*room), memory_free(*room), gpus_free(*room))
        cells.append((escape(f"{row.cluster}/{row.node}"), state, *amounts, escape(attributes)))
    return table(("node", "state", *numbers, "attributes"), cells, right=numbers)


def _withheld_sentences(rows: "list[NodeAnswer]") -> list[str]:
    """Return a sentence for each reason why nodes are withheld, in the order of their first nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.withheld:
            nodes.setdefault((row.cluster, row.withheld), []).append(f"{row.cluster}/{row.node}")
    sentences = []
    for (_, why), places in nodes.items():
        sentences.append(f"{_join_names(places)}: {why}.")
    return sentences


def _attribute_text(value: object) -> str:
    """Format an attribute as conditions write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
