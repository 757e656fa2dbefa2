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
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from hanse.sdk.function_pickling import FUNCTIONS_MAX
from hanse.sdk.serialization import Buffer, PayloadAssembler, PickledValue, is_large
from hanse.sdk.shared_store import can_use_store, read_file, write_file
from hanse.sdk.workers.call_execution import QueuedCall, ReceivedFunction, make_call
from hanse.sdk.workers.executor_connection import (
    ADDRESS_VARIABLE,
    EXIT_EXECUTOR_LOST,
    EXIT_NO_EXECUTOR,
    ExecutorConnection,
    connect_to_executor,
    end_process,
)
from hanse.sdk.workers.worker_protocol import (
    BATCH_BYTES,
    BATCH_ITEMS_MAX,
    Bye,
    CallOutcome,
    CallRecord,
    Calls,
    FrameDecoder,
    FrameError,
    FunctionRecord,
    Message,
    Payload,
    PayloadPiece,
    Ready,
    Recall,
    Results,
    ReturnedCalls,
    encode_frame,
)

RESULT_DELAY_SECONDS_MAX: Final = 0.001
"""Longest delay of a result so that others can be sent with it."""
WATCH_SECONDS: Final = 0.002
"""Delay after which the reading thread sends results that a long call holds up."""
THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SHUTDOWN_SECONDS_MAX: Final = 5.0
"""Seconds that a released worker may take to end."""


class Worker:
    """Worker: the calls that wait here, and the results that wait to be sent."""

    def __init__(self, channel: ExecutorConnection, store: str) -> None:
        self._channel = channel
        self._store = store
        """Directory of the shared store; empty: not visible here."""
        self._queue: deque[QueuedCall] = deque()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Wakes the main thread: True for calls, False for the end. Holds at most one of each."""
        self._functions: dict[int, ReceivedFunction] = {}
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
            status, packed = make_call(call, self._read_payload)
            end = time.perf_counter_ns()
            self._add_result(call.number, status, packed, end - begin)
            late = end * 1e-9 - self._flushed_at > RESULT_DELAY_SECONDS_MAX
            full = self._unsent_bytes >= BATCH_BYTES or len(self._unsent) >= BATCH_ITEMS_MAX
            if late or full or not self._reader_flushes:
                self.flush()

    def _read_payload(self, payload: Payload) -> Sequence[Buffer]:
        return self._assembler.take_parts(payload, self._read_store_file)

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
            end_process(EXIT_EXECUTOR_LOST, "the executor is gone")
        except FrameError as error:
            end_process(EXIT_EXECUTOR_LOST, f"the executor broke the protocol: {error}")
        except BaseException as error:  # noqa: BLE001  a worker that no longer reads would hang
            end_process(EXIT_EXECUTOR_LOST, f"bug in the worker: {error!r}")

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
            parts = self._read_payload(message.payload)
            self._functions[message.number] = ReceivedFunction(message.name, parts)
        elif isinstance(message, Recall):
            self._on_recall(message)
        elif isinstance(message, PayloadPiece):
            self._assembler.add_piece(message)
        else:
            raise FrameError(f"the message {type(message).__name__} is not for a worker")

    def _to_queued_call(self, record: CallRecord) -> QueuedCall:
        function = self._functions.get(record.function)
        if function is None:
            raise FrameError(f"function {record.function} never came")
        payload = record.payload
        parts = payload if payload.file else self._read_payload(payload)
        return QueuedCall(record.number, function, parts, record.inputs)

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


def main() -> None:
    """Take calls until the executor releases this worker."""
    try:
        channel, splitter, welcome = connect_to_executor()
    except (OSError, EOFError, ssl.SSLError, FrameError, ValueError) as error:
        end_process(
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
    exit_timer = threading.Timer(
        SHUTDOWN_SECONDS_MAX, end_process, (0, "threads of calls were still running")
    )
    exit_timer.daemon = True
    exit_timer.start()


if __name__ == "__main__":
    sys.modules["hanse.sdk.workers.worker"] = sys.modules["__main__"]
    main()
