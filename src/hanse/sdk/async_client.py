"""``hanse.AsyncClient``: the client for programs that use asyncio.

The futures of calls notify the event loop. Requests to the league block and therefore run in threads; waiting
for a job takes one thread, and there are at most ``WAITERS_MAX``.
"""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from hanse.api.plan_records import PlanAnswer
from hanse.api.row_records import JobRow, TaskRow
from hanse.sdk.client import Client, JobLike
from hanse.sdk.job import Job

WAITERS_MAX: Final = 64

T = TypeVar("T")


class _ThreadPool:
    """Pool of threads for blocking calls."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(WAITERS_MAX, "hanse async")

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a blocking call and return its result."""
        return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Yield the items of a blocking iterator as they come."""
        end = object()
        while (item := await self.run(next, items, end)) is not end:
            yield item

    def close(self) -> None:
        """Accept no further calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class AsyncJob:
    """Job whose methods are awaited; otherwise as ``hanse.Job``."""

    def __init__(self, job: Job, threads: _ThreadPool) -> None:
        self._job = job
        self._threads = threads

    @property
    def id(self) -> str:
        """Id of the job, such as ``1-7``."""
        return self._job.id

    async def row(self) -> JobRow:
        """Return the job's row in the list of jobs."""
        return await self._threads.run(self._job.row)

    async def state(self) -> str:
        """Return the state: ``queued``, ``running``, ``succeeded`` ..."""
        return (await self.row()).state

    async def tasks(self) -> list[TaskRow]:
        """Return the tasks by index."""
        return await self._threads.run(self._job.tasks)

    async def wait(self, timeout: float | None = None) -> JobRow:
        """Wait until the job has ended."""
        return await self._threads.run(self._job.wait, timeout)

    async def result(self, timeout: float | None = None) -> str:
        """Return the output of the first task; raise ``JobFailedError`` if the job did not succeed."""
        return await self._threads.run(self._job.result, timeout)

    async def logs(self, task: int = 0, stream: str = "") -> str:
        """Return the output of a task so far."""
        return await self._threads.run(self._job.logs, task, stream)

    def follow(self, task: int = 0, stream: str = "stdout") -> AsyncIterator[bytes]:
        """Yield the output of a task as it comes."""
        return self._threads.iterate(self._job.follow(task, stream))

    async def why(self) -> str:
        """Explain why the job waits, why it runs where it runs, or why it ended."""
        return await self._threads.run(self._job.why)

    async def cancel(self) -> None:
        """Cancel the job."""
        await self._threads.run(self._job.cancel)

    async def retry(self) -> "AsyncJob":
        """Submit the tasks that did not succeed again."""
        return AsyncJob(await self._threads.run(self._job.retry), self._threads)

    def watch(self) -> AsyncIterator[JobRow]:
        """Yield the job's row now and after each change."""
        return self._threads.iterate(self._job.watch())


class AsyncClient:
    """``hanse.Client`` for asyncio. Calls return ``asyncio.Future`` objects of the running loop."""

    def __init__(self, context: str | None = None, **options: Any) -> None:
        self._client = Client(context, **options)
        self._threads = _ThreadPool()

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        resources: Mapping[str, object] | None = None,
        retries: int | None = None,
        **kwargs: Any,
    ) -> asyncio.Future[T]:
        """Run ``fn(*args, **kwargs)`` in a worker; await the result. Cancelling it cancels the call."""
        future = self._client.submit(fn, *args, resources=resources, retries=retries, **kwargs)
        return asyncio.wrap_future(future)

    async def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        resources: Mapping[str, object] | None = None,
    ) -> AsyncIterator[T]:
        """Yield the results in order, as they come."""
        futures = [self.submit(fn, *row, resources=resources) for row in zip(*iterables, strict=False)]
        try:
            for future in futures:
                yield await future
        finally:
            for future in futures:
                future.cancel()

    async def run(self, *command: str, **fields: object) -> AsyncJob:
        """Start a program as a job."""
        return AsyncJob(await self._threads.run(self._client.run, *command, **fields), self._threads)

    async def submit_job(self, job: JobLike) -> AsyncJob:
        """Submit one job."""
        return AsyncJob(await self._threads.run(self._client.submit_job, job), self._threads)

    async def submit_jobs(self, jobs: Iterable[JobLike]) -> list[AsyncJob]:
        """Submit several jobs at once."""
        submitted = await self._threads.run(self._client.submit_jobs, list(jobs))
        return [AsyncJob(job, self._threads) for job in submitted]

    async def plan(self, job: JobLike) -> PlanAnswer:
        """Return what would happen to a job if it were submitted now."""
        return await self._threads.run(self._client.plan, job)

    def job(self, job: str) -> AsyncJob:
        """Return a job that was submitted before, by its id."""
        return AsyncJob(self._client.job(job), self._threads)

    async def jobs(self, *states: str, limit: int = 100) -> list[JobRow]:
        """Return the newest jobs in these states."""
        return await self._threads.run(self._client.jobs, *states, limit=limit)

    async def close(self, cancel_futures: bool = False) -> None:
        """Wait for the calls, then release the workers."""
        await self._threads.run(self._client.close, cancel_futures)
        self._threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(cancel_futures=kind is not None)
