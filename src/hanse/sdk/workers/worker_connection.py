"""Connection of one worker, on the executor's side: non-blocking, encrypts and decrypts frames."""

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from hanse.model.attempt_key import SECRET_BYTES, attempt_key
from hanse.sdk.function_pickling import FUNCTIONS_MAX, Traveller
from hanse.sdk.serialization import Assembly, Packed, is_large
from hanse.sdk.shared_store import OwnSpool
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.worker import keep_alive
from hanse.sdk.workers.worker_protocol import (
    BATCH_BYTES,
    BATCH_ITEMS_MAX,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    NONCE_BYTES,
    CallRecord,
    Calls,
    Challenge,
    FrameError,
    Function,
    Hello,
    Message,
    Parcel,
    Piece,
    Ready,
    Splitter,
    Welcome,
    frame,
)

RECEIVE_BYTES: Final = 256 << 10
RECEIVES_MAX: Final = 32
"""Reads of one connection before the others have their turn."""
SEALED_BYTES: Final = 1 << 20
"""Frames are encrypted while less than this waits for the socket."""


class Gate:
    """Settings that all connections of an executor share, and the admission of workers."""

    def __init__(self, spool: OwnSpool | None, paths: tuple[str, ...]) -> None:
        certificate = secure_channel.Certificate()
        self.secret = os.urandom(SECRET_BYTES)
        """Secret from which the league derives the key of each worker. No worker gets the secret."""
        self.admit: Callable[[Hello], str] = lambda _: ""
        """Callback for a worker that has proved its key; returns a reason to refuse it, or nothing."""
        self.fingerprint = certificate.fingerprint
        self.context = certificate.context()
        self.spool = spool
        self.paths = paths


class Link:
    """Connection to a worker. A method that raises ``OSError`` or ``FrameError`` leaves it unusable."""

    def __init__(self, connection: socket.socket, gate: Gate, since: float) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
        self.socket = connection
        self.peer = _peer_of(connection)
        """Address of the other side."""
        self.since = since
        """Time when it was opened."""
        self.hello: Hello | None = None
        self.ready = False
        self.spooled = False
        """True if the worker sees the shared store."""
        self.assembly = Assembly()
        self._gate = gate
        self._sealed = secure_channel.Sealed(gate.context, server=True)
        self._shaken = False
        self._nonce = os.urandom(NONCE_BYTES)
        self._splitter = Splitter(HELLO_BYTES_MAX)
        self._outbox: deque[bytes | Iterator[Piece]] = deque()
        self._out = b""
        """Encrypted bytes that are not written yet."""
        self._functions: dict[int, bool] = {}
        """Functions that the worker has; False if it must be sent again. Both sides forget the oldest."""
        self._stream = 0

    @property
    def writing(self) -> bool:
        """True if output waits for the socket."""
        return bool(self._out) or bool(self._outbox)

    # --- input

    def receive(self) -> list[Message]:
        """Return the messages that have come. Raises ``EOFError`` when the worker is gone."""
        messages: list[Message] = []
        for _ in range(RECEIVES_MAX):
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            if not data:
                if messages:
                    break  # return the last messages first; the next call finds the end again
                raise EOFError
            self._sealed.feed(data)
            if not self._shaken and not self._shake():
                continue
            for message in self._splitter.feed(self._sealed.take()):
                if self.ready:
                    messages.append(message)
                else:
                    self._meet(message)
            if len(data) < RECEIVE_BYTES:
                break
        return messages

    def _shake(self) -> bool:
        self._shaken = self._sealed.shaken()
        if self._shaken:
            self._sealed.seal(frame(Challenge(self._nonce)))
        self.write()
        return self._shaken

    def _meet(self, message: Message) -> None:
        """Check the proof of a worker; before that, no other message is accepted."""
        gate = self._gate
        if isinstance(message, Hello) and self.hello is None:
            job, index, attempt = who = message.who
            key, pin = attempt_key(gate.secret, job, index, attempt), gate.fingerprint
            wanted = secure_channel.proof(key, secure_channel.HAND, self._nonce, message.nonce, pin, who)
            if len(message.nonce) != NONCE_BYTES or not secure_channel.proved(message.proof, wanted):
                raise FrameError(f"a peer claims to be worker {job[:32]}.{index} without its key")
            refused = gate.admit(message)
            if refused:
                raise FrameError(refused)
            self.hello = message
            self._splitter.bytes_max = FRAME_BYTES_MAX
            answer = secure_channel.proof(key, secure_channel.EXECUTOR, message.nonce, self._nonce, pin, who)
            spool = gate.spool
            place, token = (spool.directory, spool.token) if spool is not None else ("", "")
            self._outbox.append(frame(Welcome(answer, place, token, gate.paths)))
            self.write()
        elif isinstance(message, Ready) and self.hello is not None:
            self.ready, self.spooled = True, message.spooled and gate.spool is not None
        else:
            raise FrameError(f"the message {type(message).__name__} before the worker has proved its key")

    # --- output

    def send(self, message: Message) -> None:
        """Send a record after the waiting ones."""
        self._outbox.append(frame(message))
        self.write()

    def send_calls(self, calls: list[tuple[int, Traveller, Packed, tuple[tuple[int, Packed], ...]]]) -> None:
        """Send calls, and the functions that the worker lacks, in as few frames as possible."""
        records: list[CallRecord] = []
        size = 0
        for number, function, packed, inputs in calls:
            if not self._functions.get(function.number):
                self._send_function(function)
            if packed.file is None and not inputs and packed.size <= BATCH_BYTES:
                record = CallRecord(number, function.number, packed.inline())
                size += packed.size + 16
            else:
                parcel = self._parcel(packed)
                placed = tuple((of, self._parcel(value)) for of, value in inputs)
                record = CallRecord(number, function.number, parcel, placed)
                size += len(parcel.body) + 128 * (1 + len(inputs))
            records.append(record)
            if size >= BATCH_BYTES or len(records) >= BATCH_ITEMS_MAX:
                self._outbox.append(frame(Calls(tuple(records))))
                records, size = [], 0
        if records:
            self._outbox.append(frame(Calls(tuple(records))))
        self.write()

    def _send_function(self, function: Traveller) -> None:
        if function.number not in self._functions and len(self._functions) >= FUNCTIONS_MAX:
            del self._functions[next(iter(self._functions))]
        self._functions[function.number] = True
        parcel = Parcel(b"") if function.name else self._parcel(function.packed)
        self._outbox.append(frame(Function(function.number, function.name, parcel)))

    def forget(self, function: Traveller) -> None:
        """Mark a function to be sent again before its next call, because it is now sent by value."""
        if function.number in self._functions:
            self._functions[function.number] = False

    def _parcel(self, packed: Packed) -> Parcel:
        """Return a value's payload: inline, in a file, or in pieces that are sent first."""
        if not is_large(packed):
            return packed.inline()
        if self.spooled and self._gate.spool is not None:
            parcel = packed.spooled(self._gate.spool)
            if parcel is not None:
                return parcel
        self._stream += 1
        pieces, parcel = packed.pieces(self._stream)
        self._outbox.append(pieces)
        return parcel

    def write(self) -> None:
        """Write as much as the socket takes now."""
        while True:
            if not self._out:
                self._seal_some()
            if not self._out:
                return
            try:
                count = self.socket.send(self._out)
            except (BlockingIOError, InterruptedError):
                return
            self._out = self._out[count:]
            if self._out:
                return

    def _seal_some(self) -> None:
        size = 0
        while self._outbox and size < SEALED_BYTES:
            item = self._outbox[0]
            if isinstance(item, bytes):
                self._outbox.popleft()
                data = item
            else:
                piece = next(item, None)
                if piece is None:
                    self._outbox.popleft()
                    continue
                data = frame(piece)
            self._sealed.seal(data)
            size += len(data)
        self._out = self._sealed.out()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _peer_of(connection: socket.socket) -> str:
    try:
        host, port = connection.getpeername()[:2]
    except OSError:  # closed already
        return "a peer that is gone"
    return f"{host} port {port}"


LinkErrors: Final = (OSError, EOFError, FrameError, ssl.SSLError)
"""Errors that end one connection only."""
