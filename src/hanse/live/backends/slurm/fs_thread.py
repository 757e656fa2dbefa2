"""Thread for the shared directory: it reads and writes one request after the other, in their order.

A network file system can hang; then this thread hangs, and the daemon does not.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
DoneCallback = Callable[[Any], None]
"""Called on the loop's thread with the result, or with the ``OSError``."""

log = logging.getLogger(__name__)


class FsThread:
    """Executor of work in a thread, with callbacks on the loop. Its callers bound the queue: a few requests
    per attempt."""

    def __init__(self) -> None:
        self._queue: list[tuple[Callable[[], Any], DoneCallback | None]] = []
        self._wakeup = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the thread's loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(report_failure)

    def submit(self, work: Callable[[], T], on_done: Callable[[T | OSError], None] | None = None) -> None:
        """Run ``work`` after all earlier requests."""
        self._queue.append((work, on_done))
        self._idle.clear()
        self._wakeup.set()

    async def drain(self, seconds: float) -> None:
        """Wait until all is done, at most ``seconds``, and stop."""
        if self._task is None:
            return
        if not self._task.done():
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("the shared directory does not answer; %d writes are left", len(self._queue))
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            batch, self._queue = self._queue, []
            results = await asyncio.to_thread(_run_batch, [work for work, _ in batch])
            for (_, on_done), result in zip(batch, results, strict=True):
                if on_done is not None:
                    on_done(result)
                elif isinstance(result, OSError):
                    log.warning("the shared directory cannot be used: %s", result)
            if not self._queue:
                self._idle.set()


def _run_batch(works: list[Callable[[], Any]]) -> list[Any]:
    results: list[Any] = []
    for work in works:
        try:
            results.append(work())
        except OSError as error:
            results.append(error)
    return results


def report_failure(task: "asyncio.Task[None]") -> None:
    """Report the failure of a background task, which is always a bug: nothing does its work any more, so the
    daemon must stop and be started again. Its tasks go on meanwhile."""
    if task.cancelled():
        return
    cause = task.exception()
    if cause is not None:
        error = AssertionError(f"a part of the Slurm backend failed: {cause!r}")
        error.__cause__ = cause
        task.get_loop().call_exception_handler({"message": str(error), "exception": error, "task": task})
