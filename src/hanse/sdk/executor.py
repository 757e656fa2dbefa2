"""``hanse.Executor``: a ``concurrent.futures.Executor`` whose calls run in the league."""

import atexit
import concurrent.futures
import os
import socket
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack

import hanse
from hanse.client.contexts import Context
from hanse.client.transport import host_and_port
from hanse.sdk.call_status import Explainer
from hanse.sdk.client_pool import chosen
from hanse.sdk.errors import CannotTravelError, SdkError, TooManyCallsError
from hanse.sdk.function_pickling import Registry, Traveller, apply
from hanse.sdk.future import Future
from hanse.sdk.serialization import Packed, pack_call
from hanse.sdk.shared_store import OwnSpool
from hanse.sdk.task_graph import Held, futures_in
from hanse.sdk.workers.autoscaler import HANDS_MAX, Muster
from hanse.sdk.workers.dispatcher import BACKLOG, Exchange
from hanse.sdk.workers.provisioner import Keeper
from hanse.sdk.workers.worker import ADDRESS, PIN
from hanse.sdk.workers.worker_connection import Gate
from hanse.sdk.workers.worker_pool import Call

CALLS_MAX: Final = 2_000_000
"""Unfinished calls of one executor; it refuses further calls."""
IDLE_SECONDS: Final = 60.0
CHUNK_SECONDS: Final = 0.01
"""``map`` puts into one chunk the calls that take about this long together."""
CHUNK_ITEMS_MAX: Final = 1_000
CHUNKS_PER_HAND: Final = 4
"""Least number of chunks per worker, so that no worker waits long for the last one."""
PATHS_MAX: Final = 64
"""Directories of ``sys.path`` that the executor sends to its workers."""
ASK_FIELDS: Final = ("cpus", "memory", "gpus", "resources", "where", "affinity", "duration")
"""Keys of ``resources``; the fields of a group in a job file."""

T = TypeVar("T")


class Options(TypedDict, total=False):
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
        hands: int | tuple[int, int | None] | None = None,
        context: str | None = None,
        retries: int = 1,
        name: str = "",
        **options: Unpack[Options],
    ) -> None:
        unknown = [option for option in options if option not in Options.__annotations__]
        if unknown:
            raise TypeError(f"Executor has no argument {', '.join(map(repr, unknown))}")
        python, spool, listen = options.get("python"), options.get("spool"), options.get("listen")
        self._retries = _checked_retries(retries)
        least, most = _range(hands)
        doors = chosen(context, options.get("token"))
        form = _form(dict(resources or {}), dict(options.get("job") or {}), name or "workers", python)
        self._spool = OwnSpool(spool or None) if spool != "" else None
        gate = Gate(self._spool, tuple(path for path in sys.path if path)[:PATHS_MAX])
        listener = _listener(listen if listen is not None else _own_address(doors.context))
        form["env"] = {**_environment(listener, gate, python), **_texts(form.get("env"))}
        form["secret"] = gate.secret.hex()
        self._keeper = Keeper(doors, form)
        muster = Muster(least, most, options.get("idle_seconds", IDLE_SECONDS))
        self._exchange = Exchange(listener, gate, muster, self._keeper)
        self._explainer = Explainer(doors, self._exchange)
        self._registry = Registry()
        self._lock = threading.Lock()
        self._next = 1
        self._closed = False
        self._held: dict[int, Future[Any]] = {}
        self._pid = os.getpid()
        self._keeper.start()
        self._exchange.start()
        self._stop = weakref.finalize(self, _stopped, self._exchange)
        self._stop.atexit = False
        _alive.add(self)

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
            _checked_retries(retries)
        future: Future[T] = Future()
        future._tell = self._explainer.tell
        wanted = futures_in(args, kwargs) if args or kwargs else ()
        try:
            with self._lock:
                number = self._numbered(future)
                function = self._registry.of(fn)
                if wanted:
                    self._held[number] = future
            if function is None:
                function, args = self._applied(fn, args)
            if wanted:
                self._hold(number, function, args, kwargs, retries, wanted)
                return future
            packed = pack_call(args, kwargs)
        except CannotTravelError as error:
            self._held.pop(future._number, None)
            if future._begin():
                future.set_exception(error)
            return future
        self._exchange.offer(Call(number, function, packed, future, retries))
        return future

    def _numbered(self, future: Future[Any]) -> int:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if os.getpid() != self._pid:
            raise RuntimeError("an executor cannot be used after a fork. Create a new one in this process.")
        number = self._next
        if not number % 1_024 and self._exchange.pending() > CALLS_MAX:
            raise TooManyCallsError(f"{CALLS_MAX} calls are waiting. Wait for some of them first.")
        self._next = number + 1
        future._number = number
        return number

    def _applied(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Traveller, tuple[Any, ...]]:
        """Pass a callable without an importable name as an argument."""
        with self._lock:
            function = self._registry.of(apply)
        assert function is not None
        return function, (fn, *args)

    def _hold(
        self,
        number: int,
        function: Traveller,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retries: int,
        wanted: tuple[concurrent.futures.Future[Any], ...],
    ) -> None:
        """Keep a call until the futures among its arguments are done."""
        exchange, future = self._exchange, self._held[number]
        exchange.post(partial(_held_more, exchange, 1))

        def go_on(packed: Packed | None, inputs: tuple[tuple[int, Packed], ...]) -> None:
            if packed is not None:
                call = Call(number, function, packed, future, retries)
                call.inputs = inputs
                exchange.offer(call)
            self._held.pop(number, None)
            exchange.post(partial(_held_more, exchange, -1))

        Held(future, args, kwargs, wanted, go_on).watch()

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 0,
    ) -> Iterator[T]:
        """Run ``map`` in the workers, with the results in order.

        ``chunksize``: calls per chunk; 0: as many as take 10 ms together, once their duration is known.
        """
        end = None if timeout is None else timeout + time.monotonic()
        rows = list(zip(*iterables, strict=False))
        size = chunksize if chunksize > 0 else self._chunk(fn, len(rows))
        if size == 1:
            return _results([self.submit(fn, *row) for row in rows], end, flat=True)
        with self._lock:
            self._registry.each(fn)
        chunks = [rows[first : first + size] for first in range(0, len(rows), size)]
        return _results([self._submit_chunk(fn, chunk) for chunk in chunks], end, flat=False)

    def _submit_chunk(self, fn: Callable[..., Any], rows: list[tuple[Any, ...]]) -> Future[Any]:
        future: Future[Any] = Future()
        future._tell = self._explainer.tell
        with self._lock:
            number = self._numbered(future)
            function = self._registry.each(fn)
        self._exchange.offer(Call(number, function, pack_call((rows,), {}), future, self._retries))
        return future

    def _chunk(self, fn: Callable[..., Any], count: int) -> int:
        """Return how many calls one chunk should hold."""
        with self._lock:
            function = self._registry.of(fn)
        if function is None or not function.seconds:
            return 1
        mean = sum(function.seconds) / len(function.seconds)
        hands = max(1, len(self._exchange.crew.members))
        by_time = int(CHUNK_SECONDS / max(mean, 1e-6))
        return max(1, min(by_time, CHUNK_ITEMS_MAX, -(-count // (CHUNKS_PER_HAND * hands))))

    # --- workers

    @property
    def hands(self) -> int:
        """Number of workers that are connected now."""
        return len(self._exchange.crew.members)

    @property
    def tasks(self) -> list[str]:
        """Workers as tasks of the league, such as ``1-7.0``."""
        return [member.task for member in list(self._exchange.crew.members)]

    @property
    def refused(self) -> int:
        """Number of connections closed because the peer proved no key or broke the protocol.
        ``hanse.sdk.workers.refused_connections`` logs the first 100 as warnings."""
        return self._exchange.refusals.count

    def wait_for_hands(self, count: int, timeout: float | None = None) -> bool:
        """Wait for this many workers, or until the league refuses them; True if they are there."""
        event = threading.Event()
        self._exchange.post(partial(self._exchange.await_hands, count, event))
        event.wait(timeout)
        return self.hands >= count

    # --- shutdown

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the workers end after the last accepted call."""
        with self._lock:
            first, self._closed = not self._closed, True
        if cancel_futures:
            for future in list(self._held.values()):
                future.cancel()
        if first or cancel_futures:
            self._exchange.close(cancel_futures)
        if wait and threading.current_thread() is not self._exchange:
            self._exchange.join()
            self._keeper.join()
        _alive.discard(self)


_alive: "weakref.WeakSet[Executor]" = weakref.WeakSet()
"""Executors that are not shut down."""


@atexit.register
def _at_exit() -> None:
    """Finish the calls before the program ends, as the executors of the standard library do."""
    for executor in list(_alive):
        if executor._pid == os.getpid():
            executor.shutdown()


def _stopped(exchange: Exchange) -> None:
    """Close the dispatcher of an executor that was garbage-collected."""
    exchange.close(cancel=False)


def _held_more(exchange: Exchange, count: int) -> None:
    exchange.held += count


def _results(futures: list[Future[Any]], end: float | None, flat: bool) -> Iterator[Any]:
    """Yield the results in order; cancel what has not begun if the caller stops reading."""
    futures.reverse()
    try:
        while futures:
            left = None if end is None else end - time.monotonic()
            value = futures.pop().result(left)
            if flat:
                yield value
            else:
                yield from value
    finally:
        for future in futures:
            future.cancel()


def _checked_retries(retries: int) -> int:
    if not isinstance(retries, int) or retries < 0:
        raise ValueError(f"retries must be a whole number of at least 0, not {retries!r}")
    return retries


def _range(hands: int | tuple[int, int | None] | None) -> tuple[int, int | None]:
    least, most = hands if isinstance(hands, tuple) else (hands or 0, hands)
    if least < 0 or (most is not None and not max(least, 1) <= most <= HANDS_MAX):
        raise ValueError(f"max_workers must be 1 to {HANDS_MAX}, or (minimum, maximum), not {hands!r}")
    return least, most


def _own_address(context: Context) -> str:
    """Return this machine's address on its route to a broker."""
    for address in context.brokers.values():
        host, port = host_and_port(address)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family[0], socket.SOCK_DGRAM) as probe:
                probe.connect(family[4])  # a datagram socket only chooses an address; it sends nothing
                return str(probe.getsockname()[0])
        except OSError:
            continue
    raise SdkError("no route to any broker of the league. Set 'listen' to this machine's address.")


def _listener(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=BACKLOG)


def _environment(listener: socket.socket, gate: Gate, python: str | None) -> dict[str, str]:
    host, port = listener.getsockname()[:2]
    environment = {
        ADDRESS: f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        PIN: gate.fingerprint.hex(),
        "PYTHONUNBUFFERED": "1",  # output of a call must not be lost in a crash
    }
    root = str(Path(hanse.__file__).resolve().parent.parent)
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if python is None and root not in installed:
        environment["PYTHONPATH"] = root
    return environment


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, Mapping) else {}


def _form(
    resources: dict[str, object], job: dict[str, object], name: str, python: str | None
) -> dict[str, object]:
    """Return the workers' job in the form of job files."""
    unknown = [field for field in resources if field not in ASK_FIELDS]
    if unknown:
        raise ValueError(f"resources may have {', '.join(ASK_FIELDS)}, not {', '.join(unknown)}")
    tenant = os.environ.get("HANSE_TENANT")
    if tenant:
        job.setdefault("tenant", tenant)
    form = {"name": name, "grace": "1s", **job, **resources}
    return {**form, "command": [python or sys.executable, *_flags(form), "-m", "hanse.sdk.workers.worker"]}


def _flags(form: dict[str, object]) -> list[str]:
    """Return options that keep a worker from importing out of its fresh working directory, which is its home:
    the user has put nothing there, and another task of the same user could. A directory that the job names is
    used as it is."""
    if form.get("workdir"):
        return []
    return ["-P"] if "HOME" in _texts(form.get("env")) else ["-P", "-s"]
