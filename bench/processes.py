"""What it costs to run a task as a real process, with every limit on; and how much the null backend takes.

``python bench/processes.py --json FILE`` writes what it prints. In turns of ``BLOCK`` starts of
``/bin/true``, so that a busy machine is equally busy for all:

``fork``: the plain loop, one after the other: fork, exec, wait.
``spawn``: the same loop with ``posix_spawn``, which copies no page tables; the least that Python can do.
``one``: through the process backend, one task at a time: from ``start`` to its end being heard.
``many``: through the process backend, ``MANY`` tasks at a time.

``milliseconds`` is wall time a start (median of the turns), ``cpu_milliseconds`` the CPU time of everybody
concerned (the daemon, its launcher, the supervisors, the tasks; mean of the turns). ``bar`` is what ``ratio``
may be. ``null`` is attempts a second of CPU time, from ``start`` by way of both reports to ``forget``.
"""

import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import as_program

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Backend
from hanse.live.backends.null import NullBackend, NullTask, null_payload
from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import TaskId, job_id, task_id
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.program import Program, encode_program
from hanse.model.resources import Resources

STARTS = 2_000
BLOCK = 100
MANY = 16
NULL_ATTEMPTS = 50_000
NULL_WIDTH = 1_000
NULL_REPEATS = 3
BAR = 2.0
NULL_BAR = 50_000
PROGRAM = "/bin/true"
SIZE = Resources(cpu=1_000, memory=64 << 20)
NODES = (NodeConfig(Resources(cpu=1_000_000, memory=1 << 40)),)
TICKS = os.sysconf("SC_CLK_TCK")
HOUR = 3_600_000_000


class Turnstile:
    """Keeps so many attempts under way until so many are over."""

    def __init__(self, backend: Backend, payload: bytes) -> None:
        self.backend, self.payload = backend, payload
        self.serial = self.left = self.under_way = 0
        self.over = asyncio.Event()

    def started(self, task: TaskId, attempt: int) -> None:
        """Nothing to do."""

    def withheld(self, node: int, amount: Resources) -> None:
        """Nobody else is here."""

    def exited(self, end: AttemptEnd) -> None:
        """Forget it and start the next."""
        assert end.outcome is Outcome.SUCCEEDED, end
        self.backend.forget(end.task, end.attempt)
        self.under_way -= 1
        if self.left:
            self._start()
        elif not self.under_way:
            self.over.set()

    def _start(self) -> None:
        self.left -= 1
        self.under_way += 1
        self.serial += 1
        task = task_id(job_id(1, self.serial), 0)
        self.backend.start(LaunchAttempt(task, 1, 0, SIZE, "bench#1", True, self.payload))

    async def run(self, count: int, width: int) -> None:
        """Run ``count`` attempts, ``width`` at a time."""
        self.over.clear()
        self.left = count
        for _ in range(min(width, count)):
            self._start()
        await self.over.wait()


def cpu_of(pid: int) -> float:
    """Seconds of CPU time that a launcher, its supervisors and all they have waited for have used."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it is gone
            continue
        fields = text.rpartition(")")[2].split()
        if pid in (int(entry.name), int(fields[1])):
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def cpu_here() -> float:
    """The same of this process, more finely."""
    times = os.times()
    return sum(times[:4])


def fork_loop() -> None:
    """The plain loop."""
    for _ in range(BLOCK):
        pid = os.fork()
        if pid == 0:
            os.execv(PROGRAM, [PROGRAM])  # noqa: S606  the point of the measurement
        os.waitpid(pid, 0)


def spawn_loop() -> None:
    """The loop that copies no page tables."""
    for _ in range(BLOCK):
        os.waitpid(os.posix_spawn(PROGRAM, [PROGRAM], {}), 0)


async def measure_processes() -> dict[str, Any]:
    """All four, in turns."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        backend = ProcessBackend(Path(directory), "bench", NODES)
        stile = Turnstile(backend, encode_program(Program((PROGRAM,))))
        await backend.reconcile(stile)
        backend.extend_watchdog(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000 + HOUR)
        launcher = backend.launcher_pid
        names = ("fork", "spawn", "one", "many")
        walls: dict[str, list[float]] = {name: [] for name in names}
        cpus: dict[str, list[float]] = {name: [] for name in names}
        loops: dict[str, Callable[[], None]] = {"fork": fork_loop, "spawn": spawn_loop}
        for _ in range(STARTS // BLOCK):
            for name in names:
                wall, cpu = time.perf_counter(), cpu_here() + cpu_of(launcher)
                if name in loops:
                    loops[name]()
                else:
                    await stile.run(BLOCK, 1 if name == "one" else MANY)
                walls[name].append((time.perf_counter() - wall) / BLOCK * 1_000)
                cpus[name].append((cpu_here() + cpu_of(launcher) - cpu) / BLOCK * 1_000)
        await backend.close()
    wall_of = {name: statistics.median(figures) for name, figures in walls.items()}
    cpu_each = {name: statistics.fmean(figures) for name, figures in cpus.items()}
    return {
        "driver": backend.driver,
        "starts": STARTS,
        "milliseconds": {name: round(figure, 3) for name, figure in wall_of.items()},
        "cpu_milliseconds": {name: round(figure, 3) for name, figure in cpu_each.items()},
        "ratio": {
            f"{ours} to {loop}": round(wall_of[ours] / wall_of[loop], 2)
            for ours in ("one", "many")
            for loop in ("fork", "spawn")
        },
        "bar": BAR,
    }


async def measure_null() -> float:
    """Attempts a second of CPU time."""
    backend = NullBackend(NODES)
    stile = Turnstile(backend, null_payload(NullTask()))
    await backend.reconcile(stile)
    best = 0.0
    for _ in range(NULL_REPEATS):
        begin = time.process_time()
        await stile.run(NULL_ATTEMPTS, NULL_WIDTH)
        best = max(best, NULL_ATTEMPTS / (time.process_time() - begin))
    await backend.close()
    return best


def run() -> dict[str, Any]:
    """All figures."""
    return {
        "machine": platform.platform(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "process": asyncio.run(measure_processes()),
        "null": {"attempts_per_cpu_second": round(asyncio.run(measure_null())), "bar": NULL_BAR},
    }


if __name__ == "__main__":
    as_program(run, "The cost of starting tasks.")
