"""Simulator of the Muri study with its quirks: an exact reproduction of its SRTF, SRSF and Tiresias-L
figures.

It differs from a simple preemptive scheduler, because the published figures depend on these points:

1. At every event of the cluster (an arrival, an end, a change of queue) *every* running job loses a start-up
   time that depends on its model and its number of GPUs, whether or not it was disturbed: a stretch of T
   seconds between two events is worth max(T - overhead, 0). The last stretch before a job's end is not
   charged.
2. All placements are repeated from an empty cluster at every event, and moves cost nothing more.
3. One iteration takes 1.5 % longer than in the trace.
4. Shortest-first sorts the list of the previous event again, so equal jobs keep their order.
5. Tiresias-L counts GPUs only (no nodes), counts attained service without the overheads, lets a job fall by
   one queue per event, and puts waiting jobs behind running ones in each queue after every event.

All arithmetic is in floating-point seconds in the order of the original, for the same reason.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.baselines.gpu.workload import GpuWorkload, gpu_workload
from hanse.sim.traces.chunk import SECOND, JobChunk

ITERATION_FACTOR: Final = 1.015
OVERHEAD_DEFAULT: Final = 10.0
"""Seconds for a model that is not in the table."""
QUEUE_LIMITS: Final = (3250.0, 7200.0)
"""GPU-seconds of service at which a job leaves the first and the second of the three queues of Tiresias."""
EVENTS_PER_JOB_MAX: Final = 64
"""Limit of events: a job arrives, ends and falls twice; rounding may add a few events, but not many."""
_OVERHEADS: Final = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Seconds to start each model on 1, 2, 4, 8, 16 and 32 GPUs, as measured by the study."""
_SIZES: Final = (1, 2, 4, 8, 16, 32)

Floats = npt.NDArray[np.float64]


class MuriJob(msgspec.Struct, frozen=True):
    """One line of a trace of the study."""

    submit: float
    """Time of submission in seconds."""
    gpus: int
    iterations: int
    iteration: float
    """Seconds one iteration takes, the factor included."""
    overhead: float
    """Seconds lost at every event while the job runs."""


class MuriOutcome(msgspec.Struct, frozen=True, eq=False):
    """Outcome per job, in the order of the workload; seconds."""

    start: Floats
    """First start."""
    end: Floats
    events: int
    preemptions: int

    def completion(self, jobs: list[MuriJob]) -> Floats:
        """Return end minus submission."""
        spent: Floats = self.end - np.asarray([job.submit for job in jobs])
        return spent


def muri_jobs(chunk: JobChunk) -> list[MuriJob]:
    """Return the jobs of one of the study's traces, from its reader."""
    gpus = (chunk.gpu // 1_000).tolist()
    iteration = chunk.extra["iteration_time"].tolist()
    models = [chunk.name(model) for model in chunk.extra["model"].tolist()]
    return [
        MuriJob(
            submit=arrival / SECOND,
            gpus=gpus[job],
            iterations=int(chunk.extra["iterations"][job]),
            iteration=iteration[job] * ITERATION_FACTOR / 1000,
            overhead=overhead(models[job], gpus[job]),
        )
        for job, arrival in enumerate(chunk.arrival.tolist())
    ]


def without_quirks(jobs: list[MuriJob], per_node: int = 8) -> GpuWorkload:
    """Return the same jobs for the other schedulers: the work of all iterations, without the quirks."""
    return gpu_workload(
        submit=np.asarray([round(job.submit * SECOND) for job in jobs], np.int64),
        work=np.asarray([round(job.iterations * job.iteration * SECOND) for job in jobs], np.int64),
        gpus=np.asarray([job.gpus for job in jobs], np.int64),
        per_node=per_node,
    )


def overhead(model: str, gpus: int) -> float:
    """Return the seconds that a job of this model on so many GPUs loses at an event."""
    known = _OVERHEADS.get(model)
    return float(known[_SIZES.index(gpus)]) if known is not None and gpus in _SIZES else OVERHEAD_DEFAULT


def _take_gpus(free: list[int], gpus: int, per_node: int) -> bool:
    """Take GPUs from the first node that has them; jobs beyond a node take empty nodes and one remainder."""
    if gpus <= per_node:
        for node, room in enumerate(free):
            if room >= gpus:
                free[node] = room - gpus
                return True
        return False
    whole, rest = divmod(gpus, per_node)
    empty = [node for node, room in enumerate(free) if room == per_node][:whole]
    if len(empty) < whole:
        return False
    last = -1
    if rest:
        last = next((node for node, room in enumerate(free) if node not in empty and room >= rest), -1)
        if last < 0:
            return False
        free[last] -= rest
    for node in empty:
        free[node] = 0
    return True


class _MuriRun:
    """Common state of both simulations: remaining iterations, running jobs, and the arrivals to come."""

    def __init__(self, jobs: list[MuriJob]) -> None:
        self.jobs = jobs
        self.remaining = [float(job.iterations) for job in jobs]
        self.checked_at = [job.submit for job in jobs]
        self.running = [False] * len(jobs)
        self.start = [math.inf] * len(jobs)
        self.end = [math.inf] * len(jobs)
        self.present: list[int] = []
        """Jobs that have arrived and not ended, in the scheduler's order."""
        self.next_arrival = 0
        self.events = 0
        self.preemptions = 0

    def next_arrival_time(self) -> float:
        """Return the time of the next arrival."""
        return self.jobs[self.next_arrival].submit if self.next_arrival < len(self.jobs) else math.inf

    def take_arrivals(self, now: float) -> list[int]:
        """Return all jobs submitted at exactly this time."""
        taken: list[int] = []
        while self.next_arrival < len(self.jobs) and self.jobs[self.next_arrival].submit == now:
            taken.append(self.next_arrival)
            self.next_arrival += 1
        self.present.extend(taken)
        return taken

    def finish(self, ending: list[int], now: float) -> None:
        """End these jobs."""
        for job in ending:
            self.running[job] = False
            self.end[job] = now
            self.present.remove(job)

    def next_event(self, ending_at: float) -> float:
        """Return the time of the next arrival or end."""
        now = min(self.next_arrival_time(), ending_at)
        assert now < math.inf, "the cluster is too small for some job"
        self.events += 1
        assert self.events <= EVENTS_PER_JOB_MAX * len(self.jobs), "time stands still"
        return now

    def credit_progress(self, job: int, now: float) -> None:
        """Credit a running job with the stretch since the last event, less the overhead."""
        record = self.jobs[job]
        self.remaining[job] -= max(now - self.checked_at[job] - record.overhead, 0) / record.iteration

    def begin(self, job: int, now: float) -> None:
        """Give a job its GPUs."""
        self.start[job] = min(self.start[job], now)
        self.running[job] = True
        self.checked_at[job] = now

    def preempt(self, job: int) -> None:
        """Take the GPUs of a job away."""
        self.running[job] = False
        self.preemptions += 1

    def earliest_ends(self, now: float) -> tuple[float, list[int]]:
        """Return the earliest end if nothing else happens, and the jobs that end then."""
        when, ending_jobs = math.inf, list[int]()
        for job in self.present:
            if self.running[job]:
                until = now + self.remaining[job] * self.jobs[job].iteration
                if until < when:
                    when, ending_jobs = until, [job]
                elif until == when:
                    ending_jobs.append(job)
        return when, ending_jobs

    def outcome(self) -> MuriOutcome:
        """Return the outcome at the end."""
        return MuriOutcome(np.asarray(self.start), np.asarray(self.end), self.events, self.preemptions)


def muri_srtf(jobs: list[MuriJob], nodes: int = 8, per_node: int = 8) -> MuriOutcome:
    """Run shortest remaining time first."""
    return _run_shortest_first(jobs, nodes, per_node, lambda _, left: left)


def muri_srsf(jobs: list[MuriJob], nodes: int = 8, per_node: int = 8) -> MuriOutcome:
    """Run shortest remaining service (time x GPUs) first."""
    return _run_shortest_first(jobs, nodes, per_node, lambda job, left: left * jobs[job].gpus)


def _run_shortest_first(
    jobs: list[MuriJob], nodes: int, per_node: int, rank: Callable[[int, float], float]
) -> MuriOutcome:
    replay = _MuriRun(jobs)
    ranks = [rank(job, replay.remaining[job] * jobs[job].iteration) for job in range(len(jobs))]
    ending_at, ending = math.inf, list[int]()
    while replay.present or replay.next_arrival < len(jobs):
        now = replay.next_event(ending_at)
        if ending_at == now:
            replay.finish(ending, now)
        replay.take_arrivals(now)
        for job in replay.present:
            if replay.running[job]:
                replay.credit_progress(job, now)
                replay.checked_at[job] = now
                ranks[job] = rank(job, replay.remaining[job] * jobs[job].iteration)
        replay.present.sort(key=ranks.__getitem__)
        _place_all(replay, nodes, per_node, now)
        ending_at, ending = replay.earliest_ends(now)
    return replay.outcome()


def _place_all(replay: _MuriRun, nodes: int, per_node: int, now: float) -> None:
    """Fill an empty cluster in the order of the list; a size that failed cannot fit later in the same
    event."""
    free = [per_node] * nodes
    failed: set[int] = set()
    for job in replay.present:
        gpus = replay.jobs[job].gpus
        fits = gpus not in failed and _take_gpus(free, gpus, per_node)
        if not fits:
            failed.add(gpus)
        if fits and not replay.running[job]:
            replay.begin(job, now)
        elif not fits and replay.running[job]:
            replay.preempt(job)


def muri_tiresias(jobs: list[MuriJob], nodes: int = 8, per_node: int = 8) -> MuriOutcome:
    """Run Tiresias-L: discretised two-dimensional least attained service."""
    replay = _MuriRun(jobs)
    served = [0.0] * len(jobs)
    level = [0] * len(jobs)
    queues: list[list[int]] = [[] for _ in range(len(QUEUE_LIMITS) + 1)]
    ending_at, ending, jump = math.inf, list[int](), math.inf
    while replay.present or replay.next_arrival < len(jobs):
        now = replay.next_event(ending_at)
        if now > jump:
            now = jump
        else:
            if ending_at == now:
                replay.finish(ending, now)
                for job in ending:
                    queues[level[job]].remove(job)
            queues[0].extend(replay.take_arrivals(now))
        for job in replay.present:
            if replay.running[job]:
                # in this order, because rounding decides whether a job falls
                served[job] = served[job] + now - replay.checked_at[job]
                replay.credit_progress(job, now)
                _demote(job, served[job] * jobs[job].gpus, level, queues)
            replay.checked_at[job] = now
        _serve(replay, queues, nodes * per_node, now)
        ending_at, ending = replay.earliest_ends(now)
        jump = _next_jump(replay, served, level, now)
    return replay.outcome()


def _demote(job: int, service: float, level: list[int], queues: list[list[int]]) -> None:
    if level[job] < len(QUEUE_LIMITS) and service >= QUEUE_LIMITS[level[job]]:
        queues[level[job]].remove(job)
        level[job] += 1
        queues[level[job]].append(job)


def _serve(replay: _MuriRun, queues: list[list[int]], gpus: int, now: float) -> None:
    """Give GPUs to the queues in order; then sort waiting jobs behind running ones, queue by queue."""
    free = gpus
    for queue in queues:
        for job in queue:
            fits = replay.jobs[job].gpus <= free
            if fits:
                free -= replay.jobs[job].gpus
                if not replay.running[job]:
                    replay.begin(job, now)
            elif replay.running[job]:
                replay.preempt(job)
        queue.sort(key=lambda job: not replay.running[job])


def _next_jump(replay: _MuriRun, served: list[float], level: list[int], now: float) -> float:
    """Return the time at which the next running job has enough service to fall."""
    jump = math.inf
    for job in replay.present:
        if replay.running[job] and level[job] < len(QUEUE_LIMITS):
            limit = math.ceil(QUEUE_LIMITS[level[job]] / replay.jobs[job].gpus)
            jump = min(jump, limit - served[job] + now)
    return jump
