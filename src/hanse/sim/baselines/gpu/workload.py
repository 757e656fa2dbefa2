"""Jobs that want CPU, memory and GPU on the nodes of a cluster, and their outcomes.

A job is a gang: all its pieces run at once or not at all. A piece is on one node; several pieces may share
one. Times are whole microseconds; resources are milli-CPU, bytes and milli-GPU, in this order. GPUs are
counted per node: only the placement study (``placement``) cares about the device of a share.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.traces.chunk import SECOND, JobChunk

Ints = npt.NDArray[np.int64]
CPU: Final = 0
MEMORY: Final = 1
GPU: Final = 2
RESOURCES: Final = 3
NOT_RUN: Final = -1
Where = tuple[tuple[int, int], ...]
"""One (node, kind) per piece; kind 0 is an ordinary piece, 1 the smaller rest of a job cut to node size."""


class GpuWorkload(msgspec.Struct, frozen=True, eq=False):
    """Jobs in order of submission."""

    submit: Ints
    """[J] microseconds, never decreasing."""
    work: Ints
    """[J] undisturbed run time in microseconds."""
    pieces: Ints
    """[J] number of ordinary pieces."""
    demand: Ints
    """[J, 3] demand of one ordinary piece."""
    rest: Ints
    """[J, 3] demand of the smaller last piece, all zero if there is none."""
    user: Ints
    """[J] user for fair shares; -1 = unknown, which counts as one user."""

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.submit)

    def total(self) -> Ints:
        """Return [J, 3] the total demand of each job."""
        held: Ints = self.demand * self.pieces[:, None] + self.rest
        return held

    def shapes(self) -> tuple[Ints, int]:
        """Return [J] a number per distinct (pieces, demand, rest), and how many there are."""
        table = np.column_stack([self.pieces, self.demand, self.rest])
        _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
        return inverse.reshape(-1).astype(np.int64), len(first)


class GpuSettings(msgspec.Struct, frozen=True, eq=False):
    """Cluster and overheads."""

    capacity: Ints
    """[N, 3] capacity of every node."""
    restart: int = 0
    """Microseconds that a job loses at each start, resumption or move (preemptive policies)."""
    queue_limits: tuple[int, ...] = (3_250 * SECOND, 7_200 * SECOND)
    """GPU-microseconds of service at which least-attained-service moves a job to the next queue."""


class GpuOutcome(msgspec.Struct, frozen=True, eq=False):
    """Times and nodes of all runs."""

    start: Ints
    """[J] first start, NOT_RUN for a job the empty cluster cannot hold."""
    end: Ints
    stretch_job: Ints
    """[S] job of each uninterrupted stretch of running; the next three columns belong to it."""
    stretch_begin: Ints
    stretch_end: Ints
    stretch_where: tuple[Where, ...]
    refused: int
    preemptions: int
    passes: int


class GpuFigures(msgspec.Struct, frozen=True):
    """Usual figures, in seconds; refused jobs are left out."""

    jobs: int
    completion_mean: float
    completion_p99: float
    """Smallest completion time that at least 99 % of the jobs do not exceed."""
    makespan: float
    gpu_utilisation: float


def figures(workload: GpuWorkload, settings: GpuSettings, outcome: GpuOutcome) -> GpuFigures:
    """Return means over the jobs that ran."""
    ran = outcome.end != NOT_RUN
    if not bool(ran.any()):
        return GpuFigures(0, 0.0, 0.0, 0.0, 0.0)
    completion = np.sort((outcome.end - workload.submit)[ran]) / SECOND
    makespan = int(outcome.end[ran].max() - workload.submit.min())
    area = float((workload.work * workload.total()[:, GPU])[ran].sum())
    gpus = float(settings.capacity[:, GPU].sum())
    return GpuFigures(
        jobs=len(completion),
        completion_mean=float(completion.mean()),
        completion_p99=float(completion[int(np.ceil(len(completion) * 0.99)) - 1]),
        makespan=makespan / SECOND,
        gpu_utilisation=area / (gpus * makespan) if gpus and makespan else 0.0,
    )


def equal_nodes(nodes: int, cpu: int, memory: int, gpu: int) -> Ints:
    """Return a cluster of equal nodes (milli-CPU, bytes, milli-GPU)."""
    return np.tile(np.asarray([cpu, memory, gpu], np.int64), (nodes, 1))


def gpu_workload(
    submit: Ints, work: Ints, gpus: Ints, per_node: int, user: Ints | None = None
) -> GpuWorkload:
    """Return jobs that want whole GPUs only, on as few nodes of ``per_node`` GPUs as possible."""
    order = np.argsort(submit, kind="stable")
    gpus = gpus[order]
    cut = gpus > per_node
    demand, rest = np.zeros((len(gpus), RESOURCES), np.int64), np.zeros((len(gpus), RESOURCES), np.int64)
    demand[:, GPU] = np.where(cut, per_node, gpus) * 1_000
    rest[:, GPU] = np.where(cut, gpus % per_node, 0) * 1_000
    return GpuWorkload(
        submit=submit[order],
        work=work[order],
        pieces=np.where(cut, gpus // per_node, 1),
        demand=demand,
        rest=rest,
        user=np.full(len(gpus), -1, np.int64) if user is None else user[order],
    )


def from_chunk(chunk: JobChunk, consolidate_gpus: int = 0) -> GpuWorkload:
    """Return a trace's jobs; a job's tasks are its pieces and run as long as its longest task.

    With ``consolidate_gpus`` (GPUs per node) a job's tasks are merged and cut to node size by their GPUs, as
    the GPU schedulers of the literature place a training job; CPU and memory are divided with the GPUs.
    """
    counts = chunk.counts()
    assert bool((counts > 0).all()), "a job has at least one task"
    order = np.argsort(chunk.arrival, kind="stable")
    work = np.maximum.reduceat(chunk.duration, chunk.offset[:-1]) if chunk.job_count else chunk.duration
    demand = np.column_stack([chunk.cpu, chunk.memory, chunk.gpu]).astype(np.int64)
    pieces, rest = counts.copy(), np.zeros_like(demand)
    if consolidate_gpus:
        total, node = demand * counts[:, None], consolidate_gpus * 1_000
        gpu = total[:, GPU]
        cut = gpu > node
        pieces = np.where(cut, gpu // node, np.where(gpu > 0, 1, counts))
        whole = np.maximum(gpu, 1)[:, None]
        demand = np.where(cut[:, None], total * node // whole, np.where((gpu > 0)[:, None], total, demand))
        rest = np.where(cut[:, None], total * (gpu % node)[:, None] // whole, 0)
    return GpuWorkload(
        chunk.arrival[order],
        work[order],
        pieces[order],
        demand[order],
        rest[order],
        chunk.user[order].astype(np.int64),
    )
