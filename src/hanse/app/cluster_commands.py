"""``hanse status``, ``clusters``, ``nodes``, ``drain`` and ``undrain``: the league and its parts."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from hanse.app.exit_codes import ExitCode
from hanse.app.league_options import PLACE, league, league_options, print_json
from hanse.app.told import CommandError, warn

if TYPE_CHECKING:
    from rich.table import Table

    from hanse.app.answers import ClusterAnswer, ClusterDetail, LeagueAnswer, NodeAnswer
    from hanse.app.client import Client

NODES_NAMED_MAX: Final = 8
"""In one sentence."""
STATES: Final = ("blocked", "queued", "placed", "running", "succeeded", "failed", "cancelled")


@click.command("status")
@league_options
@click.pass_context
def status(ctx: click.Context, /, as_json: bool) -> None:
    """Show how the league is: its brokers, its clusters, its jobs.

    Ends with 1 if a broker does not answer or a cluster is out of reach, and with 69 if nobody answers.
    """
    with league() as client:
        answers, silent = client.every_league()
        details = _own_words(client, next(iter(answers.values())).clusters)
    first = next(iter(answers.values()))
    jobs = {state: sum(answer.jobs.get(state, 0) for answer in answers.values()) for state in STATES}
    lost = [cluster.name for cluster in first.clusters if not cluster.reachable]
    if as_json:
        print_json(_status_json(first, answers, silent, jobs, details))
    else:
        _draw_status(first, answers, silent, jobs, details)
    ctx.exit(ExitCode.FAILED if silent or lost else ExitCode.OK)


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
    }


def _draw_status(
    first: "LeagueAnswer",
    answers: "dict[str, LeagueAnswer]",
    silent: dict[str, str],
    jobs: dict[str, int],
    details: "dict[str, ClusterDetail]",
) -> None:
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.app.drawing import console, state, table  # noqa: PLC0415  as above

    out = console()
    told = "  ".join(f"{count} {state(word)}" for word, count in jobs.items() if count) or "none"
    out.print(f"[bold]league {escape(first.league)}[/]   jobs: {told}")
    rows = []
    for broker in first.brokers:
        answer = answers.get(broker.name)
        reason = escape(silent.get(broker.name, "not in this context"))
        seen = "[green]answers[/]" if answer else f"[red]silent[/] ({reason})"
        todo = str(sum(answer.jobs.get(word, 0) for word in STATES[:4])) if answer else ""
        rows.append((escape(broker.name), escape(broker.door), seen, todo))
    out.print(table(("broker", "door", "state", "jobs to do"), rows, right=("jobs to do",)))
    out.print(_clusters_table(first.clusters, details))


@click.command("clusters")
@league_options
def clusters(as_json: bool) -> None:
    """List the clusters: what they have, what is free, and when they were last heard of."""
    with league() as client:
        answer = client.league()
        details = _own_words(client, answer.clusters)
    if as_json:
        print_json({"clusters": _clusters_json(answer.clusters, details)})
        return
    from hanse.app.drawing import console  # noqa: PLC0415  only to draw

    console().print(_clusters_table(answer.clusters, details))
    for name, detail in details.items():
        for warning in detail.warnings:
            warn(f"{name}: {warning}")


def _own_words(client: "Client", found: "tuple[ClusterAnswer, ...]") -> "dict[str, ClusterDetail]":
    """What clusters say of themselves. Those that a broker does not reach are not asked."""
    from hanse.app.transport import SilentError  # noqa: PLC0415  help need not wait for it

    details: dict[str, ClusterDetail] = {}
    for one in found:
        if one.reachable:
            with suppress(SilentError):  # then a broker's word must do
                details[one.name] = client.cluster(one.name, one.door)
    return details


def _count_withheld(detail: "ClusterDetail | None") -> int:
    """How many nodes those who run the cluster keep from the league, by the cluster's own word."""
    return sum(node.withheld != "" for node in detail.nodes) if detail is not None else 0


def _draining(detail: "ClusterDetail | None") -> int:
    """Nodes of a cluster that take no new tasks."""
    return sum(node.draining is True for node in detail.nodes) if detail is not None else 0


def _clusters_json(
    found: "tuple[ClusterAnswer, ...]", details: "dict[str, ClusterDetail]"
) -> list[dict[str, Any]]:
    """A broker's words on each cluster, and the cluster's own where it answers (else null)."""
    import msgspec  # noqa: PLC0415  as above

    rows: list[dict[str, Any]] = []
    for one in found:
        detail = details.get(one.name)
        row = msgspec.to_builtins(one)
        row["draining"] = one.draining if detail is None else 0 < len(detail.nodes) == _draining(detail)
        row["nodes_draining"] = None if detail is None else _draining(detail)
        row["running"] = None if detail is None else detail.running
        row["backend"] = None if detail is None else detail.backend
        row["warnings"] = None if detail is None else list(detail.warnings)
        rows.append(row)
    return rows


def _clusters_table(found: "tuple[ClusterAnswer, ...]", details: "dict[str, ClusterDetail]") -> "Table":
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.app.drawing import table  # noqa: PLC0415  as above
    from hanse.app.words import cpus_free, gpus_free, memory_free, span_text  # noqa: PLC0415  as above

    numbers = ("nodes", "running", "CPUs free", "memory free", "GPUs free", "heard of")
    rows = []
    for one in found:
        detail = details.get(one.name)
        state = "[green]open[/]" if one.reachable else "[red]out of reach[/]"
        if one.reachable and (one.draining or _draining(detail)):
            part = f" ({_draining(detail)} of {one.nodes})" if _draining(detail) < one.nodes else ""
            state = f"[yellow]draining[/]{part}"
        elif one.reachable and (withheld := _count_withheld(detail)):
            state = f"[yellow]withheld[/] ({withheld} of {one.nodes})"
        running = str(detail.running) if detail is not None else ""
        heard = f"{span_text(one.seen_seconds)} ago" if one.seen_seconds is not None else "never"
        other = ", ".join(
            f"{one.free.custom.get(name, 0)}/{amount} {name}" for name, amount in one.capacity.custom.items()
        )
        room = (one.free, one.capacity)
        amounts = (cpus_free(*room), memory_free(*room), gpus_free(*room))
        rows.append((escape(one.name), state, str(one.nodes), running, *amounts, heard, escape(other)))
    return table(("cluster", "state", *numbers, "other"), rows, right=numbers)


@click.command("nodes")
@click.argument("names", nargs=-1, metavar="[CLUSTER...]")
@league_options
def nodes(names: tuple[str, ...], as_json: bool) -> None:
    """List the nodes of all clusters, or of some, as the clusters themselves see them.

    Of a cluster that does not answer, the nodes are shown as a broker last heard of them.
    """
    with league() as client:
        rows = _nodes(client, names)
    if as_json:
        print_json({"nodes": rows})
        return
    from hanse.app.drawing import console  # noqa: PLC0415  only to draw

    console().print(_nodes_table(rows))
    for sentence in _withheld(rows):
        click.echo(sentence)


def _nodes(client: "Client", names: tuple[str, ...]) -> "list[NodeAnswer]":
    """Every node by the word of its own cluster, or of a broker where that is silent."""
    import msgspec  # noqa: PLC0415  help need not wait for it

    from hanse.app.transport import SilentError  # noqa: PLC0415  as above

    doors = {cluster.name: cluster.door for cluster in client.league().clusters}
    unknown = [name for name in names if name not in doors]
    if unknown:
        raise CommandError(
            f"there is no cluster '{unknown[0]}' in this league",
            ExitCode.USAGE,
            f"there are: {', '.join(doors) or 'none'}",
        )
    rows: list[NodeAnswer] = []
    for name in names or doors:
        try:
            found = client.cluster(name, doors[name])
            rows += [msgspec.structs.replace(node, cluster=name) for node in found.nodes]
        except SilentError as error:
            warn(f"{name} does not answer ({error}); its nodes are shown as a broker last heard of them")
            rows += client.nodes(name).nodes
    return rows


def _nodes_table(rows: "list[NodeAnswer]") -> "Table":
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.app.drawing import table  # noqa: PLC0415  as above
    from hanse.app.words import cpus_free, gpus_free, memory_free  # noqa: PLC0415  as above

    numbers = ("CPUs free", "memory free", "GPUs free")
    found = []
    for one in rows:
        state = (
            "[dim]as last heard of[/]" if one.up is None else "[green]open[/]" if one.up else "[red]down[/]"
        )
        if one.up and one.withheld:
            state = "[yellow]withheld[/]"
        if one.up and one.draining:
            state = "[yellow]draining[/]"
        known = {**one.attributes, **one.capacity.custom}
        attributes = ", ".join(f"{name}={_written(value)}" for name, value in known.items())
        room = (one.free, one.capacity)
        amounts = (cpus_free(*room), memory_free(*room), gpus_free(*room))
        found.append((escape(f"{one.cluster}/{one.node}"), state, *amounts, escape(attributes)))
    return table(("node", "state", *numbers, "attributes"), found, right=numbers)


def _withheld(rows: "list[NodeAnswer]") -> list[str]:
    """Why nodes are not for the league, a sentence for each reason, in the order of their first nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for one in rows:
        if one.withheld:
            nodes.setdefault((one.cluster, one.withheld), []).append(f"{one.cluster}/{one.node}")
    sentences = []
    for (_, why), some in nodes.items():
        more = len(some) - NODES_NAMED_MAX
        named = ", ".join(some[:NODES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        sentences.append(f"{named}: {why}.")
    return sentences


def _written(value: object) -> str:
    """An attribute as conditions write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@click.command("drain")
@click.argument("places", type=PLACE, nargs=-1, required=True, metavar="CLUSTER[/NODE]...")
@league_options
def drain(places: tuple[tuple[str, int | None], ...], as_json: bool) -> None:
    """Let no new task onto a cluster or a node. What runs there goes on to its end.

    A cluster that is drained as a whole takes no work at all until 'hanse undrain'.
    """
    _set_drain(places, True, as_json)


@click.command("undrain")
@click.argument("places", type=PLACE, nargs=-1, required=True, metavar="CLUSTER[/NODE]...")
@league_options
def undrain(places: tuple[tuple[str, int | None], ...], as_json: bool) -> None:
    """Open a cluster or a node again that was drained."""
    _set_drain(places, False, as_json)


def _set_drain(places: tuple[tuple[str, int | None], ...], draining: bool, as_json: bool) -> None:
    wanted: dict[str, list[int] | None] = {}
    for cluster, node in places:
        known = wanted.setdefault(cluster, [])
        if node is None or known is None:
            wanted[cluster] = None  # the whole cluster contains its nodes
        else:
            known.append(node)
    answers = []
    with league() as client:
        for cluster, numbers in wanted.items():
            try:
                answers.append(client.drain(cluster, numbers or [], draining))
            except CommandError as error:
                if error.status != ExitCode.BAD_JOB:
                    raise
                which = ", ".join(f"{cluster}/{number}" for number in numbers or ())
                raise CommandError(
                    f"not all of these are nodes of {cluster}: {which}",
                    ExitCode.USAGE,
                    f"'hanse nodes {cluster}' lists them",
                ) from None
    if as_json:
        print_json({"places": answers})
        return
    for answer in answers:
        numbers = wanted.get(answer.cluster)
        which = answer.cluster if numbers is None else ", ".join(f"{answer.cluster}/{n}" for n in numbers)
        click.echo(f"{which} {'takes no new tasks' if draining else 'is open again'}")
