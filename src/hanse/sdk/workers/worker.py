"""A hand: a warm Python interpreter that takes the calls of one executor. ``python -m
hanse.sdk.workers.worker``.

It is an ordinary task of the league: placed, limited, explained and mended like any other. It connects
straight back to its executor, and ends when that connection does. The functions run in the main thread, one
after the other; a second thread reads, so that a long call neither hides the end of the executor nor keeps
the calls behind it from being given to another hand.
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
"""``host:port`` where the executor listens."""
PIN: Final = "HANSE_HAND_PIN"
"""Fingerprint of its certificate, in hexadecimal digits."""
CONNECT_SECONDS_MAX: Final = 20.0
"""For connecting, the handshake and the proofs, each."""
HELD_SECONDS_MAX: Final = 0.001
"""A result waits no longer than this for others to travel with."""
WATCH_SECONDS: Final = 0.002
"""After this the reading thread sends what a long call keeps from being sent."""
RECEIVE_BYTES: Final = 256 << 10
KEEPALIVE_SECONDS: Final = 15
"""An executor whose machine is gone is noticed after this, and three probes of five seconds."""
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FAREWELL_SECONDS_MAX: Final = 5.0
"""How long a hand that is no longer needed may take to end."""
EXIT_LOST: Final = 3
"""Exit code of a hand whose executor went without a word."""
EXIT_STRANGER: Final = 4
"""Exit code of a hand that found no executor, or another one than its own."""


class _Callable:
    """A function that has arrived, and is looked for or unpickled when it is first called."""

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
    """A call that waits in the hand."""

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
        """A parcel that lies in the spool is read when its turn comes."""
        self.inputs = inputs


class Channel:
    """The connection to the executor, for two threads."""

    def __init__(self, connection: socket.socket, sealed: secure_channel.Sealed) -> None:
        self._socket = connection
        self._sealed = sealed
        self._tls = threading.Lock()
        """Around every use of TLS: it is not made for two threads."""
        self._sending = threading.Lock()
        """What is sealed first must be sent first."""

    def fileno(self) -> int:
        """For waiting until something can be read."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all of this. If the executor is gone, so is the hand."""
        with self._sending:
            with self._tls:
                self._sealed.seal(data)
                out = self._sealed.out()
            try:
                self._socket.sendall(out)
            except OSError:
                _leave(EXIT_LOST, "the executor is gone")

    def receive(self) -> bytes:
        """What came, after waiting for it; empty: no whole record yet. Raises ``EOFError``, ``OSError``."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        with self._tls:
            self._sealed.feed(data)
            return self._sealed.take()


def _leave(code: int, why: str) -> NoReturn:
    """End at once, whatever the main thread is doing."""
    if why:
        os.write(2, f"hanse hand: {why}\n".encode())
    os._exit(code)


# --- meeting the executor ----------------------------------------------------------------------------------


def meet() -> tuple[Channel, Splitter, Welcome]:
    """Connect to the executor of this hand's environment; both prove who they are."""
    key = read_key()
    address, pin = os.environ.get(ADDRESS, ""), bytes.fromhex(os.environ.get(PIN, ""))
    host, _, port = address.rpartition(":")
    if not host:
        _leave(EXIT_STRANGER, f"a hand is started by an executor, which sets {ADDRESS} and {PIN}")
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
        _leave(EXIT_STRANGER, f"whoever answers at {address} is not the executor of this hand")
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
        _leave(EXIT_STRANGER, f"the executor at {address} refused this hand; its own log says why")
    wanted = secure_channel.proof(key, secure_channel.EXECUTOR, nonce, challenge.nonce, pin, who)
    if not isinstance(welcome, Welcome) or not secure_channel.proved(welcome.proof, wanted):
        _leave(EXIT_STRANGER, f"whoever answers at {address} does not know this hand's key")
    connection.settimeout(None)
    return channel, splitter, welcome


def keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other machine is gone."""
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
    """The next record, while only one is expected."""
    while True:
        for message in splitter.feed(channel.receive()):
            return message


# --- working -----------------------------------------------------------------------------------------------


class Hand:
    """The calls that wait here, and the results that wait to be sent."""

    def __init__(self, channel: Channel, spool: str) -> None:
        self._channel = channel
        self._spool = spool
        """The directory of large parcels; empty: it is not seen here."""
        self._queue: deque[_Work] = deque()
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Wakes the main thread: there are calls. False: no more will come. Holds at most one of each."""
        self._functions: dict[int, _Callable] = {}
        self._assembly = Assembly()
        self._unsent: list[Outcome] = []
        self._unsent_bytes = 0
        self._busy = 0
        self._flushing = threading.Lock()
        self._flushed = 0.0
        self._watched = False
        """Whether the reading thread sends within ``WATCH_SECONDS`` what is left unsent. While it does not,
        the main thread sends every result at once. Both write first and then look at what the other has
        written: the main thread a result and then this, the other thread this and then the results. So one of
        them sees it."""
        self._stream = 0

    # --- the main thread

    def work(self) -> None:
        """Make calls until the executor says good-bye."""
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
        """Make one call; how it ended."""
        try:
            function = work.function.get()
        except BaseException as error:  # noqa: BLE001  whatever an import raises
            return UNKNOWN, _said(error, "the function cannot be loaded")
        try:
            parts = work.parts
            if isinstance(parts, Parcel):
                parts = self._assembly.parts(parts, self._read)
            args, kwargs = unpack(parts)
            if work.inputs:
                args, kwargs = self._filled(args, kwargs, work.inputs)
            del parts
        except BaseException as error:  # noqa: BLE001  whatever a class raises
            return BROKEN, _said(error, "the arguments cannot be unpickled")
        work.parts = ()
        try:
            value = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  an outcome, whatever it is: the hand goes on
            return RAISED, _raised(error)
        try:
            return VALUE, pack(value, f"the result, {_short(value)},")
        except CannotTravelError as error:
            return BROKEN, pack(str(error), "a sentence")

    def _filled(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: tuple[tuple[int, Parcel], ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with the results of other calls in their places."""
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
        """Put a large parcel into the spool, or send it in pieces."""
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
        """Take what the executor says until the connection ends; then the hand ends, too."""
        try:
            self._read_on(splitter)
        except (EOFError, OSError):
            _leave(EXIT_LOST, "the executor is gone")
        except FrameError as error:
            _leave(EXIT_LOST, f"the executor does not keep the protocol: {error}")
        except BaseException as error:  # noqa: BLE001  a hand that no longer reads would hang for ever
            _leave(EXIT_LOST, f"bug in the hand: {error!r}")

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
            if self._turns.empty():  # one is enough: the main thread looks at the queue after it took it
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
            raise FrameError(f"{type(message).__name__} is not for a hand")

    def _accepted(self, record: CallRecord) -> _Work:
        function = self._functions.get(record.function)
        if function is None:
            raise FrameError(f"function {record.function} never came")
        parcel = record.parcel
        parts = parcel if parcel.file else self._assembly.parts(parcel, self._read)
        return _Work(record.number, function, parts, record.inputs)

    def _give_back(self, recall: Recall) -> None:
        """Give back what has not begun: the main thread takes from the left, this one from anywhere."""
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
    """An argument with results put in for what stands for them, also one level inside."""
    if isinstance(argument, Input):
        return values[argument.number]
    kind = type(argument)
    if kind is list or kind is tuple:
        return kind([values[one.number] if isinstance(one, Input) else one for one in argument])
    if kind is dict:
        return {name: values[one.number] if isinstance(one, Input) else one for name, one in argument.items()}
    return argument


def _short(value: object) -> str:
    """What kind of thing it is; its own text might not be to be had."""
    return f"of type {type(value).__name__}"


def _said(error: BaseException, what: str) -> Packed:
    """Sentences about an error of the hand, not of the function."""
    text = f"{what} in this hand ({sys.executable}, Python {sys.version.split()[0]}): "
    return pack(f"{text}{type(error).__name__}: {error}", "a sentence")


def _raised(error: BaseException) -> Packed:
    """An exception with its traceback; if it cannot be pickled, what is to be said of it."""
    import traceback  # noqa: PLC0415  only failures need it

    trace = error.__traceback__
    inner = trace.tb_next if trace is not None else None  # our own line says nothing to anybody
    text = "".join(traceback.format_exception(type(error), error, inner)).rstrip()
    ended = "" if isinstance(error, Exception) else type(error).__name__
    said = f"{type(error).__name__}: {error}"
    try:
        packed = pack((error.with_traceback(None), text, said, ended), "the exception")
        unpack([packed.body, *packed.buffers])  # some can be pickled and not be unpickled
    except Exception:  # noqa: BLE001  a user's class may raise whatever it likes
        return pack((None, text, said, ended), "a sentence")
    return packed


def main() -> None:
    """Take calls until the executor needs no more of them."""
    try:
        channel, splitter, welcome = meet()
    except (OSError, EOFError, ssl.SSLError, FrameError, ValueError) as error:
        _leave(EXIT_STRANGER, f"cannot reach the executor at {os.environ.get(ADDRESS, '?')}: {error!r}")
    cpus = os.environ.get("HANSE_CPUS", "")
    if cpus:  # libraries that count the processors of the machine would start too many threads
        for name in THREADS:
            os.environ.setdefault(name, str(max(1, int(float(cpus)))))
    for path in welcome.paths:
        if path not in sys.path:
            sys.path.append(path)
    spooled = sees(welcome.spool, welcome.token)
    hand = Hand(channel, welcome.spool if spooled else "")
    channel.send(frame(Ready(spooled)))
    threading.Thread(target=hand.read, args=(splitter,), name="hand reader", daemon=True).start()
    hand.work()
    # Threads that calls have left behind would keep the interpreter, and its room in the league, for ever.
    last = threading.Timer(FAREWELL_SECONDS_MAX, _leave, (0, "threads of calls had to be left behind"))
    last.daemon = True
    last.start()


if __name__ == "__main__":
    sys.modules["hanse.sdk.workers.worker"] = sys.modules["__main__"]
    main()
