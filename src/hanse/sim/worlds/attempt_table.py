"""All attempts of an outcome as columns: those that ended and those that outages undid."""

import msgspec
import numpy as np

from hanse.sim.worlds.columns import Floats, Ints, SmallInts, WorkColumns, WorldColumns, WorldOutcome


class AttemptTable(msgspec.Struct, frozen=True, eq=False):
    """Attempts: first the last one of each task that has ended, then the undone ones."""

    task: Ints
    job: Ints
    node: Ints
    start: Ints
    run: Ints
    """-1: it never ran."""
    end: Ints
    undone: int
    """Number of undone attempts, which stand at the end."""


def attempts_of(work: WorkColumns, outcome: WorldOutcome) -> AttemptTable:
    """Return the attempts of an outcome."""
    task = np.nonzero(outcome.end >= 0)[0]
    ended = np.column_stack(
        [task, outcome.node[task], outcome.start[task], outcome.run[task], outcome.end[task]]
    )
    rows = np.concatenate([ended, outcome.lost])
    job = np.searchsorted(work.job_offset, rows[:, 0], "right") - 1
    return AttemptTable(rows[:, 0], job, rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4], len(outcome.lost))


class NodeSteps(msgspec.Struct, frozen=True, eq=False):
    """Free amounts of nodes after each start and end there, in order of (node, time), releases first."""

    node: Ints
    time: Ints
    free_cpu: Ints
    free_memory: Ints
    free_gpu: Ints


def node_steps(world: WorldColumns, work: WorkColumns, table: AttemptTable) -> NodeSteps:
    """Return the steps of all nodes; the first of each node is time 0 with everything free."""
    count = len(world.node_cpu)
    node = np.concatenate([np.arange(count), table.node, table.node])
    time = np.concatenate([np.full(count, -1), table.start, table.end])
    starts = np.repeat([0, 1, 0], [count, len(table.node), len(table.node)])  # releases before starts
    order = np.lexsort((starts, time, node))

    def free(whole: Ints, need: Ints) -> Ints:
        change = np.concatenate([whole, -need[table.job], need[table.job]])[order]
        total = np.cumsum(change)
        first = np.nonzero(np.diff(node[order], prepend=-1))[0]
        before = np.concatenate([[0], total[first[1:] - 1]])
        result: Ints = total - np.repeat(before, np.diff(np.append(first, len(total))))
        return result

    return NodeSteps(
        node[order],
        np.maximum(time[order], 0),
        free(world.node_cpu, work.job_cpu),
        free(world.node_memory, work.job_memory),
        free(world.node_gpu, work.job_gpu),
    )


def speeds_alone(world: WorldColumns, work: WorkColumns) -> Floats:
    """Return [J, Q] speed of a task of each job alone on a node of each class, its own demand included; 0
    where it may not run or does not fit. Of a class's nodes the one with most memory bandwidth counts."""
    jobs, classes = work.job_count, len(world.class_names)
    speed = np.zeros((jobs, classes))
    for number in range(classes):
        nodes = np.nonzero(world.node_class == number)[0]
        if not len(nodes):
            continue
        used = work.job_demand / world.node_bandwidth[nodes].max()
        crowding = np.where(used <= 1.0, world.knee * used**3, world.knee + world.slope * (used - 1.0))
        alone = work.template_speed[work.job_template, number] / (
            1.0 + work.job_bandwidth_sensitivity * crowding
        )
        holds = (work.job_classes >> np.uint64(number) & np.uint64(1)) > 0
        for whole, need in (
            (world.node_cpu, work.job_cpu),
            (world.node_memory, work.job_memory),
            (world.node_gpu, work.job_gpu),
        ):
            holds &= need <= whole[nodes].max()
        speed[:, number] = np.where(holds, alone, 0.0)
    return speed


def alone_seconds(world: WorldColumns, work: WorkColumns) -> Floats:
    """Return [J] seconds of each job alone in the world: every task on the best class that holds it, without
    neighbours, its input in the same rack. No placement is faster; few could be as fast."""
    best = speeds_alone(world, work).max(axis=1)
    counts = np.diff(work.job_offset)
    reads = np.repeat((work.replica_rack >= 0).any(axis=1), counts)
    seconds = work.task_work / np.repeat(best, counts)
    seconds = seconds + np.where(reads, work.task_bytes / world.rack_flow_max, 0.0)
    result: Floats = np.maximum.reduceat(seconds, work.job_offset[:-1])
    return result


def job_ends(work: WorkColumns, outcome: WorldOutcome) -> Ints:
    """Return [J] the end of each job; -1 if a task of it has not ended."""
    ends = np.maximum.reduceat(outcome.end, work.job_offset[:-1])
    first = np.minimum.reduceat(outcome.end, work.job_offset[:-1])
    result: Ints = np.where(first < 0, -1, ends)
    return result


def ready_times(work: WorkColumns, ends: Ints) -> Ints:
    """Return [J] the moment at which each job could first start: its arrival, or the last end of its
    needs."""
    ready = work.job_arrival.copy()
    job = np.repeat(np.arange(work.job_count), np.diff(work.needs_offset))
    np.maximum.at(ready, job, ends[work.needs])
    return ready


def task_jobs(work: WorkColumns) -> SmallInts:
    """Return [T] the job of each task."""
    return np.repeat(np.arange(work.job_count, dtype=np.int32), np.diff(work.job_offset))
