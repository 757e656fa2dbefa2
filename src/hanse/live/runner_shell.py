"""A runner in its shell, with the backend that starts its tasks.

It lives in its warden's daemon, or in its own daemon on another machine. It has no journal, because the
backend is authoritative. Only the number of its latest start is stored, because sessions must never repeat.
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


class RunnerShell:
    """Driver of one runner. The backend reports through the methods of ``BackendListener``."""

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
        """Withheld capacity reported before the runner was up; None: the runner is up."""

    async def start(self) -> None:
        """Reconcile with the backend, and open a session with the warden."""
        epoch = _next_epoch(self._directory / EPOCH_FILE)
        found = await self.backend.reconcile(self)
        now = self._clock.now()
        self._shell.handle(Booted(now, epoch, 0))
        running = tuple(
            (attempt.task, attempt.attempt, attempt.shard, attempt.is_movable) for attempt in found.running
        )
        withheld, self._withheld = tuple((self._withheld or {}).items()), None
        self._shell.handle(BackendReported(now, running, found.ended, withheld))

    def on_message(self, envelope: Envelope) -> None:
        """Handle a message from the warden."""
        if type(envelope.body) is HistoryQuery:
            self._send(self.runner.answer_history_query(envelope.body.number))
            return
        self._shell.handle(MessageReceived(self._clock.now(), envelope))

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        """Note that the backend has started an attempt."""
        self._schedule_flush()
        self._started.append((task, attempt))

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        """Note that an attempt has ended."""
        self._schedule_flush()
        self._ended.append(end)

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        """Handle a change of a node's withheld capacity. Nodes of other runners are ignored."""
        if node not in self._nodes:
            return
        if self._withheld is None:
            self._shell.handle(CapacityWithheld(self._clock.now(), ((node, amount),)))
        else:
            self._withheld[node] = amount

    def _schedule_flush(self) -> None:
        """Make one event of all that the backend reports in one turn of the loop."""
        if not self._started and not self._ended:
            self._loop.call_soon(self._flush_reports)

    def _flush_reports(self) -> None:
        started, ended = tuple(self._started), tuple(self._ended)
        self._started.clear()
        self._ended.clear()
        self._shell.handle(TasksChanged(self._clock.now(), started, ended))

    def _perform(self, effect: Effect) -> None:
        kind = type(effect)
        if kind is SendMessage:
            self._send(effect.envelope)  # type: ignore[union-attr]  # the type is the test
        elif isinstance(effect, LaunchAttempt):
            until = self._clock.to_boottime(effect.until)
            self.backend.start(msgspec.structs.replace(effect, until=until))
        elif isinstance(effect, KillAttempt):
            self.backend.stop(effect.task, effect.attempt, effect.grace)
        elif isinstance(effect, ExtendWatchdog):
            self.backend.extend_watchdog(self._clock.to_boottime(effect.until))
        elif isinstance(effect, ForgetAttempt):
            self.backend.forget(effect.task, effect.attempt)
        else:
            raise AssertionError(f"a runner has no effect {effect}")

    async def close(self) -> None:
        """Close the backend; tasks go on under their watchdogs."""
        self._shell.close()
        await asyncio.shield(self.backend.close())


def _next_epoch(path: Path) -> int:
    """Return the number of this start, larger than all before and on disk before it is used.

    It is the time in milliseconds, so it rises even if the file was lost or is an older copy: a warden
    ignores a runner that repeats an old number.
    """
    try:
        last = int(path.read_bytes())
    except (FileNotFoundError, ValueError):
        last = 0
    epoch = max(last + 1, wall_now() // MILLISECOND)
    replace(path, str(epoch).encode("ascii"), PRIVATE)
    return epoch
