"""Event log of all jobs: state changes and decisions in one sequence, ordered by serial.

Serials are derived from positions in the broker's journal, so they are the same after a restart and in a
rebuilt file. Both kinds of entries are kept for a limited time; the answer to a request for the entries
after a serial says if any of them are missing.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from hanse.api.rows import Change, Decided
from hanse.live.readmodel.projector import SERIAL_BITS
from hanse.live.readmodel.queries import Cells, Frame, changes_since, decision_row
from hanse.model.ids import job_text
from hanse.model.job import JobSpec, TaskGroup

_specs: Final = msgspec.msgpack.Decoder(JobSpec)


class Happened(msgspec.Struct, frozen=True):
    """Page of the event log."""

    items: tuple[Change | Decided, ...]
    upto: int
    """Serial up to which the page is complete: the next page begins after it."""
    missing: tuple[bool, bool]
    """True if changes, and True if decisions, after the requested serial are missing: they were dropped, or
    the serial is higher than any serial in this file."""
    newest: int
    """Highest possible serial so far."""


class _Kept(msgspec.Struct):
    """Fields of ``ProjectorState`` that this module reads."""

    dropped_changes: int = 0
    dropped_decisions: int = 0


def happened(base: sqlite3.Connection, after: int, limit: int, since_kept: bool) -> Happened:
    """Read up to ``limit`` changes and decisions after a serial.

    ``from_oldest``: the reader begins with the oldest entry on record, so nothing counts as missing.
    """
    row = base.execute("SELECT applied, state FROM meta").fetchone()
    if row is None:
        return Happened((), 0, (False, False), 0)
    newest = ((row[0] + 1) << SERIAL_BITS) - 1
    kept = msgspec.msgpack.decode(row[1], type=_Kept)
    missing = (after < kept.dropped_changes, after < kept.dropped_decisions)
    if after > newest:
        missing = (True, True)
    if since_kept:
        missing = (False, False)
    found: list[Change | Decided] = [*changes_since(base, after, limit), *_decided(base, after, limit)]
    found.sort(key=lambda item: item.serial)
    if len(found) < limit:
        return Happened(tuple(found), newest, missing, newest)
    return Happened(tuple(found[:limit]), found[limit - 1].serial, missing, newest)


def _decided(base: sqlite3.Connection, after: int, limit: int) -> list[Decided]:
    rows: list[Cells] = base.execute(
        "SELECT decisions.job, tenant, at, broker, part, answered, tasks, reason, considered, serial"
        " FROM decisions JOIN jobs ON jobs.job = decisions.job WHERE serial > ? ORDER BY serial LIMIT ?",
        (after, limit),
    ).fetchall()
    if not rows:
        return []
    frame = Frame(base)
    groups: dict[int, Sequence[TaskGroup]] = {}
    found = []
    for job, tenant, *cells in rows:
        if job not in groups:
            (blob,) = base.execute("SELECT spec FROM specs WHERE job = ?", (job,)).fetchone()
            groups[job] = _specs.decode(blob).groups
        row = decision_row(frame, groups[job], cells)
        found.append(Decided(serial=row.serial, job=job_text(job), tenant=tenant, row=row))
    return found
