"""Execution of policies: one run, repeats over seeds, and the result files."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.sim.replay.confidence_intervals import mean_with_interval
from hanse.sim.replay.metrics import Curves, RunResult, as_dict, curves, measure
from hanse.sim.replay.registry import ReplayPolicy
from hanse.sim.replay.run_records import Progress, ReplaySettings, ReplayWorkload
from hanse.sim.replay.whole_job_metrics import curves_batch, measure_batch
from hanse.sim.replay.whole_job_policies import BatchPolicy, BatchTrace

REPEATS_MAX: Final = 1_000
_NOT_AVERAGED: Final = ("seed", "tasks", "jobs", "nodes", "clusters", "brokers")


class ReplayRun(msgspec.Struct, frozen=True, eq=False):
    """Finished (or stopped) run."""

    result: RunResult
    curves: Curves


def run_once(
    policy: ReplayPolicy, workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayRun:
    """Run a policy and measure it; reading the trace and measuring the outcome are not timed."""
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = policy(workload, settings, progress)
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    named = policy.name, policy.order(settings)
    return ReplayRun(
        measure(workload, settings, outcome, named, seconds), curves(workload, settings, outcome)
    )


def run_batch(policy: BatchPolicy, trace: BatchTrace, settings: ReplaySettings) -> ReplayRun:
    """Run a scheduler for whole jobs and measure it."""
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = policy.run(trace.chunk, settings)
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return ReplayRun(measure_batch(trace, settings, policy, outcome, seconds), curves_batch(outcome))


def run_policies(
    policies: Sequence[ReplayPolicy | BatchPolicy],
    workload: ReplayWorkload | BatchTrace,
    settings: ReplaySettings,
    repeat: int,
    watch: Callable[[ReplayPolicy | BatchPolicy, int], Progress],
) -> Iterator[ReplayRun]:
    """Run every policy with the seeds from ``settings.seed`` on; end after a run that was stopped.

    Schedulers for whole jobs cannot be stopped; the progress function is asked between two runs.
    """
    for policy in policies:
        for seed in range(settings.seed, settings.seed + repeat):
            seeded, progress = msgspec.structs.replace(settings, seed=seed), watch(policy, seed)
            if isinstance(policy, BatchPolicy):
                assert isinstance(workload, BatchTrace)
                run = run_batch(policy, workload, seeded)
                yield run
                if not progress(workload.task_count):
                    return
                continue
            assert isinstance(workload, ReplayWorkload)
            run = run_once(policy, workload, seeded, progress)
            yield run
            if not run.result.complete:
                return


def summarise(runs: list[ReplayRun]) -> list[dict[str, Any]]:
    """Return one object per policy; with repeats the means, ``<field>_ci95`` (half the interval's width) and
    the single runs."""
    by_policy: dict[str, list[RunResult]] = {}
    for run in runs:
        by_policy.setdefault(run.result.policy, []).append(run.result)
    objects = []
    for results in by_policy.values():
        first = as_dict(results[0])
        if len(results) > 1:
            first = _average([as_dict(result) for result in results])
        objects.append(first)
    return objects


def _average(results: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    intervals: dict[str, float] = {}
    for field, value in results[0].items():
        values = [result[field] for result in results]
        whole[field] = value
        if isinstance(value, bool):
            whole[field] = all(values)
        elif isinstance(value, int | float) and field not in _NOT_AVERAGED and None not in values:
            whole[field], intervals[f"{field}_ci95"] = mean_with_interval(values)
    return {**whole, "repeat": len(results), **intervals, "runs": results}


def write_json(path: Path, objects: list[dict[str, Any]]) -> None:
    """Write the results; a reader sees the old file or the new one, never a part."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(objects), indent=2) + b"\n")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file and rename it."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(data)
        scratch.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
