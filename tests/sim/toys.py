"""Tiny machines, to test the simulator without the real ones."""

import msgspec

from hanse.model.effects import (
    Effect,
    ExtendWatchdog,
    JobAccepted,
    KillAttempt,
    LaunchAttempt,
    SendMessage,
    WakeAt,
)
from hanse.model.events import Booted, CancelRequested, Event, JobSubmitted, MessageReceived, Tick
from hanse.model.ids import TaskId, job_id
from hanse.model.messages import Ack, Envelope
from hanse.model.resources import Resources


class TallyState(msgspec.Struct):
    taken: int = 0
    accepted: int = 0
    ticks: int = 0


class Tally:
    """Counts what it takes, accepts whatever is submitted, ticks on and greets a peer at each tick."""

    def __init__(self, name: str, peer: str = "", period: int = 0) -> None:
        self.name = name
        self.marks: dict[str, int] = {}
        self.state = TallyState()
        self.peer = peer
        self.period = period
        self.seen: list[Event] = []
        """For the tests; no state."""
        self.checks = 0

    def handle(self, event: Event) -> list[Effect]:
        self.seen.append(event)
        self.state.taken += 1
        out: list[Effect] = []
        if isinstance(event, JobSubmitted):
            self.state.accepted += 1
            out.append(JobAccepted(event.client, event.request, job_id(1, self.state.accepted)))
        if isinstance(event, Tick):
            self.state.ticks += 1
            self.marks["ticked"] = self.marks.get("ticked", 0) + 1
            if self.peer:
                out.append(SendMessage(Envelope(self.name, self.peer, 0, 0, 0, Ack())))
        if self.period and isinstance(event, Tick | Booted):
            out.append(WakeAt(event.at + self.period))
        return out

    def check(self) -> None:
        self.checks += 1
        assert self.state.taken >= self.state.ticks

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=TallyState)


class Forgetful(Tally):
    """Keeps something outside the state that it dumps: replay after a snapshot cannot restore it."""

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.state, len(self.seen)))

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=tuple[TallyState, int])[0]


class Hand:
    """A runner that does as the test says and remembers what it heard."""

    def __init__(self, name: str = "hand") -> None:
        self.name = name
        self.marks: dict[str, int] = {}
        self.heard: list[Event] = []

    def handle(self, event: Event) -> list[Effect]:
        self.heard.append(event)
        if isinstance(event, CancelRequested):
            return [KillAttempt(TaskId(event.job), event.request, 1_000_000)]
        return []

    def check(self) -> None:
        assert self.name

    def dump(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        assert state == b""


def launch(
    task: int, attempt: int = 1, node: int = 0, cpu: int = 1_000, payload: bytes = b""
) -> LaunchAttempt:
    return LaunchAttempt(TaskId(task), attempt, node, Resources(cpu=cpu), "b1#1", True, payload)


def guard(until: int) -> ExtendWatchdog:
    return ExtendWatchdog(until)


def received(events: list[Event]) -> int:
    return sum(isinstance(event, MessageReceived) for event in events)
