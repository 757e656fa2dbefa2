"""Connection of one worker, on the executor's side: non-blocking, encrypts and decrypts frames."""

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from hanse.model.attempt_key_derivation import SECRET_BYTES, derive_attempt_key
from hanse.sdk.function_pickling import FUNCTIONS_MAX, RemoteFunction
from hanse.sdk.serialization import PayloadAssembler, PickledValue, is_large
from hanse.sdk.shared_store import ExecutorStore
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.worker_protocol import (
    BATCH_BYTES,
    BATCH_ITEMS_MAX,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    NONCE_BYTES,
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
    Welcome,
    encode_frame,
)

RECEIVE_BYTES: Final = 256 << 10
RECEIVES_MAX: Final = 32
"""Reads of one connection before the others have their turn."""
ENCRYPTED_BYTES: Final = 1 << 20
"""Frames are encrypted while less than this waits for the socket."""


class ConnectionSettings:
    """Settings that all connections of an executor share, and the admission of workers."""

    def __init__(self, store: ExecutorStore | None, import_paths: tuple[str, ...]) -> None:
        certificate = secure_channel.ExecutorCertificate()
        self.secret = os.urandom(SECRET_BYTES)
        """Secret from which the league derives the key of each worker. No worker gets the secret."""
        self.check_admission: Callable[[Hello], str] = lambda _: ""
        """Callback for a worker that has proved its key; returns a reason to refuse it, or nothing."""
        self.fingerprint = certificate.fingerprint
        self.ssl_context = certificate.server_context()
        self.store = store
        self.import_paths = import_paths


class WorkerConnection:
    """Connection to a worker. A method that raises ``OSError`` or ``FrameError`` leaves it unusable."""

    def __init__(self, connection: socket.socket, settings: ConnectionSettings, opened_at: float) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secure_channel.enable_keepalive(connection)
        self.socket = connection
        self.peer = _peer_text(connection)
        """Address of the other side."""
        self.opened_at = opened_at
        """Time when it was opened."""
        self.hello: Hello | None = None
        self.ready = False
        self.sees_store = False
        """True if the worker sees the shared store."""
        self.assembler = PayloadAssembler()
        self._settings = settings
        self._session = secure_channel.TlsSession(settings.ssl_context, server=True)
        self._handshake_done = False
        self._nonce = os.urandom(NONCE_BYTES)
        self._splitter = FrameDecoder(HELLO_BYTES_MAX)
        self._outbox: deque[bytes | Iterator[PayloadPiece]] = deque()
        self._unwritten = b""
        """Encrypted bytes that are not written yet."""
        self._sent_functions: dict[int, bool] = {}
        """Functions that the worker has; False if it must be sent again. Both sides forget the oldest."""
        self._last_stream = 0

    @property
    def has_output(self) -> bool:
        """True if output waits for the socket."""
        return bool(self._unwritten) or bool(self._outbox)

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
            self._session.feed(data)
            if not self._handshake_done and not self._handshake():
                continue
            for message in self._splitter.feed(self._session.read()):
                if self.ready:
                    messages.append(message)
                else:
                    self._authenticate(message)
            if len(data) < RECEIVE_BYTES:
                break
        return messages

    def _handshake(self) -> bool:
        self._handshake_done = self._session.do_handshake()
        if self._handshake_done:
            self._session.write(encode_frame(Challenge(self._nonce)))
        self.write()
        return self._handshake_done

    def _authenticate(self, message: Message) -> None:
        """Check the proof of a worker; before that, no other message is accepted."""
        settings = self._settings
        if isinstance(message, Hello) and self.hello is None:
            job, index, attempt = attempt_id = message.attempt_id
            key, pin = derive_attempt_key(settings.secret, job, index, attempt), settings.fingerprint
            expected = secure_channel.compute_proof(
                key, secure_channel.WORKER_ROLE, self._nonce, message.nonce, pin, attempt_id
            )
            if len(message.nonce) != NONCE_BYTES or not secure_channel.is_same_secret(
                message.proof, expected
            ):
                raise FrameError(f"a peer claims to be worker {job[:32]}.{index} without its key")
            refusal = settings.check_admission(message)
            if refusal:
                raise FrameError(refusal)
            self.hello = message
            self._splitter.bytes_max = FRAME_BYTES_MAX
            answer = secure_channel.compute_proof(
                key, secure_channel.EXECUTOR_ROLE, message.nonce, self._nonce, pin, attempt_id
            )
            store = settings.store
            directory, token = (store.directory, store.token) if store is not None else ("", "")
            self._outbox.append(encode_frame(Welcome(answer, directory, token, settings.import_paths)))
            self.write()
        elif isinstance(message, Ready) and self.hello is not None:
            self.ready, self.sees_store = True, message.sees_store and settings.store is not None
        else:
            raise FrameError(f"the message {type(message).__name__} before the worker has proved its key")

    # --- output

    def send(self, message: Message) -> None:
        """Send a record after the waiting ones."""
        self._outbox.append(encode_frame(message))
        self.write()

    def send_calls(
        self, calls: list[tuple[int, RemoteFunction, PickledValue, tuple[tuple[int, PickledValue], ...]]]
    ) -> None:
        """Send calls, and the functions that the worker lacks, in as few frames as possible."""
        records: list[CallRecord] = []
        size = 0
        for number, function, packed, inputs in calls:
            if not self._sent_functions.get(function.number):
                self._send_function(function)
            if packed.file is None and not inputs and packed.size <= BATCH_BYTES:
                record = CallRecord(number, function.number, packed.to_inline_payload())
                size += packed.size + 16
            else:
                payload = self._to_payload(packed)
                input_payloads = tuple((of, self._to_payload(value)) for of, value in inputs)
                record = CallRecord(number, function.number, payload, input_payloads)
                size += len(payload.body) + 128 * (1 + len(inputs))
            records.append(record)
            if size >= BATCH_BYTES or len(records) >= BATCH_ITEMS_MAX:
                self._outbox.append(encode_frame(Calls(tuple(records))))
                records, size = [], 0
        if records:
            self._outbox.append(encode_frame(Calls(tuple(records))))
        self.write()

    def _send_function(self, function: RemoteFunction) -> None:
        if function.number not in self._sent_functions and len(self._sent_functions) >= FUNCTIONS_MAX:
            del self._sent_functions[next(iter(self._sent_functions))]
        self._sent_functions[function.number] = True
        payload = Payload(b"") if function.name else self._to_payload(function.packed)
        self._outbox.append(encode_frame(FunctionRecord(function.number, function.name, payload)))

    def forget_function(self, function: RemoteFunction) -> None:
        """Mark a function to be sent again before its next call, because it is now sent by value."""
        if function.number in self._sent_functions:
            self._sent_functions[function.number] = False

    def _to_payload(self, packed: PickledValue) -> Payload:
        """Return a value's payload: inline, in a file, or in pieces that are sent first."""
        if not is_large(packed):
            return packed.to_inline_payload()
        if self.sees_store and self._settings.store is not None:
            payload = packed.write_to_store(self._settings.store)
            if payload is not None:
                return payload
        self._last_stream += 1
        pieces, payload = packed.to_pieces(self._last_stream)
        self._outbox.append(pieces)
        return payload

    def write(self) -> None:
        """Write as much as the socket takes now."""
        while True:
            if not self._unwritten:
                self._encrypt_some()
            if not self._unwritten:
                return
            try:
                count = self.socket.send(self._unwritten)
            except (BlockingIOError, InterruptedError):
                return
            self._unwritten = self._unwritten[count:]
            if self._unwritten:
                return

    def _encrypt_some(self) -> None:
        size = 0
        while self._outbox and size < ENCRYPTED_BYTES:
            item = self._outbox[0]
            if isinstance(item, bytes):
                self._outbox.popleft()
                data = item
            else:
                piece = next(item, None)
                if piece is None:
                    self._outbox.popleft()
                    continue
                data = encode_frame(piece)
            self._session.write(data)
            size += len(data)
        self._unwritten = self._session.take_output()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _peer_text(connection: socket.socket) -> str:
    try:
        host, port = connection.getpeername()[:2]
    except OSError:  # closed already
        return "a peer that is gone"
    return f"{host} port {port}"


CONNECTION_ERRORS: Final = (OSError, EOFError, FrameError, ssl.SSLError)
"""Errors that end one connection only."""
