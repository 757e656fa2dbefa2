"""Conversion of the columns of a trace to a workload for policies."""

import hashlib
from pathlib import Path

import msgspec
import numpy as np

from hanse.sim.replay.run_records import ReplayError, ReplayWorkload
from hanse.sim.traces import JobChunk, ReadOptions, ReadReport, load_with_report


def workload_from_chunk(chunk: JobChunk, name: str) -> ReplayWorkload:
    """Return jobs in order of arrival, counted from the first; entries without a task are left out."""
    if chunk.needs is not None:
        raise ReplayError(
            f"{name} has tasks that depend on each other, which the policies of a replay do not know"
        )
    counts = chunk.counts()
    keep = np.flatnonzero(counts > 0)
    if not len(keep):
        raise ReplayError(f"{name} has no task to run")
    if not chunk.duration.any():
        raise ReplayError(f"{name} does not say how long its tasks run")
    arrival = chunk.arrival[keep]
    assert bool(np.all(np.diff(arrival) >= 0)), "a chunk for a replay is in order of arrival"
    heads = chunk.offset[:-1][keep]
    # entries without a task have no durations, so leaving them out shifts no other task
    estimate = np.add.reduceat(chunk.duration, heads) // counts[keep]
    priority = chunk.extra.get("priority", np.zeros(chunk.job_count, np.int64))[keep]
    return ReplayWorkload(
        name,
        (arrival - arrival[0]).tolist(),
        [*heads.tolist(), chunk.task_count],
        chunk.duration.tolist(),
        estimate.tolist(),
        priority.tolist(),
        chunk.user[keep].tolist() if len(chunk.user) and int(chunk.user.max()) >= 0 else [],
    )


def read_workload(
    path: Path, *, whole_seconds: bool = False, limit: int | None = None
) -> tuple[ReplayWorkload, ReadReport]:
    """Read a trace of any known format; ``whole_seconds`` truncates durations as the simulators of the
    ``.tr`` family do."""
    chunk, report = load_with_report(path, limit, options=ReadOptions(truncate_seconds=whole_seconds))
    return workload_from_chunk(chunk, path.name), report


def file_digest(path: Path) -> str:
    """Return the first sixteen hexadecimal digits of a file's SHA-256: enough to show a changed trace."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def scale_to_load(workload: ReplayWorkload, nodes: int, load: float) -> ReplayWorkload:
    """Return the same jobs with arrivals scaled so that the offered load becomes ``load``."""
    now = workload.load(nodes)
    if not load > 0 or now in (0.0, float("inf")):
        raise ReplayError(
            "a load must be positive, and only a trace whose jobs arrive at different times has one"
        )
    factor = now / load
    return msgspec.structs.replace(
        workload, arrival=[round(arrival * factor) for arrival in workload.arrival]
    )
