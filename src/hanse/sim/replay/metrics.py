"""Measurement of outcomes: the figures of a table and the curves of a report."""

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.replay.run_records import SECOND, ReplayOutcome, ReplaySettings, ReplayWorkload

Floats = npt.NDArray[np.float64]

POINTS: Final = 300
"""Number of samples of a curve over time."""
TIME_FIELDS: Final = (
    "decision_us_p50", "decision_us_p99", "wall_seconds", "cpu_seconds", "tasks_per_cpu_second", "engine",
)  # fmt: skip
"""Fields of a result about the speed of the computer and the engine; all others are equal for equal seeds."""


class RunResult(msgspec.Struct, frozen=True):
    """Figures of one run. Seconds unless the name says otherwise; ``None`` without anything to measure."""

    policy: str
    order: str
    seed: int
    trace: str
    tasks: int
    jobs: int
    nodes: int
    clusters: int
    brokers: int
    load: float
    delay_mean: float | None
    """Job delay: completion - arrival - longest task."""
    delay_p50: float | None
    delay_p90: float | None
    delay_p99: float | None
    delay_p999: float | None
    short_delay_p99: float | None
    long_delay_p99: float | None
    jct_mean: float | None
    """Job completion time: completion - arrival."""
    makespan: float
    utilisation: float
    messages_per_task: float
    rejects_per_task: float
    substitutions_per_task: float
    grants_per_task: float
    heartbeats: int
    jobs_ended: int
    complete: bool
    """False if the run was stopped: then the figures cover the jobs that had ended."""
    decision_us_p50: float | None
    decision_us_p99: float | None
    wall_seconds: float
    cpu_seconds: float
    tasks_per_cpu_second: float
    starts_per_task: float = 1.0
    """Starts per task; above 1 if faults made tasks run again."""
    engine: str = ""
    """Engine of ``hanse``: ``compiled`` or ``machines``; empty for other policies."""


class Curves(msgspec.Struct, frozen=True, eq=False):
    """Curves of a report."""

    delays: Floats
    """Job delays in seconds, sorted."""
    times: Floats
    """Seconds since the first arrival."""
    utilisation: Floats
    """Share of the nodes that run a task at each time."""
    waiting: Floats
    """Tasks that have arrived and not started at each time."""


def delays_of(workload: ReplayWorkload, outcome: ReplayOutcome) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the delay in seconds of every job that ended, and the mask of those jobs."""
    offset = np.asarray(workload.offset[:-1], np.int64)
    longest = np.maximum.reduceat(np.asarray(workload.duration, np.int64), offset)
    ended = outcome.job_end >= 0
    delay = (outcome.job_end - np.asarray(workload.arrival, np.int64) - longest)[ended] / SECOND
    return delay, ended


def percentile(values: Floats, share: float) -> float | None:
    """Return a percentile with linear interpolation; None if there are no values."""
    return float(np.percentile(values, share)) if len(values) else None


def measure(
    workload: ReplayWorkload,
    settings: ReplaySettings,
    outcome: ReplayOutcome,
    named: tuple[str, str],
    seconds: tuple[float, float],
) -> RunResult:
    """Return the figures of a run of the policy and order ``named``, which took ``seconds`` of wall and
    processor time."""
    started = outcome.start >= 0
    begun = int(started.sum())
    duration = np.asarray(workload.duration, np.int64)[started]
    last = int((outcome.start[started] + duration).max()) if begun else 0
    decisions = np.asarray(outcome.decision_ns, np.float64) / 1000
    ran = max(begun, 1)
    wall, cpu = seconds
    return RunResult(
        policy=named[0],
        order=named[1],
        seed=settings.seed,
        trace=workload.name,
        tasks=workload.task_count,
        jobs=workload.job_count,
        nodes=settings.nodes,
        clusters=settings.clusters,
        brokers=settings.brokers,
        load=workload.load(settings.nodes),
        **_job_figures(workload, settings, outcome),
        makespan=last / SECOND,
        utilisation=float(duration.sum()) / (settings.nodes * last) if last else 0.0,
        messages_per_task=outcome.messages / ran,
        rejects_per_task=outcome.rejects / ran,
        substitutions_per_task=outcome.substitutions / ran,
        grants_per_task=outcome.grants / ran,
        heartbeats=outcome.heartbeats,
        jobs_ended=int((outcome.job_end >= 0).sum()),
        complete=outcome.complete,
        decision_us_p50=percentile(decisions, 50),
        decision_us_p99=percentile(decisions, 99),
        wall_seconds=wall,
        cpu_seconds=cpu,
        tasks_per_cpu_second=begun / cpu if cpu else 0.0,
        starts_per_task=outcome.launches / ran,
        engine=outcome.engine,
    )


def _job_figures(
    workload: ReplayWorkload, settings: ReplaySettings, outcome: ReplayOutcome
) -> dict[str, float | None]:
    """Return delays and completion times of the jobs that ended, by field of the result."""
    delay, ended = delays_of(workload, outcome)
    short = (np.asarray(workload.estimate, np.int64) < settings.short_cutoff_us)[ended]
    completion = (outcome.job_end - np.asarray(workload.arrival, np.int64))[ended] / SECOND
    return {
        "delay_mean": float(delay.mean()) if len(delay) else None,
        "delay_p50": percentile(delay, 50),
        "delay_p90": percentile(delay, 90),
        "delay_p99": percentile(delay, 99),
        "delay_p999": percentile(delay, 99.9),
        "short_delay_p99": percentile(delay[short], 99),
        "long_delay_p99": percentile(delay[~short], 99),
        "jct_mean": float(completion.mean()) if len(delay) else None,
    }


def curves(workload: ReplayWorkload, settings: ReplaySettings, outcome: ReplayOutcome) -> Curves:
    """Return the curves of a run, sampled at ``POINTS`` equal steps."""
    started = outcome.start >= 0
    begin = np.sort(outcome.start[started])
    end = np.sort((outcome.start + np.asarray(workload.duration, np.int64))[started])
    offset = np.asarray(workload.offset, np.int64)
    counts = offset[1:] - offset[:-1]
    arrived = np.repeat(np.asarray(workload.arrival, np.int64), counts)
    times = np.linspace(0, int(end[-1]) if len(end) else 1, POINTS).astype(np.int64)
    before_start = np.searchsorted(begin, times, side="right")
    busy = before_start - np.searchsorted(end, times, side="right")
    waiting = np.searchsorted(arrived, times, side="right") - before_start
    delay, _ = delays_of(workload, outcome)
    return Curves(np.sort(delay), times / SECOND, busy / settings.nodes, waiting.astype(np.float64))


def as_dict(result: RunResult) -> dict[str, Any]:
    """Return a result as plain values, in the order of its fields."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    return fields
