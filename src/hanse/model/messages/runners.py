"""Messages between a warden and a runner."""

import msgspec

from hanse.model.hardware.facts import HardwareFacts
from hanse.model.ids import Instant, ShardId, TaskId
from hanse.model.job import UnreachablePolicy
from hanse.model.messages.attempts import AttemptEnd
from hanse.model.messages.group_layout import GroupLayout
from hanse.model.resources import Resources

WithheldCapacity = tuple[int, Resources]
"""Node, and the amount of it that is not for the league: others use it, or it is closed from outside."""


class StartTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Order to run an attempt on a node."""

    task: TaskId
    attempt: int
    node: int
    size: Resources
    shard: ShardId
    unreachable: UnreachablePolicy
    payload: bytes


class StopTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Order to signal an attempt to save its work, and to end it after ``grace`` microseconds."""

    task: TaskId
    attempt: int
    grace: int


class RunnerOrders(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="orders"):
    """Orders of a warden to a runner."""

    echo: Instant
    """Runner's latest heartbeat that the warden has handled; renews the lease as ``RunnerLease`` does."""
    starts: tuple[StartTask, ...] = ()
    stops: tuple[StopTask, ...] = ()
    forget: tuple[tuple[TaskId, int], ...] = ()  # ends that the warden has on record
    layouts: tuple[GroupLayout, ...] = ()  # of the groups of ``starts``


class RunnerReport(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="report"):
    """Report of a runner to its warden, also with the nodes that have a new withheld amount."""

    started: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


class OpenSession(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="hello"):
    """Opening of a runner's session: running attempts, ends not forgotten, withheld amounts, hardware.
    Repeated."""

    session: int
    sent_at: Instant
    nodes: tuple[int, ...]
    running: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()
    hardware: HardwareFacts | None = None
    """Hardware of its machine; None: tasks run elsewhere, or the runner is of an older release."""


class RunnerHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="runner_beat"):
    """Request of a runner to renew its lease, which counts from ``sent_at``, on the runner's clock."""

    session: int
    sent_at: Instant


class RunnerLease(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="runner_lease"):
    """Renewal by the warden, except for the tasks of lapsed shards."""

    session: int
    echo: Instant
    lapsed: tuple[ShardId, ...]


class Rejoin(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="rejoin"):
    """Demand to open a new session: the warden gave this runner up, or never knew it."""

    session: int
