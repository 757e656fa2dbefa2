"""Counts of a job's tasks by place and by end: input of ``explanation.explain``."""

import sqlite3
from typing import Final

import msgspec

from hanse.api.rows import FAILED, QUEUED, RUNNING, STATE_NAMES
from hanse.live.readmodel.explanation import EndCount, TaskSummary
from hanse.live.readmodel.live_job import Placement
from hanse.live.readmodel.queries import Frame, shape
from hanse.model.ids import JobId

ENDS_KEPT: Final = 20
"""Number of different ends in a summary, for each group."""

_lots = msgspec.msgpack.Decoder(Placement)
_IN_GROUP: Final = " FROM tasks WHERE job = ? AND number >= ? AND number < ?"


def summary(base: sqlite3.Connection, number: JobId) -> TaskSummary:
    """Count a job's tasks by place and end. Return an empty summary for an unknown job."""
    if base.execute("SELECT 1 FROM jobs WHERE job = ?", (number,)).fetchone() is None:
        return TaskSummary()
    frame, (spec, _) = Frame(base), shape(base, number)
    placed_at = _placed(base, number)
    running: list[tuple[str, str, int]] = []
    placed: list[tuple[str, str, int]] = []
    ends: list[EndCount] = []
    first = 0
    for group in spec.groups:
        span = (number, first, first + group.count)
        rows = base.execute(
            f"SELECT cluster, count(*){_IN_GROUP} AND state = ? GROUP BY cluster ORDER BY cluster",
            (*span, RUNNING),
        )
        running += [(group.name, frame.cluster(cluster), count) for cluster, count in rows]
        here: dict[int, int] = {}
        for index, cluster in placed_at.items():
            if first <= index < first + group.count:
                here[cluster] = here.get(cluster, 0) + 1
        placed += [(group.name, frame.cluster(cluster), count) for cluster, count in sorted(here.items())]
        rows = base.execute(
            f"SELECT state, outcome, code, note, cluster, count(*){_IN_GROUP} AND (state = ? OR"
            " (state = ? AND outcome IS NOT NULL)) GROUP BY state, outcome, code, note, cluster"
            " ORDER BY count(*) DESC, state, outcome, code, note, cluster LIMIT ?",
            (*span, FAILED, QUEUED, ENDS_KEPT),
        )
        ends += [
            EndCount(
                group.name, STATE_NAMES[state], outcome or "", code, note or "", frame.cluster(at), count
            )
            for state, outcome, code, note, at, count in rows
        ]
        first += group.count
    ends.sort(key=lambda end: -end.count)
    return TaskSummary(tuple(running), tuple(placed), tuple(ends))


def _placed(base: sqlite3.Connection, number: JobId) -> dict[int, int]:
    """Return the cluster of each task that was claimed and has not started."""
    batches: dict[int, tuple[int, int]] = {}
    for (blob,) in base.execute("SELECT lot FROM lots WHERE job = ? ORDER BY number", (number,)):
        batch = _lots.decode(blob)
        for index, attempt in zip(batch.tasks, batch.attempts, strict=True):
            batches[index] = (attempt, batch.cluster)
    if batches:
        rows = base.execute(f"SELECT number, attempt{_IN_GROUP}", (number, min(batches), max(batches) + 1))
        for index, attempt in rows:
            if index in batches and batches[index][0] <= attempt:
                del batches[index]
    return {index: cluster for index, (_, cluster) in sorted(batches.items())}
