"""Environment variables by which a task finds its rank and the other tasks of its gang."""

from typing import Final

import msgspec

from hanse.model.effects import LaunchAttempt
from hanse.model.ids import index_of
from hanse.model.messages.group_layout import DEFAULT_GROUP, TaskPlace

HOSTS_BYTES_MAX: Final = 100_000
"""Bytes of ``HANSE_HOSTS``, about five thousand hosts; a longer list is left out. Linux refuses a variable of
more than 128 KiB."""
PLACE_VARIABLES: Final = (
    "HANSE_GROUP",
    "HANSE_RANK",
    "HANSE_WORLD_SIZE",
    "HANSE_LOCAL_RANK",
    "HANSE_LOCAL_SIZE",
    "HANSE_NODE_RANK",
    "HANSE_NODES",
    "HANSE_HOSTS",
    "HANSE_MASTER_ADDR",
    "HANSE_MASTER_PORT",
)
"""All of them. No job can set one."""
OWN_VARIABLES: Final = ("HANSE_RANK", "HANSE_LOCAL_RANK")
"""Those in which the tasks of a gang on one node differ."""
_ALONE: Final = TaskPlace(DEFAULT_GROUP, 0, 1)


def place_variables(launch: LaunchAttempt) -> list[tuple[str, str]]:
    """Return the variables of an attempt. A broker of an earlier release tells no ranks: then only the first
    task of a job, which may be the only one, has one."""
    place = launch.place
    if place is None:
        if index_of(launch.task):
            return []
        place = _ALONE
    values: list[str | int] = [place.group, place.rank, place.world_size]
    if place.local_size:
        hosts = place.hosts if len(place.hosts) <= HOSTS_BYTES_MAX else ""
        values += [
            place.local_rank, place.local_size, place.node_rank, place.nodes, hosts, place.address, place.port
        ]  # fmt: skip
    return [(name, str(value)) for name, value in zip(PLACE_VARIABLES, values, strict=False) if value != ""]


def rank_text(launch: LaunchAttempt) -> str:
    """Return the rank of an attempt and, in a gang, its rank on its node: ``3:1``; empty: it has none."""
    values = dict(place_variables(launch))
    return ":".join([values[name] for name in OWN_VARIABLES if name in values])


def without_rank(place: TaskPlace | None) -> TaskPlace | None:
    """Return what tasks of one group and node have in common."""
    return None if place is None else msgspec.structs.replace(place, rank=0, local_rank=0)
