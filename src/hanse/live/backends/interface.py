"""The interface between a runner's shell and whatever really runs tasks.

A backend is told what to start and stop and says what happened, by callbacks on the event loop's thread. Its
attempts outlive every daemon: after a restart ``reconcile`` says what still lives and what ended meanwhile,
and nothing that ended is dropped before ``forget``. None of ``start``, ``stop``, ``guard`` and ``forget``
blocks or raises for what is wrong with one task: a task that cannot be started *ends*, with a note that says
why.
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

WAIT_CHARACTERS_MAX: Final = 300
"""Of the reason of a wait."""


class OutputDroppedError(FileNotFoundError):
    """An output that was there and had to go: too much was kept, or the disk was nearly full."""


class Stream(StrEnum):
    """Which output of a task."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Living(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that runs, as ``reconcile`` finds it."""

    task: TaskId
    attempt: int
    estate: str
    moves: bool
    """Whether an unreachable league moves it: both as ``LaunchAttempt`` said."""


class Found(msgspec.Struct, frozen=True):
    """All that a backend holds for one runner."""

    running: tuple[Living, ...]
    ended: tuple[AttemptEnd, ...]


class Wait(msgspec.Struct, frozen=True):
    """An attempt that was taken on and has not begun: it waits in a queue that is not the league's."""

    task: TaskId
    attempt: int
    node: int
    place: str
    """The node as those who run it call it; empty: any node."""
    since: int
    """When it was taken on, in unix microseconds."""
    reason: str
    """A clause for people, ``WAIT_CHARACTERS_MAX`` at most: who says what about it."""


class Reports(Protocol):
    """Who hears of starts and ends: the runner's shell. Called on the loop's thread, never from inside a
    call to the backend."""

    def started(self, task: TaskId, attempt: int) -> None:
        """The attempt runs."""
        ...

    def exited(self, end: AttemptEnd) -> None:
        """The attempt is over; the backend keeps the record until ``forget``."""
        ...

    def withheld(self, node: int, amount: Resources) -> None:
        """So much of a node is not for the league from now on: others use it, or it is down or closed from
        outside. Replaces what was said of this node before."""
        ...


class Backend(Protocol):
    """Runs the tasks of one runner."""

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """The nodes there are: what they have and what is true of them. Positions are node numbers."""
        ...

    async def reconcile(self, reports: Reports) -> Found:
        """After the runner's (re)start: what lives and what ended; from now on ``reports`` hears the rest.

        Called once, before anything else but ``capacity``. Attempts whose fate cannot be known have ended
        with ``Outcome.LOST``, and nothing of them runs any more.
        """
        ...

    def start(self, launch: LaunchAttempt) -> None:
        """Start an attempt. It is on record before it runs, so that a crash in between cannot hide it."""
        ...

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Ask an attempt to save its work (SIGTERM), and end it after ``grace`` microseconds (SIGKILL).

        Ends as ``Outcome.CANCELLED`` whatever its exit code. A second stop with less grace shortens the
        wait. Unknown attempts are ignored: they ended meanwhile.
        """
        ...

    def guard(self, until: int) -> None:
        """To the watchdog: end every attempt at ``until`` (CLOCK_BOOTTIME, microseconds) unless told a later
        time before. Holds while this process hangs or is dead; what it ends, ended with ``Outcome.LOST``."""
        ...

    def forget(self, task: TaskId, attempt: int) -> None:
        """The end of this attempt is known where it matters: drop the record. Its output may be kept."""
        ...

    def waits(self, job: JobId) -> tuple[Wait, ...]:
        """Which attempts of a job's tasks wait outside of the league, by task and attempt, as of the latest
        look: told to people who ask, and never a part of any decision."""
        ...

    def closures(self) -> Mapping[int, str]:
        """Why nothing of a node is for the league, in a clause, by the node's number, as of the latest look:
        told to people who ask. The room itself is told by ``Reports.withheld``."""
        ...

    def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """The attempt's output from ``offset`` on, in pieces; with ``follow`` until the attempt ends.

        Raises ``FileNotFoundError`` if there is none (never ran here, or so long ago that nothing is known),
        and ``OutputDroppedError`` if it is known that there was one.
        """
        ...

    async def close(self) -> None:
        """Let go, and leave what runs running."""
        ...
