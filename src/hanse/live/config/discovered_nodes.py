"""Discovered nodes, of a cluster whose league file names none: the backend reports them, a file keeps them.

 Nodes are numbered by their places for ever, so a node keeps its place: new nodes are added
at the end, and a node that is gone stays, with all its capacity withheld by the backend. When the foreign
cluster does not answer at the warden's start, the nodes of the file are used.
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.config import NodeConfig
from hanse.league.config import ClusterEntry, LeagueError
from hanse.live.backends.factory import make_backend
from hanse.live.telemetry.json_logs import log_fields
from hanse.security.atomic_files import PRIVATE, replace

NODES_FILE: Final = "nodes.json"
NAME_ENDING: Final = ".node"
"""Ending of the attribute of a discovered node that has its name in the foreign cluster."""
log = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(tuple[NodeConfig, ...]).decode


async def discover_nodes(entry: ClusterEntry, directory: Path) -> ClusterEntry:
    """Return the cluster with its nodes."""
    if entry.nodes:
        return entry
    known = _read_known_nodes(directory / NODES_FILE)
    try:
        found = await _ask_backend(entry, directory)
    except Exception as error:
        if not known:
            raise LeagueError(
                f"cluster {entry.name}: its backend does not report its nodes ({error}). Start it "
                f"again when the foreign cluster answers, or list its nodes in the league file"
            ) from error
        log.warning(
            "the backend does not answer: using the nodes known before", extra=log_fields(error=str(error))
        )
        found = known
    nodes = merge_nodes(
        known, tuple([msgspec.structs.replace(node, runner=entry.own_runner) for node in found])
    )
    if not nodes:
        raise LeagueError(f"cluster {entry.name}: its backend has found no nodes")
    if nodes != known:
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        replace(directory / NODES_FILE, msgspec.json.format(msgspec.json.encode(nodes)), PRIVATE)
    return msgspec.structs.replace(entry, nodes=nodes)


async def _ask_backend(entry: ClusterEntry, directory: Path) -> tuple[NodeConfig, ...]:
    backend = make_backend(entry, directory)
    try:
        return await backend.capacity()
    finally:
        await backend.close()


def merge_nodes(known: tuple[NodeConfig, ...], found: tuple[NodeConfig, ...]) -> tuple[NodeConfig, ...]:
    """Return known nodes at their places, updated where they were found again, then new nodes."""
    found_by_name = {original_name(node): node for node in found}
    places = tuple([found_by_name.pop(original_name(node), node) for node in known])
    return places + tuple(found_by_name.values())


def original_name(node: NodeConfig) -> str:
    """Return the name of a discovered node in the foreign cluster."""
    for name, value in node.attributes:
        if name.endswith(NAME_ENDING):
            return str(value)
    raise LeagueError("a backend has found a node without a name")


def _read_known_nodes(path: Path) -> tuple[NodeConfig, ...]:
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except msgspec.MsgspecError as error:
        raise LeagueError(f"{path} is damaged: {error}. Restore it from a backup") from None
