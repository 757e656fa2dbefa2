"""Nodes as earliest-finish knows them: twin of ``compiled/finish_nodes.c``.

For each node and kind of work, the cores and the expected seconds of the tasks placed there, and the cores of
those that run, added up over time: how crowded it was for a task is the difference of two such sums.
"""

import numpy as np

from hanse.policy.finish_time.crowding import Crowding
from hanse.policy.kernels import FinishColumns
from hanse.sim.worlds.policy_view import PolicyView


class CrowdedNodes:
    """Tasks placed and running on each node, by kind of work."""

    def __init__(self, view: PolicyView, crowding: Crowding) -> None:
        world, works = view.world, len(view.world.work_kind_names)
        self._view, self._works, self._crowding = view, works, crowding
        self._cpu: list[int] = world.node_cpu.tolist()
        self._class: list[int] = world.node_class.tolist()
        free = np.zeros((3, view.node_count), dtype=np.int64)
        self.columns = FinishColumns(self._class, world.node_rack.tolist(), free)
        self._placed_cpu = [[0] * works for _ in self._cpu]
        self._placed_us = [[0] * works for _ in self._cpu]
        self._running_cpu = [[0] * works for _ in self._cpu]
        self._integral = [[0] * works for _ in self._cpu]
        self._settled_at = [0] * view.node_count
        self._task_us: dict[int, int] = {}
        """Expected microseconds of the tasks that are placed."""
        self._begun: dict[int, list[int]] = {}
        """Integrals at the start of the tasks that run."""
        self.shares: dict[int, tuple[float, ...]] = {}
        """Shares of its node's cores during the run of each ended task, by kind of work, itself included."""
        self.show_all()

    def read_room(self) -> None:
        """Bring the columns' free room up to date."""
        self.columns.free[:] = self._view.room

    def show_all(self) -> None:
        """Bring all pressures up to date after a new answer."""
        for node, cpu in enumerate(self._cpu):
            strength = self._crowding.strength(self._class[node])
            self.columns.room[node] = 1.0 / (cpu / 1000.0 * strength)
            self._show(node)

    def start(self, task: int, node: int, seconds: float) -> None:
        """Note that a task has its place."""
        job, work = self._job_of(task)
        self._task_us[task] = int(seconds * 1e6)
        self._placed_cpu[node][work] += int(self._view.work.job_cpu[job])
        self._placed_us[node][work] += self._task_us[task]
        self._show(node)

    def run(self, task: int, node: int) -> None:
        """Note that a task runs."""
        job, work = self._job_of(task)
        self._settle(node)
        self._begun[task] = list(self._integral[node])
        self._running_cpu[node][work] += int(self._view.work.job_cpu[job])

    def end(self, task: int, node: int, run_us: int) -> None:
        """Note that a task has ended, and who was there during its run."""
        begun = self._begun[task]
        self.remove(task, node)
        whole = float(max(run_us, 1)) * float(self._cpu[node])
        self.shares[task] = tuple(
            [(now - then) / whole for now, then in zip(self._integral[node], begun, strict=True)]
        )

    def remove(self, task: int, node: int) -> None:
        """Take a task off a node, if it has a place there."""
        if task not in self._task_us:
            return
        job, work = self._job_of(task)
        cpu = int(self._view.work.job_cpu[job])
        self._settle(node)
        self._placed_cpu[node][work] -= cpu
        self._placed_us[node][work] -= self._task_us.pop(task)
        if self._begun.pop(task, None) is not None:
            self._running_cpu[node][work] -= cpu
        self._show(node)

    def _job_of(self, task: int) -> tuple[int, int]:
        """Return a task's job and its kind of work."""
        job = self._view.physics.job_of[task]
        return job, int(self._view.work.job_work_kind[job])

    def _show(self, node: int) -> None:
        pressure = exposure = 0.0
        for work in range(self._works):
            pressure = pressure + self._crowding.press(work) * (self._placed_cpu[node][work] / 1000.0)
            exposure = exposure + self._crowding.sensitivity(work) * (self._placed_us[node][work] * 1e-6)
        self.columns.pressure[node] = pressure
        self.columns.exposure[node] = exposure

    def _settle(self, node: int) -> None:
        now = self._view.physics.now
        passed, self._settled_at[node] = now - self._settled_at[node], now
        for work, cpu in enumerate(self._running_cpu[node]):
            self._integral[node][work] += cpu * passed
