"""Worker: a warm Python interpreter that takes the calls of one executor. ``python -m
hanse.sdk.workers.worker``.

A worker is an ordinary task of the league, which places, limits, explains and recovers it like any other. It
connects directly to its executor, and ends when that connection ends. The functions run in the main thread,
one after the other. A second thread reads, so that during a long call the worker notices the end of the
executor, and the calls behind it can go to another worker.
"""

import os
import queue
import select
import socket
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from hanse.model.attempt_key import SECRET_BYTES
from hanse.sdk.errors import CannotTravelError
from hanse.sdk.function_pickling import FUNCTIONS_MAX, named
from hanse.sdk.serialization import Assembly, Buffer, Input, Packed, is_large, pack, unpack
from hanse.sdk.shared_store import read_file, sees, write_file
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.worker_key import NO_KEY, own_attempt, read_key
from hanse.sdk.workers.worker_protocol import (
    BATCH_BYTES,
    BATCH_ITEMS_MAX,
    BROKEN,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    NONCE_BYTES,
    RAISED,
    UNKNOWN,
    VALUE,
    Bye,
    CallRecord,
    Calls,
    Challenge,
    FrameError,
    Function,
    Hello,
    Message,
    Outcome,
    Parcel,
    Piece,
    Ready,
    Recall,
    Results,
    Returned,
    Splitter,
    Welcome,
    frame,
)

ADDRESS: Final = "HANSE_HAND_ADDRESS"
"""Variable with ``host:port`` where the executor listens."""
PIN: Final = "HANSE_HAND_PIN"
"""Variable with the fingerprint of the executor's certificate, in hexadecimal digits."""
CONNECT_SECONDS_MAX: Final = 20.0
"""Limit for connecting, for the handshake and for the proofs, each."""
HELD_SECONDS_MAX: Final = 0.001
"""Longest delay of a result so that others can be sent with it."""
WATCH_SECONDS: Final = 0.002
"""Delay after which the reading thread sends results that a long call holds up."""
RECEIVE_BYTES: Final = 256 << 10
KEEPALIVE_SECONDS: Final = 15
"""Silence after which a connection is probed; three probes of five seconds follow."""
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FAREWELL_SECONDS_MAX: Final = 5.0
"""Seconds that a released worker may take to end."""
EXIT_LOST: Final = 3
"""Exit code of a worker that lost its executor without notice."""
EXIT_STRANGER: Final = 4
"""Exit code of a worker that found no executor, or one that is not its own."""


class _Callable:
    """Received function, imported or unpickled at its first call."""

    __slots__ = ("_function", "_name", "_parts")

    def __init__(self, name: str, parts: Sequence[Buffer]) -> None:
        self._name = name
        self._parts: Sequence[Buffer] = parts
        self._function: Callable[..., Any] | None = None

    def get(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = named(self._name) if self._name else unpack(self._parts)
            self._parts = ()
        return self._function


class _Work:
    """Call that waits in the worker."""

    __slots__ = ("function", "inputs", "number", "parts")

    def __init__(
        self,
        number: int,
        function: _Callable,
        parts: "Sequence[Buffer] | Parcel",
        inputs: tuple[tuple[int, Parcel], ...],
    ) -> None:
        self.number = number
        self.function = function
        self.parts = parts
        """Arguments; a payload in the shared store is read just before the call."""
        self.inputs = inputs


class Channel:
    """Connection to the executor, for two threads."""

    def __init__(self, connection: socket.socket, sealed: secure_channel.Sealed) -> None:
        self._socket = connection
        self._sealed = sealed
        self._tls = threading.Lock()
        """Guards TLS, which is not made for two threads."""
        self._sending = threading.Lock()
        """Keeps encrypted data in order: encrypted first, sent first."""

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all of the data. If the executor is gone, the worker ends."""
        with self._sending:
            with self._tls:
                self._sealed.seal(data)
                out = self._sealed.out()
            try:
                self._socket.sendall(out)
            except OSError:
                _leave(EXIT_LOST, "the executor is gone")

    def receive(self) -> bytes:
        """Wait for data and return it; empty: no whole record yet. Raises ``EOFError``, ``OSError``."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        with self._tls:
            self._sealed.feed(data)
            return self._sealed.take()


def _leave(code: int, why: str) -> NoReturn:
    """End the process at once, even during a call."""
    if why:
        os.write(2, f"hanse worker: {why}\n".encode())
    os._exit(code)


# --- connecting to the executor ----------------------------------------------------------------------------


def meet() -> tuple[Channel, Splitter, Welcome]:
    """Connect to the executor named in the environment; both sides prove their key."""
    key = read_key()
    address, pin = os.environ.get(ADDRESS, ""), bytes.fromhex(os.environ.get(PIN, ""))
    host, _, port = address.rpartition(":")
    if not host:
        _leave(EXIT_STRANGER, f"{ADDRESS} and {PIN} are not set. Only an executor can start a worker.")
    if len(key) != SECRET_BYTES:
        _leave(EXIT_STRANGER, NO_KEY)
    connection = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(connection)
    sealed = secure_channel.Sealed(secure_channel.hand_context(), server=False)
    while not sealed.shaken():
        connection.sendall(sealed.out())
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        sealed.feed(data)
    connection.sendall(sealed.out())
    if not secure_channel.proved(sealed.fingerprint(), pin):
        _leave(EXIT_STRANGER, f"the process at {address} is not the executor of this worker")
    channel, splitter = Channel(connection, sealed), Splitter(HELLO_BYTES_MAX)
    challenge = _next(channel, splitter)
    assert isinstance(challenge, Challenge), challenge
    nonce, who = os.urandom(NONCE_BYTES), own_attempt()
    channel.send(
        frame(
            _hello(
                nonce, secure_channel.proof(key, secure_channel.HAND, challenge.nonce, nonce, pin, who), who
            )
        )
    )
    splitter.bytes_max = FRAME_BYTES_MAX
    try:
        welcome = _next(channel, splitter)
    except EOFError:
        _leave(EXIT_STRANGER, f"the executor at {address} refused this worker. Its log has the reason.")
    wanted = secure_channel.proof(key, secure_channel.EXECUTOR, nonce, challenge.nonce, pin, who)
    if not isinstance(welcome, Welcome) or not secure_channel.proved(welcome.proof, wanted):
        _leave(EXIT_STRANGER, f"the process at {address} does not know this worker's key")
    connection.settimeout(None)
    return channel, splitter, welcome


def keep_alive(connection: socket.socket) -> None:
    """Detect within half a minute that the other machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", KEEPALIVE_SECONDS), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _hello(nonce: bytes, proof: bytes, who: tuple[str, int, int]) -> Hello:
    given = os.environ.get
    job, index, attempt = who
    return Hello(
        nonce=nonce,
        proof=proof,
        job=job,
        index=index,
        attempt=attempt,
        cluster=given("HANSE_CLUSTER", ""),
        node=given("HANSE_NODE", ""),
        pid=os.getpid(),
        python=".".join(map(str, sys.version_info[:3])),
    )


def _next(channel: Channel, splitter: Splitter) -> Message:
    """Return the next record, while only one is expected."""
    while True:
        for message in splitter.feed(channel.receive()):
            return message


# --- calls -------------------------------------------------------------------------------------------------


class Hand:
    """Worker: the calls that wait here, and the results that wait to be sent."""

    def __init__(self, channel: Channel, spool: str) -> None:
        self._channel = channel
        self._spool = spool
        """Directory of the shared store; empty: not visible here."""
        self._queue: deque[_Work] = deque()
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Wakes the main thread: True for calls, False for the end. Holds at most one of each."""
        self._functions: dict[int, _Callable] = {}
        self._assembly = Assembly()
        self._unsent: list[Outcome] = []
        self._unsent_bytes = 0
        self._busy = 0
        self._flushing = threading.Lock()
        self._flushed = 0.0
        self._watched = False
        """True if the reading thread sends unsent results within ``WATCH_SECONDS``. While it is False, the
        main thread sends every result at once. Each thread writes first and then reads what the other has
        written: the main thread writes a result and reads this flag, the other thread writes this flag and
        reads the results. So one of them sees it."""
        self._stream = 0

    # --- the main thread

    def work(self) -> None:
        """Make calls until the executor releases the worker."""
        waiting = self._queue
        while True:
            try:
                work = waiting.popleft()
            except IndexError:
                if self._unsent:
                    self.flush()
                if not self._turns.get():
                    return
                continue
            begin = time.perf_counter_ns()
            status, packed = self._made(work)
            end = time.perf_counter_ns()
            self._answer(work.number, status, packed, end - begin)
            late = end * 1e-9 - self._flushed > HELD_SECONDS_MAX
            full = self._unsent_bytes >= BATCH_BYTES or len(self._unsent) >= BATCH_ITEMS_MAX
            if late or full or not self._watched:
                self.flush()

    def _made(self, work: _Work) -> tuple[int, Packed]:
        """Make one call and return its outcome."""
        try:
            function = work.function.get()
        except BaseException as error:  # noqa: BLE001  an import may raise anything
            return UNKNOWN, _said(error, "the function cannot be loaded")
        try:
            parts = work.parts
            if isinstance(parts, Parcel):
                parts = self._assembly.parts(parts, self._read)
            args, kwargs = unpack(parts)
            if work.inputs:
                args, kwargs = self._filled(args, kwargs, work.inputs)
            del parts
        except BaseException as error:  # noqa: BLE001  a user's class may raise anything
            return BROKEN, _said(error, "the arguments cannot be unpickled")
        work.parts = ()
        try:
            value = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  an outcome like any other: the worker goes on
            return RAISED, _raised(error)
        try:
            return VALUE, pack(value, f"the result, {_short(value)},")
        except CannotTravelError as error:
            return BROKEN, pack(str(error), "a sentence")

    def _filled(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: tuple[tuple[int, Parcel], ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the results of other calls put in."""
        values = {number: unpack(self._assembly.parts(parcel, self._read)) for number, parcel in inputs}
        return (
            tuple(filled(argument, values) for argument in args),
            {name: filled(argument, values) for name, argument in kwargs.items()},
        )

    def _read(self, name: str, size: int) -> bytearray:
        return read_file(f"{self._spool}/{name}", size)

    def _answer(self, number: int, status: int, packed: Packed, busy: int) -> None:
        parcel = self._sent_beside(packed) if is_large(packed) else packed.inline()
        with self._flushing:
            self._unsent.append(Outcome(number, status, parcel))
            self._unsent_bytes += packed.size if not parcel.sizes else 64
            self._busy += busy

    def _sent_beside(self, packed: Packed) -> Parcel:
        """Write a large value to the shared store, or send it in pieces."""
        parts = packed.parts()
        if self._spool:
            name = write_file(self._spool, parts)
            if name is not None:
                return Parcel(b"", (), name, 0, tuple(map(len, parts)))
        self._stream += 1
        pieces, parcel = packed.pieces(self._stream)
        for piece in pieces:
            self._channel.send(frame(piece))
        return parcel

    def flush(self) -> None:
        """Send the results that wait."""
        with self._flushing:
            unsent, busy = self._unsent, self._busy
            self._unsent, self._unsent_bytes, self._busy = [], 0, 0
            if unsent:
                self._channel.send(frame(Results(tuple(unsent), busy)))
            self._flushed = time.perf_counter()

    # --- the reading thread

    def read(self, splitter: Splitter) -> None:
        """Read messages until the connection ends; then the worker ends, too."""
        try:
            self._read_on(splitter)
        except (EOFError, OSError):
            _leave(EXIT_LOST, "the executor is gone")
        except FrameError as error:
            _leave(EXIT_LOST, f"the executor broke the protocol: {error}")
        except BaseException as error:  # noqa: BLE001  a worker that no longer reads would hang
            _leave(EXIT_LOST, f"bug in the worker: {error!r}")

    def _read_on(self, splitter: Splitter) -> None:
        readable = select.poll()
        readable.register(self._channel.fileno(), select.POLLIN)
        while True:
            if self._watched:
                while not readable.poll(WATCH_SECONDS * 1e3):
                    idle = not self._unsent
                    self._watched = not idle
                    if self._unsent:
                        self.flush()
                    if idle:
                        break
            data = self._channel.receive()
            if not data:
                continue
            for message in splitter.feed(data):
                if isinstance(message, Bye):
                    self._turns.put(False)
                    return
                self._take(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Calls):
            for record in message.calls:
                self._queue.append(self._accepted(record))
            if len(self._queue) > 1:
                self._watched = True
            if self._turns.empty():  # one is enough: the main thread then reads the whole queue
                self._turns.put(True)
        elif isinstance(message, Function):
            known = message.number in self._functions
            if not known and len(self._functions) >= FUNCTIONS_MAX:
                del self._functions[next(iter(self._functions))]  # the executor forgets the same one
            parts = self._assembly.parts(message.parcel, self._read)
            self._functions[message.number] = _Callable(message.name, parts)
        elif isinstance(message, Recall):
            self._give_back(message)
        elif isinstance(message, Piece):
            self._assembly.add(message)
        else:
            raise FrameError(f"the message {type(message).__name__} is not for a worker")

    def _accepted(self, record: CallRecord) -> _Work:
        function = self._functions.get(record.function)
        if function is None:
            raise FrameError(f"function {record.function} never came")
        parcel = record.parcel
        parts = parcel if parcel.file else self._assembly.parts(parcel, self._read)
        return _Work(record.number, function, parts, record.inputs)

    def _give_back(self, recall: Recall) -> None:
        """Return calls that have not begun: the main thread takes from the left, this one from anywhere."""
        back: list[int] = []
        if recall.numbers:
            wanted = frozenset(recall.numbers)
            for work in [work for work in tuple(self._queue) if work.number in wanted]:
                try:
                    self._queue.remove(work)
                except ValueError:  # it has begun meanwhile
                    continue
                back.append(work.number)
        while len(back) < recall.count:
            try:
                back.append(self._queue.pop().number)
            except IndexError:
                break
        self._channel.send(frame(Returned(tuple(back))))


def filled(argument: Any, values: dict[int, Any]) -> Any:
    """Replace placeholders in an argument, also one level inside, by results."""
    if isinstance(argument, Input):
        return values[argument.number]
    kind = type(argument)
    if kind is list or kind is tuple:
        return kind([values[one.number] if isinstance(one, Input) else one for one in argument])
    if kind is dict:
        return {name: values[one.number] if isinstance(one, Input) else one for name, one in argument.items()}
    return argument


def _short(value: object) -> str:
    """Describe a value by its type, because its own text may fail."""
    return f"of type {type(value).__name__}"


def _said(error: BaseException, what: str) -> Packed:
    """Describe an error of the worker, not of the function."""
    text = f"{what} in this worker ({sys.executable}, Python {sys.version.split()[0]}): "
    return pack(f"{text}{type(error).__name__}: {error}", "a sentence")


def _raised(error: BaseException) -> Packed:
    """Pack an exception with its traceback, or a description if it cannot be pickled."""
    import traceback  # noqa: PLC0415  only failures need it

    trace = error.__traceback__
    inner = trace.tb_next if trace is not None else None  # this module's own frame does not help the user
    text = "".join(traceback.format_exception(type(error), error, inner)).rstrip()
    ended = "" if isinstance(error, Exception) else type(error).__name__
    said = f"{type(error).__name__}: {error}"
    try:
        packed = pack((error.with_traceback(None), text, said, ended), "the exception")
        unpack([packed.body, *packed.buffers])  # some exceptions can be pickled but not unpickled
    except Exception:  # noqa: BLE001  a user's class may raise anything
        return pack((None, text, said, ended), "a sentence")
    return packed


def main() -> None:
    """Take calls until the executor releases this worker."""
    try:
        channel, splitter, welcome = meet()
    except (OSError, EOFError, ssl.SSLError, FrameError, ValueError) as error:
        _leave(EXIT_STRANGER, f"cannot reach the executor at {os.environ.get(ADDRESS, '?')}: {error!r}")
    cpus = os.environ.get("HANSE_CPUS", "")
    if cpus:  # libraries that count the machine's processors would start too many threads
        for name in THREADS:
            os.environ.setdefault(name, str(max(1, int(float(cpus)))))
    for path in welcome.paths:
        if path not in sys.path:
            sys.path.append(path)
    spooled = sees(welcome.spool, welcome.token)
    hand = Hand(channel, welcome.spool if spooled else "")
    channel.send(frame(Ready(spooled)))
    threading.Thread(target=hand.read, args=(splitter,), name="worker reader", daemon=True).start()
    hand.work()
    # Threads left behind by calls would keep the interpreter, and its place in the league, running.
    last = threading.Timer(FAREWELL_SECONDS_MAX, _leave, (0, "threads of calls were still running"))
    last.daemon = True
    last.start()


if __name__ == "__main__":
    sys.modules["hanse.sdk.workers.worker"] = sys.modules["__main__"]
    main()
