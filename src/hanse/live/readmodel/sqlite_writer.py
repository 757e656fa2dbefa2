"""Writer of batches into the SQLite file, and loader of the projector from the file."""

import sqlite3
from array import array
from typing import Any, Final

import msgspec

from hanse.api.row_records import PLACED, state_without_row
from hanse.live.readmodel.clock_mapping import ClockMapping
from hanse.live.readmodel.projector import DECISIONS_PER_JOB_MAX, Projector
from hanse.live.readmodel.projector_state import ProjectorState
from hanse.live.readmodel.schema import CONTENT_TABLES
from hanse.live.readmodel.unended_job import Placement, UnendedJob, new_unended_job
from hanse.live.readmodel.write_batch import WriteBatch
from hanse.model.ids import JobId
from hanse.model.job import JobSpec

CHANGES_MAX: Final = 100_000
"""Number of job state changes kept, the latest ones."""
DURATIONS_EACH_MAX: Final = 200
"""Number of run times kept for one tenant, job name and group name, the latest ones."""
DURATIONS_KEYS_MAX: Final = 20_000
"""Number of such names kept; those not measured for the longest time are dropped first."""

_KEPT_COLUMNS: Final = (
    "node", "size", "started", "ended", "outcome", "code", "cpu", "memory", "ran", "note",
)  # fmt: skip
"""Columns that keep their value if a later row of the same attempt has none."""
_UPSERT_TASK: Final = (
    "INSERT INTO tasks VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"  # noqa: S608 - our own names
    " ON CONFLICT (job, number) DO UPDATE SET"
    " attempt = excluded.attempt, state = excluded.state, cluster = excluded.cluster,"
    " failures = excluded.failures,"
    + ",".join(
        f" {name} = CASE excluded.attempt WHEN attempt THEN ifnull(excluded.{name}, {name})"
        f" ELSE excluded.{name} END"
        for name in _KEPT_COLUMNS
    )
)
_INSERT_JOB: Final = f"INSERT OR REPLACE INTO jobs VALUES ({','.join('?' * 26)})"  # noqa: S608 - question marks
_UPDATE_JOB: Final = (
    "UPDATE jobs SET owner=?, estate=?, state=?, blocked=?, queued=?, placed=?, running=?, succeeded=?,"
    " failed=?, cancelled=?, parts=?, started=?, used=?, cancel=?, cancel_reason=?, lots=?{}"
    " WHERE job=?"
)
_UPDATE_LIVE_JOB: Final = _UPDATE_JOB.format("")
"""Update without indexed columns: SQLite would rewrite the index, changed or not."""
_UPDATE_ENDED_JOB: Final = _UPDATE_JOB.format(", ended=?, ended_serial=?")
_TASK_TABLES: Final = ("tasks", "lots")
_placement_decoder = msgspec.msgpack.Decoder(Placement)
_spec_decoder = msgspec.msgpack.Decoder(JobSpec)
_counts_decoder = msgspec.msgpack.Decoder(list[list[int]])
_encode = msgspec.msgpack.Encoder().encode


# --- writing -----------------------------------------------------------------------------------------------


def write(db: sqlite3.Connection, projector: Projector, applied: int, kept_jobs_max: int) -> None:
    """Write the batch of a projector; the caller begins and ends the transaction."""
    writes = projector.writes
    _delete_wiped(db, writes)
    db.executemany(_UPSERT_TASK, [cells for cells in writes.tasks if cells is not None])
    db.executemany("INSERT INTO decisions VALUES (?,?,?,?,?,?,?,?,?)", writes.decisions)
    _write_jobs(db, projector.state, list(writes.dirty_jobs.values()))
    _write_placements(db, list(writes.dirty_jobs.values()))
    db.executemany("INSERT INTO changes VALUES (?,?,?,?)", writes.changes)
    _write_durations(db, projector.state, writes)
    _prune(db, projector, kept_jobs_max)
    db.execute(
        "INSERT OR REPLACE INTO meta VALUES (1, ?, ?, 0, ?, ?)",
        (projector.broker, applied, _encode(projector.state), _encode(projector.clock)),
    )
    projector.writes = WriteBatch()


def _delete_wiped(db: sqlite3.Connection, writes: WriteBatch) -> None:
    wiped = [(job,) for job in writes.wiped_jobs]
    removed = [(job,) for job in writes.removed_jobs]
    for table in _TASK_TABLES if wiped else ():
        db.executemany(f"DELETE FROM {table} WHERE job = ?", wiped)  # noqa: S608 - our own names
    for table in ("jobs", "specs", "decisions") if removed else ():
        db.executemany(f"DELETE FROM {table} WHERE job = ?", removed)  # noqa: S608


def _write_jobs(db: sqlite3.Connection, state: ProjectorState, jobs: list[UnendedJob]) -> None:
    fresh, old, ended, specs, crowded = [], [], [], [], []
    for job in jobs:
        spec, counts = job.spec, job.state_counts
        parts = _encode(job.group_counts) if job.group_counts else None
        used = ",".join(map(str, job.clusters_used))
        if job.is_new:
            job.is_new = False
            fresh.append(
                (
                    job.id, job.owner, job.shard, spec.name, spec.tenant, spec.priority, spec.klass,
                    spec.client_id, job.submitted, len(job.state), job.shown_state, *counts, parts,
                    job.started,
                    job.ended, job.ended_serial, used, job.cancelled, job.cancel_reason,
                    job.placements_seen,
                )
            )  # fmt: skip
            specs.append((job.id, _encode(spec)))
        else:
            cells = (
                job.owner, job.shard, job.shown_state, *counts, parts, job.started, used, job.cancelled,
                job.cancel_reason, job.placements_seen,
            )  # fmt: skip
            if job.ended_serial is None:
                old.append((*cells, job.id))
            else:
                ended.append((*cells, job.ended, job.ended_serial, job.id))
        if job.decision_count > DECISIONS_PER_JOB_MAX:
            crowded.append((job.id, job.decision_count - DECISIONS_PER_JOB_MAX))
            job.decision_count = DECISIONS_PER_JOB_MAX
    db.executemany(_INSERT_JOB, fresh)
    db.executemany("INSERT OR REPLACE INTO specs VALUES (?,?)", specs)
    db.executemany(_UPDATE_LIVE_JOB, old)
    db.executemany(_UPDATE_ENDED_JOB, ended)
    for number, count in crowded:
        (last,) = db.execute(
            "SELECT serial FROM decisions WHERE job = ? ORDER BY serial LIMIT 1 OFFSET ?", (number, count - 1)
        ).fetchone()
        db.execute("DELETE FROM decisions WHERE job = ? AND serial <= ?", (number, last))
        state.dropped_decisions = max(state.dropped_decisions, last)


def _write_placements(db: sqlite3.Connection, jobs: list[UnendedJob]) -> None:
    """Write the placements that are valid for a task, and delete the others."""
    fresh, outdated, emptied = [], [], []
    for job in jobs:
        if not job.state_counts[PLACED]:
            job.placements = []
            if job.placements_saved:
                job.placements_saved = False
                emptied.append((job.id,))
            continue
        kept = []
        for placement in job.placements:
            if job.is_current(placement):
                kept.append(placement)
                if not placement.saved:
                    placement.saved = job.placements_saved = True
                    fresh.append((job.id, placement.number, _encode(placement)))
            elif placement.saved:
                outdated.append((job.id, placement.number))
        job.placements = kept
    db.executemany("DELETE FROM lots WHERE job = ?", emptied)
    db.executemany("DELETE FROM lots WHERE job = ? AND number = ?", outdated)
    db.executemany("INSERT OR REPLACE INTO lots VALUES (?,?,?)", fresh)


def _write_durations(db: sqlite3.Connection, state: ProjectorState, writes: WriteBatch) -> None:
    rows = []
    for key, fresh in writes.durations.items():
        known = db.execute(
            "SELECT ran FROM durations WHERE tenant = ? AND name = ? AND part = ?", key
        ).fetchone()
        state.durations += known is None
        whole = array("q", known[0] if known is not None else b"")
        whole.extend(fresh)
        rows.append((*key, writes.duration_serials[key], whole[-DURATIONS_EACH_MAX:].tobytes()))
    db.executemany("INSERT OR REPLACE INTO durations VALUES (?,?,?,?,?)", rows)


def _prune(db: sqlite3.Connection, projector: Projector, kept_jobs_max: int) -> None:
    """Delete the oldest rows of every bounded table."""
    state = projector.state
    state.changes += len(projector.writes.changes)
    if state.changes > CHANGES_MAX:
        (state.dropped_changes,) = db.execute(
            "SELECT serial FROM changes ORDER BY serial LIMIT 1 OFFSET ?", (state.changes - CHANGES_MAX - 1,)
        ).fetchone()
        db.execute("DELETE FROM changes WHERE serial <= ?", (state.dropped_changes,))
        state.changes = CHANGES_MAX
    if state.durations > DURATIONS_KEYS_MAX:
        db.execute(
            "DELETE FROM durations WHERE (tenant, name, part) IN"
            " (SELECT tenant, name, part FROM durations ORDER BY serial, tenant, name, part LIMIT ?)",
            (state.durations - DURATIONS_KEYS_MAX,),
        )
        state.durations = DURATIONS_KEYS_MAX
    _prune_jobs(db, projector, kept_jobs_max)


def _prune_jobs(db: sqlite3.Connection, projector: Projector, kept_jobs_max: int) -> None:
    state = projector.state
    pruned: list[tuple[int]] = []
    if state.ended > kept_jobs_max:
        pruned = db.execute(
            "SELECT job FROM jobs WHERE ended_serial IS NOT NULL ORDER BY ended_serial LIMIT ?",
            (state.ended - kept_jobs_max,),
        ).fetchall()
        state.ended = kept_jobs_max
    if len(projector.live_jobs) > kept_jobs_max:
        copies = _prune_copies(projector, kept_jobs_max)
        db.executemany("DELETE FROM lots WHERE job = ?", copies)  # ended jobs have none
        pruned += copies
    for (job,) in pruned:
        (last,) = db.execute("SELECT max(serial) FROM decisions WHERE job = ?", (job,)).fetchone()
        state.dropped_decisions = max(state.dropped_decisions, last or 0)
    for table in ("jobs", "specs", "decisions", "tasks") if pruned else ():
        db.executemany(f"DELETE FROM {table} WHERE job = ?", pruned)  # noqa: S608 - our own names


def _prune_copies(projector: Projector, kept_jobs_max: int) -> list[tuple[int]]:
    """Drop the oldest copies of peers' jobs beyond the limit: their ends may never be reported."""
    copies = [job.id for job in projector.live_jobs.values() if job.owner != projector.broker]
    pruned = copies[: max(0, len(copies) - kept_jobs_max)]
    for job in pruned:
        del projector.live_jobs[job]
    return [(job,) for job in pruned]


def clear_tables(db: sqlite3.Connection) -> None:
    """Delete all rows of every table."""
    for table in (*CONTENT_TABLES, "meta"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names


# --- loading -----------------------------------------------------------------------------------------------


def load_projector(db: sqlite3.Connection, broker: str) -> tuple[Projector, int]:
    """Load the projector in its state after the last batch, and the position of that batch."""
    row = db.execute("SELECT applied, state, times FROM meta").fetchone()
    if row is None:
        return Projector(broker, ProjectorState(), ClockMapping()), 0
    applied, state, clock = row
    projector_state = msgspec.msgpack.decode(state, type=ProjectorState)
    projector = Projector(broker, projector_state, msgspec.msgpack.decode(clock, type=ClockMapping))
    query = (
        "SELECT jobs.job, owner, estate, submitted, state, started, used, cancel, cancel_reason, lots,"
        " parts, blocked, queued, placed, running, succeeded, failed, cancelled, spec"
        " FROM jobs JOIN specs ON specs.job = jobs.job WHERE ended_serial IS NULL ORDER BY jobs.submitted,"
        " jobs.job"
    )
    for cells in db.execute(query):
        job = _load_job(cells)
        projector.live_jobs[job.id] = job
    _load_tasks(db, projector.live_jobs)
    return projector, applied


def _load_job(cells: tuple[Any, ...]) -> UnendedJob:
    (
        number,
        owner,
        shard,
        submitted,
        state,
        started,
        used,
        cancel,
        reason,
        placements_seen,
        parts,
        *rest,
    ) = cells
    *state_counts, blob = rest
    spec = _spec_decoder.decode(blob)
    job = new_unended_job(JobId(number), spec, owner, shard, submitted)
    job.shown_state, job.started, job.cancelled, job.cancel_reason = state, started, bool(cancel), reason
    job.clusters_used = dict.fromkeys(map(int, used.split(","))) if used else {}
    job.placements_seen, job.is_new = placements_seen, False
    job.state_counts = state_counts
    if parts is not None:
        job.group_counts = _counts_decoder.decode(parts)
    for group, counts in enumerate(job.group_counts or [job.state_counts]):
        first, stop = job.group_span(group)
        job.state[first:stop] = bytes((state_without_row(counts),)) * (stop - first)
    return job


def _load_tasks(db: sqlite3.Connection, live_jobs: dict[JobId, UnendedJob]) -> None:
    rows = db.execute(
        "SELECT tasks.job, number, attempt, tasks.state, cluster, failures FROM jobs JOIN tasks"
        " ON tasks.job = jobs.job WHERE ended_serial IS NULL"
    )
    for number, index, attempt, state, cluster, failures in rows:
        job = live_jobs[number]
        job.state[index], job.attempt[index], job.cluster[index] = state, attempt, cluster
        if failures:
            job.failures[index] = failures
    for number, blob in db.execute("SELECT job, lot FROM lots ORDER BY job, number"):
        job, placement = live_jobs[number], _placement_decoder.decode(blob)
        placement.saved = job.placements_saved = True
        job.placements.append(placement)
        for index, attempt in zip(placement.tasks, placement.attempts, strict=True):
            if attempt > job.attempt[index]:
                job.state[index], job.attempt[index], job.cluster[index] = PLACED, attempt, placement.cluster
                if placement.size is not None:
                    job.sizes[index] = placement.size
    rows = db.execute(
        "SELECT decisions.job, count(*) FROM jobs JOIN decisions ON decisions.job = jobs.job"
        " WHERE ended_serial IS NULL GROUP BY decisions.job"
    )
    for number, count in rows:
        live_jobs[number].decision_count = count
