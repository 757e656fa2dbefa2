"""Writer of batches into the SQLite file, and loader of the projector from the file."""

import sqlite3
from array import array
from typing import Any, Final

import msgspec

from hanse.api.rows import PLACED, SUCCEEDED, rowless
from hanse.live.readmodel.clock_mapping import Times
from hanse.live.readmodel.live_job import LiveJob, Placement, new_live
from hanse.live.readmodel.projector import DECISIONS_PER_JOB_MAX, SUCCEEDED_MAX, Projector
from hanse.live.readmodel.projector_state import Memory
from hanse.live.readmodel.schema import CONTENT
from hanse.live.readmodel.write_batch import Sheet
from hanse.model.ids import JobId
from hanse.model.job import JobSpec

CHANGES_MAX: Final = 100_000
"""Number of job state changes kept, the latest ones."""
DURATIONS_EACH_MAX: Final = 200
"""Number of run times kept for one tenant, job name and group name, the latest ones."""
DURATIONS_KEYS_MAX: Final = 20_000
"""Number of such names kept; those not measured for the longest time are dropped first."""

_KEPT_SAME: Final = (
    "node", "size", "started", "ended", "outcome", "code", "cpu", "memory", "ran", "note",
)  # fmt: skip
"""Columns that keep their value if a later row of the same attempt has none."""
_TASK: Final = (
    "INSERT INTO tasks VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"  # noqa: S608 - our own names
    " ON CONFLICT (job, number) DO UPDATE SET"
    " attempt = excluded.attempt, state = excluded.state, cluster = excluded.cluster,"
    " failures = excluded.failures,"
    + ",".join(
        f" {name} = CASE excluded.attempt WHEN attempt THEN ifnull(excluded.{name}, {name})"
        f" ELSE excluded.{name} END"
        for name in _KEPT_SAME
    )
)
_NEW_JOB: Final = f"INSERT OR REPLACE INTO jobs VALUES ({','.join('?' * 27)})"  # noqa: S608 - question marks
_OLD_JOB: Final = (
    "UPDATE jobs SET owner=?, estate=?, state=?, blocked=?, queued=?, placed=?, running=?, succeeded=?,"
    " failed=?, cancelled=?, parts=?, started=?, used=?, cancel=?, cancel_reason=?, lots=?, waits=?{}"
    " WHERE job=?"
)
_LIVE_JOB: Final = _OLD_JOB.format("")
"""Update without indexed columns: SQLite would rewrite the index, changed or not."""
_OVER_JOB: Final = _OLD_JOB.format(", ended=?, ended_serial=?")
_OF_JOB: Final = ("tasks", "lots")
_lots = msgspec.msgpack.Decoder(Placement)
_specs = msgspec.msgpack.Decoder(JobSpec)
_parts = msgspec.msgpack.Decoder(list[list[int]])
_waits = msgspec.msgpack.Decoder(list[int])
_encode = msgspec.msgpack.Encoder().encode


# --- writing -----------------------------------------------------------------------------------------------


def write(base: sqlite3.Connection, projector: Projector, applied: int, kept_jobs_max: int) -> None:
    """Write the batch of a projector; the caller begins and ends the transaction."""
    sheet = projector.sheet
    _clear(base, sheet)
    base.executemany(_TASK, [cells for cells in sheet.tasks if cells is not None])
    base.executemany("INSERT INTO decisions VALUES (?,?,?,?,?,?,?,?,?)", sheet.decisions)
    _write_jobs(base, projector.memory, list(sheet.dirty.values()))
    _write_lots(base, list(sheet.dirty.values()))
    base.executemany("INSERT INTO changes VALUES (?,?,?,?)", sheet.changes)
    _write_durations(base, projector.memory, sheet)
    _prune(base, projector, kept_jobs_max)
    base.execute(
        "INSERT OR REPLACE INTO meta VALUES (1, ?, ?, 0, ?, ?)",
        (projector.broker, applied, _encode(projector.save()), _encode(projector.times)),
    )
    projector.sheet = Sheet()


def _clear(base: sqlite3.Connection, sheet: Sheet) -> None:
    wiped = [(job,) for job in sheet.wiped]
    removed = [(job,) for job in sheet.removed]
    for table in _OF_JOB if wiped else ():
        base.executemany(f"DELETE FROM {table} WHERE job = ?", wiped)  # noqa: S608 - our own names
    for table in ("jobs", "specs", "decisions") if removed else ():
        base.executemany(f"DELETE FROM {table} WHERE job = ?", removed)  # noqa: S608


def _write_jobs(base: sqlite3.Connection, memory: Memory, jobs: list[LiveJob]) -> None:
    fresh, old, over, specs, long = [], [], [], [], []
    for job in jobs:
        spec, totals = job.spec, job.totals
        parts = _encode(job.parts) if job.parts else None
        waits = _encode(list(job.waits)) if job.waits else None
        used = ",".join(map(str, job.used))
        if job.fresh:
            job.fresh = False
            fresh.append(
                (
                    job.id, job.owner, job.estate, spec.name, spec.tenant, spec.priority, spec.klass,
                    spec.client_id, job.submitted, len(job.state), job.shown, *totals, parts, job.started,
                    job.ended, job.ended_serial, used, job.cancelled, job.cancel_reason, job.lots_seen, waits,
                )
            )  # fmt: skip
            specs.append((job.id, _encode(spec)))
        else:
            cells = (
                job.owner, job.estate, job.shown, *totals, parts, job.started, used, job.cancelled,
                job.cancel_reason, job.lots_seen, waits,
            )  # fmt: skip
            if job.ended_serial is None:
                old.append((*cells, job.id))
            else:
                over.append((*cells, job.ended, job.ended_serial, job.id))
        if job.decisions > DECISIONS_PER_JOB_MAX:
            long.append((job.id, job.decisions - DECISIONS_PER_JOB_MAX))
            job.decisions = DECISIONS_PER_JOB_MAX
    base.executemany(_NEW_JOB, fresh)
    base.executemany("INSERT OR REPLACE INTO specs VALUES (?,?)", specs)
    base.executemany(_LIVE_JOB, old)
    base.executemany(_OVER_JOB, over)
    for number, count in long:
        (last,) = base.execute(
            "SELECT serial FROM decisions WHERE job = ? ORDER BY serial LIMIT 1 OFFSET ?", (number, count - 1)
        ).fetchone()
        base.execute("DELETE FROM decisions WHERE job = ? AND serial <= ?", (number, last))
        memory.dropped_decisions = max(memory.dropped_decisions, last)


def _write_lots(base: sqlite3.Connection, jobs: list[LiveJob]) -> None:
    """Write the placements that are valid for a task, and delete the others."""
    fresh, over, emptied = [], [], []
    for job in jobs:
        if not job.totals[PLACED]:
            job.lots = []
            if job.lots_saved:
                job.lots_saved = False
                emptied.append((job.id,))
            continue
        kept = []
        for batch in job.lots:
            if job.holds(batch):
                kept.append(batch)
                if not batch.saved:
                    batch.saved = job.lots_saved = True
                    fresh.append((job.id, batch.number, _encode(batch)))
            elif batch.saved:
                over.append((job.id, batch.number))
        job.lots = kept
    base.executemany("DELETE FROM lots WHERE job = ?", emptied)
    base.executemany("DELETE FROM lots WHERE job = ? AND number = ?", over)
    base.executemany("INSERT OR REPLACE INTO lots VALUES (?,?,?)", fresh)


def _write_durations(base: sqlite3.Connection, memory: Memory, sheet: Sheet) -> None:
    rows = []
    for key, fresh in sheet.durations.items():
        known = base.execute(
            "SELECT ran FROM durations WHERE tenant = ? AND name = ? AND part = ?", key
        ).fetchone()
        memory.durations += known is None
        whole = array("q", known[0] if known is not None else b"")
        whole.extend(fresh)
        rows.append((*key, sheet.measured[key], whole[-DURATIONS_EACH_MAX:].tobytes()))
    base.executemany("INSERT OR REPLACE INTO durations VALUES (?,?,?,?,?)", rows)


def _prune(base: sqlite3.Connection, projector: Projector, kept_jobs_max: int) -> None:
    """Delete the oldest rows of every bounded table."""
    memory = projector.memory
    memory.changes += len(projector.sheet.changes)
    if memory.changes > CHANGES_MAX:
        (memory.dropped_changes,) = base.execute(
            "SELECT serial FROM changes ORDER BY serial LIMIT 1 OFFSET ?", (memory.changes - CHANGES_MAX - 1,)
        ).fetchone()
        base.execute("DELETE FROM changes WHERE serial <= ?", (memory.dropped_changes,))
        memory.changes = CHANGES_MAX
    if memory.durations > DURATIONS_KEYS_MAX:
        base.execute(
            "DELETE FROM durations WHERE (tenant, name, part) IN"
            " (SELECT tenant, name, part FROM durations ORDER BY serial, tenant, name, part LIMIT ?)",
            (memory.durations - DURATIONS_KEYS_MAX,),
        )
        memory.durations = DURATIONS_KEYS_MAX
    _prune_jobs(base, projector, kept_jobs_max)


def _prune_jobs(base: sqlite3.Connection, projector: Projector, kept_jobs_max: int) -> None:
    memory = projector.memory
    gone: list[tuple[int]] = []
    if memory.ended > kept_jobs_max:
        gone = base.execute(
            "SELECT job FROM jobs WHERE ended_serial IS NOT NULL ORDER BY ended_serial LIMIT ?",
            (memory.ended - kept_jobs_max,),
        ).fetchall()
        memory.ended = kept_jobs_max
    if len(projector.live) > kept_jobs_max:
        copies = _prune_copies(projector, kept_jobs_max)
        base.executemany("DELETE FROM lots WHERE job = ?", copies)  # ended jobs have none
        gone += copies
    for (job,) in gone:
        (last,) = base.execute("SELECT max(serial) FROM decisions WHERE job = ?", (job,)).fetchone()
        memory.dropped_decisions = max(memory.dropped_decisions, last or 0)
    for table in ("jobs", "specs", "decisions", "tasks") if gone else ():
        base.executemany(f"DELETE FROM {table} WHERE job = ?", gone)  # noqa: S608 - our own names


def _prune_copies(projector: Projector, kept_jobs_max: int) -> list[tuple[int]]:
    """Drop the oldest copies of peers' jobs beyond the limit: their ends may never be reported."""
    copies = [job.id for job in projector.live.values() if job.owner != projector.broker]
    gone = copies[: max(0, len(copies) - kept_jobs_max)]
    for job in gone:
        del projector.live[job]
    return [(job,) for job in gone]


def clear(base: sqlite3.Connection) -> None:
    """Delete all rows of every table."""
    for table in (*CONTENT, "meta"):
        base.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names


# --- loading -----------------------------------------------------------------------------------------------


def load(base: sqlite3.Connection, broker: str) -> tuple[Projector, int]:
    """Load the projector in its state after the last batch, and the position of that batch."""
    row = base.execute("SELECT applied, state, times FROM meta").fetchone()
    if row is None:
        return Projector(broker, Memory(), Times()), 0
    applied, state, times = row
    memory = msgspec.msgpack.decode(state, type=Memory)
    projector = Projector(broker, memory, msgspec.msgpack.decode(times, type=Times))
    query = (
        "SELECT jobs.job, owner, estate, submitted, state, started, used, cancel, cancel_reason, lots, waits,"
        " parts, blocked, queued, placed, running, succeeded, failed, cancelled, spec"
        " FROM jobs JOIN specs ON specs.job = jobs.job WHERE ended_serial IS NULL ORDER BY jobs.submitted,"
        " jobs.job"
    )
    for cells in base.execute(query):
        job = _load_job(cells)
        projector.live[job.id] = job
        projector.remind(job)
    latest = base.execute(
        "SELECT job FROM jobs WHERE ended_serial IS NOT NULL AND state = ? AND owner = ?"
        " ORDER BY ended_serial DESC LIMIT ?",
        (SUCCEEDED, broker, SUCCEEDED_MAX),
    ).fetchall()
    projector.succeeded.update((JobId(number), None) for (number,) in reversed(latest))
    _load_tasks(base, projector.live)
    return projector, applied


def _load_job(cells: tuple[Any, ...]) -> LiveJob:
    number, owner, shard, submitted, state, started, used, cancel, reason, batches, waits, parts, *rest = (
        cells
    )
    *totals, blob = rest
    spec = _specs.decode(blob)
    job = new_live(JobId(number), spec, owner, shard, submitted, spec.after)
    job.shown, job.started, job.cancelled, job.cancel_reason = state, started, bool(cancel), reason
    job.used = dict.fromkeys(map(int, used.split(","))) if used else {}
    job.lots_seen, job.fresh = batches, False
    job.totals = totals
    job.waits = dict.fromkeys(map(JobId, _waits.decode(waits))) if waits is not None else {}
    if parts is not None:
        job.parts = _parts.decode(parts)
    for group, counts in enumerate(job.parts or [job.totals]):
        first, behind = job.span(group)
        job.state[first:behind] = bytes((rowless(counts),)) * (behind - first)
    return job


def _load_tasks(base: sqlite3.Connection, live: dict[JobId, LiveJob]) -> None:
    rows = base.execute(
        "SELECT tasks.job, number, attempt, tasks.state, cluster, failures FROM jobs JOIN tasks"
        " ON tasks.job = jobs.job WHERE ended_serial IS NULL"
    )
    for number, index, attempt, state, cluster, failures in rows:
        job = live[number]
        job.state[index], job.attempt[index], job.place[index] = state, attempt, cluster
        if failures:
            job.failures[index] = failures
    for number, blob in base.execute("SELECT job, lot FROM lots ORDER BY job, number"):
        job, batch = live[number], _lots.decode(blob)
        batch.saved = job.lots_saved = True
        job.lots.append(batch)
        for index, attempt in zip(batch.tasks, batch.attempts, strict=True):
            if attempt > job.attempt[index]:
                job.state[index], job.attempt[index], job.place[index] = PLACED, attempt, batch.cluster
                if batch.size is not None:
                    job.sizes[index] = batch.size
    rows = base.execute(
        "SELECT decisions.job, count(*) FROM jobs JOIN decisions ON decisions.job = jobs.job"
        " WHERE ended_serial IS NULL GROUP BY decisions.job"
    )
    for number, count in rows:
        live[number].decisions = count
