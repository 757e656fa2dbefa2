"""A grid of runs (load x policy x brokers x seeds) in parallel processes, resumed where it was stopped.

The result file is JSON lines: one finished run each, with the key of its cell. A cell whose key is in the
file is not run again. A line that was cut off by a crash is dropped when the file is opened next.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.sim.replay.measures import as_dict
from hanse.sim.replay.records import Settings, Workload
from hanse.sim.replay.registry import chosen
from hanse.sim.replay.runs import run_once
from hanse.sim.replay.workloads import at_load, digest, read_workload

CELLS_MAX: Final = 100_000
"""Runs of one sweep."""
STOP_CHECK_SECONDS: Final = 0.2


class Cell(msgspec.Struct, frozen=True):
    """One run of a grid. Its encoded form is its key in the result file."""

    trace: str
    trace_digest: str
    whole_seconds: bool
    policy: str
    load: float | None
    """Offered load to rescale to; none = as the trace has it."""
    settings: Settings

    def key(self) -> str:
        """What tells this cell from all others."""
        return msgspec.json.encode(self).decode()


class Grid(msgspec.Struct, frozen=True):
    """What a sweep varies, and what it holds fixed."""

    trace: Path
    policies: tuple[str, ...]
    loads: tuple[float | None, ...]
    brokers: tuple[int, ...]
    seeds: tuple[int, ...]
    fixed: Settings
    whole_seconds: bool = False

    def cells(self) -> list[Cell]:
        """All cells in the order load, policy, brokers, seed; refuses what could not be run."""
        mark = digest(self.trace)
        found = []
        for load in self.loads:
            for policy in self.policies:
                for brokers in self.brokers:
                    for seed in self.seeds:
                        settings = msgspec.structs.replace(self.fixed, brokers=brokers, seed=seed)
                        chosen([policy], settings)
                        found.append(Cell(self.trace.name, mark, self.whole_seconds, policy, load, settings))
        assert len(found) <= CELLS_MAX, f"a sweep has at most {CELLS_MAX} runs"
        return found


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """The runs in a result file by key; a torn last line is cut off."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, Any]] = {}
    good = 0
    data = path.read_bytes()
    for line in data.splitlines(keepends=True):
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any]) if line.endswith(b"\n") else {}
        except msgspec.DecodeError:
            entry = {}
        if "key" not in entry:
            break
        found[entry["key"]] = entry
        good += len(line)
    if good < len(data):
        with path.open("r+b") as file:
            file.truncate(good)
    return found


_WORKLOADS: dict[tuple[str, bool], Workload] = {}
"""In a process of the pool: the trace it has read."""


def _prepare() -> None:
    """Ctrl-C is for the parent, which lets running cells end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_cell(path: str, cell: Cell) -> dict[str, Any]:
    """Run one cell; the trace is read once per process."""
    key = path, cell.whole_seconds
    if key not in _WORKLOADS:
        _WORKLOADS.clear()
        _WORKLOADS[key] = read_workload(Path(path), whole_seconds=cell.whole_seconds)[0]
    workload = _WORKLOADS[key]
    if cell.load is not None:
        workload = at_load(workload, cell.settings.nodes, cell.load)
    policy = chosen([cell.policy], cell.settings)[0]
    result = as_dict(run_once(policy, workload, cell.settings).result)
    return {"key": cell.key(), "target_load": cell.load, **result}


def sweep(
    grid: Grid, out: Path, processes: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Run what is missing and append it to ``out``; yields (runs done, runs in all, the new run).

    At most two cells per process are handed out at a time. Once ``stop`` says so no further cell begins, and
    those that run are waited for and kept.
    """
    cells = grid.cells()
    done = finished(out)
    todo = iter([cell for cell in cells if cell.key() not in done])
    count = sum(cell.key() in done for cell in cells)
    context = get_context("spawn")
    with out.open("ab") as file, ProcessPoolExecutor(processes, context, initializer=_prepare) as pool:
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
