"""``hanse.Executor``: a ``concurrent.futures.Executor`` whose calls run in the league."""

import atexit
import concurrent.futures
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, Unpack

from hanse.sdk.call_dependencies import DependentCall, find_futures
from hanse.sdk.call_status import CallExplainer
from hanse.sdk.client_pool import open_endpoints
from hanse.sdk.errors import SerializationError, TooManyCallsError
from hanse.sdk.function_pickling import FunctionRegistry, RemoteFunction, apply
from hanse.sdk.future import Future
from hanse.sdk.serialization import PickledValue, pack_call
from hanse.sdk.shared_store import ExecutorStore
from hanse.sdk.workers.autoscaler import WORKERS_MAX, Autoscaler
from hanse.sdk.workers.dispatcher import Dispatcher
from hanse.sdk.workers.provisioner import Provisioner
from hanse.sdk.workers.worker_connection import ConnectionSettings
from hanse.sdk.workers.worker_job_form import (
    create_listener,
    own_address,
    string_values,
    worker_environment,
    worker_job_form,
)
from hanse.sdk.workers.worker_pool import RemoteCall

CALLS_MAX: Final = 2_000_000
"""Unfinished calls of one executor; it refuses further calls."""
IDLE_SECONDS: Final = 60.0
CHUNK_SECONDS: Final = 0.01
"""``map`` puts into one chunk the calls that take about this long together."""
CHUNK_ITEMS_MAX: Final = 1_000
CHUNKS_PER_WORKER: Final = 4
"""Least number of chunks per worker, so that no worker waits long for the last one."""
PATHS_MAX: Final = 64
"""Directories of ``sys.path`` that the executor sends to its workers."""
T = TypeVar("T")


class ExecutorOptions(TypedDict, total=False):
    """Further arguments of an executor."""

    job: Mapping[str, object]
    """Fields of the workers' job: tenant, priority, clusters, env ..."""
    python: str | None
    """Path of the workers' interpreter; None: the path of this one."""
    idle_seconds: float
    """Seconds without a call after which a worker is released."""
    spool: str | None
    """Parent directory of the shared store for large values, which workers must see too. None: in memory
    where possible; empty: no store, everything goes over the channel."""
    token: str | None
    """Access token for the league; None: ``$HANSE_TOKEN``, or the context's."""
    listen: str | None
    """Address at which workers reach this process; None: the one from which it reaches the league."""


class Executor(concurrent.futures.Executor):
    """Executor whose calls run in workers: warm Python interpreters that are tasks of a league.

    ``resources``: of one worker, as in a job file: ``{"cpus": 2, "memory": "1GiB", "where": 'zone == "a"'}``.
    ``max_workers``: how many; a number, a pair (minimum, maximum), or None: from none to what the league has
    room for. ``context``: of the league; None: the current one. ``retries``: how often a call is repeated
    whose worker was lost; 0: it runs at most once. ``name``: of the workers' job. Further:
    ``ExecutorOptions``.
    """

    def __init__(
        self,
        resources: Mapping[str, object] | None = None,
        max_workers: int | tuple[int, int | None] | None = None,
        context: str | None = None,
        retries: int = 1,
        name: str = "",
        **options: Unpack[ExecutorOptions],
    ) -> None:
        unknown = [option for option in options if option not in ExecutorOptions.__annotations__]
        if unknown:
            raise TypeError(f"Executor has no argument {', '.join(map(repr, unknown))}")
        python, store_directory, listen = options.get("python"), options.get("spool"), options.get("listen")
        self._retries = _check_retries(retries)
        minimum, maximum = _worker_range(max_workers)
        endpoints = open_endpoints(context, options.get("token"))
        form = worker_job_form(
            dict(resources or {}), dict(options.get("job") or {}), name or "workers", python
        )
        self._store = ExecutorStore(store_directory or None) if store_directory != "" else None
        settings = ConnectionSettings(self._store, tuple(path for path in sys.path if path)[:PATHS_MAX])
        listener = create_listener(listen if listen is not None else own_address(endpoints.context))
        form["env"] = {**worker_environment(listener, settings, python), **string_values(form.get("env"))}
        form["secret"] = settings.secret.hex()
        self._provisioner = Provisioner(endpoints, form)
        autoscaler = Autoscaler(minimum, maximum, options.get("idle_seconds", IDLE_SECONDS))
        self._dispatcher = Dispatcher(listener, settings, autoscaler, self._provisioner)
        self._explainer = CallExplainer(endpoints, self._dispatcher)
        self._functions = FunctionRegistry()
        self._lock = threading.Lock()
        self._next_number = 1
        self._closed = False
        self._deferred: dict[int, Future[Any]] = {}
        self._pid = os.getpid()
        self._provisioner.start()
        self._dispatcher.start()
        self._finalizer = weakref.finalize(self, _close_dispatcher, self._dispatcher)
        self._finalizer.atexit = False
        _open_executors.add(self)

    # --- calls

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` in a worker.

        Futures among the arguments, also one level inside lists, tuples and dictionaries, are replaced by
        their results; the call waits until these are there.
        """
        return self.submit_call(fn, args, kwargs, self._retries)

    def submit_call(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], retries: int
    ) -> Future[T]:
        """Submit a call with its own number of retries."""
        if not callable(fn):
            raise TypeError(f"{fn!r} is not callable")
        if retries != self._retries:
            _check_retries(retries)
        future: Future[T] = Future()
        future._ask_executor = self._explainer.answer
        dependencies = find_futures(args, kwargs) if args or kwargs else ()
        try:
            with self._lock:
                number = self._assign_number(future)
                function = self._functions.register(fn)
                if dependencies:
                    self._deferred[number] = future
            if function is None:
                function, args = self._pass_as_argument(fn, args)
            if dependencies:
                self._submit_when_ready(number, function, args, kwargs, retries, dependencies)
                return future
            packed = pack_call(args, kwargs)
        except SerializationError as error:
            self._deferred.pop(future._call_number, None)
            return _fail(future, error)
        self._dispatcher.submit_call(RemoteCall(number, function, packed, future, retries))
        return future

    def _assign_number(self, future: Future[Any]) -> int:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if os.getpid() != self._pid:
            raise RuntimeError("an executor cannot be used after a fork. Create a new one in this process.")
        number = self._next_number
        if not number % 1_024 and self._dispatcher.pending_count() > CALLS_MAX:
            raise TooManyCallsError(f"{CALLS_MAX} calls are waiting. Wait for some of them first.")
        self._next_number = number + 1
        future._call_number = number
        return number

    def _pass_as_argument(
        self, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[RemoteFunction, tuple[Any, ...]]:
        """Pass a callable without an importable name as an argument."""
        with self._lock:
            function = self._functions.register(apply)
        assert function is not None
        return function, (fn, *args)

    def _submit_when_ready(
        self,
        number: int,
        function: RemoteFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retries: int,
        dependencies: tuple[concurrent.futures.Future[Any], ...],
    ) -> None:
        """Keep a call until the futures among its arguments are done."""
        dispatcher, future = self._dispatcher, self._deferred[number]
        dispatcher.post(partial(_count_deferred, dispatcher, 1))

        def submit_ready(packed: PickledValue | None, inputs: tuple[tuple[int, PickledValue], ...]) -> None:
            if packed is not None:
                call = RemoteCall(number, function, packed, future, retries)
                call.inputs = inputs
                dispatcher.submit_call(call)
            self._deferred.pop(number, None)
            dispatcher.post(partial(_count_deferred, dispatcher, -1))

        DependentCall(future, args, kwargs, dependencies, submit_ready).start()

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 0,
    ) -> Iterator[T]:
        """Run ``map`` in the workers, with the results in order.

        ``chunksize``: calls per chunk; 0: as many as take 10 ms together, once their duration is known. What
        cannot be pickled fails its call, or its chunk; the error is raised when that result is taken.
        """
        deadline = None if timeout is None else timeout + time.monotonic()
        rows = list(zip(*iterables, strict=False))
        size = chunksize if chunksize > 0 else self._chunk_size(fn, len(rows))
        if size == 1:
            return _iterate_results([self.submit(fn, *row) for row in rows], deadline, flat=True)
        chunks = [rows[first : first + size] for first in range(0, len(rows), size)]
        return _iterate_results([self._submit_chunk(fn, chunk) for chunk in chunks], deadline, flat=False)

    def _submit_chunk(self, fn: Callable[..., Any], rows: list[tuple[Any, ...]]) -> Future[Any]:
        future: Future[Any] = Future()
        future._ask_executor = self._explainer.answer
        try:
            with self._lock:
                number = self._assign_number(future)
                function = self._functions.register_chunked(fn)
            packed = pack_call((rows,), {})
        except SerializationError as error:
            return _fail(future, error)
        self._dispatcher.submit_call(RemoteCall(number, function, packed, future, self._retries))
        return future

    def _chunk_size(self, fn: Callable[..., Any], count: int) -> int:
        """Return how many calls one chunk should hold."""
        try:
            with self._lock:
                function = self._functions.register(fn)
        except SerializationError:
            return 1  # each call will fail with it
        if function is None or not function.seconds:
            return 1
        mean = sum(function.seconds) / len(function.seconds)
        workers = max(1, len(self._dispatcher.pool.workers))
        by_time = int(CHUNK_SECONDS / max(mean, 1e-6))
        return max(1, min(by_time, CHUNK_ITEMS_MAX, -(-count // (CHUNKS_PER_WORKER * workers))))

    # --- workers

    @property
    def worker_count(self) -> int:
        """Number of workers that are connected now."""
        return len(self._dispatcher.pool.workers)

    @property
    def tasks(self) -> list[str]:
        """Workers as tasks of the league, such as ``1-7.0``."""
        return [worker.task for worker in list(self._dispatcher.pool.workers)]

    @property
    def refused_count(self) -> int:
        """Number of connections closed because the peer proved no key or broke the protocol.
        ``hanse.sdk.workers.refused_connections`` logs the first 100 as warnings."""
        return self._dispatcher.refusals.count

    def wait_for_workers(self, count: int, timeout: float | None = None) -> bool:
        """Wait for this many workers, or until the league refuses them; True if they are there."""
        event = threading.Event()
        self._dispatcher.post(partial(self._dispatcher.add_worker_waiter, count, event))
        event.wait(timeout)
        return self.worker_count >= count

    # --- shutdown

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the workers end after the last accepted call."""
        with self._lock:
            first, self._closed = not self._closed, True
        if cancel_futures:
            for future in list(self._deferred.values()):
                future.cancel()
        if first or cancel_futures:
            self._dispatcher.close(cancel_futures)
        if wait and threading.current_thread() is not self._dispatcher:
            self._dispatcher.join()
            self._provisioner.join()
        _open_executors.discard(self)


_open_executors: "weakref.WeakSet[Executor]" = weakref.WeakSet()
"""Executors that are not shut down."""


@atexit.register
def _shut_down_at_exit() -> None:
    """Finish the calls before the program ends, as the executors of the standard library do."""
    for executor in list(_open_executors):
        if executor._pid == os.getpid():
            executor.shutdown()


def _close_dispatcher(dispatcher: Dispatcher) -> None:
    """Close the dispatcher of an executor that was garbage-collected."""
    dispatcher.close(cancel=False)


def _count_deferred(dispatcher: Dispatcher, count: int) -> None:
    dispatcher.deferred_calls += count


def _fail(future: Future[T], error: Exception) -> Future[T]:
    """Fail a future that no worker will get, unless it was cancelled."""
    if future._set_running():
        future.set_exception(error)
    return future


def _iterate_results(futures: list[Future[Any]], deadline: float | None, flat: bool) -> Iterator[Any]:
    """Yield the results in order; cancel what has not begun if the caller stops reading."""
    futures.reverse()
    try:
        while futures:
            left = None if deadline is None else deadline - time.monotonic()
            value = futures.pop().result(left)
            if flat:
                yield value
            else:
                yield from value
    finally:
        for future in futures:
            future.cancel()


def _check_retries(retries: int) -> int:
    if not isinstance(retries, int) or retries < 0:
        raise ValueError(f"retries must be a whole number of at least 0, not {retries!r}")
    return retries


def _worker_range(bounds: int | tuple[int, int | None] | None) -> tuple[int, int | None]:
    minimum, maximum = bounds if isinstance(bounds, tuple) else (bounds or 0, bounds)
    if minimum < 0 or (maximum is not None and not max(minimum, 1) <= maximum <= WORKERS_MAX):
        raise ValueError(f"max_workers must be 1 to {WORKERS_MAX}, or (minimum, maximum), not {bounds!r}")
    return minimum, maximum
