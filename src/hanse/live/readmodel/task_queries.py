"""Queries of the read model about tasks: lists by job, and the running tasks of clusters and nodes."""

import sqlite3
from collections.abc import Iterator

import msgspec

from hanse.api.row_records import PLACED, STATE_NAMES, STATES, RunningTaskRow, TaskRow, state_without_row
from hanse.live.readmodel.query_context import QueryContext, SqliteRow, clamp_limit, job_state, load_spec
from hanse.live.readmodel.unended_job import Placement
from hanse.model.ids import JobId, job_text
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import ResourceUsage
from hanse.model.resources import Resources

_placement_decoder = msgspec.msgpack.Decoder(Placement)
_size_decoder = msgspec.msgpack.Decoder(Resources)
_spec_decoder = msgspec.msgpack.Decoder(JobSpec)


def tasks(
    db: sqlite3.Connection, number: JobId, state: str | None, limit: int, after: int | None
) -> list[TaskRow]:
    """List a job's tasks by index; ``after``: last index already seen."""
    if job_state(db, number) == "" or (state is not None and state not in STATES):
        return []
    found: list[TaskRow] = []
    for row in _all_tasks(db, number, -1 if after is None else after, state):
        if len(found) >= clamp_limit(limit):
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
        (*values, clamp_limit(limit)),
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
