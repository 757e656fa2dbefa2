"""Invariants of every schedule and placement on GPU nodes; a violation is a bug of ours."""

import numpy as np

from hanse.sim.baselines.gpu.non_preemptive import possible_jobs
from hanse.sim.baselines.gpu.openb import DEVICES_MAX, MILLI, OpenbNodes, OpenbPods
from hanse.sim.baselines.gpu.placement import PlacementOutcome
from hanse.sim.baselines.gpu.workload import NOT_RUN, GpuOutcome, GpuSettings, GpuWorkload


def check_schedule(workload: GpuWorkload, settings: GpuSettings, outcome: GpuOutcome) -> None:
    """Check that every possible job does its whole work, after its arrival, in one place at a time, and that
    nothing is held twice."""
    possible = np.asarray(possible_jobs(workload, settings), bool)
    ran = outcome.end != NOT_RUN
    assert bool(np.array_equal(ran, possible)), "every job the cluster can hold ends, and no other"
    assert outcome.refused == int((~possible).sum())
    assert bool(np.all(outcome.start[ran] >= workload.submit[ran])), "no job starts before its arrival"
    length = outcome.stretch_end - outcome.stretch_begin
    assert not len(length) or int(length.min()) >= 0
    time = np.bincount(outcome.stretch_job, length, workload.job_count).astype(np.int64)
    stretches = np.bincount(outcome.stretch_job, minlength=workload.job_count)
    assert bool(np.all(time[ran] >= workload.work[ran])), "every job does its whole work"
    most = workload.work + stretches * settings.restart
    assert bool(np.all(time[ran] <= most[ran])), "no job runs longer than work and restarts"
    order = np.lexsort((outcome.stretch_begin, outcome.stretch_job))
    same = outcome.stretch_job[order][1:] == outcome.stretch_job[order][:-1]
    gap = outcome.stretch_begin[order][1:] - outcome.stretch_end[order][:-1]
    assert bool(np.all(gap[same] >= 0)), "a job runs in one place at a time"
    _check_room(workload, settings, outcome)


def _check_room(workload: GpuWorkload, settings: GpuSettings, outcome: GpuOutcome) -> None:
    """Check the capacity at all begins and ends; at one instant ends come first."""
    changes: list[tuple[int, int, int]] = []
    for stretch, (begin, until) in enumerate(
        zip(outcome.stretch_begin.tolist(), outcome.stretch_end.tolist(), strict=True)
    ):
        if begin < until:
            changes += [(begin, 1, stretch), (until, 0, stretch)]
        pieces = [kind for _, kind in outcome.stretch_where[stretch]]
        job = int(outcome.stretch_job[stretch])
        assert pieces.count(0) == int(workload.pieces[job]), "a job runs whole"
        assert pieces.count(1) == int(bool(workload.rest[job].any()))
    held = np.zeros_like(settings.capacity)
    for _, sign, stretch in sorted(changes):
        job = int(outcome.stretch_job[stretch])
        for node, kind in outcome.stretch_where[stretch]:
            held[node] += (workload.rest if kind else workload.demand)[job] * (1 if sign else -1)
            assert bool((held[node] <= settings.capacity[node]).all()), "nothing is over-committed"


def check_placement(pods: OpenbPods, nodes: OpenbNodes, outcome: PlacementOutcome) -> None:
    """Repeat all placements: no CPU, memory or device is given twice, and all models are accepted ones."""
    types = pods.types
    cpu, memory = nodes.cpu.copy(), nodes.memory.copy()
    idle = np.where(np.arange(DEVICES_MAX) < nodes.devices[:, None], MILLI, 0).astype(np.int64)
    for kind, node, device in zip(
        outcome.kind.tolist(), outcome.node.tolist(), outcome.device.tolist(), strict=True
    ):
        if node < 0:
            continue
        cpu[node] -= types.cpu[kind]
        memory[node] -= types.memory[kind]
        assert cpu[node] >= 0, "CPU is not over-committed"
        assert memory[node] >= 0, "memory is not over-committed"
        count, milli, mask = int(types.count[kind]), int(types.milli[kind]), int(types.models[kind])
        if not count:
            continue
        assert not mask or mask >> int(nodes.model[node]) & 1, "a pod lies on a model it accepts"
        if milli < MILLI:
            idle[node, device] -= milli
            assert idle[node, device] >= 0, "no device is over-committed"
        else:
            whole = np.flatnonzero(idle[node] == MILLI)
            assert len(whole) >= count, "whole devices are given once"
            idle[node, whole[:count]] = 0
    used = nodes.gpu_capacity - int(idle.sum())
    assert abs(used / nodes.gpu_capacity - outcome.allocated) < 1e-12
