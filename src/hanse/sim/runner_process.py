"""Runner in its shell: reports of its backend, and a restart with nothing but the backend's report."""

from collections.abc import Callable
from random import Random

from hanse.core.machine import Machine
from hanse.model.events import BackendReported, CapacityWithheld, Event, TaskExited, TaskStarted
from hanse.model.messages import AttemptEnd, WithheldCapacity
from hanse.sim.network import Network
from hanse.sim.process import BACKEND, DOWN, EXITED, STARTED, WITHHELD, Clock, Durability, Process


class RunnerProcess(Process):
    """Runner in its shell: it has no journal, because its backend remembers."""

    __slots__ = ("incarnation", "report")

    def __init__(
        self, name: str, number: int, factory: Callable[[], Machine], network: Network, rng: Random,
        clock: Clock = Clock(), durability: Durability = Durability(),  # noqa: B008  frozen records
    ) -> None:  # fmt: skip
        super().__init__(name, number, factory, network, rng, clock, durability)
        self.incarnation = 0
        self.report: Callable[[], BackendReported | None] | None = None
        """Report of the backend; None: the report comes later, through ``read_backend_report``."""

    def take(self, event: Event) -> None:
        """Hand an event to the machine and perform the effects."""
        if self.hampered:
            self._die_at(event)
            return
        if self.world.story is not None:
            self.world.story.took(self.world.now, self.name, event)
        self.perform(self.machine.handle(event))
        self._checks -= 1
        if self._checks <= 0:
            self._checks = self._durability.check_every
            self.machine.check()

    def started(self, notice: tuple[int, int, int]) -> None:
        """Handle the start of an attempt: incarnation that asked, task, attempt."""
        incarnation, task, attempt = notice
        if incarnation != self.incarnation or (self.hampered and self._waits(self.started, notice)):
            return
        self._note(STARTED, task, attempt)
        self.take(TaskStarted(self.local_now(), task, attempt))  # type: ignore[arg-type]

    def exited(self, notice: tuple[int, AttemptEnd]) -> None:
        """Handle the end of an attempt: incarnation to inform, and the end."""
        incarnation, end = notice
        if incarnation != self.incarnation or (self.hampered and self._waits(self.exited, notice)):
            return
        self._note(EXITED, end.task, end.attempt)
        self.take(TaskExited(self.local_now(), end))

    def withheld(self, notice: tuple[int, tuple[WithheldCapacity, ...]]) -> None:
        """Handle a change of what others use of nodes: incarnation to inform, and the amounts."""
        incarnation, rooms = notice
        if incarnation != self.incarnation or (self.hampered and self._waits(self.withheld, notice)):
            return
        self._note(WITHHELD, len(rooms), rooms[0][0])
        self.take(CapacityWithheld(self.local_now(), rooms))

    def crash(self, _: int | None = None) -> None:
        """Crash now; tasks and their watchdog go on."""
        if not self.up:
            return
        if self.world.story is not None:
            self.world.story.fault(self.world.now, self.name, "crashes")
        self._bury()

    def restart(self, downtime: int | None = None) -> None:
        """Restart with nothing but the backend's report."""
        if self.up or not self.is_member:
            return
        self.incarnation += 1
        super().restart(downtime)
        if not self.hampered & DOWN:
            self.learn()

    def learn(self, _: object = None) -> None:
        """Read the backend's report and hand it to the machine."""
        if self.report is None or (self.hampered and self._waits(self.learn, None)):
            return
        report = self.report()
        if report is not None:
            self._note(BACKEND, len(report.running), len(report.ended))
            self.take(report)

    def replayed(self) -> Machine:
        """Return a fresh machine: there is no journal to replay."""
        return self._factory()

    def _die_at(self, event: Event) -> None:
        assert self._doom is not None
        where, downtime = self._doom
        self.world.at(self.world.now + downtime, self.restart)
        if where:
            if self.world.story is not None:
                self.world.story.took(self.world.now, self.name, event)
            effects = self.machine.handle(event)
            self.perform(effects[: self.rng.randint(0, len(effects))])
        self.crash()
