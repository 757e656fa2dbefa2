"""Layout of tasks that a warden starts: rank of each in its group and, for a gang, nodes, hosts and a port.

A layout travels once with each message of orders and not with every start, so that a gang of ten thousand
tasks does not carry ten thousand hosts ten thousand times. A lone task of a group ``main`` needs none.
"""

from collections.abc import Iterable, Sequence

import msgspec

from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId

DEFAULT_GROUP = "main"
"""Name of the group of a job that names none."""


class GroupLayout(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ranks of a group's tasks and, for a gang, the places of all tasks that start together."""

    job: JobId
    first: int
    """Index of the group's first task in the job."""
    count: int
    """Number of tasks of the group."""
    group: str
    ranks: tuple[int, ...] = ()
    """Indices in the job, by rank, of the tasks that start together; empty: all tasks of the group."""
    runs: tuple[tuple[int, str, int], ...] = ()
    """Neighbouring ranks on one node: node, host, number of ranks. Empty: the group is no gang."""
    port: int = 0
    """Port of the gang on the host of rank 0."""


class TaskPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Place of a task among the tasks of its group, for its environment."""

    group: str
    rank: int
    world_size: int
    """Number of ranks."""
    local_rank: int = 0
    """Position among the tasks of the gang on the same node."""
    local_size: int = 0
    """Tasks of the gang on that node; 0: the task is not one of a gang, and nothing below is set."""
    node_rank: int = 0
    """Position of the node among those of the gang, in the order of the ranks."""
    nodes: int = 0
    hosts: str = ""
    """Host and number of ranks for each run of ranks on one host: ``10.0.0.5:2,10.0.0.6:2``."""
    address: str = ""
    """Host of rank 0."""
    port: int = 0


def runs_of(nodes: Iterable[int], hosts: Sequence[str]) -> tuple[tuple[int, str, int], ...]:
    """Return the runs of equal neighbours among the nodes of all ranks. ``hosts``: that of each node."""
    runs: list[tuple[int, str, int]] = []
    for node in nodes:
        if runs and runs[-1][0] == node:
            runs[-1] = (node, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((node, hosts[node], 1))
    return tuple(runs)


def hosts_text(runs: Iterable[tuple[int, str, int]]) -> str:
    """Return hosts with the number of ranks of each, in the order of the ranks; neighbours are merged."""
    merged: list[tuple[str, int]] = []
    for _, host, count in runs:
        if merged and merged[-1][0] == host:
            merged[-1] = (host, merged[-1][1] + count)
        else:
            merged.append((host, count))
    return ",".join([f"[{host}]:{count}" if ":" in host else f"{host}:{count}" for host, count in merged])


class PlaceFinder:
    """Places of the tasks that one message of orders starts."""

    def __init__(self, layouts: Sequence[GroupLayout]) -> None:
        self._groups: dict[JobId, list[GroupLayout]] = {}
        self._gangs: dict[TaskId, TaskPlace] = {}
        for layout in layouts:
            if layout.runs:
                self._gangs |= places_of(layout)
            else:
                self._groups.setdefault(layout.job, []).append(layout)

    def find(self, task: TaskId) -> TaskPlace | None:
        """Return the place of a task; None: no layout names it."""
        found = self._gangs.get(task)
        if found is not None:
            return found
        index = task & INDEX_MASK
        for layout in self._groups.get(JobId(task >> INDEX_BITS), ()):
            if layout.first <= index < layout.first + layout.count:
                return TaskPlace(layout.group, index - layout.first, layout.count)
        return None


def places_of(layout: GroupLayout) -> dict[TaskId, TaskPlace]:
    """Return the place of every task of a gang."""
    ranks = layout.ranks or range(layout.first, layout.first + layout.count)
    text, address = hosts_text(layout.runs), layout.runs[0][1]
    sizes: dict[int, int] = {}
    for node, _, count in layout.runs:
        sizes[node] = sizes.get(node, 0) + count
    node_ranks = {node: position for position, node in enumerate(sizes)}
    local: dict[int, int] = {}
    places: dict[TaskId, TaskPlace] = {}
    rank, base = 0, layout.job << INDEX_BITS
    for node, _, count in layout.runs:
        for _ in range(count):
            position = local.get(node, 0)
            local[node] = position + 1
            places[TaskId(base | ranks[rank])] = TaskPlace(
                layout.group, rank, len(ranks), position, sizes[node], node_ranks[node], len(sizes),
                text, address, layout.port,
            )  # fmt: skip
            rank += 1
    return places
