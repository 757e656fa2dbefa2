"""A runner in its shell, with the backend that does the work.

It lives inside its warden's daemon, or in a daemon of its own on another machine. It keeps no journal: its
truth is the backend. Only the number of its latest start is kept, because sessions must never repeat.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.config import RunnerConfig
from hanse.core.runner.runner import Runner
from hanse.live.backends.interface import Backend
from hanse.live.clock import Clock
from hanse.live.shell import Shell
from hanse.model.effects import Effect, ExtendWatchdog, ForgetAttempt, KillAttempt, LaunchAttempt, SendMessage
from hanse.model.events import BackendReported, Booted, CapacityWithheld, MessageReceived, TasksChanged
from hanse.model.ids import MILLISECOND, TaskId
from hanse.model.messages import AttemptEnd, Envelope
from hanse.model.messages.history_check import HistoryQuery
from hanse.model.resources import Resources
from hanse.security.atomic_files import PRIVATE, replace
from hanse.security.wall_time import wall_now

EPOCH_FILE: Final = "runner.epoch"
log = logging.getLogger(__name__)


class RunnerHost:
    """Drives one runner; what it hears from the backend arrives through ``started`` and ``exited``."""

    def __init__(
        self,
        config: RunnerConfig,
        backend: Backend,
        clock: Clock,
        directory: Path,
        send: Callable[[Envelope], None],
    ) -> None:
        self.backend = backend
        self.runner = Runner(config)
        self._nodes = frozenset(config.nodes)
        self._clock = clock
        self._directory = directory
        self._send = send
        self._shell = Shell(self.runner, clock, self._perform)
        self._loop = asyncio.get_running_loop()
        self._started: list[tuple[TaskId, int]] = []
        self._ended: list[AttemptEnd] = []
        self._withheld: dict[int, Resources] | None = {}
        """What was said before the runner was up; None: it is."""

    async def start(self) -> None:
        """Learn what the backend holds, and open a session with the warden."""
        epoch = _next_epoch(self._directory / EPOCH_FILE)
        found = await self.backend.reconcile(self)
        now = self._clock.now()
        self._shell.take(Booted(now, epoch, 0))
        running = tuple((live.task, live.attempt, live.estate, live.moves) for live in found.running)
        withheld, self._withheld = tuple((self._withheld or {}).items()), None
        self._shell.take(BackendReported(now, running, found.ended, withheld))

    def receive(self, envelope: Envelope) -> None:
        """A message from the warden."""
        if type(envelope.body) is HistoryQuery:
            self._send(self.runner.answer_history_query(envelope.body.number))
            return
        self._shell.take(MessageReceived(self._clock.now(), envelope))

    def started(self, task: TaskId, attempt: int) -> None:
        """The backend has started an attempt."""
        self._soon()
        self._started.append((task, attempt))

    def exited(self, end: AttemptEnd) -> None:
        """An attempt is over."""
        self._soon()
        self._ended.append(end)

    def withheld(self, node: int, amount: Resources) -> None:
        """Some of a node is not for the league, or is again. Other runners' nodes are theirs to tell of."""
        if node not in self._nodes:
            return
        if self._withheld is None:
            self._shell.take(CapacityWithheld(self._clock.now(), ((node, amount),)))
        else:
            self._withheld[node] = amount

    def _soon(self) -> None:
        """What the backend tells in one turn of the loop is one event."""
        if not self._started and not self._ended:
            self._loop.call_soon(self._moved)

    def _moved(self) -> None:
        started, ended = tuple(self._started), tuple(self._ended)
        self._started.clear()
        self._ended.clear()
        self._shell.take(TasksChanged(self._clock.now(), started, ended))

    def _perform(self, command: Effect) -> None:
        kind = type(command)
        if kind is SendMessage:
            self._send(command.envelope)  # type: ignore[union-attr]  # the type is the test
        elif isinstance(command, LaunchAttempt):
            until = self._clock.boottime(command.until)
            self.backend.start(msgspec.structs.replace(command, until=until))
        elif isinstance(command, KillAttempt):
            self.backend.stop(command.task, command.attempt, command.grace)
        elif isinstance(command, ExtendWatchdog):
            self.backend.guard(self._clock.boottime(command.until))
        elif isinstance(command, ForgetAttempt):
            self.backend.forget(command.task, command.attempt)
        else:
            raise AssertionError(f"a runner does not ask for {command}")

    async def close(self) -> None:
        """Let go of the backend; what runs goes on under its watchdog."""
        self._shell.close()
        await asyncio.shield(self.backend.close())


def _next_epoch(path: Path) -> int:
    """The number of this start, on disk before it is used: larger than all before.

    It is the time in milliseconds, so that it rises although the file was lost or is an older copy: with a
    number that it has had, a warden would not hear of the runner again.
    """
    try:
        last = int(path.read_bytes())
    except (FileNotFoundError, ValueError):
        last = 0
    epoch = max(last + 1, wall_now() // MILLISECOND)
    replace(path, str(epoch).encode("ascii"), PRIVATE)
    return epoch
