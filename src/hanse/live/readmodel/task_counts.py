"""Counts of a job's tasks by place and by end: input of ``explanation.explain``."""

import sqlite3
from typing import Final

import msgspec

from hanse.api.row_records import FAILED, QUEUED, RUNNING, STATE_NAMES
from hanse.live.readmodel.explanation import EndCount, TaskSummary
from hanse.live.readmodel.query_context import QueryContext, load_spec
from hanse.live.readmodel.unended_job import Placement
from hanse.model.ids import JobId

ENDS_KEPT_MAX: Final = 20
"""Number of different ends in a summary, for each group."""

_placement_decoder = msgspec.msgpack.Decoder(Placement)
_IN_GROUP: Final = " FROM tasks WHERE job = ? AND number >= ? AND number < ?"


def count_tasks(db: sqlite3.Connection, number: JobId) -> TaskSummary:
    """Count a job's tasks by place and end. Return an empty summary for an unknown job."""
    if db.execute("SELECT 1 FROM jobs WHERE job = ?", (number,)).fetchone() is None:
        return TaskSummary()
    context, (spec, _) = QueryContext(db), load_spec(db, number)
    placed_at = _clusters_of_placed(db, number)
    running: list[tuple[str, str, int]] = []
    placed: list[tuple[str, str, int]] = []
    ends: list[EndCount] = []
    first = 0
    for group in spec.groups:
        span = (number, first, first + group.count)
        rows = db.execute(
            f"SELECT cluster, count(*){_IN_GROUP} AND state = ? GROUP BY cluster ORDER BY cluster",
            (*span, RUNNING),
        )
        running += [(group.name, context.cluster_name(cluster), count) for cluster, count in rows]
        placed_counts: dict[int, int] = {}
        for index, cluster in placed_at.items():
            if first <= index < first + group.count:
                placed_counts[cluster] = placed_counts.get(cluster, 0) + 1
        placed += [
            (group.name, context.cluster_name(cluster), count)
            for cluster, count in sorted(placed_counts.items())
        ]
        rows = db.execute(
            f"SELECT state, outcome, code, note, cluster, count(*){_IN_GROUP} AND (state = ? OR"
            " (state = ? AND outcome IS NOT NULL)) GROUP BY state, outcome, code, note, cluster"
            " ORDER BY count(*) DESC, state, outcome, code, note, cluster LIMIT ?",
            (*span, FAILED, QUEUED, ENDS_KEPT_MAX),
        )
        ends += [
            EndCount(
                group.name,
                STATE_NAMES[state],
                outcome or "",
                code,
                note or "",
                context.cluster_name(at),
                count,
            )
            for state, outcome, code, note, at, count in rows
        ]
        first += group.count
    ends.sort(key=lambda end: -end.count)
    return TaskSummary(tuple(running), tuple(placed), tuple(ends))


def _clusters_of_placed(db: sqlite3.Connection, number: JobId) -> dict[int, int]:
    """Return the cluster of each task that was claimed and has not started."""
    placements: dict[int, tuple[int, int]] = {}
    for (blob,) in db.execute("SELECT lot FROM lots WHERE job = ? ORDER BY number", (number,)):
        placement = _placement_decoder.decode(blob)
        for index, attempt in zip(placement.tasks, placement.attempts, strict=True):
            placements[index] = (attempt, placement.cluster)
    if placements:
        rows = db.execute(
            f"SELECT number, attempt{_IN_GROUP}", (number, min(placements), max(placements) + 1)
        )
        for index, attempt in rows:
            if index in placements and placements[index][0] <= attempt:
                del placements[index]
    return {index: cluster for index, (_, cluster) in sorted(placements.items())}
