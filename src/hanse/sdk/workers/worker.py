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
from hanse.sdk.errors import SerializationError
from hanse.sdk.function_pickling import FUNCTIONS_MAX, find_function
from hanse.sdk.serialization import Buffer, Input, PayloadAssembler, PickledValue, is_large, pack, unpack
from hanse.sdk.shared_store import can_use_store, read_file, write_file
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.worker_key import NO_KEY, own_attempt_id, read_key
from hanse.sdk.workers.worker_protocol import (
    BATCH_BYTES,
    BATCH_ITEMS_MAX,
    BROKEN,
    FRAME_BYTES_MAX,
    FUNCTION_NOT_FOUND,
    HELLO_BYTES_MAX,
    NONCE_BYTES,
    RAISED,
    VALUE,
    Bye,
    CallOutcome,
    CallRecord,
    Calls,
    Challenge,
    FrameDecoder,
    FrameError,
    FunctionRecord,
    Hello,
    Message,
    Payload,
    PayloadPiece,
    Ready,
    Recall,
    Results,
    ReturnedCalls,
    Welcome,
    encode_frame,
)

ADDRESS_VARIABLE: Final = "HANSE_HAND_ADDRESS"
"""Variable with ``host:port`` where the executor listens."""
PIN_VARIABLE: Final = "HANSE_HAND_PIN"
"""Variable with the fingerprint of the executor's certificate, in hexadecimal digits."""
CONNECT_SECONDS_MAX: Final = 20.0
"""Limit for connecting, for the handshake and for the proofs, each."""
RESULT_DELAY_SECONDS_MAX: Final = 0.001
"""Longest delay of a result so that others can be sent with it."""
WATCH_SECONDS: Final = 0.002
"""Delay after which the reading thread sends results that a long call holds up."""
RECEIVE_BYTES: Final = 256 << 10
KEEPALIVE_SECONDS: Final = 15
"""Silence after which a connection is probed; three probes of five seconds follow."""
THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SHUTDOWN_SECONDS_MAX: Final = 5.0
"""Seconds that a released worker may take to end."""
EXIT_EXECUTOR_LOST: Final = 3
"""Exit code of a worker that lost its executor without notice."""
EXIT_NO_EXECUTOR: Final = 4
"""Exit code of a worker that found no executor, or one that is not its own."""


class _ReceivedFunction:
    """Received function, imported or unpickled at its first call."""

    __slots__ = ("_function", "_name", "_parts")

    def __init__(self, name: str, parts: Sequence[Buffer]) -> None:
        self._name = name
        self._parts: Sequence[Buffer] = parts
        self._function: Callable[..., Any] | None = None

    def get(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = find_function(self._name) if self._name else unpack(self._parts)
            self._parts = ()
        return self._function


class _QueuedCall:
    """Call that waits in the worker."""

    __slots__ = ("function", "inputs", "number", "parts")

    def __init__(
        self,
        number: int,
        function: _ReceivedFunction,
        parts: "Sequence[Buffer] | Payload",
        inputs: tuple[tuple[int, Payload], ...],
    ) -> None:
        self.number = number
        self.function = function
        self.parts = parts
        """Arguments; a payload in the shared store is read just before the call."""
        self.inputs = inputs


class ExecutorConnection:
    """Connection to the executor, for two threads."""

    def __init__(self, connection: socket.socket, session: secure_channel.TlsSession) -> None:
        self._socket = connection
        self._session = session
        self._tls_lock = threading.Lock()
        """Guards TLS, which is not made for two threads."""
        self._send_lock = threading.Lock()
        """Keeps encrypted data in order: encrypted first, sent first."""

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all of the data. If the executor is gone, the worker ends."""
        with self._send_lock:
            with self._tls_lock:
                self._session.write(data)
                out = self._session.take_output()
            try:
                self._socket.sendall(out)
            except OSError:
                _exit(EXIT_EXECUTOR_LOST, "the executor is gone")

    def receive(self) -> bytes:
        """Wait for data and return it; empty: no whole record yet. Raises ``EOFError``, ``OSError``."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        with self._tls_lock:
            self._session.feed(data)
            return self._session.read()


def _exit(code: int, reason: str) -> NoReturn:
    """End the process at once, even during a call."""
    if reason:
        os.write(2, f"hanse worker: {reason}\n".encode())
    os._exit(code)


# --- connecting to the executor ----------------------------------------------------------------------------


def connect_to_executor() -> tuple[ExecutorConnection, FrameDecoder, Welcome]:
    """Connect to the executor named in the environment; both sides prove their key."""
    key = read_key()
    address, pin = os.environ.get(ADDRESS_VARIABLE, ""), bytes.fromhex(os.environ.get(PIN_VARIABLE, ""))
    host, _, port = address.rpartition(":")
    if not host:
        _exit(
            EXIT_NO_EXECUTOR,
            f"{ADDRESS_VARIABLE} and {PIN_VARIABLE} are not set. Only an executor can start a worker.",
        )
    if len(key) != SECRET_BYTES:
        _exit(EXIT_NO_EXECUTOR, NO_KEY)
    connection = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    enable_keepalive(connection)
    session = secure_channel.TlsSession(secure_channel.worker_context(), server=False)
    while not session.do_handshake():
        connection.sendall(session.take_output())
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        session.feed(data)
    connection.sendall(session.take_output())
    if not secure_channel.is_same_secret(session.peer_fingerprint(), pin):
        _exit(EXIT_NO_EXECUTOR, f"the process at {address} is not the executor of this worker")
    channel, splitter = ExecutorConnection(connection, session), FrameDecoder(HELLO_BYTES_MAX)
    challenge = _next_message(channel, splitter)
    assert isinstance(challenge, Challenge), challenge
    nonce, attempt_id = os.urandom(NONCE_BYTES), own_attempt_id()
    channel.send(
        encode_frame(
            _make_hello(
                nonce,
                secure_channel.compute_proof(
                    key, secure_channel.WORKER_ROLE, challenge.nonce, nonce, pin, attempt_id
                ),
                attempt_id,
            )
        )
    )
    splitter.bytes_max = FRAME_BYTES_MAX
    try:
        welcome = _next_message(channel, splitter)
    except EOFError:
        _exit(EXIT_NO_EXECUTOR, f"the executor at {address} refused this worker. Its log has the reason.")
    expected = secure_channel.compute_proof(
        key, secure_channel.EXECUTOR_ROLE, nonce, challenge.nonce, pin, attempt_id
    )
    if not isinstance(welcome, Welcome) or not secure_channel.is_same_secret(welcome.proof, expected):
        _exit(EXIT_NO_EXECUTOR, f"the process at {address} does not know this worker's key")
    connection.settimeout(None)
    return channel, splitter, welcome


def enable_keepalive(connection: socket.socket) -> None:
    """Detect within half a minute that the other machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", KEEPALIVE_SECONDS), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _make_hello(nonce: bytes, proof: bytes, attempt_id: tuple[str, int, int]) -> Hello:
    variable = os.environ.get
    job, index, attempt = attempt_id
    return Hello(
        nonce=nonce,
        proof=proof,
        job=job,
        index=index,
        attempt=attempt,
        cluster=variable("HANSE_CLUSTER", ""),
        node=variable("HANSE_NODE", ""),
        pid=os.getpid(),
        python=".".join(map(str, sys.version_info[:3])),
    )


def _next_message(channel: ExecutorConnection, splitter: FrameDecoder) -> Message:
    """Return the next record, while only one is expected."""
    while True:
        for message in splitter.feed(channel.receive()):
            return message


# --- calls -------------------------------------------------------------------------------------------------


class Worker:
    """Worker: the calls that wait here, and the results that wait to be sent."""

    def __init__(self, channel: ExecutorConnection, store: str) -> None:
        self._channel = channel
        self._store = store
        """Directory of the shared store; empty: not visible here."""
        self._queue: deque[_QueuedCall] = deque()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Wakes the main thread: True for calls, False for the end. Holds at most one of each."""
        self._functions: dict[int, _ReceivedFunction] = {}
        self._assembler = PayloadAssembler()
        self._unsent: list[CallOutcome] = []
        self._unsent_bytes = 0
        self._busy_ns = 0
        self._flush_lock = threading.Lock()
        self._flushed_at = 0.0
        self._reader_flushes = False
        """True if the reading thread sends unsent results within ``WATCH_SECONDS``. While it is False, the
        main thread sends every result at once. Each thread writes first and then reads what the other has
        written: the main thread writes a result and reads this flag, the other thread writes this flag and
        reads the results. So one of them sees it."""
        self._stream = 0

    # --- the main thread

    def run_calls(self) -> None:
        """Make calls until the executor releases the worker."""
        calls = self._queue
        while True:
            try:
                call = calls.popleft()
            except IndexError:
                if self._unsent:
                    self.flush()
                if not self._wakeups.get():
                    return
                continue
            begin = time.perf_counter_ns()
            status, packed = self._make_call(call)
            end = time.perf_counter_ns()
            self._add_result(call.number, status, packed, end - begin)
            late = end * 1e-9 - self._flushed_at > RESULT_DELAY_SECONDS_MAX
            full = self._unsent_bytes >= BATCH_BYTES or len(self._unsent) >= BATCH_ITEMS_MAX
            if late or full or not self._reader_flushes:
                self.flush()

    def _make_call(self, call: _QueuedCall) -> tuple[int, PickledValue]:
        """Make one call and return its outcome."""
        try:
            function = call.function.get()
        except BaseException as error:  # noqa: BLE001  an import may raise anything
            return FUNCTION_NOT_FOUND, _pack_error_text(error, "the function cannot be loaded")
        try:
            parts = call.parts
            if isinstance(parts, Payload):
                parts = self._assembler.take_parts(parts, self._read_store_file)
            args, kwargs = unpack(parts)
            if call.inputs:
                args, kwargs = self._substitute_inputs(args, kwargs, call.inputs)
            del parts
        except BaseException as error:  # noqa: BLE001  a user's class may raise anything
            return BROKEN, _pack_error_text(error, "the arguments cannot be unpickled")
        call.parts = ()
        try:
            value = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  an outcome like any other: the worker goes on
            return RAISED, _pack_exception(error)
        try:
            return VALUE, pack(value, f"the result, {_type_text(value)},")
        except SerializationError as error:
            return BROKEN, pack(str(error), "a sentence")

    def _substitute_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: tuple[tuple[int, Payload], ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the results of other calls put in."""
        values = {
            number: unpack(self._assembler.take_parts(payload, self._read_store_file))
            for number, payload in inputs
        }
        return (
            tuple(substitute_inputs(argument, values) for argument in args),
            {name: substitute_inputs(argument, values) for name, argument in kwargs.items()},
        )

    def _read_store_file(self, name: str, size: int) -> bytearray:
        return read_file(f"{self._store}/{name}", size)

    def _add_result(self, number: int, status: int, packed: PickledValue, busy_ns: int) -> None:
        payload = self._send_large(packed) if is_large(packed) else packed.to_inline_payload()
        with self._flush_lock:
            self._unsent.append(CallOutcome(number, status, payload))
            self._unsent_bytes += packed.size if not payload.sizes else 64
            self._busy_ns += busy_ns

    def _send_large(self, packed: PickledValue) -> Payload:
        """Write a large value to the shared store, or send it in pieces."""
        parts = packed.read_parts()
        if self._store:
            name = write_file(self._store, parts)
            if name is not None:
                return Payload(b"", (), name, 0, tuple(map(len, parts)))
        self._stream += 1
        pieces, payload = packed.to_pieces(self._stream)
        for piece in pieces:
            self._channel.send(encode_frame(piece))
        return payload

    def flush(self) -> None:
        """Send the results that wait."""
        with self._flush_lock:
            unsent, busy_ns = self._unsent, self._busy_ns
            self._unsent, self._unsent_bytes, self._busy_ns = [], 0, 0
            if unsent:
                self._channel.send(encode_frame(Results(tuple(unsent), busy_ns)))
            self._flushed_at = time.perf_counter()

    # --- the reading thread

    def read_messages(self, splitter: FrameDecoder) -> None:
        """Read messages until the connection ends; then the worker ends, too."""
        try:
            self._read_loop(splitter)
        except (EOFError, OSError):
            _exit(EXIT_EXECUTOR_LOST, "the executor is gone")
        except FrameError as error:
            _exit(EXIT_EXECUTOR_LOST, f"the executor broke the protocol: {error}")
        except BaseException as error:  # noqa: BLE001  a worker that no longer reads would hang
            _exit(EXIT_EXECUTOR_LOST, f"bug in the worker: {error!r}")

    def _read_loop(self, splitter: FrameDecoder) -> None:
        readable = select.poll()
        readable.register(self._channel.fileno(), select.POLLIN)
        while True:
            if self._reader_flushes:
                while not readable.poll(WATCH_SECONDS * 1e3):
                    idle = not self._unsent
                    self._reader_flushes = not idle
                    if self._unsent:
                        self.flush()
                    if idle:
                        break
            data = self._channel.receive()
            if not data:
                continue
            for message in splitter.feed(data):
                if isinstance(message, Bye):
                    self._wakeups.put(False)
                    return
                self._on_message(message)

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Calls):
            for record in message.calls:
                self._queue.append(self._to_queued_call(record))
            if len(self._queue) > 1:
                self._reader_flushes = True
            if self._wakeups.empty():  # one is enough: the main thread then reads the whole queue
                self._wakeups.put(True)
        elif isinstance(message, FunctionRecord):
            known = message.number in self._functions
            if not known and len(self._functions) >= FUNCTIONS_MAX:
                del self._functions[next(iter(self._functions))]  # the executor forgets the same one
            parts = self._assembler.take_parts(message.payload, self._read_store_file)
            self._functions[message.number] = _ReceivedFunction(message.name, parts)
        elif isinstance(message, Recall):
            self._on_recall(message)
        elif isinstance(message, PayloadPiece):
            self._assembler.add_piece(message)
        else:
            raise FrameError(f"the message {type(message).__name__} is not for a worker")

    def _to_queued_call(self, record: CallRecord) -> _QueuedCall:
        function = self._functions.get(record.function)
        if function is None:
            raise FrameError(f"function {record.function} never came")
        payload = record.payload
        parts = payload if payload.file else self._assembler.take_parts(payload, self._read_store_file)
        return _QueuedCall(record.number, function, parts, record.inputs)

    def _on_recall(self, recall: Recall) -> None:
        """Return calls that have not begun: the main thread takes from the left, this one from anywhere."""
        returned: list[int] = []
        if recall.numbers:
            wanted = frozenset(recall.numbers)
            for call in [call for call in tuple(self._queue) if call.number in wanted]:
                try:
                    self._queue.remove(call)
                except ValueError:  # it has begun meanwhile
                    continue
                returned.append(call.number)
        while len(returned) < recall.count:
            try:
                returned.append(self._queue.pop().number)
            except IndexError:
                break
        self._channel.send(encode_frame(ReturnedCalls(tuple(returned))))


def substitute_inputs(argument: Any, values: dict[int, Any]) -> Any:
    """Replace placeholders in an argument, also one level inside, by results."""
    if isinstance(argument, Input):
        return values[argument.number]
    kind = type(argument)
    if kind is list or kind is tuple:
        return kind([values[one.number] if isinstance(one, Input) else one for one in argument])
    if kind is dict:
        return {name: values[one.number] if isinstance(one, Input) else one for name, one in argument.items()}
    return argument


def _type_text(value: object) -> str:
    """Describe a value by its type, because its own text may fail."""
    return f"of type {type(value).__name__}"


def _pack_error_text(error: BaseException, problem: str) -> PickledValue:
    """Describe an error of the worker, not of the function."""
    text = f"{problem} in this worker ({sys.executable}, Python {sys.version.split()[0]}): "
    return pack(f"{text}{type(error).__name__}: {error}", "a sentence")


def _pack_exception(error: BaseException) -> PickledValue:
    """Pack an exception with its traceback, or a description if it cannot be pickled."""
    import traceback  # noqa: PLC0415  only failures need it

    trace = error.__traceback__
    inner = trace.tb_next if trace is not None else None  # this module's own frame does not help the user
    text = "".join(traceback.format_exception(type(error), error, inner)).rstrip()
    exit_name = "" if isinstance(error, Exception) else type(error).__name__
    summary = f"{type(error).__name__}: {error}"
    try:
        packed = pack((error.with_traceback(None), text, summary, exit_name), "the exception")
        unpack([packed.body, *packed.buffers])  # some exceptions can be pickled but not unpickled
    except Exception:  # noqa: BLE001  a user's class may raise anything
        return pack((None, text, summary, exit_name), "a sentence")
    return packed


def main() -> None:
    """Take calls until the executor releases this worker."""
    try:
        channel, splitter, welcome = connect_to_executor()
    except (OSError, EOFError, ssl.SSLError, FrameError, ValueError) as error:
        _exit(
            EXIT_NO_EXECUTOR,
            f"cannot reach the executor at {os.environ.get(ADDRESS_VARIABLE, '?')}: {error!r}",
        )
    cpus = os.environ.get("HANSE_CPUS", "")
    if cpus:  # libraries that count the machine's processors would start too many threads
        for name in THREAD_VARIABLES:
            os.environ.setdefault(name, str(max(1, int(float(cpus)))))
    for path in welcome.import_paths:
        if path not in sys.path:
            sys.path.append(path)
    sees_store = can_use_store(welcome.store, welcome.token)
    worker = Worker(channel, welcome.store if sees_store else "")
    channel.send(encode_frame(Ready(sees_store)))
    threading.Thread(target=worker.read_messages, args=(splitter,), name="worker reader", daemon=True).start()
    worker.run_calls()
    # Threads left behind by calls would keep the interpreter, and its place in the league, running.
    exit_timer = threading.Timer(SHUTDOWN_SECONDS_MAX, _exit, (0, "threads of calls were still running"))
    exit_timer.daemon = True
    exit_timer.start()


if __name__ == "__main__":
    sys.modules["hanse.sdk.workers.worker"] = sys.modules["__main__"]
    main()
