"""What has happened to all jobs, as one sequence: changes of state and decisions, by their serials.

Serials are made of positions in the broker's journal, so they are the same after a restart and in a file
that was built anew. Both kinds are kept for a limited time; whoever asks for what came behind a serial is
told whether anything of that is missing.
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
    """A page of the sequence."""

    items: tuple[Change | Decided, ...]
    upto: int
    """Everything up to this serial has been looked at: where the next page begins."""
    missing: tuple[bool, bool]
    """Whether changes, and whether decisions, behind the asked serial are no longer on record (or never were:
    the serial is of a future that this file does not know)."""
    newest: int
    """No serial so far is higher."""


class _Kept(msgspec.Struct):
    """The part of ``Memory`` that this needs."""

    dropped_changes: int = 0
    dropped_decisions: int = 0


def happened(base: sqlite3.Connection, after: int, limit: int, since_kept: bool) -> Happened:
    """Up to ``limit`` changes and decisions behind a serial.

    ``since_kept``: whoever asks begins with the oldest on record, so nothing is missing.
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
