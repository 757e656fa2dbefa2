"""Runner in its shell: reports of its backend, and a restart with nothing but the backend's report."""

from collections.abc import Callable
from random import Random
from typing import Final

from hanse.core.machine import Machine
from hanse.model.events import BackendReported, CapacityWithheld, TasksChanged
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, WithheldCapacity
from hanse.sim.disk import Durability
from hanse.sim.event_codes import BACKEND, CHANGED, WITHHELD
from hanse.sim.network import SimulatedNetwork
from hanse.sim.process import DOWN, Process
from hanse.sim.process_clock import ProcessClock

SUM_MASK: Final = (1 << 62) - 1
"""A batch is one entry of the digest, with the sums of its tasks and attempts in so many bits."""


class RunnerProcess(Process):
    """Runner in its shell: it has no journal, because its backend remembers."""

    __slots__ = ("_ended", "_started", "backend_report", "incarnation")

    def __init__(
        self, name: str, number: int, factory: Callable[[], Machine], network: SimulatedNetwork, rng: Random,
        clock: ProcessClock = ProcessClock(), durability: Durability = Durability(),  # noqa: B008  frozen records
    ) -> None:  # fmt: skip
        super().__init__(name, number, factory, network, rng, clock, durability)
        self.incarnation = 0
        self._started: list[tuple[TaskId, int]] = []
        self._ended: list[AttemptEnd] = []
        self.backend_report: Callable[[], BackendReported | None] | None = None
        """Report of the backend; None: the report comes later, through ``read_backend_report``."""

    def on_started(self, notice: tuple[int, TaskId, int]) -> None:
        """Note the start of an attempt: incarnation that asked, task, attempt."""
        incarnation, task, attempt = notice
        if incarnation != self.incarnation or (
            self.suspension and self._is_held_back(self.on_started, notice)
        ):
            return
        self._schedule_flush()
        self._started.append((task, attempt))

    def on_ended(self, notice: tuple[int, AttemptEnd]) -> None:
        """Note the end of an attempt: incarnation to inform, and the end."""
        incarnation, end = notice
        if incarnation != self.incarnation or (self.suspension and self._is_held_back(self.on_ended, notice)):
            return
        self._schedule_flush()
        self._ended.append(end)

    def _schedule_flush(self) -> None:
        """Make one event of all starts and ends of this time, as ``live.runner_shell`` does."""
        if not self._started and not self._ended:
            self.world.call_at(self.world.now, self._flush_reports)

    def _flush_reports(self, _: object = None) -> None:
        if self.suspension and self._is_held_back(self._flush_reports, None):
            return
        started, ended = tuple(self._started), tuple(self._ended)
        if not started and not ended:
            return  # forgotten in a crash
        self._started.clear()
        self._ended.clear()
        self._add_to_trace(
            CHANGED,
            sum(task + attempt for task, attempt in started) & SUM_MASK,
            sum(end.task + end.attempt for end in ended) & SUM_MASK,
        )
        self.handle(TasksChanged(self.local_now(), started, ended))

    def on_withheld(self, notice: tuple[int, tuple[WithheldCapacity, ...]]) -> None:
        """Handle a change of what others use of nodes: incarnation to inform, and the amounts."""
        incarnation, withheld = notice
        if incarnation != self.incarnation or (
            self.suspension and self._is_held_back(self.on_withheld, notice)
        ):
            return
        self._add_to_trace(WITHHELD, len(withheld), withheld[0][0])
        self.handle(CapacityWithheld(self.local_now(), withheld))

    def restart(self, downtime: int | None = None) -> None:
        """Restart with nothing but the backend's report."""
        if self.is_up or not self.is_member:
            return
        self.incarnation += 1
        super().restart(downtime)
        if not self.suspension & DOWN:
            self.read_backend_report()

    def read_backend_report(self, _: object = None) -> None:
        """Read the backend's report and hand it to the machine."""
        if self.backend_report is None or (
            self.suspension and self._is_held_back(self.read_backend_report, None)
        ):
            return
        report = self.backend_report()
        if report is not None:
            self._add_to_trace(BACKEND, len(report.running), len(report.ended))
            self.handle(report)

    def _stop_machine(self) -> None:
        super()._stop_machine()
        self._started.clear()
        self._ended.clear()
