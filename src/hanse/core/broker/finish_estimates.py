"""Estimates of one broker: how long a task takes on each node class of each cluster, with its data.

Run times are learned from tasks that succeeded, per kind of work and node class, and counted when all tasks
of the group have ended: those that end first are the short ones. Transfers are estimated from the bytes that
the job declares and the rates between clusters.

A kind is a tenant's name of a job and its group; the work of a kind is the part of the job's name before the
last slash, which several kinds share. Both are numbers here: names stay with their broker.
"""

from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import CLAIMED, RUNNING, JobRecord, kind_of
from hanse.model.ids import SECOND, index_of, job_of
from hanse.model.job import JobSpec
from hanse.model.messages import Outcome, TaskUpdates
from hanse.policy.finish_time.duration_rows import CLASSES, row_words
from hanse.policy.finish_time.duration_table import CLASSES_MAX, DurationTable, EndedTask
from hanse.policy.finish_time.exact_math import packed

SAMPLES_MAX: Final = 256
"""Tasks of one group from which durations are learned: more would add little."""
COSTS_MAX: Final = 65_536
"""Remembered costs of a kind in a cluster. When there are more, all are dropped and computed again."""
SCALARS: Final = 6
"""Scalars at the end of a row of sums."""
COLUMNS_AT_FIRST: Final = 4
"""Node classes for which the table has room at first; it doubles when there are more."""
KIND_BYTES: Final = 7
"""Bytes of a kind's number: it fits a column of 64 bits, and two of a million kinds hardly ever share one."""
COST_BITS: Final = 6
"""Leading bits of a cost that count, 2 to 3 per cent: finer changes are not worth a message."""


class EstimatesState(msgspec.Struct):
    """State of the estimates, as it is dumped."""

    class_names: list[str]
    """Node classes in the order of the table's columns; further columns are not used yet."""
    rows: list[tuple[int, int, list[float]]]
    """Level, number and sums of each row of the table, the latest changed last."""


class FinishEstimates:
    """Estimates of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.is_on = context.rank.follows_estimates
        """True if tasks are placed by estimates, and durations learned."""
        self.class_names: dict[str, int] = {}
        """Column of each node class in the table."""
        self.table = DurationTable(COLUMNS_AT_FIRST)
        self.version = 0
        """Number of changes of what is learned."""
        self._costs: dict[tuple[int, int], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        """Cluster and kind of a shape -> names of classes, and costs; a change of the table empties it."""

    # --- kinds ---------------------------------------------------------------------------------------------

    def shape_kind(self, spec: JobSpec, group: int) -> int:
        """Return the number of a group's kind and of its data; 0 if nothing is estimated."""
        if not self.is_on:
            return 0
        part = spec.groups[group]
        data = ",".join(spec.data)
        return _number(f"{kind_of(spec, group)}\0{part.input_bytes}\0{part.duration}\0{data}")

    def _column(self, name: str) -> int:
        """Return the column of a node class in the table; classes beyond the largest table share the last."""
        found = self.class_names.get(name)
        if found is None:
            found = self.class_names[name] = min(len(self.class_names), CLASSES_MAX - 1)
            if found >= self.table.classes:
                self.table = _grown(self.table, min(2 * self.table.classes, CLASSES_MAX))
        return found

    # --- estimates -----------------------------------------------------------------------------------------

    def costs(self, view: ClusterView, record: JobRecord, group: int, kind: int) -> tuple[int, ...]:
        """Return the milliseconds from the start to the end of a task on each node class of a cluster.

        ``kind``: number of the kind of the group's shape.
        """
        names = view.node_classes.names
        known = self._costs.get((view.index, kind))
        if known is not None and known[0] is names:
            return known[1]
        spec, part = record.spec, record.spec.groups[group]
        columns = [self._column(name) for name in names]
        seconds = self.table.find_seconds(
            work_number(spec), _number(kind_of(spec, group)), part.input_bytes, (part.duration or 0) / SECOND
        )
        transfer = self._transfer_seconds(view, spec, group)
        costs = tuple([rounded_cost(1000 * (transfer + float(seconds[column]))) for column in columns])
        if len(self._costs) >= COSTS_MAX:
            self._costs.clear()
        self._costs[view.index, kind] = names, costs
        return costs

    def expected_duration(self, spec: JobSpec) -> int:
        """Return the microseconds that a task of a job's first group is expected to take on the best node
        class known; 0 before any class is known."""
        if not self.class_names:
            return 0
        part = spec.groups[0]
        number = _number(kind_of(spec, 0))
        seconds = self.table.find_seconds(
            work_number(spec), number, part.input_bytes, (part.duration or 0) / SECOND
        )
        return max(1, int(SECOND * float(seconds[: len(self.class_names)].min())))

    def _transfer_seconds(self, view: ClusterView, spec: JobSpec, group: int) -> float:
        """Return the seconds in which a task reads its input from the nearest cluster that holds it."""
        size = spec.groups[group].input_bytes
        if not size or not spec.data:
            return 0.0
        return size / max([self.context.config.rate_between(source, view.name) for source in spec.data])

    # --- learning ------------------------------------------------------------------------------------------

    def on_task_updates(self, updates: TaskUpdates) -> None:
        """Note where tasks run and how long they took, before the updates change the state of the tasks."""
        jobs, views = self.context.jobs, self.context.views
        for task, attempt, node in updates.started:
            record, index = jobs.get(job_of(task)), index_of(task)
            if record is None or index >= len(record.state) or record.attempt[index] != attempt:
                continue
            if CLAIMED <= record.state[index] <= RUNNING and record.place[index] >= 0:
                classes = views[record.place[index]].node_classes
                if node < len(classes.of_node):
                    record.ran_on[index] = self._column(classes.names[classes.of_node[node]])
        for end in updates.ended:
            record, index = jobs.get(job_of(end.task)), index_of(end.task)
            if record is None or index >= len(record.state) or record.attempt[index] != end.attempt:
                continue
            column = record.ran_on.pop(index, -1)
            seconds = end.usage.run_time / SECOND if end.usage is not None else 0.0
            if column < 0 or seconds <= 0 or end.outcome is not Outcome.SUCCEEDED:
                continue
            samples = record.samples.setdefault(record.group_of(index), [])
            if len(samples) < SAMPLES_MAX:
                samples.append((column, seconds))

    def on_group_ended(self, record: JobRecord, group: int) -> None:
        """Learn from a group of which all tasks have ended."""
        samples = record.samples.pop(group, None)
        if not samples:
            return
        spec = record.spec
        size = float(spec.groups[group].input_bytes)
        tasks = [EndedTask(column, seconds, 1.0, size) for column, seconds in samples]
        self.table.add_job(work_number(spec), _number(kind_of(spec, group)), tasks)
        self._costs.clear()
        self.version += 1
        self.context.mark("broker.learned_durations")

    # --- state ---------------------------------------------------------------------------------------------

    def dump(self) -> EstimatesState | None:
        """Return the state to be dumped."""
        if not self.is_on:
            return None
        rows = [(level, number, row.tolist()) for (level, number), row in self.table.rows.items()]
        return EstimatesState(list(self.class_names), rows)

    def restore(self, state: EstimatesState | None) -> None:
        """Restore a dumped state."""
        self._costs.clear()
        self.version += 1
        self.class_names.clear()
        columns = COLUMNS_AT_FIRST
        names = state.class_names if state is not None else []
        while columns < min(len(names), CLASSES_MAX):
            columns *= 2
        self.table = DurationTable(columns)
        self.class_names = {name: min(at, CLASSES_MAX - 1) for at, name in enumerate(names)}
        for level, number, row in state.rows if state is not None else ():
            self.table.rows[level, number] = np.array(row)


def work_number(spec: JobSpec) -> int:
    """Return the number of a job's kind of work: the part of its name before the last slash."""
    return _number(spec.name.rpartition("/")[0])


def rounded_cost(milliseconds: float) -> int:
    """Return a cost without its last bits: at least 1."""
    whole = max(1, int(milliseconds))
    drop = max(0, whole.bit_length() - COST_BITS)
    return whole >> drop << drop


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=KIND_BYTES).digest()) or 1


def _grown(table: DurationTable, classes: int) -> DurationTable:
    """Return a table with the same sums and room for more classes, behind those that it has."""
    before, after = table.classes + CLASSES, classes + CLASSES
    grown = DurationTable(classes)
    for key, row in table.rows.items():
        fresh = np.zeros(row_words(classes))
        fresh[: packed(before, 0)] = row[: packed(before, 0)]
        fresh[packed(after, 0) :][:before] = row[packed(before, 0) :][:before]
        fresh[-SCALARS:] = row[-SCALARS:]
        grown.rows[key] = fresh
    return grown
