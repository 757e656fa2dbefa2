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
from hanse.sdk.workers.worker import ADDRESS, EXIT_LOST, EXIT_STRANGER, PIN
from hanse.sdk.workers.worker_protocol import (
    VALUE,
    Bye,
    CallRecord,
    Calls,
    Challenge,
    Function,
    Hello,
    Message,
    Parcel,
    Ready,
    Results,
    Splitter,
    Welcome,
    frame,
)

SECONDS_MAX = 60.0
NONCE = b"n" * 32


class Executor:
    """The other end of a worker, word by word."""

    def __init__(self) -> None:
        self.certificate = secure_channel.Certificate()
        self.key = os.urandom(32)
        self.listener = socket.create_server(("localhost", 0))
        self.listener.settimeout(SECONDS_MAX)
        self.address = self.listener.getsockname()

    def start(
        self, changed: dict[str, str] | None = None, key: bytes | None = None
    ) -> "subprocess.Popen[str]":
        host, port = self.address
        given = {
            ADDRESS: f"{host}:{port}",
            PIN: self.certificate.fingerprint.hex(),
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
        self.sealed = secure_channel.Sealed(self.certificate.context(), server=True)
        while not self.sealed.shaken():
            self._move()
        self.splitter = Splitter()

    def _move(self) -> None:
        self.socket.sendall(self.sealed.out())
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError
        self.sealed.feed(data)

    def say(self, message: Message) -> None:
        self.sealed.seal(frame(message))
        self.socket.sendall(self.sealed.out())

    def hear(self) -> Any:
        while True:
            for message in self.splitter.feed(self.sealed.take()):
                return message
            self._move()

    def meet(self, key: bytes) -> Hello:
        """Greet a worker, as somebody who knows this key."""
        self.say(Challenge(NONCE))
        hello = self.hear()
        assert isinstance(hello, Hello)
        pin = self.certificate.fingerprint
        proof = secure_channel.proof(key, secure_channel.EXECUTOR, hello.nonce, NONCE, pin, hello.who)
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
    assert hello.who == ("1-0", 3, 2)
    wanted = secure_channel.proof(executor.key, secure_channel.HAND, NONCE, hello.nonce, pin, hello.who)
    assert secure_channel.proved(hello.proof, wanted)
    assert executor.hear() == Ready(spooled=False)
    executor.say(Function(1, "os:read", Parcel(b"")))
    executor.say(Calls((CallRecord(7, 1, pack_call((0, 100), {}).inline()),)))
    results = executor.hear()
    assert isinstance(results, Results)
    assert (results.outcomes[0].number, results.outcomes[0].status) == (7, VALUE)
    assert unpack((results.outcomes[0].parcel.body,)) == b""  # what is called finds no key there
    executor.say(Bye())
    assert ending(hand) == (0, "")


def test_a_hand_says_nothing_to_somebody_with_another_certificate(executor: Executor) -> None:
    hand = executor.start({PIN: "00" * 32})
    with contextlib.suppress(OSError):  # it may be gone before it is told anything
        executor.accept()
        executor.say(Challenge(NONCE))
    with pytest.raises((EOFError, OSError)):
        executor.hear()
    code, said = ending(hand)
    assert code == EXIT_STRANGER
    assert "is not the executor of this worker" in said


def test_a_hand_leaves_somebody_who_does_not_know_its_key(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    executor.meet(b"x" * 32)
    code, said = ending(hand)
    assert code == EXIT_STRANGER
    assert "does not know this worker's key" in said


def test_a_hand_that_is_refused_says_so(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    executor.say(Challenge(NONCE))
    assert isinstance(executor.hear(), Hello)
    executor.socket.close()
    code, said = ending(hand)
    assert code == EXIT_STRANGER
    assert "refused this worker" in said


def test_a_hand_without_an_executor_ends(executor: Executor) -> None:
    executor.listener.close()
    code, said = ending(executor.start({ADDRESS: ":".join(("localhost", "9"))}))
    assert code == EXIT_STRANGER
    assert "cannot reach the executor" in said
    code, said = ending(executor.start({ADDRESS: ""}))
    assert code == EXIT_STRANGER
    assert "Only an executor can start a worker" in said


def test_a_hand_without_a_key_reaches_nobody(executor: Executor) -> None:
    code, said = ending(executor.start(key=b""))
    assert code == EXIT_STRANGER
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
    executor.say(Function(2, "tests.sdk.workers.test_worker:dumpable", Parcel(b"")))
    executor.say(Calls((CallRecord(7, 2, pack_call((), {}).inline()),)))
    results = executor.hear()
    assert unpack((results.outcomes[0].parcel.body,)) == 0
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
        executor.say(Calls((CallRecord(1, 99, Parcel(b"")),)))
    code, said = ending(hand)
    assert code == EXIT_LOST
    assert ("is gone" if how == "gone" else "function 99 never came") in said


def test_who_waits_for_a_cancelled_call_is_told() -> None:
    future: hanse.Future[int] = hanse.Future()
    assert future.cancel()
    assert future.cancel()
    done, _ = concurrent.futures.wait([future], timeout=0)
    assert done == {future}
    assert not future._begin()
