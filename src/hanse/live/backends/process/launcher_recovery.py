"""Start of another launcher after the loss of one, with the attempts under way."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hanse.live.backends.process.attempt_tracker import AttemptTracker
from hanse.live.backends.process.cgroups import TaskLimits
from hanse.live.backends.process.launcher_client import LauncherClient, LauncherGoneError
from hanse.live.disk_space import NO_SPACE_ERRNOS
from hanse.live.supervisor import SupervisorMissingError

RETRY_SECONDS: Final = (0.0, 0.05, 0.2, 1.0, 3.0)
"""Delays before each try to find or start a launcher; when all have failed, attempts that never started end
as lost, and the last delay repeats for as long as an attempt runs."""

log = logging.getLogger(__name__)


class LauncherRecovery:
    """Recovery from the loss of a launcher. ``on_recovered`` is called when there is another."""

    def __init__(
        self,
        directory: Path,
        launcher: LauncherClient,
        limits: TaskLimits,
        tracker: AttemptTracker,
        on_recovered: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._launcher = launcher
        self._limits = limits
        self._tracker = tracker
        self._on_recovered = on_recovered
        self._task: asyncio.Task[None] | None = None

    def start(self, reason: str) -> None:
        """Start to recover, unless this is under way or the backend is closed."""
        if self._tracker.closed or self._task is not None:
            return
        log.warning("the launcher of %s is gone (%s): starting another", self._directory, reason)
        self._task = asyncio.get_running_loop().create_task(self._recover())
        self._task.add_done_callback(self._on_done)

    async def cancel(self) -> None:
        """Stop recovering."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            context = {"message": "recovering a launcher failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    async def _recover(self) -> None:
        tries = 0
        while True:
            await asyncio.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1
            try:
                found = await self._launcher.open()
                self._limits.make_directories()
            except (OSError, LauncherGoneError, SupervisorMissingError) as error:
                log.error("the launcher of %s cannot be started: %s", self._directory, error)  # noqa: TRY400  the sentence says it all
                await self._launcher.close()
                disk_full = isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS
                if tries >= len(RETRY_SECONDS) and not self._tracker.give_up_unstarted(
                    self._directory / "records", str(error), disk_full
                ):
                    return
                continue
            self._tracker.reconcile(found)
            self._on_recovered()
            return
