"""Schedulers for whole jobs as policies of a replay: rigid parallel jobs, GPU jobs, placement of pods.

They are separate from the policies of ``sim.replay.registry`` and never in one table with them: here a job
holds several processors or parts of nodes at once, there a task holds one node. The contents of the trace
decide the family of a name: ``sjf`` is shortest-first of rigid jobs on a log in the Standard Workload Format
and of GPU jobs on a GPU trace.

*rigid* (``fcfs``, ``sjf``, ``easy``, ``conservative``): ``nodes`` are processors. *gpu* (``fifo``, ``sjf``,
``best-fit``, ``drf``, ``tetris``, ``srtf``, ``srsf``, ``tiresias``): ``nodes`` equal nodes of ``node_gpus``,
``node_cpus`` and ``node_memory_gib``; a 0 means not counted. *placement* (``fgd``, ``random``,
``dot-product``, ``gpu-clustering``, ``gpu-packing``, ``best-fit``): pods arrive on a list of nodes and never
leave.

There is no network: delays are waiting times only, including the times of interruptions.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.baselines.gpu import workload as gpu
from hanse.sim.baselines.gpu.openb import openb_nodes, openb_pods
from hanse.sim.baselines.gpu.placement import place_pods
from hanse.sim.baselines.gpu.schedulers import GPU_SCHEDULERS
from hanse.sim.baselines.rigid import workload as rigid
from hanse.sim.baselines.rigid.schedulers import RIGID_SCHEDULERS
from hanse.sim.replay.run_records import ReplayError, ReplaySettings
from hanse.sim.traces import JobChunk, read_nodes

Ints = npt.NDArray[np.int64]
GIB: Final = 1 << 30


class BatchTrace(msgspec.Struct, frozen=True, eq=False):
    """Trace of jobs that run as wholes."""

    name: str
    chunk: JobChunk

    @property
    def task_count(self) -> int:
        """Number of tasks of its jobs."""
        return self.chunk.task_count


class BatchOutcome(msgspec.Struct, frozen=True, eq=False):
    """Outcome of the jobs; times in microseconds since the first submission."""

    arrival: Ints
    work: Ints
    """[J] undisturbed run time."""
    start: Ints
    """[J] first start."""
    end: Ints
    held: Ints
    """[S] amount that each uninterrupted stretch of running holds."""
    begin: Ints
    until: Ints
    capacity: int
    """Total capacity."""


class PlacementResult(msgspec.Struct, frozen=True):
    """Outcome of pods that never leave, without times."""

    allocated: float
    """Allocated share of all GPUs."""
    pods: int
    unplaced: int
    """Pods that fitted on no node."""


class BatchPolicy(msgspec.Struct, frozen=True):
    """One scheduler for whole jobs."""

    name: str
    family: str
    about: str
    own_order: str
    run: Callable[[JobChunk, ReplaySettings], BatchOutcome | PlacementResult]

    def order(self, _: ReplaySettings) -> str:
        """Return the name of its order in results."""
        return self.own_order


def _rigid(name: str) -> Callable[[JobChunk, ReplaySettings], BatchOutcome]:
    def run(chunk: JobChunk, settings: ReplaySettings) -> BatchOutcome:
        jobs = rigid.from_chunk(chunk)
        wide = int(jobs.processors.max())
        if wide > settings.nodes:
            count = int((jobs.processors > settings.nodes).sum())
            raise ReplayError(
                f"{count} jobs hold more than {settings.nodes} processors: use --nodes {wide} or more"
            )
        outcome = RIGID_SCHEDULERS[name](jobs, rigid.RigidSettings(settings.nodes))
        first = int(jobs.submit[0])
        start, end = outcome.start - first, outcome.end - first
        return BatchOutcome(
            jobs.submit - first, jobs.run, start, end, jobs.processors, start, end, settings.nodes
        )

    return run


def _gpu(name: str) -> Callable[[JobChunk, ReplaySettings], BatchOutcome]:
    def run(chunk: JobChunk, settings: ReplaySettings) -> BatchOutcome:
        amounts = np.asarray(
            [settings.node_cpus * 1_000, settings.node_memory_gib * GIB, settings.node_gpus * 1_000], np.int64
        )
        jobs = gpu.from_chunk(chunk, settings.node_gpus)
        jobs = msgspec.structs.replace(
            jobs, demand=np.where(amounts > 0, jobs.demand, 0), rest=np.where(amounts > 0, jobs.rest, 0)
        )
        if not jobs.demand.any():
            raise ReplayError(
                f"{name} needs jobs that ask for something the nodes have: see --node-gpus, --node-cpus and"
                " --node-memory"
            )
        chosen = gpu.GpuSettings(gpu.equal_nodes(settings.nodes, *amounts.tolist()))
        outcome = GPU_SCHEDULERS[name](jobs, chosen)
        if outcome.refused:
            raise ReplayError(
                f"{outcome.refused} jobs do not fit on {settings.nodes} such nodes even when they are empty"
            )
        first = int(jobs.submit[0])
        counted = gpu.GPU if jobs.demand[:, gpu.GPU].any() else int(np.argmax(amounts > 0))
        held = jobs.total()[:, counted][outcome.stretch_job]
        capacity = int(chosen.capacity[:, counted].sum())
        return BatchOutcome(
            jobs.submit - first, jobs.work, outcome.start - first, outcome.end - first,
            held, outcome.stretch_begin - first, outcome.stretch_end - first, capacity,
        )  # fmt: skip

    return run


def _placement(name: str) -> Callable[[JobChunk, ReplaySettings], PlacementResult]:
    def run(chunk: JobChunk, settings: ReplaySettings) -> PlacementResult:
        if not settings.node_list:
            raise ReplayError(f"{name} places pods on a list of nodes: use --node-list FILE")
        nodes = openb_nodes(read_nodes(Path(settings.node_list)))
        placed = place_pods(openb_pods(chunk, nodes), nodes, name, settings.seed)
        return PlacementResult(placed.allocated, len(placed.node), int((placed.node < 0).sum()))

    return run


_RIGID: Final = {
    "fcfs": ("first come, first served; the head blocks", "fifo"),
    "sjf": ("shortest requested time first; the head blocks", "shortest"),
    "easy": ("EASY backfilling: the head has a reservation", "fifo"),
    "conservative": ("conservative backfilling: everyone has a reservation", "fifo"),
}
_GPU: Final = {
    "fifo": ("first come, first served; the head blocks", "fifo"),
    "sjf": ("least work first; the head blocks", "shortest"),
    "best-fit": ("by arrival, who does not fit is passed over; tightest node", "fifo"),
    "drf": ("dominant resource fairness between users", "fair"),
    "tetris": ("best alignment of demand and idle amounts", "alignment"),
    "srtf": ("shortest remaining time first, preemptive", "remaining-time"),
    "srsf": ("shortest remaining time x GPUs first, preemptive", "remaining-service"),
    "tiresias": ("discretised least attained service, preemptive", "least-attained"),
}
_PLACEMENT: Final = {
    "fgd": "the least fragmentation",
    "random": "any machine with room",
    "dot-product": "the best alignment of demand and idle amounts",
    "gpu-clustering": "machines that hold pods of the same share first",
    "gpu-packing": "used devices first, then used machines",
    "best-fit": "the machine with least left over",
}
FAMILIES: Final[dict[str, dict[str, BatchPolicy]]] = {
    "rigid": {
        name: BatchPolicy(name, "rigid", f"rigid jobs: {about}", order, _rigid(name))
        for name, (about, order) in _RIGID.items()
    },
    "gpu": {
        name: BatchPolicy(name, "gpu", f"GPU jobs: {about}", order, _gpu(name))
        for name, (about, order) in _GPU.items()
    },
    "placement": {
        name: BatchPolicy(name, "placement", f"pods that stay: {about}", "arrival", _placement(name))
        for name, about in _PLACEMENT.items()
    },
}
"""Family -> name -> policy; for a name in two families the trace decides."""
NEEDS: Final = {
    "rigid": "rigid parallel jobs with their processors (the Standard Workload Format)",
    "gpu": "jobs that ask for GPUs, CPUs or memory and say how long they run",
    "placement": "pods with numbers and models of GPUs (Alibaba's openb lists)",
}


def batch_names() -> tuple[str, ...]:
    """Return all names, each once."""
    return tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family))


def _can_serve(family: str, chunk: JobChunk) -> bool:
    """True if a trace has the columns that a family needs."""
    if not chunk.job_count or chunk.needs is not None:
        return False
    if family == "placement":
        return "num_gpu" in chunk.extra and "gpu_spec" in chunk.extra
    if not chunk.duration.any():
        return False
    if family == "rigid":
        return "requested" in chunk.extra and "allocated" in chunk.extra
    stated = chunk.cpu.any() or chunk.memory.any() or chunk.gpu.any()
    return bool(stated) and "allocated" not in chunk.extra


def select_batch_policies(names: list[str], trace: BatchTrace, settings: ReplaySettings) -> list[BatchPolicy]:
    """Return the policies of these names for this trace; raise if the trace is unsuitable."""
    if settings.faults:
        raise ReplayError(f"faults cannot be injected into {', '.join(names)}; policies that can: hanse")
    fitting = [
        family
        for family, members in FAMILIES.items()
        if _can_serve(family, trace.chunk) and all(name in members for name in names)
    ]
    if fitting:
        return [FAMILIES[fitting[0]][name] for name in names]
    wanted = [family for family, members in FAMILIES.items() if all(name in members for name in names)]
    if not wanted:
        raise ReplayError(f"{', '.join(names)} are for different kinds of jobs: run them apart")
    needs = " or ".join(NEEDS[family] for family in wanted)
    raise ReplayError(f"{', '.join(names)} cannot be run on {trace.name}: the trace must have {needs}")


def scale_to_load(
    trace: BatchTrace, settings: ReplaySettings, load: float, policy: BatchPolicy
) -> BatchTrace:
    """Return the same jobs with arrivals scaled so that the offered load becomes ``load``."""
    outcome = policy.run(trace.chunk, settings)
    now = 0.0 if isinstance(outcome, PlacementResult) else offered_load(outcome)
    if not 0 < now < float("inf"):
        raise ReplayError("only a trace with jobs that arrive at different times can be scaled to a load")
    first = int(trace.chunk.arrival[0])
    arrival = first + np.rint((trace.chunk.arrival - first) * (now / load)).astype(np.int64)
    return BatchTrace(trace.name, msgspec.structs.replace(trace.chunk, arrival=arrival))


def offered_load(outcome: BatchOutcome) -> float:
    """Return the work brought over capacity x time of arrivals."""
    span = int(outcome.arrival[-1] - outcome.arrival[0])
    work = float((outcome.held * (outcome.until - outcome.begin)).sum())
    return work / (outcome.capacity * span) if span else float("inf")
