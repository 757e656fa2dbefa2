"""What a machine asks of its shell. Nothing is performed before the event that caused it is on the
journal."""

import msgspec

from hanse.model.advice import AdviceRequest
from hanse.model.decision import Decision
from hanse.model.ids import Instant, JobId, TaskId
from hanse.model.messages import Envelope, Outcome, ShardId
from hanse.model.resources import Resources


class SendMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="send"):
    """Pass a message on."""

    envelope: Envelope


class WakeAt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="wake_at"):
    """Send a ``Tick`` at this time. Several may be outstanding; the machine ignores those it no longer
    needs."""

    at: Instant


class RecordDecision(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="record"):
    """Keep a decision for whoever asks why."""

    decision: Decision


class RequestAdvice(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ask_advice"):
    """Ask the policy process how waiting elastic tasks should be sized. Nothing waits for the answer, which
    comes as ``AdviceReceived``, late, or never."""

    number: int
    """Rises with every question; the answer repeats it."""
    request: AdviceRequest


class JobAccepted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="accepted"):
    """To a client: the job is safe with this broker and its standby, and will reach a terminal state."""

    client: str
    request: int
    job: JobId


class RequestRejected(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="rejected"):
    """To a client: the job was not taken, or the request could not be met, and what to do about it."""

    client: str
    request: int
    reason: str


class TaskSettled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_settled"):
    """A task has reached its terminal state by this attempt (0: it never ran)."""

    task: TaskId
    attempt: int
    outcome: Outcome


class TasksSettled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_settled"):
    """The same of ``count`` neighbours, this task and those behind it, all alike."""

    task: TaskId
    attempt: int
    outcome: Outcome
    count: int

    def each(self) -> list[TaskSettled]:
        """One by one."""
        return [TaskSettled(TaskId(self.task + at), self.attempt, self.outcome) for at in range(self.count)]


class JobSettled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job_settled"):
    """Every task of a job is terminal."""

    job: JobId
    outcome: Outcome


class LaunchAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="launch"):
    """Start an attempt on the backend; its exit comes back as ``TaskExited``."""

    task: TaskId
    attempt: int
    node: int
    size: Resources
    shard: ShardId
    is_movable: bool
    payload: bytes
    until: int = 0
    """When the order is too old to be carried out, whatever held it up: on the runner's clock, and in a live
    backend CLOCK_BOOTTIME; 0: never."""


class KillAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="kill"):
    """Signal an attempt to checkpoint and end it after ``grace`` microseconds."""

    task: TaskId
    attempt: int
    grace: int


class ExtendWatchdog(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="guard"):
    """To the independent watchdog: end every attempt of this runner at ``until`` unless told a later time
    before."""

    until: Instant


class ForgetAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="forgotten"):
    """The backend may drop its record of an ended attempt."""

    task: TaskId
    attempt: int


Effect = (
    SendMessage
    | WakeAt
    | RecordDecision
    | RequestAdvice
    | JobAccepted
    | RequestRejected
    | TaskSettled
    | TasksSettled
    | JobSettled
    | LaunchAttempt
    | KillAttempt
    | ExtendWatchdog
    | ForgetAttempt
)
