"""A runner in its shell: what its backend tells it, and how it comes back with nothing but that."""

from collections.abc import Callable
from random import Random

from hanse.core.machine import Machine
from hanse.model.events import BackendReported, CapacityWithheld, Event, TaskExited, TaskStarted
from hanse.model.messages import AttemptEnd, WithheldCapacity
from hanse.sim.network import Network
from hanse.sim.process import BACKEND, DOWN, EXITED, STARTED, WITHHELD, Clock, Durability, Process


class RunnerProcess(Process):
    """A runner in its shell: no journal, because its backend remembers."""

    __slots__ = ("incarnation", "report")

    def __init__(
        self, name: str, number: int, factory: Callable[[], Machine], network: Network, rng: Random,
        clock: Clock = Clock(), durability: Durability = Durability(),  # noqa: B008  frozen records
    ) -> None:  # fmt: skip
        super().__init__(name, number, factory, network, rng, clock, durability)
        self.incarnation = 0
        self.report: Callable[[], BackendReported | None] | None = None
        """What the backend holds; None: it says so later, by ``learn``."""

    def take(self, event: Event) -> None:
        """Hand an event over and perform what comes of it."""
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
        """The backend has started an attempt: incarnation that asked, task, attempt."""
        incarnation, task, attempt = notice
        if incarnation != self.incarnation or (self.hampered and self._waits(self.started, notice)):
            return
        self._note(STARTED, task, attempt)
        self.take(TaskStarted(self.local_now(), task, attempt))  # type: ignore[arg-type]

    def exited(self, notice: tuple[int, AttemptEnd]) -> None:
        """An attempt is over: incarnation to be told, and how it ended."""
        incarnation, end = notice
        if incarnation != self.incarnation or (self.hampered and self._waits(self.exited, notice)):
            return
        self._note(EXITED, end.task, end.attempt)
        self.take(TaskExited(self.local_now(), end))

    def withheld(self, notice: tuple[int, tuple[WithheldCapacity, ...]]) -> None:
        """Others use some of a node: incarnation to be told, and how much."""
        incarnation, rooms = notice
        if incarnation != self.incarnation or (self.hampered and self._waits(self.withheld, notice)):
            return
        self._note(WITHHELD, len(rooms), rooms[0][0])
        self.take(CapacityWithheld(self.local_now(), rooms))

    def crash(self, _: int | None = None) -> None:
        """Die now; tasks and their watchdog go on."""
        if not self.up:
            return
        if self.world.story is not None:
            self.world.story.fault(self.world.now, self.name, "crashes")
        self._bury()

    def restart(self, downtime: int | None = None) -> None:
        """Come back with nothing but what the backend tells."""
        if self.up or not self.is_member:
            return
        self.incarnation += 1
        super().restart(downtime)
        if not self.hampered & DOWN:
            self.learn()

    def learn(self, _: object = None) -> None:
        """Take what the backend holds."""
        if self.report is None or (self.hampered and self._waits(self.learn, None)):
            return
        report = self.report()
        if report is not None:
            self._note(BACKEND, len(report.running), len(report.ended))
            self.take(report)

    def replayed(self) -> Machine:
        """A fresh machine: there is no journal to replay."""
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
