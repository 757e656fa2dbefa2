"""Text of events, effects and messages, one line each, for people.

One printer serves all records, guided by their declared types: a task is ``2-17.3``, a job ``2-17``, a time
is in seconds, resources read like ``2cpu 4GiB``; default values are left out. Stories and golden scripts use
it.
"""

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from hanse.model.constraint_syntax import format_constraint as where_text
from hanse.model.constraints import Constraint
from hanse.model.decision_record import DecisionRecord
from hanse.model.effects import Effect, LaunchAttempt, RecordDecision, SendMessage
from hanse.model.events import Event, MessageReceived
from hanse.model.ids import SECOND, JobId, TaskId, job_text, task_text
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, Delta, Envelope, Message, RefusedTask, TaskBatch
from hanse.model.resources import Resources

_TIMES: Final = ("at", "sent_at", "echo", "until", "grace", "deadline", "duration", "age")
_SKIPPED: Final = ("at", "seed", "client_id", "payload", "accepted_at")
"""Fields that are left out: of no use to a reader, or shown elsewhere on the line."""
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def name_as_words(name: str) -> str:
    """Return a record's name as words: ``TasksChanged`` is ``tasks changed``."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def seconds_text(microseconds: int) -> str:
    """Return a time in seconds, to the millisecond; finer only if necessary."""
    return f"{microseconds / SECOND:.3f}s" if microseconds % 1_000 == 0 else f"{microseconds / SECOND:.6f}s"


def event_text(event: Event) -> str:
    """Return an event as one line."""
    if isinstance(event, MessageReceived):
        return f"from {event.envelope.source}: {body_text(event.envelope.body)}"
    return record_text(event)


def effect_text(effect: Effect) -> str:
    """Return an effect as one line."""
    if isinstance(effect, SendMessage):
        return f"to {effect.envelope.target}: {body_text(effect.envelope.body)}"
    if isinstance(effect, RecordDecision):
        return decision_text(effect.decision)
    return record_text(effect)


def decision_text(decision: DecisionRecord) -> str:
    """Return a decision as one line."""
    considered = "; ".join(f"{it.cluster}: {it.tasks}, {it.reason}" for it in decision.considered)
    where = f"job {job_text(decision.job)} group {decision.group}"
    text = f"decides: {where} {decision.kind}, {decision.tasks} tasks: {decision.reason}"
    return f"{text} ({considered})" if considered else text


def body_text(body: Message) -> str:
    """Return the content of a message as one line."""
    return record_text(body)


def envelope_text(envelope: Envelope) -> str:
    """Return a message as one line."""
    return f"{envelope.source} -> {envelope.target}: {body_text(envelope.body)}"


def record_text(record: msgspec.Struct) -> str:
    """Return any record as its name and its fields."""
    fields = _fields_text(record)
    name = name_as_words(type(record).__name__)
    return f"{name} {fields}" if fields else name


def resources_text(amount: Resources) -> str:
    """Return resources as people write them."""
    parts = []
    if amount.cpu:
        parts.append(f"{amount.cpu // 1_000}cpu" if amount.cpu % 1_000 == 0 else f"{amount.cpu}mcpu")
    if amount.memory:
        unit, name = next(((u, n) for u, n in _UNITS if amount.memory % u == 0), (1, "B"))
        parts.append(f"{amount.memory // unit}{name}")
    if amount.gpu:
        parts.append(f"{amount.gpu}gpu")
    parts.extend(f"{count}{name}" for name, count in amount.custom)
    return "+".join(parts) or "nothing"


def _batch_text(batch: TaskBatch) -> str:
    tasks = " ".join(
        f"{job_text(batch.job)}.{index}#{attempt}" + (f"@{node}" if node >= 0 else "")
        for index, attempt, node in zip(batch.tasks, batch.attempts, batch.nodes, strict=True)
    )
    lease = f" lease={batch.lease}" if batch.lease else ""
    if not tasks:
        return f"give back{lease}"
    return f"{tasks} size={resources_text(batch.size)}{lease} of {batch.template.shard}"


def _delta_text(delta: Delta) -> str:
    changes = " ".join(
        f"{node}:{','.join(map(str, free))}" for node, free in zip(delta.nodes, delta.free, strict=True)
    )
    return f"[{delta.cluster} epoch {delta.epoch} {delta.since}..{delta.version} {changes or 'no change'}]"


def _spec_text(spec: JobSpec) -> str:
    groups = "; ".join(f"{group.count} x {resources_text(group.ask)}" for group in spec.groups)
    return f"'{spec.name}' ({groups}{'; gang' if spec.gang else ''})"


_FORMATTERS: Final[dict[type, Callable[[Any], str]]] = {
    Resources: resources_text,
    TaskBatch: _batch_text,
    Delta: _delta_text,
    JobSpec: _spec_text,
    AttemptEnd: lambda end: (
        f"{task_text(end.task)}#{end.attempt} {end.outcome}"
        + (f" code={end.exit_code}" if end.exit_code else "")
    ),
    RefusedTask: lambda it: f"{task_text(it.task)}#{it.attempt} {it.reason}",
}


@cache
def _shown_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, Any], ...]:
    return tuple(
        (field.name, field.type, field.default)
        for field in msgspec.structs.fields(kind)
        if field.name not in _SKIPPED or (field.name == "at" and kind.__name__ == "WakeAt")
    )


def _fields_text(record: msgspec.Struct) -> str:
    parts = []
    hidden = ("shard", "is_movable", "until") if isinstance(record, LaunchAttempt) else ()
    for name, kind, default in _shown_fields(type(record)):
        value = getattr(record, name)
        if name in hidden or (default is not msgspec.NODEFAULT and value == default) or value in ((), None):
            continue
        if name in _TIMES and isinstance(value, int):
            parts.append(f"{name}={seconds_text(value)}")
        else:
            parts.append(f"{name}={_value_text(value, kind)}")
    return " ".join(parts)


def _value_text(value: Any, kind: Any) -> str:
    if kind is TaskId:
        return task_text(value)
    if kind is JobId:
        return job_text(value)
    if isinstance(value, Constraint):
        return f"({where_text(value)})"
    if isinstance(value, msgspec.Struct):
        formatter = _FORMATTERS.get(type(value))
        return formatter(value) if formatter is not None else f"({_fields_text(value)})"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, tuple):
        return "[" + ", ".join(_items_text(value, kind)) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _items_text(value: tuple[Any, ...], kind: Any) -> list[str]:
    if get_origin(kind) in (Union, UnionType):
        kind = next((part for part in get_args(kind) if get_origin(part) is tuple), None)
    kinds = get_args(kind)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return [_value_text(part, kinds[0]) for part in value]
    if len(kinds) != len(value):
        return [_value_text(part, None) for part in value]
    return [" ".join(_value_text(part, its) for part, its in zip(value, kinds, strict=True))]
