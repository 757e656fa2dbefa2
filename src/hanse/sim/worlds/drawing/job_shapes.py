"""Sizes of tasks and the places that they fit: CPUs, memory, GPUs, allowed node classes, room for gangs."""

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.model.constraint_syntax import parse_constraint
from hanse.model.constraints import Constraint, is_satisfied
from hanse.sim.worlds.columns import Flags, Floats, Ints
from hanse.sim.worlds.drawing.stretches import TraceStretch
from hanse.sim.worlds.drawing.templates import TraitRows
from hanse.sim.worlds.world import NodeClass, WorkKind, World
from hanse.sim.worlds.world_columns import columns_of

Mask = npt.NDArray[np.bool_]


class JobShapes(msgspec.Struct, frozen=True, eq=False):
    """Size of each job's tasks."""

    cpu: Ints
    """[J] milli-CPU."""
    memory: Ints
    gpu: Ints
    classes: Flags
    """[J] bit q: a task may run, and fits, on node class q."""

    @property
    def cores(self) -> Floats:
        """[J] cores of a task."""
        return self.cpu / 1_000

    def take(self, jobs: Ints) -> "JobShapes":
        """Return the shapes of these jobs."""
        return JobShapes(self.cpu[jobs], self.memory[jobs], self.gpu[jobs], self.classes[jobs])


def take_shapes(parts: list[JobShapes], order: Ints) -> JobShapes:
    """Return the shapes of all parts in a new order."""
    names = JobShapes.__struct_fields__
    return JobShapes(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in names))


def allowed_classes(world: World, kind: WorkKind) -> tuple[int, ...]:
    """Return the node classes of some node whose attributes satisfy the kind's constraint."""
    used = {run.node_class: None for cluster in world.clusters for run in cluster.nodes}
    constraint: Constraint | None = None
    if kind.requires:
        parsed = parse_constraint(kind.requires)
        assert isinstance(parsed, Constraint), "the file's reader refuses constraints that cannot be read"
        constraint = parsed
    return tuple(
        at
        for at, node in enumerate(world.node_classes)
        if node.name in used and (constraint is None or is_satisfied(constraint, node.all_attributes()))
    )


def shape_jobs(world: World, traits: TraitRows, trace: TraceStretch, source: Ints) -> JobShapes:
    """Return the sizes of the jobs: by their kind of work, or as the trace states them."""
    kinds = world.work_kinds
    per_core = np.array([kind.memory_per_core for kind in kinds], np.int64)[traits.kind]
    cpu = traits.cores * 1_000
    memory = traits.cores * per_core
    gpu = np.array([kind.gpus for kind in kinds], np.int64)[traits.kind]
    if world.work.resources == "trace":
        stated = trace.cpu[source]
        cpu = np.where(stated > 0, stated, cpu)
        cores = np.maximum(1, -(-cpu // 1_000))
        stated = trace.memory[source]
        memory = np.where(stated > 0, stated, cores * per_core)
        stated = trace.gpu[source]
        gpu = np.where(stated > 0, -(-stated // 1_000), gpu)
    classes = np.zeros(len(cpu), np.uint64)
    for number, kind in enumerate(kinds):
        of_kind = np.flatnonzero(traits.kind == number)
        allowed = allowed_classes(world, kind)
        roomiest = _roomiest(world, allowed, gpu[of_kind] > 0)
        bits = _fitting(world, allowed, cpu[of_kind], memory[of_kind], gpu[of_kind])
        # what fits nowhere gets the size of the largest node that it may use
        lost = bits == 0
        for column, room in zip((cpu, memory, gpu), roomiest, strict=True):
            column[of_kind] = np.where(lost, np.minimum(column[of_kind], room), column[of_kind])
        classes[of_kind] = _fitting(world, allowed, cpu[of_kind], memory[of_kind], gpu[of_kind])
    assert bool(np.all(classes != 0)), "a job fits no node class"
    return JobShapes(cpu, memory, gpu, classes)


def _fitting(world: World, allowed: tuple[int, ...], cpu: Ints, memory: Ints, gpu: Ints) -> Flags:
    """Return the allowed classes on which each size fits, as bits."""
    bits = np.zeros(len(cpu), np.uint64)
    for at in allowed:
        node = world.node_classes[at]
        fits = (cpu <= node.cores * 1_000) & (memory <= node.memory) & (gpu <= node.gpus)
        bits |= np.where(fits, np.uint64(1 << at), np.uint64(0))
    return bits


def _roomiest(world: World, allowed: tuple[int, ...], wants_gpu: Mask) -> tuple[Ints, Ints, Ints]:
    """Return the size of the largest allowed node for each job, of those with GPUs if it wants one.

    The largest has the most cores; ties: more memory, then the earlier class.
    """
    nodes = [world.node_classes[at] for at in allowed]
    largest = max(nodes, key=_size)
    with_gpu = max((node for node in nodes if node.gpus), key=_size, default=largest)

    def choose(attribute: str) -> Ints:
        size: Ints = np.where(wants_gpu, getattr(with_gpu, attribute), getattr(largest, attribute))
        return size

    return choose("cores") * 1_000, choose("memory"), choose("gpus")


def _size(node: NodeClass) -> tuple[int, int]:
    return node.cores, node.memory


def gang_sizes(world: World, shapes: JobShapes, topology: str) -> Ints:
    """Return the most tasks of each job that an empty cluster, rack or node can hold together."""
    columns = columns_of(world)
    places: dict[str, Ints] = {
        "cluster": columns.node_cluster.astype(np.int64),
        "rack": columns.node_rack.astype(np.int64),
        "node": np.arange(len(columns.node_cluster)),
    }
    place = places[topology]
    keys = np.stack([shapes.cpu, shapes.memory, shapes.gpu, shapes.classes.astype(np.int64)])
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    most = np.zeros(distinct.shape[1], np.int64)
    for at, (cpu, memory, gpu, classes) in enumerate(distinct.T.tolist()):
        slots = np.minimum(columns.node_cpu // max(cpu, 1), columns.node_memory // max(memory, 1))
        if gpu:
            slots = np.minimum(slots, columns.node_gpu // gpu)
        allowed = np.array([bool(classes >> number & 1) for number in range(len(world.node_classes))])
        most[at] = int(np.bincount(place, slots * allowed[columns.node_class]).max())
    return most[which.reshape(-1)]
