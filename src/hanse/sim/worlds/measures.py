"""Measures of an outcome in a world, and their means over repeats with paired intervals.

Jobs that arrive in the first ``WARM_SHARE`` of the time until the last arrival are not counted, and shares
over time are those between that moment and the last arrival: before it the world fills, after it the world
drains."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from hanse.sim.replay.confidence_intervals import mean_with_interval
from hanse.sim.worlds.attempt_table import (
    alone_seconds,
    attempts_of,
    job_ends,
    node_steps,
    ready_times,
    task_jobs,
)
from hanse.sim.worlds.columns import Floats, Ints, WorkColumns, WorldColumns, WorldOutcome

WARM_SHARE: Final = 0.15
"""Share of the time until the last arrival whose jobs are not counted."""
SECOND: Final = 1_000_000
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}


class WorldResult(msgspec.Struct, frozen=True):
    """Figures of one run. Seconds unless the name says otherwise; ``None`` without anything to measure."""

    policy: str
    order: str
    seed: int
    work: str
    load: float
    jobs: int
    tasks: int
    counted_jobs: int
    completion_mean: float | None
    """Job completion: end of the last task - arrival."""
    completion_p50: float | None
    completion_p90: float | None
    completion_p95: float | None
    completion_p99: float | None
    completion_p999: float | None
    completion_p9999: float | None
    delay_mean: float | None
    """Completion - the time that the job would take alone in the world, from its readiness on."""
    delay_p50: float | None
    delay_p90: float | None
    delay_p95: float | None
    delay_p99: float | None
    delay_p999: float | None
    delay_p9999: float | None
    slowdown: float | None
    """Mean of completion from readiness on, over the time alone."""
    waiting_mean: float | None
    """Of a task, from its job's readiness to its place."""
    allocation_p50: float | None
    """The same, of tasks: time until a place is allocated."""
    allocation_p99: float | None
    transfer_mean: float | None
    """Of a task, from its place to its input."""
    run_mean: float | None
    allocated: float
    """Share of cores that tasks hold, over time."""
    useful: float
    """Reference work done per core-second: seconds on a node of speed 1 without neighbours x cores."""
    stranded: float
    """Share of cores that are free on nodes without memory for the smallest job, or without their GPUs, over
    time."""
    bytes_rack: float
    bytes_lan: float
    bytes_wan: float
    remote: float | None
    """Share of tasks that ran outside their job's home."""
    deadlines: int
    deadlines_met: float | None
    """Share of the counted jobs with a deadline."""
    wasted_share: float
    """Core-seconds of undone attempts over all core-seconds held."""
    starts_per_task: float
    messages_per_task: float
    message_bytes: int
    decision_us_mean: float | None
    """Processor time of the policy for a job's arrival, without messages."""
    decision_us_p50: float | None
    decision_us_p99: float | None
    cpu_seconds: float
    starts_per_cpu_second: float
    complete: bool


TIME_FIELDS: Final = (
    "decision_us_mean", "decision_us_p50", "decision_us_p99", "cpu_seconds", "starts_per_cpu_second",
)  # fmt: skip
"""Fields of a result about the speed of the computer; all others are equal for equal seeds."""


class RunNames(msgspec.Struct, frozen=True):
    """Names of a run: policy, order of the queue, seed, and the load that was asked for."""

    policy: str
    order: str
    seed: int
    load: float


def measure_world(
    world: WorldColumns, work: WorkColumns, outcome: WorldOutcome, names: RunNames, cpu_seconds: float
) -> WorldResult:
    """Return the figures of a run."""
    ends = job_ends(work, outcome)
    span = int(work.job_arrival[-1])
    counted = (work.job_arrival >= WARM_SHARE * span) & (ends >= 0)
    ready = ready_times(work, ends)
    completion = (ends - work.job_arrival)[counted] / SECOND
    alone = alone_seconds(world, work)[counted]
    from_ready = (ends - ready)[counted] / SECOND
    return WorldResult(
        policy=names.policy,
        order=names.order,
        seed=names.seed,
        work=work.name,
        load=names.load,
        jobs=work.job_count,
        tasks=work.task_count,
        counted_jobs=int(counted.sum()),
        completion_mean=_mean(completion),
        **_percentiles("completion", completion),
        delay_mean=_mean(from_ready - alone),
        **_percentiles("delay", from_ready - alone),
        slowdown=_mean(from_ready / alone),
        **_task_figures(world, work, outcome, counted, ready),
        **_shares(world, work, outcome, int(WARM_SHARE * span), span),
        bytes_rack=outcome.bytes_rack,
        bytes_lan=outcome.bytes_lan,
        bytes_wan=outcome.bytes_wan,
        **_deadlines(work, ends, counted),
        starts_per_task=outcome.launches / work.task_count,
        messages_per_task=outcome.messages / work.task_count,
        message_bytes=outcome.message_bytes,
        **_decisions(outcome),
        cpu_seconds=cpu_seconds,
        starts_per_cpu_second=outcome.launches / max(cpu_seconds, 1e-9),
        complete=outcome.complete,
    )


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _percentiles(prefix: str, values: Floats) -> dict[str, Any]:
    found = {
        name: float(np.percentile(values, share)) if len(values) else None
        for name, share in PERCENTILES.items()
    }
    return {f"{prefix}_{name}": value for name, value in found.items()}


def _task_figures(
    world: WorldColumns,
    work: WorkColumns,
    outcome: WorldOutcome,
    counted: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ready: Ints,
) -> dict[str, Any]:
    job = task_jobs(work)
    tasks = np.nonzero(counted[job])[0]
    waiting = (outcome.start[tasks] - ready[job[tasks]]) / SECOND
    away = world.node_cluster[outcome.node[tasks]] != work.job_home[job[tasks]]
    return {
        "waiting_mean": _mean(waiting),
        "allocation_p50": float(np.percentile(waiting, 50)) if len(tasks) else None,
        "allocation_p99": float(np.percentile(waiting, 99)) if len(tasks) else None,
        "transfer_mean": _mean((outcome.run[tasks] - outcome.start[tasks]) / SECOND),
        "run_mean": _mean((outcome.end[tasks] - outcome.run[tasks]) / SECOND),
        "remote": _mean(away.astype(float)),
    }


def _shares(
    world: WorldColumns, work: WorkColumns, outcome: WorldOutcome, begin: int, end: int
) -> dict[str, Any]:
    """Return the shares over time between two moments."""
    table = attempts_of(work, outcome)
    cores, cpu = float(world.node_cpu.sum()), work.job_cpu[table.job].astype(float)
    window = max(end - begin, 1)
    held = np.maximum(np.minimum(table.end, end) - np.maximum(table.start, begin), 0)
    last = slice(0, len(table.task) - table.undone)
    ran = table.end[last] - table.run[last]
    inside = np.maximum(np.minimum(table.end[last], end) - np.maximum(table.run[last], begin), 0)
    # within an attempt the work is taken as even over time
    done = work.task_work[table.task[last]] * inside / np.maximum(ran, 1) * SECOND
    all_held = float((cpu * (table.end - table.start)).sum())
    return {
        "allocated": float((cpu * held).sum()) / cores / window,
        "useful": float((cpu[last] * done).sum()) / cores / window,
        "stranded": _stranded(world, work, outcome, begin, end),
        "wasted_share": outcome.wasted_core_us * 1000.0 / max(all_held, 1.0),
    }


def _stranded(world: WorldColumns, work: WorkColumns, outcome: WorldOutcome, begin: int, end: int) -> float:
    steps = node_steps(world, work, attempts_of(work, outcome))
    following = np.append(steps.time[1:], end)
    following[np.append(np.diff(steps.node) != 0, True)] = end  # the last step of a node lasts
    lasts = np.maximum(np.minimum(following, end) - np.maximum(steps.time, begin), 0)
    starved = steps.free_memory < int(work.job_memory.min())
    starved |= (world.node_gpu[steps.node] > 0) & (steps.free_gpu == 0)
    idle = float((steps.free_cpu * lasts)[starved].sum())
    return idle / float(world.node_cpu.sum()) / max(end - begin, 1)


def _deadlines(
    work: WorkColumns, ends: Ints, counted: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> dict[str, Any]:
    asked = counted & (work.job_deadline > 0)
    met = (ends - work.job_arrival <= work.job_deadline)[asked]
    return {"deadlines": int(asked.sum()), "deadlines_met": _mean(met.astype(float))}


def _decisions(outcome: WorldOutcome) -> dict[str, Any]:
    spent = outcome.decision_ns / 1_000.0
    return {
        "decision_us_mean": _mean(spent),
        "decision_us_p50": float(np.percentile(spent, 50)) if len(spent) else None,
        "decision_us_p99": float(np.percentile(spent, 99)) if len(spent) else None,
    }


_NOT_COMPARED: Final = (
    "policy",
    "order",
    "seed",
    "work",
    "load",
    "jobs",
    "tasks",
    "counted_jobs",
    "complete",
)


def summarise_worlds(results: Sequence[WorldResult], baseline: str) -> list[dict[str, Any]]:
    """Return one object per policy: means over the seeds, ``<field>_ci95`` (half an interval's width), and
    ``<field>_vs_<baseline>`` in per cent with ``..._ci95``: the mean over seeds of the difference in each.

    A pair is two runs of one seed: the same work, so intervals of differences are narrower than differences
    of intervals. Without repeats an interval is 0: unknown."""
    by_policy: dict[str, dict[int, WorldResult]] = {}
    for result in results:
        by_policy.setdefault(result.policy, {})[result.seed] = result
    base = by_policy[baseline]
    return [_summary(runs, base, baseline) for runs in by_policy.values()]


def _summary(runs: dict[int, WorldResult], base: dict[int, WorldResult], baseline: str) -> dict[str, Any]:
    rows = [msgspec.to_builtins(run) for run in runs.values()]
    pairs = [
        (msgspec.to_builtins(runs[seed]), msgspec.to_builtins(base[seed])) for seed in runs if seed in base
    ]
    whole = dict(rows[0])
    whole["complete"] = all(row["complete"] for row in rows)
    for field in rows[0]:
        values = [row[field] for row in rows]
        if field in _NOT_COMPARED or None in values:
            continue
        whole[field], whole[f"{field}_ci95"] = mean_with_interval(values)
        changes = [100.0 * (one[field] / other[field] - 1.0) for one, other in pairs if other[field]]
        if field not in TIME_FIELDS and changes and len(changes) == len(rows):
            named = f"{field}_vs_{baseline}"
            whole[named], whole[f"{named}_ci95"] = mean_with_interval(changes)
    return {**whole, "repeat": len(rows), "baseline": baseline, "runs": rows}
