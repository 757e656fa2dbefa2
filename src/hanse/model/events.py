"""Events that reach a machine.

The shell stamps an event with the machine's own clock, lets the machine handle it, appends it to the journal,
and performs the effects once the event is durable. A machine's state is a pure function of the events that it
has handled; nothing else reaches it.
"""

import msgspec

from hanse.model.advice import Advice
from hanse.model.ids import Instant, JobId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, Envelope, WithheldCapacity


class Booted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="booted"):
    """Start of the process: the first event, and again after every restart, behind the replayed journal."""

    at: Instant
    epoch: int
    """Rises with every start."""
    seed: int
    """Source of the machine's choices that should look random."""


class Tick(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tick"):
    """Time of a ``WakeAt``, perhaps of an earlier one: a machine ignores those."""

    at: Instant


class MessageReceived(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="received"):
    """Arrival of a message."""

    at: Instant
    envelope: Envelope


class JobSubmitted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="submitted"):
    """Submission of a job by a client. ``client`` is the address of the reply."""

    at: Instant
    client: str
    request: int
    """Client's number for this request; the reply repeats it."""
    spec: JobSpec


class CancelRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel_requested"):
    """Request of a client to cancel a job."""

    at: Instant
    client: str
    request: int
    job: JobId


class DrainRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="drain_requested"):
    """Request of an operator to close nodes to new work, or to open them. No nodes: the whole cluster."""

    at: Instant
    nodes: tuple[int, ...]
    drain: bool
    requested_by: str = ""
    reason: str = ""
    until: Instant = 0
    """Time at which closed nodes open automatically; 0: when an operator opens them."""


class BackendReported(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="backend_reported"):
    """Report of a runner's backend, right after the runner's start: tasks outlive their runner."""

    at: Instant
    running: tuple[tuple[TaskId, int, str, bool], ...]
    """Task, attempt, shard, and True if an unreachable league moves it (see ``UnreachablePolicy``)."""
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


class TasksChanged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_moved"):
    """Starts and ends of attempts on their nodes, as many as the backend reports at once; the runner reports
    them in one message. The same attempt may start and end in one event."""

    at: Instant
    started: tuple[tuple[TaskId, int], ...]
    """Task and attempt."""
    ended: tuple[AttemptEnd, ...]
    """Ends for any reason."""


class CapacityWithheld(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="room_withheld"):
    """Report of a backend: how much of some nodes is not for the league now."""

    at: Instant
    withheld: tuple[WithheldCapacity, ...]


class AdviceReceived(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="advised"):
    """Reply of the policy process to a ``RequestAdvice``. The broker follows valid advice, and counts the
    rest."""

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
    | TasksChanged
    | CapacityWithheld
    | AdviceReceived
)
