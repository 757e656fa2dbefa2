"""Part of a trace as NumPy columns: the output of every reader and the input of every simulator.

A trace is a stream of chunks of bounded size, so memory use does not depend on its length. One entry is one
job; in traces of DAGs it is one node of a DAG, and ``parent`` is the number of the DAG. All times are whole
microseconds, all amounts whole numbers: a replay must give the same result on every computer.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

JOBS_PER_CHUNK: Final = 8_192
"""Entries after which a chunk is complete (a DAG is never cut in two, so a chunk may hold a few more)."""
TASKS_PER_CHUNK: Final = 262_144
"""Tasks after which a chunk is complete (a job is never cut in two, so the last one may exceed it)."""
SECOND: Final = 1_000_000
"""Microseconds in a second."""
HOUR: Final = 3_600 * SECOND
TIME_MAX: Final = 1 << 53
"""285 years in microseconds, and the limit of the integers a float holds exactly: no time is longer."""

Ints = npt.NDArray[np.int64]
SmallInts = npt.NDArray[np.int32]
Column = npt.NDArray[Any]
_NUMBERS: Final = ("job", "arrival", "cpu", "memory", "gpu", "estimate", "parent")
_NAMES: Final = ("user", "group", "site")


class JobChunk(msgspec.Struct, frozen=True, eq=False):
    """Columns of several jobs; J entries, T tasks. Tasks of entry j: ``duration[offset[j]:offset[j +
    1]]``."""

    job: Ints
    """[J] number in the trace's own numbering if it has one, else a running number."""
    arrival: Ints
    """[J] microseconds since the start of the trace."""
    offset: Ints
    """[J+1] bounds of the entries' tasks in ``duration``."""
    duration: Ints
    """[T] microseconds a task runs; 0 throughout when the trace does not say (see
    ``TraceReader.has_durations``)."""
    cpu: Ints
    """[J] milli-CPU per task, 0 = not stated."""
    memory: Ints
    """[J] bytes per task, 0 = not stated."""
    gpu: Ints
    """[J] milli-GPU per task, 1000 = a whole one."""
    estimate: Ints
    """[J] the user's requested time per task in microseconds, 0 = none."""
    user: SmallInts
    """[J] index into ``names``, -1 = none; so are ``group`` and ``site``."""
    group: SmallInts
    site: SmallInts
    parent: Ints
    """[J] number of the whole DAG (or of the job that these tasks belong to), else the same as ``job``."""
    names: tuple[str, ...] = ()
    """Names so far. Within one reader an index keeps its meaning from chunk to chunk."""
    needs: tuple[Ints, Ints] | None = None
    """DAG edges: entry ``needs[0][i]`` starts after entry ``needs[1][i]`` (indices into this chunk) has
    ended."""
    extra: dict[str, Column] = {}
    """[J] columns that a dataset adds, such as ``status`` or ``gpu_spec``; the same keys in every chunk."""
    name_keys: tuple[str, ...] = ()
    """Keys of ``extra`` whose numbers are indices into ``names`` (-1 = none)."""

    @property
    def job_count(self) -> int:
        """Number of entries."""
        return len(self.job)

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return len(self.duration)

    def counts(self) -> Ints:
        """Return [J] the number of tasks of each entry."""
        return np.diff(self.offset)

    def tasks_of(self, entry: int) -> Ints:
        """Return the durations of one entry's tasks."""
        return self.duration[self.offset[entry] : self.offset[entry + 1]]

    def name(self, index: int) -> str:
        """Return the name at an index; empty for none."""
        return self.names[index] if index >= 0 else ""

    def check(self) -> None:
        """Assert the guarantees of every reader."""
        jobs = self.job_count
        columns = (self.arrival, self.cpu, self.memory, self.gpu, self.estimate, self.parent)
        assert all(column.dtype == np.int64 and len(column) == jobs for column in (self.job, *columns))
        assert self.duration.dtype == np.int64
        assert self.offset.dtype == np.int64
        assert len(self.offset) == jobs + 1
        assert self.offset[0] == 0
        assert self.offset[-1] == len(self.duration)
        assert bool(np.all(np.diff(self.offset) >= 0))
        for column in (self.user, self.group, self.site):
            assert column.dtype == np.int32
            assert len(column) == jobs
            assert jobs == 0 or -1 <= int(column.min()) <= int(column.max()) < len(self.names)
        assert all(len(column) == jobs for column in self.extra.values())
        assert all(key in self.extra for key in self.name_keys)
        if jobs:
            assert all(int(column.min()) >= 0 for column in columns[:-1])
        if self.task_count:
            assert int(self.duration.min()) >= 0
        if self.needs is not None:
            assert len(self.needs[0]) == len(self.needs[1])
            for ends in self.needs:
                assert not len(ends) or 0 <= int(ends.min()) <= int(ends.max()) < jobs


def empty_chunk() -> JobChunk:
    """Return a chunk without a job."""
    none = np.zeros(0, np.int64)
    small = np.zeros(0, np.int32)
    return JobChunk(
        none, none, np.zeros(1, np.int64), none, none, none, none, none, small, small, small, none
    )


def concatenate(chunks: Sequence[JobChunk]) -> JobChunk:
    """Return all chunks as one, with merged names and shifted DAG edges."""
    if not chunks:
        return empty_chunk()
    if len(chunks) == 1:
        return chunks[0]
    table: dict[str, int] = {}
    index_maps = [_map_name_indices(chunk.names, table) for chunk in chunks]
    starts = np.cumsum([0, *(chunk.job_count for chunk in chunks)])
    tasks = np.cumsum([0, *(chunk.task_count for chunk in chunks)])
    edges = [
        (chunk.needs, start) for chunk, start in zip(chunks, starts, strict=False) if chunk.needs is not None
    ]

    def join_column(name: str) -> Any:
        return np.concatenate([getattr(chunk, name) for chunk in chunks])

    def join_name_column(name: str) -> SmallInts:
        return np.concatenate(
            [index_map[getattr(chunk, name)] for index_map, chunk in zip(index_maps, chunks, strict=True)]
        )

    extra: dict[str, Column] = {}
    for key in chunks[0].extra:
        is_name = key in chunks[0].name_keys
        extra[key] = np.concatenate(
            [
                index_map[chunk.extra[key]] if is_name else chunk.extra[key]
                for index_map, chunk in zip(index_maps, chunks, strict=True)
            ]
        )
    parts = [chunk.offset[:-1] + start for chunk, start in zip(chunks, tasks, strict=False)]
    needs = None
    if edges:
        needs = (
            np.concatenate([pair[0] + start for pair, start in edges]),
            np.concatenate([pair[1] + start for pair, start in edges]),
        )
    columns: dict[str, Any] = {name: join_column(name) for name in (*_NUMBERS, "duration")}
    columns |= {name: join_name_column(name) for name in _NAMES}
    return JobChunk(
        **columns,
        offset=np.append(np.concatenate(parts), tasks[-1]),
        names=tuple(table),
        needs=needs,
        extra=extra,
        name_keys=chunks[0].name_keys,
    )


def take(chunk: JobChunk, entries: Ints) -> JobChunk:
    """Return the entries at these indices, in this order; an edge stays if both of its ends do."""
    counts = np.diff(chunk.offset)[entries]
    offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    # index of a task = old start of its entry + its distance from the entry's new start
    task_indices = np.repeat(chunk.offset[:-1][entries] - offset[:-1], counts) + np.arange(int(offset[-1]))
    needs = None
    if chunk.needs is not None:
        new_entry = np.full(chunk.job_count, -1, np.int64)
        new_entry[entries] = np.arange(len(entries))
        later, earlier = new_entry[chunk.needs[0]], new_entry[chunk.needs[1]]
        kept = (later >= 0) & (earlier >= 0)
        needs = (later[kept], earlier[kept])
    columns: dict[str, Any] = {name: getattr(chunk, name)[entries] for name in (*_NUMBERS, *_NAMES)}
    return JobChunk(
        **columns,
        offset=offset,
        duration=chunk.duration[task_indices],
        names=chunk.names,
        needs=needs,
        extra={key: column[entries] for key, column in chunk.extra.items()},
        name_keys=chunk.name_keys,
    )


def sort_by_arrival(chunk: JobChunk) -> JobChunk:
    """Return the same entries in order of arrival; equal arrivals keep their order."""
    if bool(np.all(np.diff(chunk.arrival) >= 0)):
        return chunk
    return take(chunk, np.argsort(chunk.arrival, kind="stable"))


def _map_name_indices(names: Sequence[str], table: dict[str, int]) -> SmallInts:
    """Map a chunk's name indices to those of the merged table; the extra last element maps -1 to -1."""
    index_map = np.full(len(names) + 1, -1, np.int32)
    for index, name in enumerate(names):
        index_map[index] = table.setdefault(name, len(table))
    return index_map
