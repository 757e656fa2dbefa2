"""The state of the league as a broker sees it: its members, and each cluster in this broker's view."""

from hanse import __version__
from hanse.api.drain_facts import DrainFacts, drain_facts
from hanse.api.records import Amounts, BrokerAnswer, ClusterAnswer, LeagueAnswer, NodeAnswer, NodesAnswer
from hanse.api.row_records import TenantTotals
from hanse.core.broker.broker import Broker
from hanse.core.broker.cluster_view import ViewState
from hanse.league.config import ClusterEntry, LeagueConfig
from hanse.live.readmodel.cluster_facts import ObservedCluster, ObservedNode
from hanse.model.ids import SECOND
from hanse.model.resources import BASE_DIMENSIONS, Dimensions, Resources, Vector
from hanse.security.wall_time import wall_now

SILENT_AFTER = 7 * SECOND
"""A cluster without a beat for this long is shown as unreachable."""


def league_answer(
    league: LeagueConfig, own: str, machine: Broker, now: int, totals: list[TenantTotals]
) -> LeagueAnswer:
    """Return the whole league at a glance."""
    jobs: dict[str, int] = {}
    for tenant in totals:
        for state, count in tenant.jobs.items():
            jobs[state] = jobs.get(state, 0) + count
    brokers = [
        BrokerAnswer(entry.name, str(entry.door), entry.name == own or machine.is_alive(entry.name))
        for entry in league.serving_brokers
    ]
    clusters = [cluster_answer(entry, machine, now) for entry in league.serving_clusters]
    return LeagueAnswer(league.name, own, __version__, tuple(brokers), tuple(clusters), jobs)


def cluster_answer(entry: ClusterEntry, machine: Broker, now: int) -> ClusterAnswer:
    """Return one cluster as this broker believes it to be."""
    view = machine.view_state_of(entry.name)
    snapshot = view.snapshot
    seen = snapshot is not None
    return ClusterAnswer(
        name=entry.name,
        door=str(entry.door),
        reachable=seen and now - view.renewed_at < SILENT_AFTER,
        seen_seconds=(now - view.renewed_at) / SECOND if seen else None,
        nodes=len(snapshot.capacity) if snapshot is not None else len(entry.nodes),
        draining=any(not drain.nodes for drain in view.drains) if seen else None,
        drains=_drains(view, now),
        standing=view.standing / 1_000,
        capacity=named_amounts(_sum(snapshot.capacity), snapshot.dimensions)
        if snapshot is not None
        else Amounts(),
        free=named_amounts(_sum(view.free), snapshot.dimensions) if snapshot is not None else Amounts(),
    )


def seconds_until_silent(league: LeagueConfig, machine: Broker, now: int) -> float | None:
    """Return the seconds until the next reachable cluster counts as unreachable; None: there is none."""
    remaining = [
        view.renewed_at + SILENT_AFTER - now
        for view in (machine.view_state_of(entry.name) for entry in league.serving_clusters)
        if view.snapshot is not None
    ]
    return min((span / SECOND for span in remaining if span > 0), default=None)


def nodes_answer(
    league: LeagueConfig, machine: Broker, only_cluster: str, after: tuple[str, int] | None, limit: int
) -> NodesAnswer:
    """Return a page of nodes as this broker believes them to be, in the order of the league file.

    ``only_cluster``: only nodes of this cluster; ``after``: the cluster and number of the last node seen.
    """
    names = [entry.name for entry in league.serving_clusters]
    begin = names.index(after[0]) if after is not None and after[0] in names else 0
    nodes: list[NodeAnswer] = []
    for name in names[begin:]:
        if only_cluster in ("", name):
            first = after[1] + 1 if after is not None and after[0] == name else 0
            nodes += _nodes(name, machine, first, limit + 1 - len(nodes))
        if len(nodes) > limit:
            last = nodes[limit - 1]
            return NodesAnswer(tuple(nodes[:limit]), f"{last.cluster}/{last.node}")
    return NodesAnswer(tuple(nodes))


def _nodes(name: str, machine: Broker, first: int, count: int) -> list[NodeAnswer]:
    view = machine.view_state_of(name)
    snapshot = view.snapshot
    if snapshot is None:
        return []
    return [
        NodeAnswer(
            node=number,
            cluster=name,
            capacity=named_amounts(snapshot.capacity[number], snapshot.dimensions),
            free=named_amounts(view.free[number], snapshot.dimensions),
            attributes=dict(snapshot.attributes[number]),
            reserve=number in snapshot.reserve,
        )
        for number in range(first, min(first + count, len(snapshot.capacity)))
    ]


def cluster_facts(league: LeagueConfig, machine: Broker, now: int) -> tuple[ObservedCluster, ...]:
    """Return the clusters as the explanations need them."""
    return tuple(_facts(entry, machine, now) for entry in league.serving_clusters)


def _facts(entry: ClusterEntry, machine: Broker, now: int) -> ObservedCluster:
    view = machine.view_state_of(entry.name)
    snapshot = view.snapshot
    if snapshot is None:
        return ObservedCluster(entry.name, ())
    drains = _drains(view, now)
    whole = any(not drain.nodes for drain in drains)
    closed = {node for drain in drains for node in drain.nodes}
    nodes = tuple(
        ObservedNode(
            _resources(capacity, snapshot.dimensions),
            _resources(free, snapshot.dimensions),
            attributes,
            draining=whole or number in closed,
            reserved=number in snapshot.reserve,
        )
        for number, (capacity, free, attributes) in enumerate(
            zip(snapshot.capacity, view.free, snapshot.attributes, strict=True)
        )
    )
    silent = now - view.renewed_at
    return ObservedCluster(
        entry.name,
        nodes,
        draining=whole,
        seen=silent / SECOND,
        reachable=silent < SILENT_AFTER,
        fenced=now < view.closed_until,
        drains=drains,
    )


def _drains(view: ViewState, now: int) -> tuple[DrainFacts, ...]:
    """Return the drains of the cluster's latest beat. It left the warden at ``echo`` by the warden's clock
    and arrived at ``renewed_at`` by ours, the same moment but for the network delay."""
    return drain_facts(view.drains, view.echo, wall_now() - (now - view.renewed_at))


def _sum(vectors: "list[Vector] | tuple[Vector, ...]") -> Vector:
    return tuple(sum(column) for column in zip(*vectors, strict=True))


def named_amounts(vector: Vector, dimensions: Dimensions) -> Amounts:
    """Return a vector with the names of its columns; the base columns are there even if no node has any."""
    named = dict(zip(dimensions, vector, strict=False))
    cpu, memory, gpu = (named.get(name, 0) for name in BASE_DIMENSIONS)
    custom = {name: named.get(name, 0) for name in dimensions[len(BASE_DIMENSIONS) :]}
    return Amounts(cpu, memory, gpu, custom)


def _resources(vector: Vector, dimensions: Dimensions) -> Resources:
    custom = tuple((name, amount) for name, amount in zip(dimensions[3:], vector[3:], strict=True) if amount)
    return Resources(vector[0], vector[1], vector[2], custom)
