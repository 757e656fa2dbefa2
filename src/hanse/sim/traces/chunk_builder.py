"""Builder of chunks: columns grow as lists of rows and become arrays when a chunk is complete.

One builder serves one pass over one trace: it numbers names, shifts arrivals to the start of the trace,
finds the ends of DAG edges, counts accepted rows and rows that are out of order, and never holds more than
one chunk.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from hanse.sim.traces.chunk import JOBS_PER_CHUNK, TASKS_PER_CHUNK, TIME_MAX, Column, Ints, JobChunk
from hanse.sim.traces.read_report import ReadReport

NAMES_MAX: Final = 1 << 20
"""Names kept for one trace; further names are read as "none", with a note."""
TASKS_PER_JOB_MAX: Final = 1 << 24
"""Largest number of tasks in one job: more is an error of the trace, and would need unbounded memory."""
DAG_ENTRIES_MAX: Final = 1 << 16
"""Entries of a DAG that stay in one chunk; a larger DAG is cut, and the edges across the cut are counted."""
DAG_TASKS_MAX: Final = 1 << 20
"""Tasks of a DAG that stay in one chunk."""
AMOUNT_MAX: Final = 1 << 60
"""Largest job number or amount of a resource: more is an error of the trace."""
EDGE_LOST: Final = "an edge of a DAG to a node that it does not have"


class TraceRow(msgspec.Struct):
    """One entry of a future chunk; units as in ``JobChunk``, arrival in the trace's own clock."""

    job: int
    arrival: int
    durations: Sequence[int]
    """One duration per task, or a single one for all ``count`` tasks."""
    count: int = 1
    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    estimate: int = 0
    user: int = -1
    group: int = -1
    site: int = -1
    parent: int | None = None
    extra: tuple[float, ...] = ()
    """Extra values, in the order of the builder's ``extra_kinds``."""
    key: int | None = None
    """Number by which entries of the same DAG refer to this one, if that is not ``job``."""
    needs: tuple[int, ...] = ()
    """Keys of entries of the same DAG that must end first."""


class NameTable:
    """Table of names and their numbers, the same for a whole trace."""

    def __init__(self, report: ReadReport) -> None:
        self._numbers: dict[str, int] = {}
        self._table: tuple[str, ...] = ()
        self._report = report

    def number(self, name: str) -> int:
        """Return the number of a name; -1 for the empty one."""
        if not name:
            return -1
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._numbers) >= NAMES_MAX:
            self._report.note(f"more than {NAMES_MAX:,} names: the names beyond are left out")
            return -1
        self._numbers[name] = len(self._numbers)
        return len(self._numbers) - 1

    def table(self) -> tuple[str, ...]:
        """Return all names so far; the same tuple as before if none was added."""
        if len(self._table) != len(self._numbers):
            self._table = tuple(self._numbers)
        return self._table


class ChunkBuilder:
    """Collector of rows for one chunk at a time."""

    def __init__(
        self,
        report: ReadReport,
        extra_kinds: dict[str, type] | None = None,
        name_keys: tuple[str, ...] = (),
        origin: int | None = None,
    ) -> None:
        self.report = report
        self.names = NameTable(report)
        self.origin = origin
        """Time of the trace's own clock that counts as 0; the first row's time if none is given."""
        self._extra_kinds = extra_kinds or {}
        self._name_keys = name_keys
        self._latest_arrival = -1
        self._reset()

    def _reset(self) -> None:
        self._rows: list[TraceRow] = []
        self._tasks = 0
        self._has_needs = False

    @property
    def entries(self) -> int:
        """Number of entries held now."""
        return len(self._rows)

    def is_flush_due(self, row: TraceRow) -> bool:
        """True if ``flush`` is due before this row: the chunk is complete, and the row begins another DAG."""
        if len(self._rows) < JOBS_PER_CHUNK and self._tasks < TASKS_PER_CHUNK:
            return False
        same = row.parent is not None and row.parent == self._rows[-1].parent
        return not same or len(self._rows) >= JOBS_PER_CHUNK + DAG_ENTRIES_MAX or self._tasks >= DAG_TASKS_MAX

    def add(self, line: int, row: TraceRow) -> bool:
        """Add a row; return False, with an entry in the report, if the row is unusable."""
        if self.origin is None:
            self.origin = row.arrival
        row.arrival -= self.origin
        reason = self._find_fault(row)
        if reason:
            self.report.bad_row(line, reason)
            return False
        if row.arrival < self._latest_arrival:
            self.report.disordered += 1
        self._latest_arrival = row.arrival
        self._rows.append(row)
        self._tasks += row.count
        self._has_needs = self._has_needs or bool(row.needs)
        return True

    @staticmethod
    def _find_fault(row: TraceRow) -> str:
        if row.count < 1:
            return "no tasks"
        if row.count > TASKS_PER_JOB_MAX:
            return f"more than {TASKS_PER_JOB_MAX:,} tasks in one job"
        if row.arrival < 0:
            return "arrives before the trace begins"
        if max(row.durations, default=0) > TIME_MAX or row.arrival > TIME_MAX or row.estimate > TIME_MAX:
            return "a time longer than 285 years"
        if min(row.durations, default=0) < 0 or min(row.cpu, row.memory, row.gpu, row.estimate) < 0:
            return "a negative time or amount"
        parent = row.job if row.parent is None else row.parent
        if max(row.cpu, row.memory, row.gpu, abs(row.job), abs(parent)) > AMOUNT_MAX:
            return f"a number larger than {AMOUNT_MAX:,}"
        return ""

    def flush(self) -> JobChunk:
        """Return everything held as a chunk, and empty the builder."""
        rows = self._rows
        counts = np.array([row.count for row in rows], np.int64)
        durations = np.array([value for row in rows for value in row.durations], np.int64)
        if len(durations) != self._tasks:
            durations = np.repeat(durations, _duration_repeats(rows, len(durations)))
        columns: dict[str, Any] = {}
        for names, kind in ((_LONG, np.int64), (_SHORT, np.int32)):
            columns |= {name: np.array([getattr(row, name) for row in rows], kind) for name in names}
        chunk = JobChunk(
            **columns,
            offset=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            duration=durations,
            parent=np.array([row.job if row.parent is None else row.parent for row in rows], np.int64),
            names=self.names.table(),
            needs=self._needs() if self._has_needs else None,
            extra=self._extra(),
            name_keys=self._name_keys,
        )
        self.report.jobs += chunk.job_count
        self.report.tasks += chunk.task_count
        self._reset()
        return chunk

    def _extra(self) -> dict[str, Column]:
        return {
            key: np.array([row.extra[place] for row in self._rows], kind)
            for place, (key, kind) in enumerate(self._extra_kinds.items())
        }

    def _needs(self) -> tuple[Ints, Ints]:
        """Return the edges by entry. A key that several entries of a DAG share refers to all of them."""
        entries: dict[tuple[int | None, int], list[int]] = {}
        for entry, row in enumerate(self._rows):
            entries.setdefault((row.parent, row.job if row.key is None else row.key), []).append(entry)
        later: list[int] = []
        earlier: list[int] = []
        for entry, row in enumerate(self._rows):
            for key in row.needs:
                found = entries.get((row.parent, key))
                if found is None:
                    self.report.skip(EDGE_LOST)
                    continue
                later += [entry] * len(found)
                earlier += found
        return np.array(later, np.int64), np.array(earlier, np.int64)


def _duration_repeats(rows: Sequence[TraceRow], given: int) -> Ints:
    """Return how often each duration counts: a row's only one once per task, any other one once."""
    out = np.ones(given, np.int64)
    place = 0
    for row in rows:
        if len(row.durations) == 1:
            out[place] = row.count
        place += len(row.durations)
    return out


_LONG: Final = ("job", "arrival", "cpu", "memory", "gpu", "estimate")
_SHORT: Final = ("user", "group", "site")
