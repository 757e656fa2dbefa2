"""Queries of the read model about jobs, decisions and totals, as functions of a connection: each reads one
consistent state of the file."""

import re
import sqlite3
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from hanse.api.row_records import (
    STATE_NAMES,
    STATES,
    SUCCEEDED,
    DecisionRow,
    GroupDetail,
    JobDetail,
    JobRow,
    TenantTotals,
)
from hanse.live.readmodel.query_context import QueryContext, SqliteRow, clamp_limit, job_state, load_spec
from hanse.model.constraint_syntax import format_constraint as where_text
from hanse.model.decision_record import ConsideredCluster, DecisionKind
from hanse.model.ids import JobId, job_text, parse_job
from hanse.model.job import TaskGroup
from hanse.model.program import decode_program

_SELECT_JOB: Final = (
    "SELECT job, name, tenant, state, total, blocked, queued, placed, running, succeeded, failed, cancelled,"
    " submitted, started, ended, priority, klass, used, cancel_reason, owner, client_id FROM jobs"
)
_MOMENT_PATTERN: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""Pattern of a cursor's moment: numbers that fit a column, so that no cursor makes a query fail."""
_considered_decoder = msgspec.msgpack.Decoder(tuple[ConsideredCluster, ...])


# --- jobs --------------------------------------------------------------------------------------------------


def jobs(
    db: sqlite3.Connection, state: str | None, tenant: str | None, name: str | None, limit: int,
    after: str | None,
) -> list[JobRow]:  # fmt: skip
    """List matching jobs, newest first; jobs of the same time by descending number."""
    clauses: list[str] = []
    values: list[int | str] = []
    if state is not None:
        if state not in STATES:
            return []
        clauses.append("state = ?")
        values.append(STATES[state])
        if STATES[state] < SUCCEEDED:
            clauses.append("ended_serial IS NULL")
    for column, value in (("tenant", tenant), ("name", name)):
        if value is not None:
            clauses.append(f"{column} = ?")
            values.append(value)
    if after is not None:
        start = _page_start(db, after)
        if start is None:
            return []
        clauses.append("(submitted, job) < (?, ?)")
        values += start
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    context = QueryContext(db)
    rows = db.execute(
        f"{_SELECT_JOB}{where} ORDER BY submitted DESC, job DESC LIMIT ?", (*values, clamp_limit(limit))
    )
    return [_job_row(context, cells) for cells in rows]


def _page_start(db: sqlite3.Connection, after: str) -> tuple[int, int] | None:
    """Return the key after which a page begins, from a row's cursor or a job's number."""
    moment, dot, number = after.rpartition(".")
    job = parse_job(number)
    if job is None:
        return None
    if dot:
        return (int(moment), job) if _MOMENT_PATTERN.fullmatch(moment) else None
    row = db.execute("SELECT submitted FROM jobs WHERE job = ?", (job,)).fetchone()
    return (row[0], job) if row is not None else None


def _job_row(context: QueryContext, cells: SqliteRow) -> JobRow:
    (
        job, name, tenant, state, total, blocked, queued, placed, running, succeeded, failed, cancelled,
        submitted, started, ended, priority, klass, used, cancel_reason, owner, client_id,
    ) = cells  # fmt: skip
    text, clock = job_text(job), context.wall_clock
    return JobRow(
        id=text,
        name=name,
        tenant=tenant,
        state=STATE_NAMES[state],
        total=total,
        waiting=blocked + queued + placed,
        running=running,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        submitted=clock.time_of(submitted),
        started=clock.time_of(started),
        ended=clock.time_of(ended),
        priority=priority,
        klass=klass,
        clusters=tuple([context.cluster_name(int(at)) for at in used.split(",")]) if used else (),
        cancel_reason=cancel_reason,
        owner=owner,
        client_id=client_id,
        cursor=f"{submitted}.{text}",
    )


def job(db: sqlite3.Connection, number: JobId) -> JobDetail | None:
    """Read one job with its specification and its groups."""
    cells = db.execute(f"{_SELECT_JOB} WHERE job = ?", (number,)).fetchone()
    if cells is None:
        return None
    spec, parts = load_spec(db, number)
    groups = [_group_detail(group, counts) for group, counts in zip(spec.groups, parts, strict=True)]
    after = [(job_text(other), job_state(db, other)) for other in spec.after]
    row = _job_row(QueryContext(db), cells)
    (here,) = db.execute("SELECT broker FROM meta").fetchone()
    return JobDetail(row=row, spec=spec, groups=tuple(groups), after=tuple(after), copy=row.owner != here)


def _group_detail(group: TaskGroup, counts: list[int]) -> GroupDetail:
    program = decode_program(group.payload)
    return GroupDetail(
        name=group.name,
        count=group.count,
        ask=group.ask,
        ask_max=group.ask_max,
        where=where_text(group.where) if group.where is not None else "",
        needs=group.needs,
        duration=group.duration,
        command=program.argv if program is not None else (),
        states={STATE_NAMES[state]: count for state, count in enumerate(counts) if count},
    )


# --- decisions and totals ----------------------------------------------------------------------------------

_SELECT_DECISION: Final = (
    "SELECT at, broker, part, answered, tasks, reason, considered, serial FROM decisions WHERE job = ?"
)


def decisions(db: sqlite3.Connection, number: JobId, limit: int) -> list[DecisionRow]:
    """List the latest decisions about a job, oldest first."""
    rows = db.execute(
        f"{_SELECT_DECISION} ORDER BY serial DESC LIMIT ?", (number, clamp_limit(limit))
    ).fetchall()
    return _decision_rows(db, number, rows[::-1])


def decisions_after(db: sqlite3.Connection, number: JobId, after: int, limit: int) -> list[DecisionRow]:
    """List the decisions about a job after a serial, oldest first."""
    rows = db.execute(
        f"{_SELECT_DECISION} AND serial > ? ORDER BY serial LIMIT ?", (number, after, clamp_limit(limit))
    ).fetchall()
    return _decision_rows(db, number, rows)


def _decision_rows(db: sqlite3.Connection, number: JobId, rows: Sequence[SqliteRow]) -> list[DecisionRow]:
    if not rows:
        return []
    context, (spec, _) = QueryContext(db), load_spec(db, number)
    return [decision_row(context, spec.groups, cells) for cells in rows]


def decision_row(context: QueryContext, groups: Sequence[TaskGroup], cells: SqliteRow) -> DecisionRow:
    """Build a decision from its columns, in the order of ``_SELECT_DECISION``."""
    at, broker, part, answered, count, reason, considered, serial = cells
    return DecisionRow(
        at=context.wall_clock.time_of(at),
        broker=broker,
        group=groups[part].name,
        answered=DecisionKind(answered),
        tasks=count,
        reason=reason,
        considered=_considered_decoder.decode(considered) if considered is not None else (),
        serial=serial,
    )


def tenant_totals(db: sqlite3.Connection, broker: str) -> list[TenantTotals]:
    """Count the jobs that ``broker`` owns and their tasks, by tenant in the order of names."""
    totals: dict[str, TenantTotals] = {}
    rows = db.execute(
        "SELECT tenant, state, count(*), sum(blocked), sum(queued), sum(placed), sum(running),"
        " sum(succeeded), sum(failed), sum(cancelled) FROM jobs WHERE owner = ? GROUP BY tenant, state"
        " ORDER BY tenant, state",
        (broker,),
    )
    for tenant, state, number, *tasks_by_state in rows:
        entry = totals.setdefault(tenant, TenantTotals(tenant=tenant, jobs={}, tasks={}))
        entry.jobs[STATE_NAMES[state]] = number
        for name, count in zip(STATE_NAMES, tasks_by_state, strict=True):
            if count:
                entry.tasks[name] = entry.tasks.get(name, 0) + count
    return list(totals.values())


def durations(db: sqlite3.Connection, name: str, tenant: str, group: str) -> list[int]:
    """List measured run times in microseconds, oldest first."""
    row = db.execute(
        "SELECT ran FROM durations WHERE tenant = ? AND name = ? AND part = ?", (tenant, name, group)
    ).fetchone()
    return array("q", row[0]).tolist() if row is not None else []
