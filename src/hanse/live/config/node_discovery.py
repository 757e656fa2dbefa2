"""The nodes of a cluster whose league file names none: as its backend finds them, and as they are remembered.

Nodes are numbered by their places for ever, so what was found once keeps its place: new nodes join at the
end, and one that is gone stays, wholly withheld by its backend. When the foreign cluster does not answer at
the warden's start, what is remembered serves.
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.config import NodeConfig
from hanse.live.backends.factory import make_backend
from hanse.live.config.league import ClusterEntry, LeagueError
from hanse.live.telemetry.json_logs import fields
from hanse.security.atomic_files import PRIVATE, replace

NODES: Final = "nodes.json"
NAME_ENDING: Final = ".node"
"""A found node has an attribute of such a name, which says what it is called where it comes from."""
log = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(tuple[NodeConfig, ...]).decode


async def take_stock(entry: ClusterEntry, directory: Path) -> ClusterEntry:
    """The cluster with its nodes."""
    if entry.nodes:
        return entry
    known = _remembered(directory / NODES)
    try:
        found = await _found(entry, directory)
    except Exception as error:
        if not known:
            raise LeagueError(
                f"cluster {entry.name}: its backend does not say which nodes it has ({error}); start it "
                f"again when the foreign cluster answers, or list its nodes in the league file"
            ) from error
        log.warning(
            "the backend does not answer: the nodes are as remembered", extra=fields(error=str(error))
        )
        found = known
    nodes = merged(known, tuple([msgspec.structs.replace(node, runner=entry.own_runner) for node in found]))
    if not nodes:
        raise LeagueError(f"cluster {entry.name}: its backend has found no nodes")
    if nodes != known:
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        replace(directory / NODES, msgspec.json.format(msgspec.json.encode(nodes)), PRIVATE)
    return msgspec.structs.replace(entry, nodes=nodes)


async def _found(entry: ClusterEntry, directory: Path) -> tuple[NodeConfig, ...]:
    backend = make_backend(entry, directory)
    try:
        return await backend.capacity()
    finally:
        await backend.close()


def merged(known: tuple[NodeConfig, ...], found: tuple[NodeConfig, ...]) -> tuple[NodeConfig, ...]:
    """What was known at its place, as it is now where it was found again; what is new at the end."""
    now = {name_of(node): node for node in found}
    places = tuple([now.pop(name_of(node), node) for node in known])
    return places + tuple(now.values())


def name_of(node: NodeConfig) -> str:
    """What a found node is called where it comes from."""
    for name, value in node.attributes:
        if name.endswith(NAME_ENDING):
            return str(value)
    raise LeagueError("a backend has found a node and does not say what it is called")


def _remembered(path: Path) -> tuple[NodeConfig, ...]:
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except msgspec.MsgspecError as error:
        raise LeagueError(f"{path} is not as it was written: {error}") from None
