"""A worker and whom it listens to: its own process, against executors that are none."""

import concurrent.futures
import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

import hanse
from hanse.sdk.serialization import pack_call, unpack
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.executor_connection import (
    ADDRESS_VARIABLE,
    EXIT_EXECUTOR_LOST,
    EXIT_NO_EXECUTOR,
    PIN_VARIABLE,
)
from hanse.sdk.workers.worker_protocol import (
    VALUE,
    Bye,
    CallRecord,
    Calls,
    Challenge,
    FrameDecoder,
    FunctionRecord,
    Hello,
    Message,
    Payload,
    Ready,
    Results,
    Welcome,
    encode_frame,
)

SECONDS_MAX = 60.0
NONCE = b"n" * 32


class Executor:
    """The other end of a worker, word by word."""

    def __init__(self) -> None:
        self.certificate = secure_channel.ExecutorCertificate()
        self.key = os.urandom(32)
        self.listener = socket.create_server(("localhost", 0))
        self.listener.settimeout(SECONDS_MAX)
        self.address = self.listener.getsockname()

    def start(
        self, changed: dict[str, str] | None = None, key: bytes | None = None
    ) -> "subprocess.Popen[str]":
        host, port = self.address
        given = {
            ADDRESS_VARIABLE: f"{host}:{port}",
            PIN_VARIABLE: self.certificate.fingerprint.hex(),
            "HANSE_JOB": "1-0",
            "HANSE_TASK": "3",
            "HANSE_ATTEMPT": "2",
            **(changed or {}),
        }
        readable, writable = os.pipe()
        os.write(writable, (self.key if key is None else key).hex().encode())
        os.close(writable)
        hand = subprocess.Popen(
            [sys.executable, "-m", "hanse.sdk.workers.worker"],
            env={**os.environ, **given},
            stdin=readable,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(readable)
        return hand

    def accept(self) -> None:
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(SECONDS_MAX)
        self.sealed = secure_channel.TlsSession(self.certificate.server_context(), server=True)
        while not self.sealed.do_handshake():
            self._move()
        self.splitter = FrameDecoder()

    def _move(self) -> None:
        self.socket.sendall(self.sealed.take_output())
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError
        self.sealed.feed(data)

    def say(self, message: Message) -> None:
        self.sealed.write(encode_frame(message))
        self.socket.sendall(self.sealed.take_output())

    def hear(self) -> Any:
        while True:
            for message in self.splitter.feed(self.sealed.read()):
                return message
            self._move()

    def meet(self, key: bytes) -> Hello:
        """Greet a worker, as somebody who knows this key."""
        self.say(Challenge(NONCE))
        hello = self.hear()
        assert isinstance(hello, Hello)
        pin = self.certificate.fingerprint
        proof = secure_channel.compute_proof(
            key, secure_channel.EXECUTOR_ROLE, hello.nonce, NONCE, pin, hello.attempt_id
        )
        self.say(Welcome(proof, "", "", ()))
        return hello

    def close(self) -> None:
        self.listener.close()
        if hasattr(self, "socket"):
            self.socket.close()


@pytest.fixture
def executor() -> Any:
    one = Executor()
    yield one
    one.close()


def ending(hand: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = hand.communicate(timeout=SECONDS_MAX)
    return hand.returncode, said


def test_a_hand_takes_calls_of_its_own_executor(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    hello = executor.meet(executor.key)
    pin = executor.certificate.fingerprint
    assert hello.attempt_id == ("1-0", 3, 2)
    wanted = secure_channel.compute_proof(
        executor.key, secure_channel.WORKER_ROLE, NONCE, hello.nonce, pin, hello.attempt_id
    )
    assert secure_channel.is_same_secret(hello.proof, wanted)
    assert executor.hear() == Ready(sees_store=False)
    executor.say(FunctionRecord(1, "os:read", Payload(b"")))
    executor.say(Calls((CallRecord(7, 1, pack_call((0, 100), {}).to_inline_payload()),)))
    results = executor.hear()
    assert isinstance(results, Results)
    assert (results.outcomes[0].number, results.outcomes[0].status) == (7, VALUE)
    assert unpack((results.outcomes[0].payload.body,)) == b""  # what is called finds no key there
    executor.say(Bye())
    assert ending(hand) == (0, "")


def test_a_hand_says_nothing_to_somebody_with_another_certificate(executor: Executor) -> None:
    hand = executor.start({PIN_VARIABLE: "00" * 32})
    with contextlib.suppress(OSError):  # it may be gone before it is told anything
        executor.accept()
        executor.say(Challenge(NONCE))
    with pytest.raises((EOFError, OSError)):
        executor.hear()
    code, said = ending(hand)
    assert code == EXIT_NO_EXECUTOR
    assert "is not the executor of this worker" in said


def test_a_hand_leaves_somebody_who_does_not_know_its_key(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    executor.meet(b"x" * 32)
    code, said = ending(hand)
    assert code == EXIT_NO_EXECUTOR
    assert "does not know this worker's key" in said


def test_a_hand_that_is_refused_says_so(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    executor.say(Challenge(NONCE))
    assert isinstance(executor.hear(), Hello)
    executor.socket.close()
    code, said = ending(hand)
    assert code == EXIT_NO_EXECUTOR
    assert "refused this worker" in said


def test_a_hand_without_an_executor_ends(executor: Executor) -> None:
    executor.listener.close()
    code, said = ending(executor.start({ADDRESS_VARIABLE: ":".join(("localhost", "9"))}))
    assert code == EXIT_NO_EXECUTOR
    assert "cannot reach the executor" in said
    code, said = ending(executor.start({ADDRESS_VARIABLE: ""}))
    assert code == EXIT_NO_EXECUTOR
    assert "Only an executor can start a worker" in said


def test_a_hand_without_a_key_reaches_nobody(executor: Executor) -> None:
    code, said = ending(executor.start(key=b""))
    assert code == EXIT_NO_EXECUTOR
    assert "no key on standard input" in said
    executor.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        executor.listener.accept()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hides a process from others of its user")
def test_a_hand_cannot_be_looked_into_by_others_of_its_user(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    executor.meet(executor.key)
    assert isinstance(executor.hear(), Ready)
    executor.say(FunctionRecord(2, "tests.sdk.workers.test_worker:dumpable", Payload(b"")))
    executor.say(Calls((CallRecord(7, 2, pack_call((), {}).to_inline_payload()),)))
    results = executor.hear()
    assert unpack((results.outcomes[0].payload.body,)) == 0
    executor.say(Bye())
    assert ending(hand) == (0, "")


def dumpable() -> int:
    return int(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))


@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_a_hand_ends_with_its_executor(executor: Executor, how: str) -> None:
    hand = executor.start()
    executor.accept()
    executor.meet(executor.key)
    assert isinstance(executor.hear(), Ready)
    if how == "gone":
        executor.socket.close()
    else:
        executor.say(Calls((CallRecord(1, 99, Payload(b"")),)))
    code, said = ending(hand)
    assert code == EXIT_EXECUTOR_LOST
    assert ("is gone" if how == "gone" else "function 99 never came") in said


def test_who_waits_for_a_cancelled_call_is_told() -> None:
    future: hanse.Future[int] = hanse.Future()
    assert future.cancel()
    assert future.cancel()
    done, _ = concurrent.futures.wait([future], timeout=0)
    assert done == {future}
    assert not future._set_running()
