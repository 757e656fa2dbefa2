"""Figures and curves of schedulers for whole jobs, in the form of all others."""

from typing import Any

import numpy as np

from hanse.sim.baselines.gpu.placement import DEMAND
from hanse.sim.replay.metrics import POINTS, Curves, Floats, RunResult, percentile
from hanse.sim.replay.run_records import SECOND, ReplaySettings
from hanse.sim.replay.whole_job_policies import (
    BatchOutcome,
    BatchPolicy,
    BatchTrace,
    Ints,
    PlacementResult,
    offered_load,
)


def measure_batch(
    trace: BatchTrace,
    settings: ReplaySettings,
    policy: BatchPolicy,
    outcome: BatchOutcome | PlacementResult,
    seconds: tuple[float, float],
) -> RunResult:
    """Return the figures of a run; those without meaning here (no network, no time) are 0 or None."""
    wall, cpu = seconds
    placed = isinstance(outcome, PlacementResult)
    tasks = outcome.pods if isinstance(outcome, PlacementResult) else trace.task_count
    jobs = outcome.pods if isinstance(outcome, PlacementResult) else len(outcome.arrival)
    return RunResult(
        policy=policy.name,
        order=policy.own_order,
        seed=settings.seed,
        trace=trace.name,
        tasks=tasks,
        jobs=jobs,
        nodes=settings.nodes,
        clusters=1,
        brokers=1,
        **_figures(outcome, settings),
        messages_per_task=0.0,
        rejects_per_task=outcome.unplaced / max(1, outcome.pods)
        if isinstance(outcome, PlacementResult)
        else 0.0,
        substitutions_per_task=0.0,
        grants_per_task=0.0,
        heartbeats=0,
        jobs_ended=0 if placed else jobs,
        complete=True,
        decision_us_p50=None,
        decision_us_p99=None,
        wall_seconds=wall,
        cpu_seconds=cpu,
        tasks_per_cpu_second=tasks / cpu if cpu else 0.0,
    )


def _figures(outcome: BatchOutcome | PlacementResult, settings: ReplaySettings) -> dict[str, Any]:
    """Return the fields of a result about times and utilisation."""
    if isinstance(outcome, PlacementResult):
        nothing = dict.fromkeys(
            ("delay_mean", "delay_p50", "delay_p90", "delay_p99", "delay_p999", "short_delay_p99",
             "long_delay_p99", "jct_mean")
        )  # fmt: skip
        return {**nothing, "load": DEMAND, "makespan": 0.0, "utilisation": outcome.allocated}
    delay = (outcome.end - outcome.arrival - outcome.work) / SECOND
    short = outcome.work < settings.short_cutoff_us
    last = int(outcome.end.max())
    busy = float((outcome.held * (outcome.until - outcome.begin)).sum())
    return {
        "load": offered_load(outcome),
        "delay_mean": float(delay.mean()),
        "delay_p50": percentile(delay, 50),
        "delay_p90": percentile(delay, 90),
        "delay_p99": percentile(delay, 99),
        "delay_p999": percentile(delay, 99.9),
        "short_delay_p99": percentile(delay[short], 99),
        "long_delay_p99": percentile(delay[~short], 99),
        "jct_mean": float((outcome.end - outcome.arrival).mean()) / SECOND,
        "makespan": last / SECOND,
        "utilisation": busy / (outcome.capacity * last) if last else 0.0,
    }


def curves_batch(outcome: BatchOutcome | PlacementResult) -> Curves:
    """Return the curves of a report: shares held and jobs waiting for their first start."""
    if isinstance(outcome, PlacementResult):
        none = np.zeros(POINTS)
        return Curves(np.zeros(0), none, none, none)
    times = np.linspace(0, max(1, int(outcome.end.max())), POINTS).astype(np.int64)
    begun = _cumulative_weight(outcome.begin, outcome.held, times)
    over = _cumulative_weight(outcome.until, outcome.held, times)
    arrived = np.searchsorted(np.sort(outcome.arrival), times, side="right")
    started = np.searchsorted(np.sort(outcome.start), times, side="right")
    delay = np.sort((outcome.end - outcome.arrival - outcome.work) / SECOND)
    waiting = (arrived - started).astype(np.float64)
    return Curves(delay, times / SECOND, (begun - over) / outcome.capacity, waiting)


def _cumulative_weight(moments: Ints, weight: Ints, times: Ints) -> Floats:
    """Return the sum of the weights of all moments up to each time."""
    order = np.argsort(moments, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weight[order], dtype=np.float64)])
    found: Floats = total[np.searchsorted(moments[order], times, side="right")]
    return found
