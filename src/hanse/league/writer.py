"""Writer of the league file: a league as the data of its YAML, without the settings that are defaults."""

import msgspec

from hanse.core.config import NodeConfig, Timings
from hanse.league.backend_kinds import BACKENDS
from hanse.league.config import LIVE_TIMINGS, BackendEntry, ClusterEntry, LeagueConfig
from hanse.league.device_reader import devices_to_data


def league_to_data(league: LeagueConfig) -> dict[str, object]:
    """Return the league as the data of its file."""
    changed = {
        name: f"{value}us"
        for name in Timings.__struct_fields__
        if (value := getattr(league.timings, name)) != getattr(LIVE_TIMINGS, name)
    }
    return {
        "league": league.name,
        **({"version": league.version} if league.version else {}),
        **({"joined": dict(league.joined)} if league.joined else {}),
        **({"drained": list(league.drained)} if league.drained else {}),
        **({"timings": changed} if changed else {}),
        "policy": msgspec.to_builtins(league.policy),
        "brokers": [
            {
                "name": entry.name,
                "address": str(entry.address),
                "door": str(entry.door),
                **({"retired": True} if entry.retired else {}),
            }
            for entry in league.brokers
        ],
        "clusters": [_cluster_to_data(entry) for entry in league.clusters],
    }


def _cluster_to_data(cluster: ClusterEntry) -> dict[str, object]:
    backend = {
        name: msgspec.to_builtins(getattr(cluster.backend, name))
        for name in BackendEntry.__struct_fields__
        if name not in ("kind", "settings")
        and getattr(cluster.backend, name) != getattr(BackendEntry(), name)
    }
    backend.update(BACKENDS.get(cluster.backend.kind).to_data(cluster.backend.settings))
    backend["kind"] = cluster.backend.kind
    data: dict[str, object] = {
        "name": cluster.name,
        "address": str(cluster.address),
        "door": str(cluster.door),
        "backend": backend,
    }
    if cluster.retired:
        data["retired"] = True
    if cluster.reserve:
        data["reserve"] = cluster.reserve
    if cluster.runners:
        data["runners"] = [
            {"name": entry.name, "address": str(entry.address), "door": str(entry.door)}
            for entry in cluster.runners
        ]
    if cluster.nodes:
        data["nodes"] = _nodes_to_data(cluster)
    return data


def _nodes_to_data(cluster: ClusterEntry) -> list[dict[str, object]]:
    """Return the nodes, with equal neighbours as one entry with a count."""
    lines: list[tuple[int, NodeConfig]] = []
    for node in cluster.nodes:
        if lines and lines[-1][1] == node:
            lines[-1] = (lines[-1][0] + 1, node)
        else:
            lines.append((1, node))
    data: list[dict[str, object]] = []
    for count, node in lines:
        line: dict[str, object] = {
            "count": count,
            "cpus": f"{node.capacity.cpu}m",
            "memory": node.capacity.memory,
        }
        if node.capacity.gpu:
            line["gpus"] = node.capacity.gpu
        if node.capacity.custom:
            line["resources"] = dict(node.capacity.custom)
        if node.devices:
            line["devices"] = devices_to_data(node.devices)
        if node.attributes:
            line["attributes"] = dict(node.attributes)
        if node.host:
            line["address"] = node.host
        if node.runner != cluster.own_runner:
            line["runner"] = node.runner
        data.append(line)
    return data
