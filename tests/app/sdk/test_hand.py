"""A hand and whom it listens to: its own process, against executors that are none."""

import concurrent.futures
import contextlib
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

import hanse
from hanse.app.sdk import secure
from hanse.app.sdk.frames import (
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
from hanse.app.sdk.hand import ADDRESS, EXIT_LOST, EXIT_STRANGER, PIN, SECRET
from hanse.app.sdk.parcels import pack_call, unpack

SECONDS_MAX = 60.0
NONCE = b"n" * 32


class Executor:
    """The other end of a hand, word by word."""

    def __init__(self) -> None:
        self.certificate = secure.Certificate()
        self.secret = os.urandom(32)
        self.listener = socket.create_server(("localhost", 0))
        self.listener.settimeout(SECONDS_MAX)
        self.address = self.listener.getsockname()

    def start(self, **changed: str) -> "subprocess.Popen[str]":
        host, port = self.address
        given = {
            ADDRESS: f"{host}:{port}",
            PIN: self.certificate.fingerprint.hex(),
            SECRET: self.secret.hex(),
            "HANSE_JOB": "1-0",
            **changed,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "hanse.app.sdk.hand"],
            env={**os.environ, **given},
            stderr=subprocess.PIPE,
            text=True,
        )

    def accept(self) -> None:
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(SECONDS_MAX)
        self.sealed = secure.Sealed(self.certificate.context(), server=True)
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

    def meet(self, secret: bytes) -> Hello:
        """Greet a hand, as somebody who knows this secret."""
        self.say(Challenge(NONCE))
        hello = self.hear()
        assert isinstance(hello, Hello)
        pin = self.certificate.fingerprint
        self.say(Welcome(secure.proof(secret, secure.EXECUTOR, hello.nonce, NONCE, pin), "", "", ()))
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
    hello = executor.meet(executor.secret)
    pin = executor.certificate.fingerprint
    assert secure.proved(hello.proof, secure.proof(executor.secret, secure.HAND, NONCE, hello.nonce, pin))
    assert hello.job == "1-0"
    assert executor.hear() == Ready(spooled=False)
    executor.say(Function(1, "os:getenv", Parcel(b"")))
    executor.say(Calls((CallRecord(7, 1, pack_call((SECRET,), {}).inline()),)))
    results = executor.hear()
    assert isinstance(results, Results)
    assert (results.outcomes[0].number, results.outcomes[0].status) == (7, VALUE)
    assert unpack((results.outcomes[0].parcel.body,)) is None  # what is called does not see the secret
    executor.say(Bye())
    assert ending(hand) == (0, "")


def test_a_hand_says_nothing_to_somebody_with_another_certificate(executor: Executor) -> None:
    hand = executor.start(**{PIN: "00" * 32})
    with contextlib.suppress(OSError):  # it may be gone before it is told anything
        executor.accept()
        executor.say(Challenge(NONCE))
    with pytest.raises((EOFError, OSError)):
        executor.hear()
    code, said = ending(hand)
    assert code == EXIT_STRANGER
    assert "is not the executor of this hand" in said


def test_a_hand_leaves_somebody_who_does_not_know_the_secret(executor: Executor) -> None:
    hand = executor.start()
    executor.accept()
    executor.meet(b"x" * 32)
    code, said = ending(hand)
    assert code == EXIT_STRANGER
    assert "does not know the secret" in said


def test_a_hand_without_an_executor_ends(executor: Executor) -> None:
    executor.listener.close()
    code, said = ending(executor.start(**{ADDRESS: ":".join(("localhost", "9"))}))
    assert code == EXIT_STRANGER
    assert "cannot reach the executor" in said
    code, said = ending(executor.start(**{SECRET: ""}))
    assert code == EXIT_STRANGER
    assert "started by an executor" in said


@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_a_hand_ends_with_its_executor(executor: Executor, how: str) -> None:
    hand = executor.start()
    executor.accept()
    executor.meet(executor.secret)
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
