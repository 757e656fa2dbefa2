"""Connection of a worker to its executor: found in the environment, encrypted, proved by both sides."""

import os
import socket
import sys
import threading
from typing import Final, NoReturn

from hanse.model.attempt_key_derivation import SECRET_BYTES
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.worker_key import NO_KEY, own_attempt_id, read_key
from hanse.sdk.workers.worker_protocol import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    NONCE_BYTES,
    Challenge,
    FrameDecoder,
    Hello,
    Message,
    Welcome,
    encode_frame,
)

ADDRESS_VARIABLE: Final = "HANSE_HAND_ADDRESS"
"""Variable with ``host:port`` where the executor listens."""
PIN_VARIABLE: Final = "HANSE_HAND_PIN"
"""Variable with the fingerprint of the executor's certificate, in hexadecimal digits."""
CONNECT_SECONDS_MAX: Final = 20.0
"""Limit for connecting, for the handshake and for the proofs, each."""
RECEIVE_BYTES: Final = 256 << 10
EXIT_EXECUTOR_LOST: Final = 3
"""Exit code of a worker that lost its executor without notice."""
EXIT_NO_EXECUTOR: Final = 4
"""Exit code of a worker that found no executor, or one that is not its own."""


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
                end_process(EXIT_EXECUTOR_LOST, "the executor is gone")

    def receive(self) -> bytes:
        """Wait for data and return it; empty: no whole record yet. Raises ``EOFError``, ``OSError``."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        with self._tls_lock:
            self._session.feed(data)
            return self._session.read()


def end_process(code: int, reason: str) -> NoReturn:
    """End the process at once, even during a call."""
    if reason:
        os.write(2, f"hanse worker: {reason}\n".encode())
    os._exit(code)


def connect_to_executor() -> tuple[ExecutorConnection, FrameDecoder, Welcome]:
    """Connect to the executor named in the environment; both sides prove their key."""
    key = read_key()
    address, pin = os.environ.get(ADDRESS_VARIABLE, ""), bytes.fromhex(os.environ.get(PIN_VARIABLE, ""))
    if not address.rpartition(":")[0]:
        end_process(
            EXIT_NO_EXECUTOR,
            f"{ADDRESS_VARIABLE} and {PIN_VARIABLE} are not set. Only an executor can start a worker.",
        )
    if len(key) != SECRET_BYTES:
        end_process(EXIT_NO_EXECUTOR, NO_KEY)
    connection, session = _open_session(address)
    if not secure_channel.is_same_secret(session.peer_fingerprint(), pin):
        end_process(EXIT_NO_EXECUTOR, f"the process at {address} is not the executor of this worker")
    channel, splitter = ExecutorConnection(connection, session), FrameDecoder(HELLO_BYTES_MAX)
    welcome = _exchange_proofs(channel, splitter, key, pin, address)
    connection.settimeout(None)
    return channel, splitter, welcome


def _open_session(address: str) -> tuple[socket.socket, secure_channel.TlsSession]:
    """Connect to ``host:port`` and finish the TLS handshake."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secure_channel.enable_keepalive(connection)
    session = secure_channel.TlsSession(secure_channel.worker_context(), server=False)
    while not session.do_handshake():
        connection.sendall(session.take_output())
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError
        session.feed(data)
    connection.sendall(session.take_output())
    return connection, session


def _exchange_proofs(
    channel: ExecutorConnection, splitter: FrameDecoder, key: bytes, pin: bytes, address: str
) -> Welcome:
    """Prove the key to the executor, and end the process unless the executor proves it, too."""
    challenge = _next_message(channel, splitter)
    assert isinstance(challenge, Challenge), challenge
    nonce, attempt_id = os.urandom(NONCE_BYTES), own_attempt_id()
    proof = secure_channel.compute_proof(
        key, secure_channel.WORKER_ROLE, challenge.nonce, nonce, pin, attempt_id
    )
    channel.send(encode_frame(_make_hello(nonce, proof, attempt_id)))
    splitter.bytes_max = FRAME_BYTES_MAX
    try:
        welcome = _next_message(channel, splitter)
    except EOFError:
        end_process(
            EXIT_NO_EXECUTOR, f"the executor at {address} refused this worker. Its log has the reason."
        )
    expected = secure_channel.compute_proof(
        key, secure_channel.EXECUTOR_ROLE, nonce, challenge.nonce, pin, attempt_id
    )
    if not isinstance(welcome, Welcome) or not secure_channel.is_same_secret(welcome.proof, expected):
        end_process(EXIT_NO_EXECUTOR, f"the process at {address} does not know this worker's key")
    return welcome


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
