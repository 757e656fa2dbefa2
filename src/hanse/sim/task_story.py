"""Story of one task: every message, decision, start and end that concerns it, and the faults of that time.

A run with a story records everything that happens; afterwards the lines about one task are selected. That is
slow and meant for explanations, so the simulator records a story only on request.
"""

from typing import Any, Final

import msgspec

from hanse.model.advice import AdviceRequest
from hanse.model.effects import Effect, ExtendWatchdog, RecordDecision, WakeAt
from hanse.model.events import Event, MessageReceived, Tick
from hanse.model.history_effects import HistoryEffect
from hanse.model.ids import TaskId, index_of, job_of, job_text, task_text
from hanse.model.messages import ClusterSnapshot, Delta, Envelope, TaskBatch
from hanse.model.resources import Resources
from hanse.sim.event_text import effect_text, envelope_text, event_text, seconds_text

LINES_MAX: Final = 4_000
"""Largest number of lines shown of a story; a longer one is cut in the middle."""
_LINE_MAX: Final = 400

_EVENT, _EFFECT, _LOST_MESSAGE, _FAULT, _ATTEMPT = range(5)


class Story:
    """Record of a whole run."""

    def __init__(self) -> None:
        self._notes: list[tuple[int, int, str, Any]] = []

    def on_event(self, now: int, who: str, event: Event) -> None:
        """Record an event that a machine was handed."""
        if not isinstance(event, Tick):
            self._notes.append((now, _EVENT, who, event))

    def on_effect(self, now: int, who: str, effect: Effect) -> None:
        """Record an effect that was performed."""
        if not isinstance(effect, WakeAt | ExtendWatchdog | HistoryEffect):
            self._notes.append((now, _EFFECT, who, effect))

    def on_message_lost(self, now: int, envelope: Envelope, why: str) -> None:
        """Record a message that was not delivered."""
        self._notes.append((now, _LOST_MESSAGE, why, envelope))

    def on_fault(self, now: int, who: str, what: str) -> None:
        """Record a fault or its end."""
        self._notes.append((now, _FAULT, who, what))

    def on_attempt(self, now: int, where: str, task: int, attempt: int, what: str) -> None:
        """Record what really happened to an attempt."""
        self._notes.append((now, _ATTEMPT, where, (task, attempt, what)))

    def find_busiest_task(self) -> int:
        """Return the task with the most real starts and ends, or 0."""
        counts: dict[int, int] = {}
        for _, kind, _, what in self._notes:
            if kind == _ATTEMPT:
                counts[what[0]] = counts.get(what[0], 0) + 1
        return max(counts, key=lambda task: (counts[task], -task), default=0)

    def describe_task(self, task: int) -> list[str]:
        """Return the lines about one task, in the order of time."""
        job = job_of(TaskId(task))
        chosen = [note for note in self._notes if note[1] == _FAULT or self._is_about(note, task, job)]
        own = [note[0] for note in chosen if note[1] != _FAULT]
        if not own:
            return [f"the run has no record of task {task_text(TaskId(task))}"]
        first, last = own[0] - 5_000_000, own[-1]
        lines = [self._format_note(note) for note in chosen if note[1] != _FAULT or first <= note[0] <= last]
        if len(lines) > LINES_MAX:
            half = LINES_MAX // 2
            lines = [*lines[:half], f"... {len(lines) - LINES_MAX} lines left out ...", *lines[-half:]]
        return [f"The story of task {task_text(TaskId(task))} of job {job_text(job)} (true time):", *lines]

    def _is_about(self, note: tuple[int, int, str, Any], task: int, job: int) -> bool:
        _, kind, _, what = note
        if kind == _ATTEMPT:
            return bool(what[0] == task)
        if kind == _EFFECT and isinstance(what, RecordDecision):
            return what.decision.job == job
        return has_mention(what, task, job)

    def _format_note(self, note: tuple[int, int, str, Any]) -> str:
        now, kind, who, what = note
        if kind == _EVENT:
            text = f"{who:<8} <- {event_text(what)}"
            if isinstance(what, MessageReceived) and what.envelope.seq:
                text += f"  (seq {what.envelope.seq})"
        elif kind == _EFFECT:
            text = f"{who:<8} => {effect_text(what)}"
        elif kind == _LOST_MESSAGE:
            text = f"{'network':<8} !! {who}: {envelope_text(what)}"
        elif kind == _FAULT:
            text = f"{who:<8} ## {what}"
        else:
            text = f"{who:<8} ** attempt {what[1]} {what[2]}"
        text = text if len(text) <= _LINE_MAX else text[: _LINE_MAX - 3] + "..."
        return f"{seconds_text(now):>12} {text}"


def has_mention(value: Any, task: int, job: int) -> bool:
    """True if a record mentions the task, or its job as a whole."""
    if isinstance(value, TaskBatch):
        return value.job == job and index_of(TaskId(task)) in value.tasks
    if isinstance(value, ClusterSnapshot | Delta | Resources | AdviceRequest):
        return False  # a size in bytes may equal a job's number; a request for advice concerns every job
    if isinstance(value, msgspec.Struct):
        return any(has_mention(getattr(value, name), task, job) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return any(has_mention(part, task, job) for part in value)
    return type(value) is int and value in (task, job)
