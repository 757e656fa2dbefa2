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
    Change,
    DecisionRow,
    GroupDetail,
    JobDetail,
    JobRow,
    Running,
    TaskRow,
    Totals,
    rowless,
)
from hanse.live.readmodel.clock_mapping import Times, WallTimes
from hanse.live.readmodel.live_job import Placement
from hanse.live.readmodel.projector_state import Memory
from hanse.model.constraint_syntax import format_constraint as where_text
from hanse.model.decision import ConsideredCluster, DecisionKind
from hanse.model.ids import JobId, job_text, parse_job
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import ResourceUsage
from hanse.model.program import decode_program
from hanse.model.resources import Resources

Cells = Sequence[Any]
"""Row as SQLite returns it."""
LIMIT_MAX: Final = 10_000
"""Maximal number of rows in one answer; a larger limit is reduced to it."""

_JOB: Final = (
    "SELECT job, name, tenant, state, total, blocked, queued, placed, running, succeeded, failed, cancelled,"
    " submitted, started, ended, priority, klass, used, cancel_reason, owner, client_id FROM jobs"
)
_MOMENT: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""Pattern of a cursor's moment: numbers that fit a column, so that no cursor makes a query fail."""
_lots = msgspec.msgpack.Decoder(Placement)
_specs = msgspec.msgpack.Decoder(JobSpec)
_parts = msgspec.msgpack.Decoder(list[list[int]])
_sizes = msgspec.msgpack.Decoder(Resources)
_considered = msgspec.msgpack.Decoder(tuple[ConsideredCluster, ...])


class Frame:
    """Context of every answer: wall clock and cluster names."""

    def __init__(self, base: sqlite3.Connection) -> None:
        row = base.execute("SELECT state, times FROM meta").fetchone()
        self.wall: WallTimes = msgspec.msgpack.decode(row[1], type=Times).wall() if row else Times().wall()
        self.clusters = msgspec.msgpack.decode(row[0], type=_Names).clusters if row else []

    def cluster(self, number: int) -> str:
        """Return the name of a cluster; empty for none."""
        return self.clusters[number] if number >= 0 else ""


class _Names(msgspec.Struct):
    """Field of ``ProjectorState`` that a query reads."""

    clusters: list[str] = []


assert "clusters" in Memory.__struct_fields__


# --- jobs --------------------------------------------------------------------------------------------------


def jobs(
    base: sqlite3.Connection, state: str | None, tenant: str | None, name: str | None, limit: int,
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
        place = _place(base, after)
        if place is None:
            return []
        clauses.append("(submitted, job) < (?, ?)")
        values += place
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    frame = Frame(base)
    rows = base.execute(
        f"{_JOB}{where} ORDER BY submitted DESC, job DESC LIMIT ?", (*values, _bounded(limit))
    )
    return [_job_row(frame, cells) for cells in rows]


def _place(base: sqlite3.Connection, after: str) -> tuple[int, int] | None:
    """Return the key after which a page begins, from a row's cursor or a job's number."""
    moment, dot, number = after.rpartition(".")
    job = parse_job(number)
    if job is None:
        return None
    if dot:
        return (int(moment), job) if _MOMENT.fullmatch(moment) else None
    row = base.execute("SELECT submitted FROM jobs WHERE job = ?", (job,)).fetchone()
    return (row[0], job) if row is not None else None


def _bounded(limit: int) -> int:
    return max(0, min(limit, LIMIT_MAX))


def _job_row(frame: Frame, cells: Cells) -> JobRow:
    (
        job, name, tenant, state, total, blocked, queued, placed, running, succeeded, failed, cancelled,
        submitted, started, ended, priority, klass, used, cancel_reason, owner, client_id,
    ) = cells  # fmt: skip
    text, wall = job_text(job), frame.wall
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
        submitted=wall.of(submitted),
        started=wall.of(started),
        ended=wall.of(ended),
        priority=priority,
        klass=klass,
        clusters=tuple([frame.cluster(int(at)) for at in used.split(",")]) if used else (),
        cancel_reason=cancel_reason,
        owner=owner,
        client_id=client_id,
        cursor=f"{submitted}.{text}",
    )


def job(base: sqlite3.Connection, number: JobId) -> JobDetail | None:
    """Read one job with its specification and its groups."""
    cells = base.execute(f"{_JOB} WHERE job = ?", (number,)).fetchone()
    if cells is None:
        return None
    spec, parts = shape(base, number)
    groups = [_group(group, counts) for group, counts in zip(spec.groups, parts, strict=True)]
    after = [(job_text(other), _state_of(base, other)) for other in spec.after]
    row = _job_row(Frame(base), cells)
    (here,) = base.execute("SELECT broker FROM meta").fetchone()
    return JobDetail(row=row, spec=spec, groups=tuple(groups), after=tuple(after), copy=row.owner != here)


def shape(base: sqlite3.Connection, number: JobId) -> tuple[JobSpec, list[list[int]]]:
    """Read a job's specification, and the number of its tasks by group and state."""
    blob, parts, *totals = base.execute(
        "SELECT spec, parts, blocked, queued, placed, running, succeeded, failed, cancelled"
        " FROM jobs JOIN specs ON specs.job = jobs.job WHERE jobs.job = ?",
        (number,),
    ).fetchone()
    return _specs.decode(blob), _parts.decode(parts) if parts is not None else [totals]


def _group(group: TaskGroup, counts: list[int]) -> GroupDetail:
    command = decode_program(group.payload)
    return GroupDetail(
        name=group.name,
        count=group.count,
        ask=group.ask,
        ask_max=group.ask_max,
        where=where_text(group.where) if group.where is not None else "",
        needs=group.needs,
        duration=group.duration,
        command=command.argv if command is not None else (),
        states={STATE_NAMES[state]: count for state, count in enumerate(counts) if count},
    )


def _state_of(base: sqlite3.Connection, number: JobId) -> str:
    row = base.execute("SELECT state FROM jobs WHERE job = ?", (number,)).fetchone()
    return STATE_NAMES[row[0]] if row is not None else ""


# --- tasks -------------------------------------------------------------------------------------------------


def tasks(
    base: sqlite3.Connection, number: JobId, state: str | None, limit: int, after: int | None
) -> list[TaskRow]:
    """List a job's tasks by index; ``after``: last index already seen."""
    if _state_of(base, number) == "" or (state is not None and state not in STATES):
        return []
    found: list[TaskRow] = []
    for row in _all_tasks(base, number, -1 if after is None else after, state):
        if len(found) >= _bounded(limit):
            break
        if state is None or row.state == state:
            found.append(row)
    return found


def _all_tasks(base: sqlite3.Connection, number: JobId, after: int, state: str | None) -> Iterator[TaskRow]:
    """Yield tasks with a row, tasks of a placement, and the rest, which wait (or never ran). With ``state``,
    most tasks in other states are skipped: there may be a million."""
    frame = Frame(base)
    spec, parts = shape(base, number)
    batches: dict[int, tuple[int, int, int]] = {}
    for (blob,) in base.execute("SELECT lot FROM lots WHERE job = ? ORDER BY number", (number,)):
        batch = _lots.decode(blob)
        for index, attempt, node in zip(batch.tasks, batch.attempts, batch.nodes, strict=True):
            batches[index] = (attempt, batch.cluster, node)
    rows = base.execute("SELECT * FROM tasks WHERE job = ? AND number > ? ORDER BY number", (number, after))
    told = [] if state is None else _told_of(base, number, after, STATES[state], batches)
    row = next(rows, None)
    first = 0
    for group, counts in zip(spec.groups, parts, strict=True):
        waiting = rowless(counts)
        span = range(max(first, after + 1), first + group.count)
        few = state is not None and STATE_NAMES[waiting] != state
        for index in [index for index in told if index in span] if few else span:
            cells = None
            while row is not None and row[1] < index:
                row = next(rows, None)
            if row is not None and row[1] == index:
                cells, row = row, next(rows, None)
            lot_of = batches.get(index)
            if lot_of is not None and (cells is None or lot_of[0] > cells[2]):
                yield _placed_task(frame, group.name, index, lot_of, cells)
            elif cells is not None:
                if state is None or STATE_NAMES[cells[3]] == state:
                    yield _task_row(frame, group.name, cells)
            else:
                yield _waiting_task(group.name, index, waiting)
        first += group.count


def _told_of(
    base: sqlite3.Connection, number: JobId, after: int, state: int, batches: dict[int, tuple[int, int, int]]
) -> list[int]:
    """Return the tasks that have a row with a state, and the tasks of a placement."""
    rows = base.execute(
        "SELECT number FROM tasks WHERE job = ? AND number > ? AND state = ?", (number, after, state)
    )
    return sorted({index for (index,) in rows} | {index for index in batches if index > after})


def _task_row(frame: Frame, group: str, cells: Cells) -> TaskRow:
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
        cluster=frame.cluster(cluster),
        node=node,
        outcome=outcome or "",
        code=code,
        usage=usage,
        note=note or "",
        failures=failures or 0,
        started=frame.wall.of(started),
        ended=frame.wall.of(ended),
    )


def _placed_task(
    frame: Frame, group: str, index: int, batch: tuple[int, int, int], cells: Cells | None
) -> TaskRow:
    before = _task_row(frame, group, cells) if cells is not None else _waiting_task(group, index, PLACED)
    attempt, cluster, node = batch
    return msgspec.structs.replace(
        before,
        state=STATE_NAMES[PLACED],
        attempt=attempt,
        cluster=frame.cluster(cluster),
        node=node if node >= 0 else None,
        started=None,
        ended=None,
    )


def _waiting_task(group: str, index: int, state: int) -> TaskRow:
    return TaskRow(
        index=index, group=group, state=STATE_NAMES[state], attempt=0, cluster="", node=None, outcome="",
        code=None, usage=None, note="", failures=0, started=None, ended=None,
    )  # fmt: skip


def running_on(base: sqlite3.Connection, cluster: str | None, node: int | None, limit: int) -> list[Running]:
    """List running tasks, by cluster, node, job and index."""
    frame = Frame(base)
    clauses, values = ["tasks.state = 3"], []
    if cluster is not None:
        if cluster not in frame.clusters:
            return []
        clauses.append("cluster = ?")
        values.append(frame.clusters.index(cluster))
    if node is not None:
        clauses.append("node = ?")
        values.append(node)
    rows = base.execute(
        "SELECT tasks.job, number, cluster, node, size, tasks.started, name, tenant, spec"  # noqa: S608 - constant texts
        " FROM tasks JOIN jobs ON jobs.job = tasks.job JOIN specs ON specs.job = tasks.job"
        f" WHERE {' AND '.join(clauses)} ORDER BY cluster, node, tasks.job, number LIMIT ?",
        (*values, _bounded(limit)),
    )
    found, specs = [], dict[int, JobSpec]()
    for number, index, at, place, size, started, name, tenant, blob in rows:
        spec = specs.get(number) or specs.setdefault(number, _specs.decode(blob))
        group = _group_at(spec, index)
        found.append(
            Running(
                job=job_text(number),
                index=index,
                name=name,
                tenant=tenant,
                group=group.name,
                cluster=frame.cluster(at),
                node=place,
                size=_sizes.decode(size) if size is not None else group.ask,
                started=frame.wall.of(started),
            )
        )
    return found


def _group_at(spec: JobSpec, index: int) -> TaskGroup:
    for group in spec.groups:
        if index < group.count:
            return group
        index -= group.count
    raise AssertionError("a task beyond the last group")


# --- decisions and totals ----------------------------------------------------------------------------------

_DECISION: Final = (
    "SELECT at, broker, part, answered, tasks, reason, considered, serial FROM decisions WHERE job = ?"
)


def decisions(base: sqlite3.Connection, number: JobId, limit: int) -> list[DecisionRow]:
    """List the latest decisions about a job, oldest first."""
    rows = base.execute(f"{_DECISION} ORDER BY serial DESC LIMIT ?", (number, _bounded(limit))).fetchall()
    return _decision_rows(base, number, rows[::-1])


def decisions_after(base: sqlite3.Connection, number: JobId, after: int, limit: int) -> list[DecisionRow]:
    """List the decisions about a job after a serial, oldest first."""
    rows = base.execute(
        f"{_DECISION} AND serial > ? ORDER BY serial LIMIT ?", (number, after, _bounded(limit))
    ).fetchall()
    return _decision_rows(base, number, rows)


def _decision_rows(base: sqlite3.Connection, number: JobId, rows: Sequence[Cells]) -> list[DecisionRow]:
    if not rows:
        return []
    frame, (spec, _) = Frame(base), shape(base, number)
    return [decision_row(frame, spec.groups, cells) for cells in rows]


def decision_row(frame: Frame, groups: Sequence[TaskGroup], cells: Cells) -> DecisionRow:
    """Build a decision from its columns, in the order of ``_SELECT_DECISION``."""
    at, broker, part, answered, count, reason, considered, serial = cells
    return DecisionRow(
        at=frame.wall.of(at),
        broker=broker,
        group=groups[part].name,
        answered=DecisionKind(answered),
        tasks=count,
        reason=reason,
        considered=_considered.decode(considered) if considered is not None else (),
        serial=serial,
    )


def counts(base: sqlite3.Connection, broker: str) -> list[Totals]:
    """Count the jobs that ``broker`` owns and their tasks, by tenant in the order of names."""
    totals: dict[str, Totals] = {}
    rows = base.execute(
        "SELECT tenant, state, count(*), sum(blocked), sum(queued), sum(placed), sum(running),"
        " sum(succeeded), sum(failed), sum(cancelled) FROM jobs WHERE owner = ? GROUP BY tenant, state"
        " ORDER BY tenant, state",
        (broker,),
    )
    for tenant, state, number, *tasks_by_state in rows:
        entry = totals.setdefault(tenant, Totals(tenant=tenant, jobs={}, tasks={}))
        entry.jobs[STATE_NAMES[state]] = number
        for name, count in zip(STATE_NAMES, tasks_by_state, strict=True):
            if count:
                entry.tasks[name] = entry.tasks.get(name, 0) + count
    return list(totals.values())


def durations(base: sqlite3.Connection, name: str, tenant: str, group: str) -> list[int]:
    """List measured run times in microseconds, oldest first."""
    row = base.execute(
        "SELECT ran FROM durations WHERE tenant = ? AND name = ? AND part = ?", (tenant, name, group)
    ).fetchone()
    return array("q", row[0]).tolist() if row is not None else []


def changes_since(base: sqlite3.Connection, serial: int, limit: int) -> list[Change]:
    """List job state changes after a serial, in order."""
    rows = base.execute(
        "SELECT serial, changes.job, changes.state, at, name, tenant, owner FROM changes"
        " LEFT JOIN jobs ON jobs.job = changes.job WHERE serial > ? ORDER BY serial LIMIT ?",
        (serial, _bounded(limit)),
    ).fetchall()
    if not rows:
        return []
    wall = Frame(base).wall
    return [
        Change(
            serial=number,
            job=job_text(of),
            name=name or "",
            tenant=tenant or "",
            state=STATE_NAMES[state],
            owner=owner or "",
            at=wall.of(at),
        )
        for number, of, state, at, name, tenant, owner in rows
    ]


def changes_kept_from(base: sqlite3.Connection) -> int:
    """Return the serial of the oldest change on record; 0: none."""
    row = base.execute("SELECT min(serial) FROM changes").fetchone()
    return row[0] or 0
