"""Queries of the read model, as functions of a connection: each reads one consistent state of the file."""

import re
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from hanse.api.rows import (
    PLACED,
    STATE_NAMES,
    STATES,
    SUCCEEDED,
    DecisionRow,
    GroupDetail,
    JobDetail,
    JobRow,
    JobStateChange,
    RunningTaskRow,
    TaskRow,
    TenantTotals,
    state_without_row,
)
from hanse.live.readmodel.clock_mapping import ClockMapping, WallClock
from hanse.live.readmodel.live_job import Placement
from hanse.live.readmodel.projector_state import ProjectorState
from hanse.model.constraint_syntax import format_constraint as where_text
from hanse.model.decision import ConsideredCluster, DecisionKind
from hanse.model.ids import JobId, job_text, parse_job
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import ResourceUsage
from hanse.model.program import decode_program
from hanse.model.resources import Resources

SqliteRow = Sequence[Any]
"""Row as SQLite returns it."""
LIMIT_MAX: Final = 10_000
"""Maximal number of rows in one answer; a larger limit is reduced to it."""

_SELECT_JOB: Final = (
    "SELECT job, name, tenant, state, total, blocked, queued, placed, running, succeeded, failed, cancelled,"
    " submitted, started, ended, priority, klass, used, cancel_reason, owner, client_id FROM jobs"
)
_MOMENT_PATTERN: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""Pattern of a cursor's moment: numbers that fit a column, so that no cursor makes a query fail."""
_placement_decoder = msgspec.msgpack.Decoder(Placement)
_spec_decoder = msgspec.msgpack.Decoder(JobSpec)
_counts_decoder = msgspec.msgpack.Decoder(list[list[int]])
_size_decoder = msgspec.msgpack.Decoder(Resources)
_considered_decoder = msgspec.msgpack.Decoder(tuple[ConsideredCluster, ...])


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
        f"{_SELECT_JOB}{where} ORDER BY submitted DESC, job DESC LIMIT ?", (*values, _clamp_limit(limit))
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


def _clamp_limit(limit: int) -> int:
    return max(0, min(limit, LIMIT_MAX))


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
    after = [(job_text(other), _state_of(db, other)) for other in spec.after]
    row = _job_row(QueryContext(db), cells)
    (here,) = db.execute("SELECT broker FROM meta").fetchone()
    return JobDetail(row=row, spec=spec, groups=tuple(groups), after=tuple(after), copy=row.owner != here)


def load_spec(db: sqlite3.Connection, number: JobId) -> tuple[JobSpec, list[list[int]]]:
    """Read a job's specification, and the number of its tasks by group and state."""
    blob, parts, *totals = db.execute(
        "SELECT spec, parts, blocked, queued, placed, running, succeeded, failed, cancelled"
        " FROM jobs JOIN specs ON specs.job = jobs.job WHERE jobs.job = ?",
        (number,),
    ).fetchone()
    return _spec_decoder.decode(blob), _counts_decoder.decode(parts) if parts is not None else [totals]


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


def _state_of(db: sqlite3.Connection, number: JobId) -> str:
    row = db.execute("SELECT state FROM jobs WHERE job = ?", (number,)).fetchone()
    return STATE_NAMES[row[0]] if row is not None else ""


# --- tasks -------------------------------------------------------------------------------------------------


def tasks(
    db: sqlite3.Connection, number: JobId, state: str | None, limit: int, after: int | None
) -> list[TaskRow]:
    """List a job's tasks by index; ``after``: last index already seen."""
    if _state_of(db, number) == "" or (state is not None and state not in STATES):
        return []
    found: list[TaskRow] = []
    for row in _all_tasks(db, number, -1 if after is None else after, state):
        if len(found) >= _clamp_limit(limit):
            break
        if state is None or row.state == state:
            found.append(row)
    return found


def _all_tasks(db: sqlite3.Connection, number: JobId, after: int, state: str | None) -> Iterator[TaskRow]:
    """Yield tasks with a row, tasks of a placement, and the rest, which wait (or never ran). With ``state``,
    most tasks in other states are skipped: there may be a million."""
    context = QueryContext(db)
    spec, parts = load_spec(db, number)
    placements: dict[int, tuple[int, int, int]] = {}
    for (blob,) in db.execute("SELECT lot FROM lots WHERE job = ? ORDER BY number", (number,)):
        placement = _placement_decoder.decode(blob)
        for index, attempt, node in zip(placement.tasks, placement.attempts, placement.nodes, strict=True):
            placements[index] = (attempt, placement.cluster, node)
    rows = db.execute("SELECT * FROM tasks WHERE job = ? AND number > ? ORDER BY number", (number, after))
    candidates = [] if state is None else _candidates_in_state(db, number, after, STATES[state], placements)
    row = next(rows, None)
    first = 0
    for group, counts in zip(spec.groups, parts, strict=True):
        waiting = state_without_row(counts)
        span = range(max(first, after + 1), first + group.count)
        few = state is not None and STATE_NAMES[waiting] != state
        for index in [index for index in candidates if index in span] if few else span:
            cells = None
            while row is not None and row[1] < index:
                row = next(rows, None)
            if row is not None and row[1] == index:
                cells, row = row, next(rows, None)
            placed = placements.get(index)
            if placed is not None and (cells is None or placed[0] > cells[2]):
                yield _placed_task(context, group.name, index, placed, cells)
            elif cells is not None:
                if state is None or STATE_NAMES[cells[3]] == state:
                    yield _task_row(context, group.name, cells)
            else:
                yield _waiting_task(group.name, index, waiting)
        first += group.count


def _candidates_in_state(
    db: sqlite3.Connection, number: JobId, after: int, state: int, placements: dict[int, tuple[int, int, int]]
) -> list[int]:
    """Return the tasks that have a row with a state, and the tasks of a placement."""
    rows = db.execute(
        "SELECT number FROM tasks WHERE job = ? AND number > ? AND state = ?", (number, after, state)
    )
    return sorted({index for (index,) in rows} | {index for index in placements if index > after})


def _task_row(context: QueryContext, group: str, cells: SqliteRow) -> TaskRow:
    (
        _, index, attempt, state, cluster, node, _, started, ended, outcome, code, cpu, memory, ran, note,
        failures,
    ) = cells  # fmt: skip
    usage = ResourceUsage(cpu, memory, ran) if cpu is not None else None
    return TaskRow(
        index=index,
        group=group,
        state=STATE_NAMES[state],
        attempt=attempt,
        cluster=context.cluster_name(cluster),
        node=node,
        outcome=outcome or "",
        code=code,
        usage=usage,
        note=note or "",
        failures=failures or 0,
        started=context.wall_clock.time_of(started),
        ended=context.wall_clock.time_of(ended),
    )


def _placed_task(
    context: QueryContext, group: str, index: int, placement: tuple[int, int, int], cells: SqliteRow | None
) -> TaskRow:
    before = _task_row(context, group, cells) if cells is not None else _waiting_task(group, index, PLACED)
    attempt, cluster, node = placement
    return msgspec.structs.replace(
        before,
        state=STATE_NAMES[PLACED],
        attempt=attempt,
        cluster=context.cluster_name(cluster),
        node=node if node >= 0 else None,
        started=None,
        ended=None,
    )


def _waiting_task(group: str, index: int, state: int) -> TaskRow:
    return TaskRow(
        index=index, group=group, state=STATE_NAMES[state], attempt=0, cluster="", node=None, outcome="",
        code=None, usage=None, note="", failures=0, started=None, ended=None,
    )  # fmt: skip


def running_tasks(
    db: sqlite3.Connection, cluster: str | None, node: int | None, limit: int
) -> list[RunningTaskRow]:
    """List running tasks, by cluster, node, job and index."""
    context = QueryContext(db)
    clauses, values = ["tasks.state = 3"], []
    if cluster is not None:
        if cluster not in context.clusters:
            return []
        clauses.append("cluster = ?")
        values.append(context.clusters.index(cluster))
    if node is not None:
        clauses.append("node = ?")
        values.append(node)
    rows = db.execute(
        "SELECT tasks.job, number, cluster, node, size, tasks.started, name, tenant, spec"  # noqa: S608 - constant texts
        " FROM tasks JOIN jobs ON jobs.job = tasks.job JOIN specs ON specs.job = tasks.job"
        f" WHERE {' AND '.join(clauses)} ORDER BY cluster, node, tasks.job, number LIMIT ?",
        (*values, _clamp_limit(limit)),
    )
    found, specs = [], dict[int, JobSpec]()
    for number, index, at, place, size, started, name, tenant, blob in rows:
        spec = specs.get(number) or specs.setdefault(number, _spec_decoder.decode(blob))
        group = _group_of_task(spec, index)
        found.append(
            RunningTaskRow(
                job=job_text(number),
                index=index,
                name=name,
                tenant=tenant,
                group=group.name,
                cluster=context.cluster_name(at),
                node=place,
                size=_size_decoder.decode(size) if size is not None else group.ask,
                started=context.wall_clock.time_of(started),
            )
        )
    return found


def _group_of_task(spec: JobSpec, index: int) -> TaskGroup:
    for group in spec.groups:
        if index < group.count:
            return group
        index -= group.count
    raise AssertionError("a task beyond the last group")


# --- decisions and totals ----------------------------------------------------------------------------------

_SELECT_DECISION: Final = (
    "SELECT at, broker, part, answered, tasks, reason, considered, serial FROM decisions WHERE job = ?"
)


def decisions(db: sqlite3.Connection, number: JobId, limit: int) -> list[DecisionRow]:
    """List the latest decisions about a job, oldest first."""
    rows = db.execute(
        f"{_SELECT_DECISION} ORDER BY serial DESC LIMIT ?", (number, _clamp_limit(limit))
    ).fetchall()
    return _decision_rows(db, number, rows[::-1])


def decisions_after(db: sqlite3.Connection, number: JobId, after: int, limit: int) -> list[DecisionRow]:
    """List the decisions about a job after a serial, oldest first."""
    rows = db.execute(
        f"{_SELECT_DECISION} AND serial > ? ORDER BY serial LIMIT ?", (number, after, _clamp_limit(limit))
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


def changes_since(db: sqlite3.Connection, serial: int, limit: int) -> list[JobStateChange]:
    """List job state changes after a serial, in order."""
    rows = db.execute(
        "SELECT serial, changes.job, changes.state, at, name, tenant, owner FROM changes"
        " LEFT JOIN jobs ON jobs.job = changes.job WHERE serial > ? ORDER BY serial LIMIT ?",
        (serial, _clamp_limit(limit)),
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
