"""Files for asyncio: calls run in place for local disks, in threads for file systems that may block."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class AsyncFiles(Protocol):
    """Executor of calls on files."""

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run ``call``; its result, or its ``OSError``, is the future's."""
        ...


class DirectFiles:
    """Access to a local disk: calls run in place, so the future is done at once."""

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run ``call`` now."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(call())
        except OSError as error:
            future.set_exception(error)
        return future


class ThreadedFiles:
    """Access to a file system that may hang: at most ``threads_max`` calls run, and hang, at once.

    The threads are its own, so that nobody else waits for them. They end when nobody holds this object.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run ``call`` in a thread. Its callers bound the queue."""
        return asyncio.get_running_loop().run_in_executor(self._pool, call)
