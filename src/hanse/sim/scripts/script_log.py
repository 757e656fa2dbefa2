"""Log of a golden script: every event, effect and fault as it happens, one line each."""

from typing import Final

from hanse.model.effects import Effect, ExtendWatchdog, SendMessage, WakeAt
from hanse.model.events import BackendReported, Booted, Event, MessageReceived, Tick
from hanse.model.history_effects import HistoryEffect
from hanse.model.messages import (
    Ack,
    Envelope,
    Gossip,
    HeartbeatReply,
    OpenSession,
    RunnerHeartbeat,
    RunnerLease,
    WardenHeartbeat,
)
from hanse.sim.event_text import effect_text, event_text, name_as_words, seconds_text
from hanse.sim.task_story import Story

BACKGROUND_MESSAGES: Final = (
    Ack,
    WardenHeartbeat,
    HeartbeatReply,
    Gossip,
    OpenSession,
    RunnerHeartbeat,
    RunnerLease,
)
"""Messages that are always delivered (unless cut) and are not printed."""


class ScriptLog(Story):
    """Story that is printed as it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.brief = False
        """True if only the sending of a message is printed: enough where nothing can happen to messages."""

    def on_event(self, now: int, who: str, event: Event) -> None:
        """Print an event that a machine was handed."""
        if isinstance(event, Tick | Booted | BackendReported):
            return
        if isinstance(event, MessageReceived) and (
            self.brief or isinstance(event.envelope.body, BACKGROUND_MESSAGES)
        ):
            return
        self._add_line(now, who, f"<- {event_text(event)}")

    def on_effect(self, now: int, who: str, command: Effect) -> None:
        """Print an effect that was performed."""
        if isinstance(command, WakeAt | ExtendWatchdog | HistoryEffect):
            return
        if not (isinstance(command, SendMessage) and isinstance(command.envelope.body, BACKGROUND_MESSAGES)):
            self._add_line(now, who, f"=> {effect_text(command)}")

    def on_message_lost(self, now: int, envelope: Envelope, why: str) -> None:
        """Print a message that was not delivered."""
        if not isinstance(envelope.body, BACKGROUND_MESSAGES):
            self._add_line(
                now, "network", f"!! {why}: {envelope.source} -> {envelope.target} {message_name(envelope)}"
            )

    def on_fault(self, now: int, who: str, what: str) -> None:
        """Print a fault or its end."""
        self._add_line(now, who, f"## {what}")

    def on_attempt(self, now: int, where: str, task: int, attempt: int, what: str) -> None:
        """Print nothing: the runner's lines report the attempt."""
        del now, where, task, attempt, what  # the runner's lines say the same

    def _add_line(self, now: int, who: str, what: str) -> None:
        self.lines.append(f"{seconds_text(now)} {who} {what}")


def message_name(envelope: Envelope) -> str:
    """Return the kind of a message in words."""
    return name_as_words(type(envelope.body).__name__)
