"""A runner alone, and its warden's words to it."""

from hanse.core.config import RunnerConfig, Timings
from hanse.core.runner.runner import Runner
from hanse.model.effects import Effect
from hanse.model.events import BackendReported, Booted, MessageReceived, TasksChanged
from hanse.model.ids import TaskId
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import (
    AttemptEnd,
    Envelope,
    Message,
    Outcome,
    RunnerHeartbeat,
    RunnerLease,
    RunnerOrders,
    StartTask,
)
from hanse.model.resources import Resources

TIMINGS = Timings()
LEASE = TIMINGS.runner_lease


class Alone:
    """A runner, and its warden's words to it."""

    def __init__(self) -> None:
        self.runner = Runner(RunnerConfig("r1", "c1", (0,), TIMINGS))
        self.runner.handle(Booted(0, 1, 7))
        out = self.runner.handle(BackendReported(0, (), ()))
        beats = [
            command.envelope.body  # type: ignore[union-attr]
            for command in out
            if isinstance(getattr(getattr(command, "envelope", None), "body", None), RunnerHeartbeat)
        ]
        self.session = beats[0].session  # type: ignore[union-attr]
        self._seq = 0

    def hear(self, now: int, body: Message) -> list[Effect]:
        """Soft messages have no number of their own, orders have."""
        self._seq += isinstance(body, RunnerOrders)
        seq = self._seq if isinstance(body, RunnerOrders) else -self._seq
        return self.runner.handle(MessageReceived(now, Envelope("c1", "r1", self.session, seq, 0, body)))

    def renew(self, now: int, *lapsed: str) -> list[Effect]:
        return self.hear(now, RunnerLease(self.session, now, lapsed))

    def start(self, now: int, number: int, shard: str) -> list[Effect]:
        start = StartTask(TaskId(number), 1, 0, Resources(cpu=1_000), shard, UnreachablePolicy.MOVE, b"")
        return self.hear(now, RunnerOrders(now, (start,)))

    def over(self, now: int, number: int) -> list[Effect]:
        return self.runner.handle(TasksChanged(now, (), (AttemptEnd(TaskId(number), 1, Outcome.CANCELLED),)))
