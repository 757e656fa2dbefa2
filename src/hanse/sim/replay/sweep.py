"""Grid of runs (load x policy x brokers x seeds) in parallel processes, resumed after an interruption.

The result file is JSON lines: one finished run each, with the key of its cell. A cell whose key is in the
file does not run again. A line truncated by a crash is dropped when the file is opened next; a file with
anything else is refused.

Schedulers for whole jobs have a smaller grid (load x policy x seeds), because they have no brokers.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.policy.node_rankers import FirstNodeRanker
from hanse.sim.replay.execution import run_batch, run_once
from hanse.sim.replay.metrics import as_dict
from hanse.sim.replay.registry import select_policies
from hanse.sim.replay.run_records import ReplayError, ReplaySettings, ReplayWorkload
from hanse.sim.replay.trace_workload import file_digest, read_workload, scale_to_load
from hanse.sim.replay.whole_job_policies import BatchTrace, batch_names, select_batch_policies
from hanse.sim.replay.whole_job_policies import scale_to_load as batch_at_load
from hanse.sim.traces import ReadOptions, TraceError, load_with_report

CELLS_MAX: Final = 100_000
"""Largest number of runs in one sweep."""
STOP_CHECK_SECONDS: Final = 0.2
KEY_BEGIN: Final = b'{"key"'
"""Beginning of every line of a result file."""


class SweepCell(msgspec.Struct, frozen=True):
    """One run of a grid. Its encoded form is its key in the result file."""

    trace: str
    trace_digest: str
    whole_seconds: bool
    policy: str
    load: float | None
    """Offered load to scale to; None = the trace's own."""
    settings: ReplaySettings

    def key(self) -> str:
        """Return the key of this cell: everything but the engine, on which no result depends, and but the
        default node ranker, which older result files do not name."""
        fields = msgspec.to_builtins(self)
        del fields["settings"]["engine"]
        if self.settings.node_ranker == FirstNodeRanker.name:
            del fields["settings"]["node_ranker"]
        return msgspec.json.encode(fields).decode()


class SweepGrid(msgspec.Struct, frozen=True):
    """Varied and fixed parameters of a sweep."""

    trace: Path
    policies: tuple[str, ...]
    loads: tuple[float | None, ...]
    brokers: tuple[int, ...]
    seeds: tuple[int, ...]
    fixed: ReplaySettings
    whole_seconds: bool = False

    def cells(self) -> list[SweepCell]:
        """Return all cells in the order load, policy, brokers, seed; raise if one cannot run."""
        if self.trace.is_dir():
            raise TraceError(f"{self.trace} is a folder: make a file of it with 'hanse trace convert' first")
        if not self.trace.is_file():
            raise TraceError(f"{self.trace} does not exist: give the path of a trace file")
        brokers = self._check_brokers()
        count = len(self.loads) * len(self.policies) * len(brokers) * len(self.seeds)
        if count > CELLS_MAX:
            raise ReplayError(f"{count:,} runs are more than the {CELLS_MAX:,} that a sweep takes")
        mark = file_digest(self.trace)
        return [
            SweepCell(
                self.trace.name,
                mark,
                self.whole_seconds,
                policy,
                load,
                msgspec.structs.replace(self.fixed, brokers=number, seed=seed),
            )
            for load in self.loads
            for policy in self.policies
            for number in brokers
            for seed in self.seeds
        ]

    def _check_brokers(self) -> tuple[int, ...]:
        """Return the numbers of brokers to run; raise if a policy cannot run."""
        if self.policies and all(name in batch_names() for name in self.policies):
            select_batch_policies(
                list(self.policies), _batch_trace(self.trace, self.whole_seconds), self.fixed
            )
            return (1,)
        for number in self.brokers:
            select_policies(list(self.policies), msgspec.structs.replace(self.fixed, brokers=number))
        return self.brokers


def read_finished_runs(path: Path) -> dict[str, dict[str, Any]]:
    """Return the runs in a result file by key, and cut off a truncated last line."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, Any]] = {}
    *lines, torn = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            entry = {}
        if "key" not in entry:
            raise TraceError(f"{path} is not a result file of a sweep (line {number}): name another one")
        found[entry["key"]] = entry
    if torn:
        if not found and not torn.startswith(KEY_BEGIN):
            raise TraceError(f"{path} is not a result file of a sweep: name another one")
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - len(torn))
    return found


_TRACES: dict[tuple[str, bool], ReplayWorkload | BatchTrace] = {}
"""Trace that a process of the pool has read."""
_SCALED_TRACES: dict[tuple[float, ReplaySettings], BatchTrace] = {}
"""Trace that a process of the pool has scaled to a load; for whole jobs that takes a run of its own."""


def _batch_trace(path: Path, whole_seconds: bool) -> BatchTrace:
    rules = ReadOptions(truncate_seconds=whole_seconds)
    return BatchTrace(path.name, load_with_report(path, options=rules)[0])


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which the parent handles: it lets running cells end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_cell(path: str, cell: SweepCell) -> dict[str, Any]:
    """Run one cell; the trace is read once per process."""
    key = path, cell.whole_seconds
    whole_jobs = cell.policy in batch_names()
    if key not in _TRACES:
        _TRACES.clear()
        _SCALED_TRACES.clear()
        read = _batch_trace if whole_jobs else _workload
        _TRACES[key] = read(Path(path), cell.whole_seconds)
    trace = _TRACES[key]
    run = _batch_run(trace, cell) if isinstance(trace, BatchTrace) else _run(trace, cell)
    return {"key": cell.key(), "target_load": cell.load, **run}


def _workload(path: Path, whole_seconds: bool) -> ReplayWorkload:
    return read_workload(path, whole_seconds=whole_seconds)[0]


def _run(workload: ReplayWorkload, cell: SweepCell) -> dict[str, Any]:
    if cell.load is not None:
        workload = scale_to_load(workload, cell.settings.nodes, cell.load)
    policy = select_policies([cell.policy], cell.settings)[0]
    return as_dict(run_once(policy, workload, cell.settings).result)


def _batch_run(trace: BatchTrace, cell: SweepCell) -> dict[str, Any]:
    policy = select_batch_policies([cell.policy], trace, cell.settings)[0]
    if cell.load is not None:
        # the amount of work depends neither on the seed nor on the scheduler
        key = cell.load, msgspec.structs.replace(cell.settings, seed=0)
        if key not in _SCALED_TRACES:
            _SCALED_TRACES.clear()
            _SCALED_TRACES[key] = batch_at_load(trace, cell.settings, cell.load, policy)
        trace = _SCALED_TRACES[key]
    return as_dict(run_batch(policy, trace, cell.settings).result)


def run_sweep(
    grid: SweepGrid, out: Path, processes: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Run the missing cells and append them to ``out``; yield (runs done, runs in all, the new run).

    At most two cells per process are submitted at a time. Once ``stop`` returns True no further cell begins,
    and running cells are awaited and kept.
    """
    cells = grid.cells()
    done = read_finished_runs(out)
    todo = iter([cell for cell in cells if cell.key() not in done])
    count = sum(cell.key() in done for cell in cells)
    context = get_context("spawn")
    with (
        out.open("ab") as file,
        ProcessPoolExecutor(processes, context, initializer=_ignore_interrupts) as pool,
    ):
        running: list[Future[dict[str, Any]]] = []
        while True:
            while not stop() and len(running) < 2 * processes and (cell := next(todo, None)) is not None:
                running.append(pool.submit(run_cell, str(grid.trace), cell))
            if stop():
                running = [future for future in running if not future.cancel()]
            if not running:
                return
            wait(running, STOP_CHECK_SECONDS, FIRST_COMPLETED)
            for future in [future for future in running if future.done()]:
                running.remove(future)
                entry = future.result()
                file.write(msgspec.json.encode(entry) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                count += 1
                yield count, len(cells), entry
