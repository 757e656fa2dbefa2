"""Slurm's nodes as nodes of the league: capacity, attributes, and withheld amounts."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hanse.core.config import NodeConfig
from hanse.live.backends.slurm.driver import (
    SlurmDriver,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmRefusedError,
    SlurmUnavailableError,
)
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.model.constraints import ATTRIBUTES_PER_NODE_MAX, TEXT_CHARACTERS_MAX, Value
from hanse.model.ids import SECOND
from hanse.model.resources import CUSTOM_KINDS_MAX, Resources

NODE_ATTRIBUTE: Final = "slurm.node"
"""The attribute with the name of the node in Slurm."""
GPU_GRES: Final = "gpu"
"""The generic resource that counts as GPUs; all others are custom resources."""
MEMORY_MIB_MIN: Final = 64
"""Request for a task that asks for no memory: 0 means all of a node's memory in Slurm."""
TRIES_MAX: Final = 5
"""Requests for the list of nodes before a start fails."""
_MIB: Final = 1 << 20


def requested_amounts(size: Resources) -> tuple[int, int, tuple[tuple[str, int], ...]]:
    """Return the request to Slurm for a task of this size: whole CPUs, MiB, generic resources."""
    gres = (((GPU_GRES, size.gpu),) if size.gpu else ()) + size.custom
    return max(1, -(-size.cpu // 1_000)), -(-size.memory // _MIB) or MEMORY_MIB_MIN, tuple(sorted(gres))


def to_resources(cpus: int, memory: int, gres: Iterable[tuple[str, int]]) -> Resources:
    """Return Slurm's amounts as ``Resources``."""
    counts = dict(gres)
    gpu = counts.pop(GPU_GRES, 0)
    return Resources(cpus * 1_000, memory, gpu, tuple(sorted((k, v) for k, v in counts.items() if v)))


def held_resources(size: Resources) -> Resources:
    """Return the resources that a task of this size really holds, rounded up as Slurm does."""
    cpus, mib, gres = requested_amounts(size)
    return to_resources(cpus, mib * _MIB, gres)


def subtract(whole: Resources, part: Resources) -> Resources:
    """Return the rest of ``whole``; nothing where ``part`` is larger."""
    taken = dict(part.custom)
    custom = tuple((name, count - taken.get(name, 0)) for name, count in whole.custom)
    return Resources(
        max(0, whole.cpu - part.cpu),
        max(0, whole.memory - part.memory),
        max(0, whole.gpu - part.gpu),
        tuple((name, count) for name, count in custom if count > 0),
    )


def limit_to(some: Resources, limit: Resources) -> Resources:
    """Return ``some``, but of nothing more than ``limit``."""
    limits = dict(limit.custom)
    custom = tuple((name, min(count, limits.get(name, 0))) for name, count in some.custom)
    return Resources(
        min(some.cpu, limit.cpu),
        min(some.memory, limit.memory),
        min(some.gpu, limit.gpu),
        tuple((name, count) for name, count in custom if count > 0),
    )


def discover_nodes(nodes: Sequence[SlurmNode], partition: str) -> tuple[NodeConfig, ...]:
    """Return the nodes of a partition (or all), ordered by name, which a restart does not change."""
    chosen = [node for node in nodes if not partition or partition in node.partitions]
    return tuple(_node_config(node) for node in sorted(chosen, key=lambda node: node.name))


async def wait_for_nodes(driver: SlurmDriver, settings: SlurmSettings) -> tuple[NodeConfig, ...]:
    """Return the nodes as Slurm lists them; raise ``OSError`` if it does not answer for several polls."""
    tries = 1
    while True:
        try:
            found = await driver.nodes()
            break
        except (SlurmUnavailableError, SlurmRefusedError) as error:
            if tries == TRIES_MAX:
                raise OSError(f"Slurm does not list its nodes: {error}") from None
        tries += 1
        await asyncio.sleep(settings.poll / SECOND)
    nodes = discover_nodes(found, settings.partition)
    if not nodes:
        raise OSError(f"Slurm has no nodes in {settings.partition or 'any partition'}")
    return nodes


def _node_config(node: SlurmNode) -> NodeConfig:
    attributes: dict[str, Value] = {NODE_ATTRIBUTE: node.name}
    if node.arch:
        attributes["arch"] = node.arch
    if node.system:
        attributes["os"] = node.system.lower()
    for kind, words in (("partition", node.partitions), ("feature", node.features)):
        for word in words:
            name = f"slurm.{kind}.{_attribute_word(word)}"
            if len(name) <= TEXT_CHARACTERS_MAX and len(attributes) < ATTRIBUTES_PER_NODE_MAX:
                attributes[name] = True
    capacity = to_resources(node.cpus, node.memory, node.gres[:CUSTOM_KINDS_MAX])
    return NodeConfig(capacity, tuple(sorted(attributes.items())), host=node.name)


def _attribute_word(word: str) -> str:
    """Return a word of Slurm's as a part of an attribute's name."""
    return "".join(each if (each.isascii() and each.isalnum()) or each in "_.-/" else "_" for each in word)


class SlurmCapacity:
    """Withheld amounts of each node: by its state and that of its partition, by jobs of others, and by
    Slurm's rounding. ``partition``: the partition of the runner's jobs; empty: Slurm's default."""

    def __init__(self, nodes: Sequence[NodeConfig], partition: str = "") -> None:
        self._partition = partition
        self.node_names = tuple(str(dict(node.attributes).get(NODE_ATTRIBUTE, "")) for node in nodes)
        """Slurm's name of each node; empty: any node that Slurm chooses."""
        self._capacities = tuple(node.capacity for node in nodes)
        self.closed_nodes: dict[int, str] = {}
        """Nodes that the league may not use, by number, each with the reason as a clause: for people."""
        self._reported: list[Resources] = [Resources()] * len(nodes)
        self._previous_jobs: dict[tuple[int, int], SlurmJob] = {}
        self._previous_ended: dict[tuple[int, int], SlurmJob] = {}

    def withhold_all(self) -> list[tuple[int, Resources]]:
        """Withhold all of every node, because Slurm does not answer. Return the changes."""
        self.closed_nodes = dict.fromkeys(range(len(self.node_names)), "Slurm does not answer")
        return self._changes(list(self._capacities))

    def find_closed(self, nodes: Sequence[SlurmNode]) -> frozenset[int]:
        """Return the nodes that take no jobs now."""
        is_open = {node.name: node.is_open for node in nodes}
        return frozenset(
            number for number, name in enumerate(self.node_names) if name and not is_open.get(name, False)
        )

    def _closed_reason(self, name: str, node: SlurmNode | None, partitions: Sequence[SlurmPartition]) -> str:
        """Return the reason why no job can start on a node (with no name: on any); empty: jobs can."""
        if name and node is None:
            return "Slurm does not list it"
        if node is not None and not node.is_open:
            return f"in Slurm it is {node.state}" + (f" ({node.reason})" if node.reason else "")
        return "its partition in Slurm is not up" if self._is_barred(node, partitions) else ""

    def _is_barred(self, node: SlurmNode | None, partitions: Sequence[SlurmPartition]) -> bool:
        """True if no job of the runner can start there, by the state of partitions. None: any node.

        Jobs go to one partition. For a node outside of it all partitions of the node count, because a plugin
        of Slurm may send jobs there; a partition without a known state counts as open.
        """
        own_partition = self._partition or next((each.name for each in partitions if each.is_default), "")
        names = (own_partition,) if node is None or own_partition in node.partitions else node.partitions
        states = {each.name: each.is_open for each in partitions}
        return bool(names) and not any(states.get(name, True) for name in names)

    def update(
        self,
        nodes: Sequence[SlurmNode],
        jobs: Sequence[SlurmJob],
        sizes: Mapping[int, Sequence[Resources]],
        partitions: Sequence[SlurmPartition] = (),
    ) -> list[tuple[int, Resources]]:
        """Return the changes, by Slurm's lists and by the sizes of the runner's running tasks on each node.

        Slurm's two lists are not of the same moment: a job of the runner that ends in between would look like
        a job of others. So the jobs of the poll before count as the runner's too, and those that ended since:
        for one poll a little too much is on offer, and tasks placed on it wait in Slurm's queue.
        """
        now = {(job.number, job.element): job for job in jobs if job.holds_resources}
        ended = {(job.number, job.element): job for job in jobs if job.has_ended and job.node}
        just_ended = {which: job for which, job in ended.items() if which not in self._previous_ended}
        self._previous_ended = ended
        own_usage: dict[str, Resources] = {}
        for job in {**self._previous_jobs, **just_ended, **now}.values():
            held_by = to_resources(job.cpus, job.memory, job.gres)
            own_usage[job.node] = own_usage.get(job.node, Resources()).plus(held_by)
        self._previous_jobs = now
        facts = {node.name: node for node in nodes}
        self.closed_nodes = {}
        wanted: list[Resources] = []
        for number, (name, capacity) in enumerate(zip(self.node_names, self._capacities, strict=True)):
            node = facts.get(name)
            if reason := self._closed_reason(name, node, partitions):
                self.closed_nodes[number] = reason
                wanted.append(capacity)
            elif node is None:  # any node that Slurm chooses
                wanted.append(Resources())
            else:
                used = to_resources(node.cpus_used, node.memory_used, node.gres_used)
                foreign = subtract(used, own_usage.get(name, Resources()))
                rounding = Resources()
                for size in sizes.get(number, ()):
                    rounding = rounding.plus(subtract(held_resources(size), size))
                smaller = subtract(capacity, to_resources(node.cpus, node.memory, node.gres))
                wanted.append(limit_to(foreign.plus(rounding).plus(smaller), capacity))
        return self._changes(wanted)

    def _changes(self, wanted: list[Resources]) -> list[tuple[int, Resources]]:
        changed = [
            (number, new)
            for number, (old, new) in enumerate(zip(self._reported, wanted, strict=True))
            if old != new
        ]
        self._reported = wanted
        return changed
