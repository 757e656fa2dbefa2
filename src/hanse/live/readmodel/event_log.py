"""Event log of all jobs: state changes and decisions in one sequence, ordered by serial.

Serials are derived from positions in the broker's journal, so they are the same after a restart and in a
rebuilt file. Both kinds of entries are kept for a limited time; the answer to a request for the entries
after a serial says if any of them are missing.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from hanse.api.row_records import STATE_NAMES, JobStateChange, LoggedDecision
from hanse.live.readmodel.projector import SERIAL_BITS
from hanse.live.readmodel.queries import decision_row
from hanse.live.readmodel.query_context import QueryContext, SqliteRow, clamp_limit
from hanse.model.ids import job_text
from hanse.model.job import JobSpec, TaskGroup

_spec_decoder: Final = msgspec.msgpack.Decoder(JobSpec)


class EventPage(msgspec.Struct, frozen=True):
    """Page of the event log."""

    items: tuple[JobStateChange | LoggedDecision, ...]
    up_to: int
    """Serial up to which the page is complete: the next page begins after it."""
    missing: tuple[bool, bool]
    """True if changes, and True if decisions, after the requested serial are missing: they were dropped, or
    the serial is higher than any serial in this file."""
    newest: int
    """Highest possible serial so far."""


class _DroppedSerials(msgspec.Struct):
    """Fields of ``ProjectorState`` that this module reads."""

    dropped_changes: int = 0
    dropped_decisions: int = 0


def events_after(db: sqlite3.Connection, after: int, limit: int, from_oldest: bool) -> EventPage:
    """Read up to ``limit`` changes and decisions after a serial.

    ``from_oldest``: the reader begins with the oldest entry on record, so nothing counts as missing.
    """
    row = db.execute("SELECT applied, state FROM meta").fetchone()
    if row is None:
        return EventPage((), 0, (False, False), 0)
    newest = ((row[0] + 1) << SERIAL_BITS) - 1
    dropped = msgspec.msgpack.decode(row[1], type=_DroppedSerials)
    missing = (after < dropped.dropped_changes, after < dropped.dropped_decisions)
    if after > newest:
        missing = (True, True)
    if from_oldest:
        missing = (False, False)
    items: list[JobStateChange | LoggedDecision] = [
        *changes_since(db, after, limit),
        *_decisions_after(db, after, limit),
    ]
    items.sort(key=lambda item: item.serial)
    if len(items) < limit:
        return EventPage(tuple(items), newest, missing, newest)
    return EventPage(tuple(items[:limit]), items[limit - 1].serial, missing, newest)


def _decisions_after(db: sqlite3.Connection, after: int, limit: int) -> list[LoggedDecision]:
    rows: list[SqliteRow] = db.execute(
        "SELECT decisions.job, tenant, at, broker, part, answered, tasks, reason, considered, serial"
        " FROM decisions JOIN jobs ON jobs.job = decisions.job WHERE serial > ? ORDER BY serial LIMIT ?",
        (after, limit),
    ).fetchall()
    if not rows:
        return []
    context = QueryContext(db)
    groups: dict[int, Sequence[TaskGroup]] = {}
    items = []
    for job, tenant, *cells in rows:
        if job not in groups:
            (blob,) = db.execute("SELECT spec FROM specs WHERE job = ?", (job,)).fetchone()
            groups[job] = _spec_decoder.decode(blob).groups
        row = decision_row(context, groups[job], cells)
        items.append(LoggedDecision(serial=row.serial, job=job_text(job), tenant=tenant, row=row))
    return items


def changes_since(db: sqlite3.Connection, serial: int, limit: int) -> list[JobStateChange]:
    """List job state changes after a serial, in order."""
    rows = db.execute(
        "SELECT serial, changes.job, changes.state, at, name, tenant, owner FROM changes"
        " LEFT JOIN jobs ON jobs.job = changes.job WHERE serial > ? ORDER BY serial LIMIT ?",
        (serial, clamp_limit(limit)),
    ).fetchall()
    if not rows:
        return []
    clock = QueryContext(db).wall_clock
    return [
        JobStateChange(
            serial=number,
            job=job_text(of),
            name=name or "",
            tenant=tenant or "",
            state=STATE_NAMES[state],
            owner=owner or "",
            at=clock.time_of(at),
        )
        for number, of, state, at, name, tenant, owner in rows
    ]


def oldest_change(db: sqlite3.Connection) -> int:
    """Return the serial of the oldest change on record; 0: none."""
    row = db.execute("SELECT min(serial) FROM changes").fetchone()
    return row[0] or 0
