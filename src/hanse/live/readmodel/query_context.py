"""Context of every answer of the read model: wall clock, cluster names, and a job's specification."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hanse.api.row_records import STATE_NAMES
from hanse.live.readmodel.clock_mapping import ClockMapping, WallClock
from hanse.live.readmodel.projector_state import ProjectorState
from hanse.model.ids import JobId
from hanse.model.job import JobSpec

SqliteRow = Sequence[Any]
"""Row as SQLite returns it."""
LIMIT_MAX: Final = 10_000
"""Maximal number of rows in one answer; a larger limit is reduced to it."""
_spec_decoder = msgspec.msgpack.Decoder(JobSpec)
_counts_decoder = msgspec.msgpack.Decoder(list[list[int]])


class QueryContext:
    """Context of every answer: wall clock and cluster names."""

    def __init__(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT state, times FROM meta").fetchone()
        self.wall_clock: WallClock = (
            msgspec.msgpack.decode(row[1], type=ClockMapping).wall_clock()
            if row
            else ClockMapping().wall_clock()
        )
        self.clusters = msgspec.msgpack.decode(row[0], type=_ClusterNames).clusters if row else []

    def cluster_name(self, number: int) -> str:
        """Return the name of a cluster; empty for none."""
        return self.clusters[number] if number >= 0 else ""


class _ClusterNames(msgspec.Struct):
    """Field of ``ProjectorState`` that a query reads."""

    clusters: list[str] = []


assert "clusters" in ProjectorState.__struct_fields__


def clamp_limit(limit: int) -> int:
    """Return a number of rows within the allowed range."""
    return max(0, min(limit, LIMIT_MAX))


def load_spec(db: sqlite3.Connection, number: JobId) -> tuple[JobSpec, list[list[int]]]:
    """Read a job's specification, and the number of its tasks by group and state."""
    blob, parts, *totals = db.execute(
        "SELECT spec, parts, blocked, queued, placed, running, succeeded, failed, cancelled"
        " FROM jobs JOIN specs ON specs.job = jobs.job WHERE jobs.job = ?",
        (number,),
    ).fetchone()
    return _spec_decoder.decode(blob), _counts_decoder.decode(parts) if parts is not None else [totals]


def job_state(db: sqlite3.Connection, number: JobId) -> str:
    """Read the state of a job; empty for an unknown job."""
    row = db.execute("SELECT state FROM jobs WHERE job = ?", (number,)).fetchone()
    return STATE_NAMES[row[0]] if row is not None else ""
