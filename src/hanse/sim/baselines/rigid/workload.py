"""Workload and outcome of a batch system, as NumPy columns in whole microseconds.

A log leaves three things open, and published figures differ by the choice; so each is a named rule here: the
processors that a job holds (requested or allocated), whether a job beyond its requested time is killed, and
the job length that the planner assumes.
"""

from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.traces.chunk import SECOND, JobChunk

Ints = npt.NDArray[np.int64]
NOT_RUN: Final = -1
"""Start and end of a job that the machine can never hold."""
SLOWDOWN_FLOOR: Final = SECOND
"""Shortest run time in the plain slowdown: shorter ones count as one second (log clocks tick in seconds)."""
BOUNDED_SLOWDOWN_FLOOR: Final = 10 * SECOND
"""Usual threshold of the bounded slowdown: shorter jobs count as this long."""

KillRule = Literal["run-out", "kill"]
WidthRule = Literal["as-read", "requested", "allocated"]


class RigidWorkload(msgspec.Struct, frozen=True, eq=False):
    """Jobs in order of submission; all columns have one entry per job."""

    submit: Ints
    """Microseconds; never decreasing."""
    run: Ints
    """Microseconds that the job really runs."""
    request: Ints
    """Microseconds that the user requested (the run time without a request): shortest-first sorts by them."""
    estimate: Ints
    """Microseconds that the planner assumes, never below ``run``: an exact upper bound."""
    processors: Ints
    """Processors that the job holds from start to end."""
    dropped: int = 0
    """Jobs of the log that are left out because they hold no processor under the chosen rule."""

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.submit)


class RigidSettings(msgspec.Struct, frozen=True):
    """Number of processors and order of waiting jobs."""

    processors: int
    order: str = "fcfs"
    """Name of a waiting order, see ``queue_order.ORDERS``; shortest-first schedulers ignore it."""


class RigidOutcome(msgspec.Struct, frozen=True, eq=False):
    """Times of all runs, and the number of decisions."""

    start: Ints
    """Microseconds, or NOT_RUN for a job larger than the machine."""
    end: Ints
    promise: Ints
    """First start that the planner promised a job (EASY: at the head of the queue; conservative: on
    arrival), else -1."""
    refused: int
    """Jobs larger than the machine."""
    passes: int
    """Number of decisions of the planner."""
    backfilled: int
    """Jobs that started before one ahead of them in the waiting order."""


class RigidFigures(msgspec.Struct, frozen=True):
    """Usual figures of a batch schedule, in seconds; refused jobs are left out."""

    jobs: int
    wait_mean: float
    slowdown_mean: float
    bounded_slowdown_mean: float
    makespan: float
    """Last end minus first submission."""
    utilisation: float
    """Processor-seconds used over processors x makespan."""


def rigid_workload(
    submit: Ints, run: Ints, request: Ints, processors: Ints, *, kill: KillRule = "run-out"
) -> RigidWorkload:
    """Return the columns of a log as a workload.

    ``request`` is 0 without a request; then the run time replaces it. With ``run-out`` a job runs as long as
    in the log and the planner assumes max(request, run); with ``kill`` it ends at the requested time. Jobs
    without a processor are dropped and counted; ties in submission keep the order of the log.
    """
    held = np.flatnonzero(processors > 0)
    order = held[np.argsort(submit[held], kind="stable")]
    run, request = run[order], request[order]
    requested = np.where(request > 0, request, run)
    if kill == "kill":
        run = np.minimum(run, requested)
    return RigidWorkload(
        submit=submit[order],
        run=run,
        request=requested,
        estimate=np.maximum(requested, run),
        processors=processors[order],
        dropped=len(processors) - len(held),
    )


def from_chunk(chunk: JobChunk, width: WidthRule = "as-read", *, kill: KillRule = "run-out") -> RigidWorkload:
    """Return a trace's jobs as rigid jobs; a job runs as long as its longest task.

    ``as-read`` takes the reader's choice (its tasks' CPUs, whole ones, at least one per task); ``requested``
    and ``allocated`` take that field of the Standard Workload Format alone, and a job without it is dropped.
    """
    counts = chunk.counts()
    assert bool((counts > 0).all()), "a job has at least one task"
    if width == "as-read":
        processors = counts * np.maximum(-(-chunk.cpu // 1_000), 1)
    else:
        processors = chunk.extra[width].astype(np.int64)
    run = np.maximum.reduceat(chunk.duration, chunk.offset[:-1]) if chunk.job_count else chunk.duration
    return rigid_workload(chunk.arrival, run, chunk.estimate, processors, kill=kill)


def figures(workload: RigidWorkload, outcome: RigidOutcome, processors: int) -> RigidFigures:
    """Return means over the jobs that ran."""
    ran = outcome.start != NOT_RUN
    if not bool(ran.any()):
        return RigidFigures(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    run = workload.run[ran].astype(np.float64)
    wait = (outcome.start - workload.submit)[ran].astype(np.float64)
    floored = np.maximum(run, SLOWDOWN_FLOOR)
    bounded = np.maximum((wait + run) / np.maximum(run, BOUNDED_SLOWDOWN_FLOOR), 1.0)
    makespan = float(outcome.end[ran].max() - workload.submit.min())
    area = float((run * workload.processors[ran]).sum())
    return RigidFigures(
        jobs=int(ran.sum()),
        wait_mean=float(wait.mean()) / SECOND,
        slowdown_mean=float(((wait + floored) / floored).mean()),
        bounded_slowdown_mean=float(bounded.mean()),
        makespan=makespan / SECOND,
        utilisation=area / (makespan * processors) if makespan else 0.0,
    )
