"""Bound: every job alone in the world, on the nodes that suit it best, with its input in the rack.

It is computed, not run: no neighbours, no queues, as many best nodes and links as wanted. No policy can have
a smaller mean completion; how much of the gap could be closed nobody knows."""

import numpy as np

from hanse.sim.worlds.columns import Floats, Ints, SmallInts, WorkColumns, WorldColumns, WorldOutcome

_SECOND = 1_000_000


def find_bound(world: WorldColumns, work: WorkColumns) -> WorldOutcome:
    """Return starts and ends of all tasks, each job alone; jobs that need others start after these."""
    counts = np.diff(work.job_offset)
    speed, node = _best_nodes(world, work)
    has_replica = (work.replica_rack >= 0).any(axis=1)
    bytes_read = np.where(np.repeat(has_replica, counts), work.task_bytes, 0.0)
    reading = (bytes_read / world.rack_flow_max * _SECOND).astype(np.int64)
    running = (work.task_work / np.repeat(speed, counts) * _SECOND).astype(np.int64)
    ready = _ready_times(work, np.maximum.reduceat(reading + running, work.job_offset[:-1]))
    start = np.repeat(ready, counts)
    return WorldOutcome(
        node=np.repeat(node, counts),
        start=start,
        run=start + reading,
        end=start + reading + running,
        launches=work.task_count,
        wasted_core_us=0,
        bytes_rack=float(bytes_read.sum()),
        bytes_lan=0.0,
        bytes_wan=0.0,
        messages=0,
        message_bytes=0,
        decision_ns=np.zeros(0, np.int64),
        complete=True,
        lost=np.zeros((0, 5), np.int64),
    )


def _best_nodes(world: WorldColumns, work: WorkColumns) -> tuple[Floats, SmallInts]:
    """Return the best speed of each job, its own demand counted, and the first node that has it."""
    best = np.zeros(work.job_count)
    chosen = np.zeros(work.job_count, np.int32)
    pairs = np.stack([world.node_class.astype(np.float64), world.node_bandwidth])
    for node in np.sort(np.unique(pairs, axis=1, return_index=True)[1]).tolist():
        at = int(world.node_class[node])
        used = work.job_demand / world.node_bandwidth[node]
        bent = np.where(used <= 1.0, world.knee * used**3, world.knee + world.slope * (used - 1.0))
        speed = work.template_speed[work.job_template, at] / (1.0 + work.job_bandwidth_sensitivity * bent)
        allowed = work.job_classes >> np.uint64(at) & np.uint64(1)
        better = (allowed > 0) & (speed > best)
        best, chosen = np.where(better, speed, best), np.where(better, node, chosen).astype(np.int32)
    return best, chosen


def _ready_times(work: WorkColumns, seconds: Ints) -> Ints:
    """Return when each job may start: at its arrival, or when the last one that it needs has ended."""
    ready = work.job_arrival.copy()
    if not len(work.needs):
        return ready
    bounds = work.needs_offset.tolist()
    for job in np.flatnonzero(np.diff(work.needs_offset)).tolist():
        needed = work.needs[bounds[job] : bounds[job + 1]]
        ready[job] = max(int(ready[job]), int((ready[needed] + seconds[needed]).max()))
    return ready
