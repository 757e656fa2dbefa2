"""``hanse.Client``: calls and jobs of one league."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from hanse.api.plan_records import PlanAnswer
from hanse.api.row_records import JobRow
from hanse.client.errors import CommandError
from hanse.client.job_form import JobDraft, check_drafts, read_drafts
from hanse.client.job_listing import JobFilter
from hanse.sdk.client_pool import ClientPool, open_endpoints, to_sdk_error
from hanse.sdk.errors import SdkError
from hanse.sdk.executor import Executor
from hanse.sdk.future import Future
from hanse.sdk.job import Job, submit_forms

SHAPES_MAX: Final = 64
"""Pools of workers of one client, one for each set of resources."""

T = TypeVar("T")
JobLike = Mapping[str, object] | str | os.PathLike[str]
"""Job as its fields in a job file, or as the path of such a file."""


class Client:
    """Client of a league: ``submit`` and ``map`` make calls, ``run`` and ``submit_job`` start programs.

    ``context``: name of the league's context; None: the current context. ``token``: access token for the
    league; None: ``$HANSE_TOKEN``, or the context's. The other arguments are those of ``hanse.Executor``;
    calls with other ``resources`` get a pool of workers of their own.
    """

    def __init__(
        self,
        context: str | None = None,
        resources: Mapping[str, object] | None = None,
        max_workers: int | tuple[int, int | None] | None = None,
        retries: int = 1,
        token: str | None = None,
        **options: Any,
    ) -> None:
        self._clients = ClientPool(open_endpoints(context, token))
        self._token = token
        self._resources = dict(resources or {})
        self._max_workers = max_workers
        self._retries = retries
        self._options = options
        self._pools: dict[bytes, Executor] = {}
        self._lock = threading.Lock()
        self._closed = False

    # --- calls

    def executor(self, resources: Mapping[str, object] | None = None) -> Executor:
        """Return the executor whose workers have these resources."""
        shape = self._resources if resources is None else {**self._resources, **resources}
        key = msgspec.json.encode(shape, order="sorted")
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            pool = self._pools.get(key)
            if pool is None:
                if len(self._pools) >= SHAPES_MAX:
                    raise SdkError(f"a client can have at most {SHAPES_MAX} different sets of resources")
                options = {"name": "workers", "token": self._token, **self._options}
                pool = Executor(shape, self._max_workers, self._clients.name, self._retries, **options)
                self._pools[key] = pool
        return pool

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        resources: Mapping[str, object] | None = None,
        retries: int | None = None,
        **kwargs: Any,
    ) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` in a worker with these resources. See ``hanse.Executor.submit``."""
        count = self._retries if retries is None else retries
        return self.executor(resources).submit_call(fn, args, kwargs, count)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        resources: Mapping[str, object] | None = None,
        timeout: float | None = None,
        chunksize: int = 0,
    ) -> Iterator[T]:
        """Run ``map`` in workers with these resources. See ``hanse.Executor.map``."""
        return self.executor(resources).map(fn, *iterables, timeout=timeout, chunksize=chunksize)

    # --- jobs

    def run(self, *command: str, **fields: object) -> Job:
        """Start a program as a job; one string is a shell command. ``fields``: of a job, as ``count=3``."""
        if not command:
            raise ValueError("no command was given")
        return self.submit_job({**fields, "command": command[0] if len(command) == 1 else list(command)})

    def submit_job(self, job: JobLike) -> Job:
        """Submit one job: its fields as in a job file, or the path of a file with one job."""
        return submit_forms(self._clients, [self._checked_form(job)])[0]

    def submit_jobs(self, jobs: Iterable[JobLike]) -> list[Job]:
        """Submit several jobs at once."""
        return submit_forms(self._clients, [self._checked_form(job) for job in jobs])

    def plan(self, job: JobLike) -> PlanAnswer:
        """Return what would happen to a job if it were submitted now."""
        with self._clients.borrow() as client:
            return client.plan(self._checked_form(job))

    def job(self, job: str) -> Job:
        """Return a job that was submitted before, by its id."""
        return Job(self._clients, job)

    def jobs(self, *states: str, limit: int = 100) -> list[JobRow]:
        """Return the newest jobs in these states; without states, in any."""
        with self._clients.borrow() as client:
            return client.jobs(JobFilter(states=states), limit).rows

    def _checked_form(self, job: JobLike) -> dict[str, object]:
        """Return a job in the form of job files, checked."""
        try:
            drafts = [JobDraft(dict(job))] if isinstance(job, Mapping) else read_drafts(str(Path(job)))
            if len(drafts) != 1:
                raise SdkError(f"{job} holds {len(drafts)} jobs; exactly one is expected")
            check_drafts(drafts)
        except CommandError as error:
            raise to_sdk_error(error) from None
        form = drafts[0].form
        tenant = os.environ.get("HANSE_TENANT")
        return {"tenant": tenant, **form} if tenant else form

    # --- closing

    def close(self, cancel_futures: bool = False) -> None:
        """Wait for the calls (or cancel those that have not begun), then release the workers. Jobs go on."""
        with self._lock:
            self._closed = True
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=cancel_futures)
        for pool in pools:
            pool.shutdown(wait=True)
        self._clients.close()

    def __enter__(self) -> Self:
        _client_stack.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _client_stack.remove(self)
        self.close(cancel_futures=kind is not None)


_client_stack: list[Client] = []
"""Clients with an active ``with`` block; ``hanse.task`` uses the last one."""
_default_client: list[Client] = []
_default_lock: Final = threading.Lock()


def current_client() -> Client:
    """Return the client of the innermost ``with`` block, or the one of the process."""
    if _client_stack:
        return _client_stack[-1]
    with _default_lock:
        if not _default_client:
            _default_client.append(Client())
        return _default_client[0]
