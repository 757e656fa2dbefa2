"""What happened to one task: every message, decision, start and end that concerns it, and the faults around
it.

A run with a story keeps all that happened; afterwards the lines about one task are picked out. It is slow and
meant for explaining, so the simulator takes one only when asked.
"""

from typing import Any, Final

import msgspec

from hanse.model.advice import AdviceRequest
from hanse.model.effects import Effect, ExtendWatchdog, RecordDecision, WakeAt
from hanse.model.events import Event, MessageReceived, Tick
from hanse.model.ids import TaskId, index_of, job_of, job_text, task_text
from hanse.model.messages import ClusterSnapshot, Delta, Envelope, TaskBatch
from hanse.model.resources import Resources
from hanse.sim.render import effect_text, envelope_text, event_text, seconds

LINES_MAX: Final = 4_000
"""Lines of a story that are shown; a longer one is cut in the middle."""
_LINE_MAX: Final = 400

_TOOK, _DID, _LOST, _FAULT, _LIVED = range(5)


class Story:
    """Notes of a whole run."""

    def __init__(self) -> None:
        self._notes: list[tuple[int, int, str, Any]] = []

    def took(self, now: int, who: str, event: Event) -> None:
        """A machine was handed an event."""
        if not isinstance(event, Tick):
            self._notes.append((now, _TOOK, who, event))

    def did(self, now: int, who: str, command: Effect) -> None:
        """A machine's command was performed."""
        if not isinstance(command, WakeAt | ExtendWatchdog):
            self._notes.append((now, _DID, who, command))

    def lost(self, now: int, envelope: Envelope, why: str) -> None:
        """A message did not get through."""
        self._notes.append((now, _LOST, why, envelope))

    def fault(self, now: int, who: str, what: str) -> None:
        """Something broke or was mended."""
        self._notes.append((now, _FAULT, who, what))

    def lived(self, now: int, where: str, task: int, attempt: int, what: str) -> None:
        """Something really happened to an attempt."""
        self._notes.append((now, _LIVED, where, (task, attempt, what)))

    def busiest_task(self) -> int:
        """The task to which most happened in reality, or 0."""
        counts: dict[int, int] = {}
        for _, kind, _, what in self._notes:
            if kind == _LIVED:
                counts[what[0]] = counts.get(what[0], 0) + 1
        return max(counts, key=lambda task: (counts[task], -task), default=0)

    def tell(self, task: int) -> list[str]:
        """The lines about one task, in the order in which things happened."""
        job = job_of(TaskId(task))
        chosen = [note for note in self._notes if note[1] == _FAULT or self._concerns(note, task, job)]
        own = [note[0] for note in chosen if note[1] != _FAULT]
        if not own:
            return [f"nothing is known of task {task_text(TaskId(task))}"]
        first, last = own[0] - 5_000_000, own[-1]
        lines = [self._line(note) for note in chosen if note[1] != _FAULT or first <= note[0] <= last]
        if len(lines) > LINES_MAX:
            half = LINES_MAX // 2
            lines = [*lines[:half], f"... {len(lines) - LINES_MAX} lines left out ...", *lines[-half:]]
        return [f"The story of task {task_text(TaskId(task))} of job {job_text(job)} (true time):", *lines]

    def _concerns(self, note: tuple[int, int, str, Any], task: int, job: int) -> bool:
        _, kind, _, what = note
        if kind == _LIVED:
            return bool(what[0] == task)
        if kind == _DID and isinstance(what, RecordDecision):
            return what.decision.job == job
        return mentions(what, task, job)

    def _line(self, note: tuple[int, int, str, Any]) -> str:
        now, kind, who, what = note
        if kind == _TOOK:
            text = f"{who:<8} <- {event_text(what)}"
            if isinstance(what, MessageReceived) and what.envelope.seq:
                text += f"  (seq {what.envelope.seq})"
        elif kind == _DID:
            text = f"{who:<8} => {effect_text(what)}"
        elif kind == _LOST:
            text = f"{'network':<8} !! {who}: {envelope_text(what)}"
        elif kind == _FAULT:
            text = f"{who:<8} ## {what}"
        else:
            text = f"{who:<8} ** attempt {what[1]} {what[2]}"
        text = text if len(text) <= _LINE_MAX else text[: _LINE_MAX - 3] + "..."
        return f"{seconds(now):>12} {text}"


def mentions(thing: Any, task: int, job: int) -> bool:
    """Whether a record speaks of the task, or of its job as a whole."""
    if isinstance(thing, TaskBatch):
        return thing.job == job and index_of(TaskId(task)) in thing.tasks
    if isinstance(thing, ClusterSnapshot | Delta | Resources | AdviceRequest):
        return False  # a size in bytes may look like a job's number; a question is about everybody
    if isinstance(thing, msgspec.Struct):
        return any(mentions(getattr(thing, name), task, job) for name in thing.__struct_fields__)
    if isinstance(thing, tuple):
        return any(mentions(part, task, job) for part in thing)
    return type(thing) is int and thing in (task, job)
