"""What a broker's door says of the league: its members, and each cluster as this broker believes it to be."""

from typing import Any

from hanse import __version__
from hanse.core.broker import Broker
from hanse.live.league import ClusterEntry, League
from hanse.live.reads.facts import ClusterFacts, NodeFacts
from hanse.live.reads.rows import Totals
from hanse.model.ids import SECOND
from hanse.model.resources import BASE_DIMENSIONS, Dimensions, Resources, Vector

SILENT_AFTER = 7 * SECOND
"""A cluster that has not beaten for so long is shown as out of reach."""


def league_answer(
    league: League, own: str, machine: Broker, now: int, totals: list[Totals]
) -> dict[str, Any]:
    """The whole league at a glance."""
    jobs: dict[str, int] = {}
    for tenant in totals:
        for state, count in tenant.jobs.items():
            jobs[state] = jobs.get(state, 0) + count
    return {
        "league": league.name,
        "broker": own,
        "version": __version__,
        "brokers": [
            {
                "name": entry.name,
                "door": str(entry.door),
                "alive": entry.name == own or machine.alive(entry.name),
            }
            for entry in league.brokers
        ],
        "clusters": [_cluster_answer(entry, machine, now) for entry in league.clusters],
        "jobs": jobs,
    }


def _cluster_answer(entry: ClusterEntry, machine: Broker, now: int) -> dict[str, Any]:
    sight = machine.sight_of(entry.name)
    snapshot = sight.snapshot
    answer: dict[str, Any] = {
        "name": entry.name,
        "door": str(entry.door),
        "reachable": snapshot is not None and now - sight.renewed_at < SILENT_AFTER,
        "seen_seconds": (now - sight.renewed_at) / SECOND if snapshot is not None else None,
        "nodes": len(entry.nodes),
        "standing": sight.standing / 1_000,
    }
    if snapshot is not None:
        answer["capacity"] = _amounts(_sum(snapshot.capacity), snapshot.dimensions)
        answer["free"] = _amounts(_sum(sight.free), snapshot.dimensions)
    return answer


def nodes_answer(league: League, machine: Broker, wanted: str) -> dict[str, Any]:
    """Every node as this broker believes it to be."""
    nodes: list[dict[str, Any]] = []
    for entry in league.clusters:
        if wanted not in ("", entry.name):
            continue
        sight = machine.sight_of(entry.name)
        if sight.snapshot is None:
            continue
        dimensions = sight.snapshot.dimensions
        nodes += [
            {
                "cluster": entry.name,
                "node": number,
                "capacity": _amounts(capacity, dimensions),
                "free": _amounts(free, dimensions),
                "attributes": dict(attributes),
                "reserve": number in sight.snapshot.reserve,
            }
            for number, (capacity, free, attributes) in enumerate(
                zip(sight.snapshot.capacity, sight.free, sight.snapshot.attributes, strict=True)
            )
        ]
    return {"nodes": nodes}


def cluster_facts(league: League, machine: Broker, now: int) -> tuple[ClusterFacts, ...]:
    """The clusters as the explanations want them."""
    return tuple(_facts(entry, machine, now) for entry in league.clusters)


def _facts(entry: ClusterEntry, machine: Broker, now: int) -> ClusterFacts:
    sight = machine.sight_of(entry.name)
    snapshot = sight.snapshot
    if snapshot is None:
        return ClusterFacts(entry.name, ())
    nodes = tuple(
        NodeFacts(
            _resources(capacity, snapshot.dimensions),
            _resources(free, snapshot.dimensions),
            attributes,
            reserved=number in snapshot.reserve,
        )
        for number, (capacity, free, attributes) in enumerate(
            zip(snapshot.capacity, sight.free, snapshot.attributes, strict=True)
        )
    )
    silent = now - sight.renewed_at
    return ClusterFacts(
        entry.name,
        nodes,
        seen=silent / SECOND,
        reachable=silent < SILENT_AFTER,
        fenced=now < sight.closed_until,
    )


def _sum(vectors: "list[Vector] | tuple[Vector, ...]") -> Vector:
    return tuple(sum(column) for column in zip(*vectors, strict=True))


def _amounts(vector: Vector, dimensions: Dimensions) -> dict[str, Any]:
    base = dict(zip(BASE_DIMENSIONS, vector, strict=False))
    return {**base, "custom": dict(zip(dimensions[3:], vector[3:], strict=True))}


def _resources(vector: Vector, dimensions: Dimensions) -> Resources:
    custom = tuple((name, amount) for name, amount in zip(dimensions[3:], vector[3:], strict=True) if amount)
    return Resources(vector[0], vector[1], vector[2], custom)
