"""Facts that reach a machine. The shell stamps each with the machine's own clock, journals it, then hands
it over.

A machine's state is a pure function of the events it has taken; nothing else reaches it.
"""

import msgspec

from hanse.model.advice import Advice
from hanse.model.ids import Instant, JobId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, Envelope, WithheldCapacity


class Booted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="booted"):
    """The process has started (again). Comes first, and again after every restart, behind the replayed
    journal."""

    at: Instant
    epoch: int
    """Rises with every start."""
    seed: int
    """What the machine may use for choices that ought to look random."""


class Tick(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tick"):
    """The time that a ``WakeAt`` asked for has come (or an earlier asked-for time: a machine ignores
    those)."""

    at: Instant


class MessageReceived(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="received"):
    """A message has arrived."""

    at: Instant
    envelope: Envelope


class JobSubmitted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="submitted"):
    """A client hands a job in. ``client`` is where the reply goes."""

    at: Instant
    client: str
    request: int
    """The client's number for this request; the reply repeats it."""
    spec: JobSpec


class CancelRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel_requested"):
    """A client wants a job ended."""

    at: Instant
    client: str
    request: int
    job: JobId


class DrainRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="drain_requested"):
    """An operator closes nodes to new work, or opens them again. No nodes: the whole cluster."""

    at: Instant
    nodes: tuple[int, ...]
    drain: bool
    requested_by: str = ""
    reason: str = ""
    until: Instant = 0
    """When what is closed opens by itself; 0: when somebody opens it."""


class BackendReported(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="backend_reported"):
    """What a runner's backend holds, right after the runner's start: tasks outlive their runner."""

    at: Instant
    running: tuple[tuple[TaskId, int, str, bool], ...]
    """Task, attempt, shard, and whether an unreachable league moves it (see ``UnreachablePolicy``)."""
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


class TaskStarted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_started"):
    """The backend has started an attempt."""

    at: Instant
    task: TaskId
    attempt: int


class TaskExited(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_exited"):
    """An attempt is over on its node, for whatever reason."""

    at: Instant
    end: AttemptEnd


class TasksChanged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_moved"):
    """Several starts and ends at once, as a busy backend tells them: they are reported in one message."""

    at: Instant
    started: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]


class CapacityWithheld(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="room_withheld"):
    """A backend says how much of some nodes is not for the league now."""

    at: Instant
    withheld: tuple[WithheldCapacity, ...]


class AdviceReceived(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="advised"):
    """The policy process has answered an ``RequestAdvice``. Advice is advice: the broker takes what makes
    sense, and counts the rest."""

    at: Instant
    number: int
    choices: tuple[Advice, ...]


Event = (
    Booted
    | Tick
    | MessageReceived
    | JobSubmitted
    | CancelRequested
    | DrainRequested
    | BackendReported
    | TaskStarted
    | TaskExited
    | TasksChanged
    | CapacityWithheld
    | AdviceReceived
)
