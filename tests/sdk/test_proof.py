"""Whom an executor lets in: the proof of each worker's own key, each attempt once."""

import os
import socket
from collections.abc import Iterator

import pytest

from hanse.model.attempt_key_derivation import derive_attempt_key
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.autoscaler import Autoscaler
from hanse.sdk.workers.provisioner import WorkerJob, WorkerRefusal
from hanse.sdk.workers.refused_connections import LOGGED_MAX, RefusedConnections
from hanse.sdk.workers.worker_connection import ConnectionSettings, WorkerConnection
from hanse.sdk.workers.worker_protocol import (
    Challenge,
    FrameDecoder,
    FrameError,
    Hello,
    Message,
    Ready,
    Welcome,
    encode_frame,
)

JOB = "1-7"
NONCE = b"h" * 32


class Caller:
    """Somebody at the executor's door, word by word."""

    def __init__(self, gate: ConnectionSettings) -> None:
        with socket.create_server(("localhost", 0)) as door:
            self.there = socket.create_connection(door.getsockname())
            here, _ = door.accept()
        self.link = WorkerConnection(here, gate, 0.0)
        self.sealed = secure_channel.TlsSession(secure_channel.worker_context(), server=False)
        while not self.sealed.do_handshake():
            self.there.sendall(self.sealed.take_output())
            assert self.link.receive() == []
            self.sealed.feed(self.there.recv(1 << 16))
        self.splitter = FrameDecoder()
        self.there.sendall(self.sealed.take_output())
        assert self.link.receive() == []
        challenge = self.hear()
        assert isinstance(challenge, Challenge)
        self.nonce = challenge.nonce

    def hear(self) -> Message:
        while True:
            for message in self.splitter.feed(self.sealed.read()):
                return message
            self.sealed.feed(self.there.recv(1 << 16))

    def say(self, message: Message) -> None:
        self.sealed.write(encode_frame(message))
        self.there.sendall(self.sealed.take_output())
        self.link.receive()

    def hello(
        self, gate: ConnectionSettings, key: bytes, index: int = 0, attempt: int = 1, nonce: bytes = NONCE
    ) -> Hello:
        who = (JOB, index, attempt)
        proof = secure_channel.compute_proof(
            key, secure_channel.WORKER_ROLE, self.nonce, nonce, gate.fingerprint, who
        )
        return Hello(nonce, proof, *who, "north", "0", 1, "3.11")

    def close(self) -> None:
        self.link.close()
        self.there.close()


class Callers:
    """All who call at one gate."""

    def __init__(self) -> None:
        self.muster = Autoscaler(0, None, 60.0)
        self.gate = ConnectionSettings(None, ())
        self.gate.check_admission = lambda hello: self.muster.admit(*hello.attempt_id)
        self.open: list[Caller] = []

    def call(self) -> Caller:
        self.open.append(Caller(self.gate))
        return self.open[-1]

    def key(self, index: int = 0, attempt: int = 1) -> bytes:
        return derive_attempt_key(self.gate.secret, JOB, index, attempt)


@pytest.fixture
def door() -> Iterator[Callers]:
    callers = Callers()
    callers.muster.on_worker_job(WorkerJob(JOB, 2), 0.0)
    yield callers
    for caller in callers.open:
        caller.close()


def test_a_hand_with_its_own_key_is_let_in_and_the_executor_proves_the_same_key(door: Callers) -> None:
    caller = door.call()
    caller.say(caller.hello(door.gate, door.key()))
    welcome = caller.hear()
    assert isinstance(welcome, Welcome)
    pin = door.gate.fingerprint
    wanted = secure_channel.compute_proof(
        door.key(), secure_channel.EXECUTOR_ROLE, NONCE, caller.nonce, pin, (JOB, 0, 1)
    )
    assert secure_channel.is_same_secret(welcome.proof, wanted)
    other = secure_channel.compute_proof(
        door.key(1), secure_channel.EXECUTOR_ROLE, NONCE, caller.nonce, pin, (JOB, 0, 1)
    )
    assert not secure_channel.is_same_secret(welcome.proof, other)
    caller.say(Ready(sees_store=False))
    assert caller.link.ready


def test_another_key_is_refused(door: Callers) -> None:
    for key in (os.urandom(32), bytes(32), b"", door.key(1), door.key(0, 2), door.gate.fingerprint):
        caller = door.call()
        with pytest.raises(FrameError, match="without its key"):
            caller.say(caller.hello(door.gate, key))
        assert caller.link.hello is None
    caller = door.call()
    caller.say(caller.hello(door.gate, door.key()))  # who failed has taken nobody's place
    assert isinstance(caller.hear(), Welcome)


def test_a_hello_that_was_overheard_is_of_no_use(door: Callers) -> None:
    first = door.call()
    heard = first.hello(door.gate, door.key())
    second = door.call()
    with pytest.raises(FrameError, match="without its key"):
        second.say(heard)


def test_a_nonce_of_another_length_is_refused(door: Callers) -> None:
    caller = door.call()
    with pytest.raises(FrameError, match="without its key"):
        caller.say(caller.hello(door.gate, door.key(), nonce=b"short"))


def test_ready_without_a_hello_is_refused(door: Callers) -> None:
    caller = door.call()
    with pytest.raises(FrameError, match="before the worker has proved its key"):
        caller.say(Ready(sees_store=False))


def test_each_attempt_comes_once_and_never_an_earlier_one(door: Callers) -> None:
    first = door.call()
    first.say(first.hello(door.gate, door.key()))
    again = door.call()
    with pytest.raises(FrameError, match=r"a further connection of worker 1-7\.0, attempt 1"):
        again.say(again.hello(door.gate, door.key()))
    first.close()
    later = door.call()
    with pytest.raises(FrameError, match="a further connection"):  # also when the first is gone
        later.say(later.hello(door.gate, door.key()))
    second = door.call()
    second.say(second.hello(door.gate, door.key(0, 2), attempt=2))
    assert isinstance(second.hear(), Welcome)


def test_a_stranger_writes_no_lines_of_its_own_into_the_log(
    door: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    caller = door.call()
    strange = Hello(NONCE, b"", "1-7\nWARNING all is well\x1b[2J", 0, 1, "north", "0", 1, "3.11")
    with pytest.raises(FrameError) as caught:
        caller.say(strange)
    refusals = RefusedConnections()
    refusals.record(caller.link, str(caught.value) + "x" * 1_000)
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert "without its key" in record.getMessage()
    assert len(record.getMessage()) < 500
    for _ in range(200):
        refusals.record(caller.link, "again")
    assert refusals.count == 201
    assert len(caplog.records) == LOGGED_MAX + 1  # and one that says that no more are told


def test_a_task_that_was_not_asked_for_is_refused(door: Callers) -> None:
    caller = door.call()
    with pytest.raises(FrameError, match="did not request"):
        caller.say(caller.hello(door.gate, door.key(2), index=2))


def test_a_job_is_known_when_it_was_asked_for_or_may_have_been() -> None:
    muster = Autoscaler(0, None, 60.0)
    assert "did not request" in muster.admit(JOB, 0, 1)
    muster.request_pending = True
    assert muster.admit(JOB, 0, 1) == ""  # workers may be faster than the answer that names their job
    muster.on_worker_job(WorkerJob(JOB, 1), 0.0)
    assert "further connection" in muster.admit(JOB, 0, 1)
    assert "did not request" in muster.admit("1-8", 0, 1)
    muster.on_refusal(WorkerRefusal("the league is silent", lasting=False), 0.0)
    assert muster.admit("1-8", 0, 1) == ""
