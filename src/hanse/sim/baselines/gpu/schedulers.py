"""Schedulers by name, each ``(GpuWorkload, GpuSettings) -> GpuOutcome``."""

from collections.abc import Callable
from typing import Final

from hanse.sim.baselines.gpu.node_pool import NodeRule
from hanse.sim.baselines.gpu.non_preemptive import FairQueue, ListQueue, TetrisQueue, run_queue
from hanse.sim.baselines.gpu.preemptive import PreemptiveRun, least_attained, shortest_service, shortest_time
from hanse.sim.baselines.gpu.workload import GpuOutcome, GpuSettings, GpuWorkload

GpuScheduler = Callable[[GpuWorkload, GpuSettings], GpuOutcome]


def fifo(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run by arrival; the head blocks; first node with room."""
    queue = ListQueue(workload, workload.submit.tolist(), NodeRule.FIRST, blocking=True)
    return run_queue(workload, settings, queue)


def sjf(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run least work first, never interrupted; the head blocks; first node with room."""
    queue = ListQueue(workload, workload.work.tolist(), NodeRule.FIRST, blocking=True)
    return run_queue(workload, settings, queue)


def best_fit(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run by arrival and skip jobs that do not fit; the node with least left over."""
    queue = ListQueue(workload, workload.submit.tolist(), NodeRule.BEST, blocking=False)
    return run_queue(workload, settings, queue)


def drf(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run dominant resource fairness between users."""
    return run_queue(workload, settings, FairQueue(workload, settings))


def tetris(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run the best alignment of demand and idle amounts, with a bonus for little work."""
    return run_queue(workload, settings, TetrisQueue(workload))


def srtf(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run shortest remaining time first, preemptive."""
    return PreemptiveRun(workload, settings, shortest_time).run(falls=False)


def srsf(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run shortest remaining service (time x GPUs) first, preemptive."""
    return PreemptiveRun(workload, settings, shortest_service).run(falls=False)


def tiresias(workload: GpuWorkload, settings: GpuSettings) -> GpuOutcome:
    """Run Tiresias-L: discretised least attained service, preemptive."""
    return PreemptiveRun(workload, settings, least_attained).run(falls=True)


GPU_SCHEDULERS: Final[dict[str, GpuScheduler]] = {
    "fifo": fifo,
    "sjf": sjf,
    "best-fit": best_fit,
    "drf": drf,
    "tetris": tetris,
    "srtf": srtf,
    "srsf": srsf,
    "tiresias": tiresias,
}
