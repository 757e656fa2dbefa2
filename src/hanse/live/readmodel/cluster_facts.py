"""Snapshot of the clusters as a broker sees them, and the fit of a job's tasks to each cluster.

The broker's view fills these records. They may be out of date: ``seen`` is their age.
"""

from enum import StrEnum
from typing import Final

import msgspec

from hanse.api.drain_facts import DrainFacts
from hanse.core.broker.job_table import shape_of
from hanse.live.readmodel.gang_fit import find_largest_gang, part_text, topology_text
from hanse.model.constraint_syntax import format_constraint as where_text
from hanse.model.constraints import Attributes, Constraint, Value, attributes_of, is_satisfied
from hanse.model.job import JobSpec
from hanse.model.messages import Shape
from hanse.model.resources import Resources
from hanse.policy.gang_topology import has_topology

_DRAINS_SHOWN_MAX: Final = 3
"""Number of drains that one sentence names."""
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class ObservedNode(msgspec.Struct, frozen=True):
    """Facts about one node. The node's number is its index in the cluster's list."""

    capacity: Resources
    free: Resources
    """Resources that a broker could claim now."""
    attributes: tuple[tuple[str, Value], ...] = ()
    draining: bool = False
    reserved: bool = False
    """True if only latency work may use the node."""


class ObservedCluster(msgspec.Struct, frozen=True):
    """Facts about one cluster, from a broker's view."""

    name: str
    nodes: tuple[ObservedNode, ...]
    """Empty if the broker has no data yet."""
    draining: bool = False
    seen: float | None = None
    """Seconds since the latest update of its free resources; None: never."""
    reachable: bool = True
    fenced: bool = False
    """True if its warden refuses this broker's claims now: no valid lease, or a takeover in progress."""
    drains: tuple[DrainFacts, ...] = ()
    """Known facts about draining nodes."""


class FitStatus(StrEnum):
    """Fit of a group to a cluster. The first member that applies, in this order, is reported."""

    NOT_ALLOWED = "not allowed"
    UNKNOWN = "unknown"
    UNSUITABLE = "attribute missing"
    TOO_SMALL = "too small"
    UNREACHABLE = "unreachable"
    FENCED = "fenced"
    DRAINING = "draining"
    FULL = "full"
    ROOM = "room"


NEVER_FITS: Final = (FitStatus.NOT_ALLOWED, FitStatus.UNSUITABLE, FitStatus.TOO_SMALL)
"""Fits that waiting does not change."""


class ClusterFit(msgspec.Struct, frozen=True):
    """Fit of a group to one cluster, with an explanation."""

    cluster: str
    status: FitStatus
    text: str
    """Clause about the cluster: ``the best node of north has 2 CPUs free``."""
    change: str = ""
    """Required change, as a clause that follows *when* or *if*; empty: waiting does not help."""
    slots: int = 0
    """Number of the group's tasks that would fit now."""


def assess_fit(spec: JobSpec, group: int, cluster: ObservedCluster) -> ClusterFit:
    """Assess the fit of a group of a job to a cluster."""
    name = cluster.name
    shape = shape_of(spec, group, spec.groups[group].count if spec.gang else 0)
    if not shape.allows_cluster(name):
        return ClusterFit(name, FitStatus.NOT_ALLOWED, f"the job does not allow {name}")
    if not cluster.nodes:
        return ClusterFit(name, FitStatus.UNKNOWN, f"{name} has not reported yet", f"{name} has reported")
    return _permanent_misfit(shape, cluster) or _closure(shape, cluster) or _current_fit(shape, cluster)


def is_suitable(shape: Shape, node: ObservedNode) -> bool:
    """Return True if the node, when empty, could run one such task, by its attributes and its size."""
    return (
        shape.ask.fits(node.capacity)
        and (shape.latency or not node.reserved)
        and (shape.where is None or is_satisfied(shape.where, dict(node.attributes)))
    )


def count_slots(shape: Shape, room: Resources) -> int:
    """Count the tasks of a shape that fit into an amount of resources."""
    if not shape.ask.fits(room):
        return 0
    has = dict(room.custom)
    ask = shape.ask
    most = [
        have // need
        for have, need in (
            (room.cpu, ask.cpu), (room.memory, ask.memory), (room.gpu, ask.gpu),
            *((has[kind], amount) for kind, amount in ask.custom),
        )
        if need
    ]  # fmt: skip
    count = min(most, default=1)
    return min(count, 1) if shape.max_per_node else count


def _permanent_misfit(shape: Shape, cluster: ObservedCluster) -> ClusterFit | None:
    """Return the fit of a cluster that could not run the group even if it were empty; else None."""
    name = cluster.name
    where = shape.where
    fitting = [node for node in cluster.nodes if where is None or is_satisfied(where, dict(node.attributes))]
    if not fitting:
        assert where is not None
        return ClusterFit(name, FitStatus.UNSUITABLE, f"no node of {name} {_constraint_text(where, cluster)}")
    open_to = [node for node in fitting if shape.latency or not node.reserved]
    if not open_to:
        text = f"{name} has suitable nodes only in its reserve, which is kept for latency work"
        return ClusterFit(name, FitStatus.TOO_SMALL, text)
    if not any(shape.ask.fits(node.capacity) for node in open_to):
        largest = max(open_to, key=lambda node: _closeness(shape.ask, node.capacity))
        lacks = _shortfall(shape.ask, largest.capacity)
        text = f"{name}'s largest suitable node has {size_text(largest.capacity, lacks)}"
        return ClusterFit(name, FitStatus.TOO_SMALL, text)
    if shape.gang:
        most, part = _largest_gang(shape, cluster, [(node, node.capacity) for node in open_to])
        if most < shape.gang:
            text = (
                f"{part_text(shape, name, part)} could hold {most} of the {shape.gang} that must start "
                f"together{topology_text(shape)}"
            )
            return ClusterFit(name, FitStatus.TOO_SMALL, text)
    return None


def _largest_gang(
    shape: Shape, cluster: ObservedCluster, rooms: list[tuple[ObservedNode, Resources]]
) -> tuple[int, str]:
    """Return the largest gang that fits into the rooms of some nodes, and the rack or node of it."""
    numbers = {id(node): number for number, node in enumerate(cluster.nodes)}
    return find_largest_gang(
        shape, [(numbers[id(node)], dict(node.attributes), count_slots(shape, room)) for node, room in rooms]
    )


def _constraint_text(where: Constraint, cluster: ObservedCluster) -> str:
    have: Attributes = {key: value for node in cluster.nodes for key, value in node.attributes}
    missing = [attribute for attribute in attributes_of(where) if attribute not in have]
    if missing:
        return f"satisfies {where_text(where)} (none has the attribute {', '.join(missing)})"
    return f"satisfies {where_text(where)}"


def _closure(shape: Shape, cluster: ObservedCluster) -> ClusterFit | None:
    """Return the fit of a cluster that takes no claims now, whatever is free; else None."""
    name = cluster.name
    if not cluster.reachable:
        since = f" for {cluster.seen:.0f} s" if cluster.seen is not None else ""
        text = f"{name} has not answered{since}"
        return ClusterFit(name, FitStatus.UNREACHABLE, text, f"{name} answers again")
    if cluster.fenced:
        text = f"{name} does not take this broker's claims for now"
        return ClusterFit(name, FitStatus.FENCED, text, f"{name} takes this broker's claims again")
    if cluster.draining or all(node.draining for node in cluster.nodes if is_suitable(shape, node)):
        text = f"{name} is drained{_drain_reasons(shape, cluster)} and takes no new work"
        if not cluster.draining and not all(node.draining for node in cluster.nodes):
            text = f"the nodes of {name} that suit it are drained{_drain_reasons(shape, cluster)}"
        return ClusterFit(name, FitStatus.DRAINING, text, f"{name} is opened again")
    return None


def _drain_reasons(shape: Shape, cluster: ObservedCluster) -> str:
    """Format the reasons why suitable nodes are drained: each once, at most ``_DRAINS_SHOWN_MAX``."""
    suitable = {number for number, node in enumerate(cluster.nodes) if is_suitable(shape, node)}
    texts = [
        drain.text() for drain in cluster.drains if not drain.nodes or not suitable.isdisjoint(drain.nodes)
    ]
    return ",".join([text for text in dict.fromkeys(texts) if text][:_DRAINS_SHOWN_MAX])


def _current_fit(shape: Shape, cluster: ObservedCluster) -> ClusterFit:
    """Return the fit to the resources that are free now."""
    name = cluster.name
    usable = [node for node in cluster.nodes if is_suitable(shape, node) and not node.draining]
    slots = sum(count_slots(shape, node.free) for node in usable)
    slots = min(slots, 1) if shape.is_single_per_cluster else slots
    part = ""
    if has_topology(shape):
        slots, part = _largest_gang(shape, cluster, [(node, node.free) for node in usable])
    if slots >= max(1, shape.gang):
        return ClusterFit(name, FitStatus.ROOM, f"{name} has room for {slots}", slots=slots)
    if shape.gang and slots:
        where = topology_text(shape)
        best = part_text(shape, name, part)
        text = f"{best} has room for {slots} of the {shape.gang} that must start together{where}"
        change = f"{name} has room for all {shape.gang} at once{where}"
        return ClusterFit(name, FitStatus.FULL, text, change, slots)
    largest = max(usable, key=lambda node: _closeness(shape.ask, node.free))
    lacks = _shortfall(shape.ask, largest.free)
    text = f"the best node of {name} has {size_text(largest.free, lacks)} free"
    drained = sum(is_suitable(shape, node) for node in cluster.nodes) - len(usable)
    if drained:
        text += f" ({drained} more {'is' if drained == 1 else 'are'} drained{_drain_reasons(shape, cluster)})"
    return ClusterFit(name, FitStatus.FULL, text, f"a node of {name} has {size_text(lacks)} more free")


def _closeness(ask: Resources, room: Resources) -> tuple[int, ...]:
    """Return the covered share of an ask by resource, in thousandths, scarcest first (in ties the first)."""
    has = dict(room.custom)
    pairs = [(room.cpu, ask.cpu), (room.memory, ask.memory), (room.gpu, ask.gpu)]
    pairs += [(has.get(kind, 0), amount) for kind, amount in ask.custom]
    return tuple(sorted(min(1_000, have * 1_000 // need) for have, need in pairs if need))


def _shortfall(ask: Resources, room: Resources) -> Resources:
    has = dict(room.custom)
    return Resources(
        max(0, ask.cpu - room.cpu),
        max(0, ask.memory - room.memory),
        max(0, ask.gpu - room.gpu),
        tuple((kind, amount - has.get(kind, 0)) for kind, amount in ask.custom if amount > has.get(kind, 0)),
    )


# --- texts -------------------------------------------------------------------------------------------------


def size_text(size: Resources, ask: Resources | None = None) -> str:
    """Format an amount: ``4 CPUs and 8 GiB``; with ``ask`` only the resources that it names."""
    wanted = dict(ask.custom) if ask is not None else dict(size.custom)
    has = dict(size.custom)
    parts = []
    if size.cpu if ask is None else ask.cpu:
        parts.append(f"{_format_multiple(size.cpu, 1_000)} CPU{'' if size.cpu == 1_000 else 's'}")
    if size.memory if ask is None else ask.memory:
        unit, word = next((pair for pair in _UNITS if size.memory >= pair[0]), (1, "bytes"))
        parts.append(f"{_format_multiple(size.memory, unit)} {word}")
    if size.gpu if ask is None else ask.gpu:
        parts.append(f"{size.gpu} GPU{'' if size.gpu == 1 else 's'}")
    parts += [f"{has.get(kind, 0)} {kind}" for kind in wanted]
    return join_words(parts) or "nothing"


def _format_multiple(amount: int, unit: int) -> str:
    """Format a multiple of a unit, rounded down to hundredths so that too little never looks enough."""
    hundredths = amount * 100 // unit
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".")


def join_words(parts: list[str]) -> str:
    """Join parts as ``a, b and c``."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
