"""Effects: what a machine asks of its shell, performed when the event that caused them is in the journal.

History effects (``model.history_effects``) ask for nothing: they are facts for readers, in the same list.
"""

from collections.abc import Callable, Sequence

import msgspec

from hanse.model.advice import AdviceRequest
from hanse.model.decision_record import DecisionRecord
from hanse.model.history_effects import HISTORY_EFFECTS, HistoryEffect
from hanse.model.ids import Instant, JobId, TaskId
from hanse.model.messages import Envelope, Outcome, ShardId, TaskPlace
from hanse.model.resources import Resources


class SendMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="send"):
    """Send a message."""

    envelope: Envelope


class WakeAt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="wake_at"):
    """Send a ``Tick`` at this time. Several may be outstanding; the machine ignores those it no longer
    needs."""

    at: Instant


class RecordDecision(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="record"):
    """Store a decision for later questions."""

    decision: DecisionRecord


class RequestAdvice(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ask_advice"):
    """Ask the policy process for sizes of waiting elastic tasks. Nothing waits for the reply, which comes as
    ``AdviceReceived``, late, or never."""

    number: int
    """Rises with every request; the reply repeats it."""
    request: AdviceRequest


class JobAccepted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="accepted"):
    """Reply to a client: the job is safe with this broker and its standby, and will reach a terminal
    state."""

    client: str
    request: int
    job: JobId


class RequestRejected(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="rejected"):
    """Reply to a client: the job or request was rejected, with the reason and the next step."""

    client: str
    request: int
    reason: str


class TaskSettled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="task_settled"):
    """Publication of a task's terminal state, reached by this attempt (0: it never ran)."""

    task: TaskId
    attempt: int
    outcome: Outcome


class TasksSettled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_settled"):
    """Publication of the same terminal state of ``count`` neighbours, starting with this task."""

    task: TaskId
    attempt: int
    outcome: Outcome
    count: int

    def expand(self) -> list[TaskSettled]:
        """Return one effect per task."""
        return [TaskSettled(TaskId(self.task + at), self.attempt, self.outcome) for at in range(self.count)]


class JobSettled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job_settled"):
    """Publication of a job's outcome: every task is terminal."""

    job: JobId
    outcome: Outcome


class LaunchAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="launch"):
    """Start an attempt on the backend; its start and its end come back as ``TasksChanged``."""

    task: TaskId
    attempt: int
    node: int
    size: Resources
    shard: ShardId
    is_movable: bool
    payload: bytes
    until: int = 0
    """Time after which the order must not be carried out, after any delay: on the runner's clock, and in a
    live backend CLOCK_BOOTTIME; 0: never."""
    place: TaskPlace | None = None
    """Rank in the group and, in a gang, hosts and port; None: rank 0 of a group of one, or not known."""


class KillAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="kill"):
    """Signal an attempt to checkpoint, and end it after ``grace`` microseconds."""

    task: TaskId
    attempt: int
    grace: int


class ExtendWatchdog(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="guard"):
    """Order to the watchdog: end every attempt of this runner at ``until`` unless a later time is set
    before."""

    until: Instant


class ForgetAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="forgotten"):
    """Permission for the backend to drop its record of an ended attempt."""

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
    | HistoryEffect
)


def orders_of(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects that a shell has to perform: all but the history."""
    return [effect for effect in effects if type(effect) not in HISTORY_EFFECTS]


def has_orders(effects: Sequence[Effect]) -> bool:
    """True if a shell has to perform some of these effects."""
    return not HISTORY_EFFECTS.issuperset(map(type, effects))


def for_each_task(settle: Callable[[TaskSettled], None]) -> Callable[[TasksSettled], None]:
    """Return a performer for runs of settled tasks that calls this one for each task."""

    def perform(effect: TasksSettled) -> None:
        for settled in effect.expand():
            settle(settled)

    return perform
