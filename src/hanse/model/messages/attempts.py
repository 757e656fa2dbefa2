"""Ends of attempts, and the messages about attempts between their broker and their warden."""

from enum import StrEnum

import msgspec

from hanse.model.ids import TaskId
from hanse.model.messages.demand import Offer


class Outcome(StrEnum):
    """Result of one attempt of a task."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    LOST = "lost"
    """Its node vanished, or its watchdog ended it: not the task's fault."""
    UNSTARTED = "unstarted"
    """Its runner had no lease to start it under, or no room on its disk: it never ran."""


class ResourceUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of an attempt, as its backend measured it; 0: not measured."""

    cpu: int = 0
    """Microseconds of CPU time."""
    memory: int = 0
    """Peak memory in bytes."""
    run_time: int = 0  # microseconds from its start to its end


class AttemptEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """End of an attempt."""

    task: TaskId
    attempt: int
    outcome: Outcome
    exit_code: int = 0  # exit code, or minus the signal number
    usage: ResourceUsage | None = None
    note: str = ""
    """Remark of the backend in a few words: out of memory, no such program."""


class CancelAttempts(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel"):
    """Order to end these attempts if they exist; their ends are reported as usual."""

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class AckEnds(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="settle"):
    """Acknowledgement of ends that are safe with the broker and its standby; the warden may forget them."""

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class TaskUpdates(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="news"):
    """Starts and ends of a broker's tasks, and room granted to those that wait."""

    started: tuple[tuple[TaskId, int, int], ...]  # task, attempt, node
    ended: tuple[AttemptEnd, ...]
    offers: tuple[Offer, ...] = ()
    """Grants, in the order they were made."""
