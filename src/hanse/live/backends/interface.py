"""The interface between a runner's shell and the backend that runs its tasks.

The runner's shell says which attempts to start and stop; the backend reports what happened, by callbacks on
the event loop's thread. Attempts outlive every daemon: after a restart ``reconcile`` returns the attempts
that still run and those that ended meanwhile, and the backend drops no end before ``forget``. None of
``start``, ``stop``, ``extend_watchdog`` and ``forget`` blocks, and none raises for a fault of one task: a
task that cannot be started *ends*, with a note that gives the reason.
"""

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from hanse.core.config import NodeConfig
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import JobId, TaskId
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Resources

PENDING_REASON_CHARACTERS_MAX: Final = 300
"""Characters of ``PendingAttempt.reason``."""


class OutputDroppedError(FileNotFoundError):
    """An output that existed and was removed: too much was kept, or the disk was nearly full."""


class Stream(StrEnum):
    """An output stream of a task."""

    STDOUT = "stdout"
    STDERR = "stderr"


class RunningAttempt(msgspec.Struct, frozen=True, array_like=True):
    """A running attempt, as ``reconcile`` finds it."""

    task: TaskId
    attempt: int
    shard: str
    is_movable: bool
    """True if an unreachable league moves it: this and ``shard`` are as in ``LaunchAttempt``."""


class ReconcileResult(msgspec.Struct, frozen=True):
    """All attempts that a backend holds for one runner."""

    running: tuple[RunningAttempt, ...]
    ended: tuple[AttemptEnd, ...]


class PendingAttempt(msgspec.Struct, frozen=True):
    """An attempt that a foreign queue has accepted and not started yet."""

    task: TaskId
    attempt: int
    node: int
    node_name: str
    """Name of the node in the foreign system; empty: any node."""
    requested_at: int
    """Time of the request to start, in unix microseconds."""
    reason: str
    """A clause for people with its source, at most ``PENDING_REASON_CHARACTERS_MAX``."""


class BackendListener(Protocol):
    """Listener for starts, ends and capacity: the runner's shell. The backend calls it on the loop's thread,
    never from inside a call to the backend."""

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        """Note that the attempt runs."""
        ...

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        """Note that the attempt has ended; the backend keeps the record until ``forget``."""
        ...

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        """Note the amount of a node that the league may not use from now on: others use it, or it is down or
        closed from outside. Replaces the amount reported for this node before."""
        ...


class Backend(Protocol):
    """Runner of the tasks of one runner."""

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the nodes, with their resources and attributes. Positions are node numbers."""
        ...

    async def reconcile(self, listener: BackendListener) -> ReconcileResult:
        """Return the attempts that run and those that ended, after a (re)start; ``listener`` hears the rest.

        Called once, before any other method but ``capacity``. An attempt of unknown fate has ended with
        ``Outcome.LOST``, and none of its processes runs any more.
        """
        ...

    def start(self, launch: LaunchAttempt) -> None:
        """Start an attempt. Its record exists before it runs, so that a crash in between cannot hide it."""
        ...

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Ask an attempt to save its work (SIGTERM), and end it after ``grace`` microseconds (SIGKILL).

        The attempt ends as ``Outcome.CANCELLED``, for any exit code. A second stop with less grace shortens
        the wait. Unknown attempts are ignored: they ended meanwhile.
        """
        ...

    def extend_watchdog(self, until: int) -> None:
        """Let the watchdog end every attempt at ``until`` (CLOCK_BOOTTIME, microseconds), unless a later call
        moves that time. Holds while this process hangs or is dead; the attempts end with ``Outcome.LOST``."""
        ...

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the record of an attempt, because the warden knows its end. Its output may be kept."""
        ...

    def pending_attempts(self, job: JobId) -> tuple[PendingAttempt, ...]:
        """Return the attempts of a job that wait outside of the league, by task and attempt, as of the latest
        poll. For people who ask; never a part of a decision."""
        ...

    def closed_nodes(self) -> Mapping[int, str]:
        """Return the nodes that the league may not use at all, by number, each with the reason as a clause,
        as of the latest poll. For people; ``BackendListener.on_capacity_withheld`` reports the amounts."""
        ...

    def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the attempt's output from ``offset`` on, in chunks; with ``follow`` until the attempt ends.

        Raises ``FileNotFoundError`` if there is none (the attempt never ran here, or its records are gone),
        and ``OutputDroppedError`` if the backend knows that there was one.
        """
        ...

    async def close(self) -> None:
        """Release all resources, and leave running attempts running."""
        ...
