"""Frames, parcels, the spool, functions and the sealed channel."""

import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hanse
from hanse.sdk.call_dependencies import find_futures
from hanse.sdk.errors import SerializationError
from hanse.sdk.function_pickling import FUNCTIONS_MAX, FunctionRegistry, apply, find_function, importable_name
from hanse.sdk.serialization import (
    PayloadAssembler,
    PickledValue,
    copy_buffers,
    is_large,
    pack,
    pack_call,
    unpack,
)
from hanse.sdk.shared_store import DIRECTORY_PREFIX, ExecutorStore, SharedStore, can_use_store, read_file
from hanse.sdk.workers import secure_channel
from hanse.sdk.workers.worker_connection import ConnectionSettings, WorkerConnection
from hanse.sdk.workers.worker_protocol import (
    FRAME_BYTES_MAX,
    LARGE_BYTES,
    CallOutcome,
    CallRecord,
    Calls,
    FrameDecoder,
    FrameError,
    Payload,
    PayloadPiece,
    Recall,
    Results,
    encode_frame,
)

ROOT = Path(__file__).parent.parent.parent


def test_importing_hanse_imports_nothing_heavy() -> None:
    heavy = ("numpy", "ssl", "click", "msgspec", "asyncio", "concurrent.futures", "hanse.cli")
    code = f"import sys, hanse; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert hanse.Executor.__name__ == "Executor"
    with pytest.raises(AttributeError):
        _ = hanse.Nobody
    assert set(hanse._MODULES) | {"__version__"} == set(hanse.__all__)


# --- frames ------------------------------------------------------------------------------------------------

RECORDS: list[Any] = [
    Calls(
        (
            CallRecord(1, 2, Payload(b"abc")),
            CallRecord(2, 2, Payload(b"", (), "f", 0, (1, 2)), ((1, Payload(b"x")),)),
        )
    ),
    Results((CallOutcome(1, 0, Payload(b"r", (b"b",))),), 12),
    Recall((1, 2), 3),
    PayloadPiece(4, b"p" * 100),
]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_records_come_out_whole_however_they_are_cut(cuts: list[int]) -> None:
    data = b"".join(map(encode_frame, RECORDS))
    splitter = FrameDecoder()
    found: list[Any] = []
    for cut in cuts:
        found += splitter.feed(data[:cut])
        data = data[cut:]
    found += splitter.feed(data)
    assert [encode_frame(one) for one in found] == [encode_frame(one) for one in RECORDS]


@given(st.binary(max_size=200))
def test_garbage_is_an_error_and_nothing_else(data: bytes) -> None:
    splitter = FrameDecoder()
    try:
        found = list(splitter.feed(len(data).to_bytes(4, "big") + data))
    except FrameError:
        return
    assert len(found) == 1


def test_long_frames_are_refused_before_they_come() -> None:
    with pytest.raises(FrameError, match="at most"):
        list(FrameDecoder().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big")))
    with pytest.raises(FrameError, match="at most"):
        list(FrameDecoder(100).feed((101).to_bytes(4, "big")))


# --- parcels -----------------------------------------------------------------------------------------------


def no_file(name: str, size: int) -> bytearray:
    raise AssertionError(name)


def through(packed: PickledValue, way: str, spool: ExecutorStore) -> Any:
    """A value at the other end."""
    assembly = PayloadAssembler()
    if way == "inline":
        return unpack(assembly.take_parts(packed.to_inline_payload(), no_file))
    if way == "file":
        parcel = packed.write_to_store(spool)
        assert parcel is not None
        return unpack(
            assembly.take_parts(parcel, lambda name, size: read_file(f"{spool.directory}/{name}", size))
        )
    pieces, parcel = packed.to_pieces(7)
    for piece in pieces:
        assembly.add_piece(piece)
    return unpack(assembly.take_parts(parcel, no_file))


@pytest.mark.parametrize("way", ["inline", "file", "pieces"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "text",
        b"x" * (LARGE_BYTES + 1),
        b"",
        [1, {"a": (2,)}],
        np.arange(300_000),
        np.zeros((3, 4), order="F"),
    ],
    ids=["none", "int", "text", "bytes", "empty", "nested", "array", "fortran"],
)
def test_values_arrive_as_they_were(value: Any, way: str, tmp_path: Path) -> None:
    spool = ExecutorStore(tmp_path)
    back = through(pack(value, "it"), way, spool)
    spool.close()
    assert type(back) is type(value)
    assert np.array_equal(back, value)


def test_arguments_are_as_they_were_when_they_were_given(tmp_path: Path) -> None:
    data = np.zeros(10)
    packed = pack_call((data,), {})
    data[:] = 1
    ((back,), _) = unpack(packed.read_parts())
    assert back.sum() == 0


def test_large_bytes_are_not_copied() -> None:
    block = b"x" * (LARGE_BYTES + 1)
    (buffer,) = pack_call((block,), {}).buffers
    assert isinstance(buffer, memoryview)
    assert buffer.obj is block


def test_what_neither_pickle_can_do_is_told() -> None:
    with pytest.raises(SerializationError, match="the thing cannot be pickled"):
        pack(threading.Lock(), "the thing")


def test_a_parcel_of_another_size_is_refused() -> None:
    assembly = PayloadAssembler()
    assembly.add_piece(PayloadPiece(1, b"abc"))
    with pytest.raises(FrameError, match="3 bytes came of a payload of 4"):
        assembly.take_parts(Payload(b"", (), "", 1, (4,)), no_file)


# --- the spool ---------------------------------------------------------------------------------------------


def test_files_go_when_nobody_holds_them(tmp_path: Path) -> None:
    spool = ExecutorStore(tmp_path)
    packed = copy_buffers(pack(np.arange(100_000), "it"))
    assert is_large(packed)
    assert packed.write_to_store(spool) is not None
    assert len(list(Path(spool.directory).iterdir())) == 2
    packed.load_to_memory()
    assert len(list(Path(spool.directory).iterdir())) == 1
    assert unpack(packed.read_parts()).sum() == 4_999_950_000
    for name in ("../x", "", "..", "token"):
        with pytest.raises(OSError, match="not the name of a payload"):
            spool.take_ownership(name)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_only_who_reads_the_token_sees_the_spool(tmp_path: Path) -> None:
    spool = ExecutorStore(tmp_path)
    assert can_use_store(spool.directory, spool.token)
    assert not can_use_store(spool.directory, "another")
    assert not can_use_store(str(tmp_path), spool.token)
    assert not can_use_store("", "")
    assert len(list(Path(spool.directory).iterdir())) == 1
    assert Path(spool.directory).parent.stat().st_mode & 0o777 == 0o711
    spool.close()


def test_a_dead_executors_spool_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    code = (
        "from hanse.sdk.shared_store import ExecutorStore; import os; "
        f"ExecutorStore({str(tmp_path)!r}); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(list(tmp_path.glob(f"{DIRECTORY_PREFIX}*"))) == 1
    first = ExecutorStore(tmp_path)
    second = ExecutorStore(tmp_path)
    assert len(list(tmp_path.glob(f"{DIRECTORY_PREFIX}*"))) == 2
    first.close()
    second.close()


def test_no_room_is_an_answer() -> None:
    assert SharedStore("/proc").write([b"x"]) is None
    packed = pack(b"x" * LARGE_BYTES, "it")
    assert packed.write_to_store(SharedStore("/nowhere")) is None
    assert packed.file is None


# --- functions ---------------------------------------------------------------------------------------------


def outer() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


def test_functions_go_by_name_where_they_have_one() -> None:
    assert importable_name(time.sleep) == "time:sleep"
    assert find_function("time:sleep") is time.sleep
    assert importable_name(Path.exists) == "pathlib:Path.exists"
    assert importable_name(outer) == f"{__name__}:outer"
    assert importable_name(outer()) == ""
    assert importable_name(lambda: 1) == ""
    registry = FunctionRegistry()
    by_value = registry.register(outer())
    assert by_value is not None
    assert unpack(by_value.packed.read_parts())() == 1
    assert registry.register(partial(abs, 1)) is None  # it goes with the arguments


def test_a_function_that_has_a_name_can_still_go_by_value() -> None:
    traveller = FunctionRegistry().register(outer)
    assert traveller is not None
    assert traveller.name
    traveller.pickle_by_value()
    assert not traveller.name
    function = unpack(traveller.packed.read_parts())
    assert function is not outer
    assert function()() == 1


def test_functions_are_remembered_and_forgotten() -> None:
    registry = FunctionRegistry()
    assert registry.register(apply) is registry.register(apply)
    assert registry.register_chunked(abs) is registry.register_chunked(abs)
    assert unpack(registry.register_chunked(abs).packed.read_parts())([(-1,), (2,)]) == [1, 2]
    first = registry.register(outer())
    kept = [outer() for _ in range(FUNCTIONS_MAX)]
    for function in kept:
        registry.register(function)
    assert first is not None
    again = registry.register(first.function)
    assert again is not None
    assert again.number != first.number


def test_futures_are_found_one_level_deep() -> None:
    one: hanse.Future[int] = hanse.Future()
    two: hanse.Future[int] = hanse.Future()
    assert find_futures((1, one, [two, 3]), {"k": {"x": one}}) == (one, two, one)
    assert find_futures(([[one]],), {}) == ()


# --- the channel -------------------------------------------------------------------------------------------


def pair() -> tuple[secure_channel.TlsSession, secure_channel.TlsSession, secure_channel.ExecutorCertificate]:
    certificate = secure_channel.ExecutorCertificate()
    server = secure_channel.TlsSession(certificate.server_context(), server=True)
    hand = secure_channel.TlsSession(secure_channel.worker_context(), server=False)
    done = [False, False]
    while not all(done):
        done[0] = hand.do_handshake()
        _move(hand, server)
        done[1] = server.do_handshake()
        _move(server, hand)
    return server, hand, certificate


def _move(source: secure_channel.TlsSession, target: secure_channel.TlsSession) -> None:
    data = source.take_output()
    if data:
        target.feed(data)


def test_the_channel_is_sealed_and_pinned() -> None:
    server, hand, certificate = pair()
    assert hand.peer_fingerprint() == certificate.fingerprint
    hand.write(b"hello" * 10_000)
    data = hand.take_output()
    assert b"hello" not in data
    server.feed(data)
    assert server.read() == b"hello" * 10_000
    assert server.read() == b""


def test_tampering_is_noticed() -> None:
    server, hand, _ = pair()
    hand.write(b"hello")
    data = bytearray(hand.take_output())
    data[-1] ^= 1
    server.feed(bytes(data))
    with pytest.raises(ssl.SSLError):
        server.read()


def test_proofs_are_of_a_role_a_key_both_nonces_and_an_attempt() -> None:
    who = ("1-7", 2, 1)
    right = secure_channel.compute_proof(b"s", secure_channel.WORKER_ROLE, b"a", b"b", b"f", who)
    assert secure_channel.is_same_secret(
        right, secure_channel.compute_proof(b"s", secure_channel.WORKER_ROLE, b"a", b"b", b"f", who)
    )
    for other in (
        secure_channel.compute_proof(b"t", secure_channel.WORKER_ROLE, b"a", b"b", b"f", who),
        secure_channel.compute_proof(b"s", secure_channel.EXECUTOR_ROLE, b"a", b"b", b"f", who),
        secure_channel.compute_proof(b"s", secure_channel.WORKER_ROLE, b"b", b"a", b"f", who),
        secure_channel.compute_proof(b"s", secure_channel.WORKER_ROLE, b"a", b"b", b"g", who),
        secure_channel.compute_proof(b"s", secure_channel.WORKER_ROLE, b"a", b"b", b"f", ("1-7", 2, 2)),
        secure_channel.compute_proof(b"s", secure_channel.WORKER_ROLE, b"a", b"b", b"f", ("1-7", 1, 1)),
    ):
        assert not secure_channel.is_same_secret(right, other)


def test_nothing_is_heard_before_the_proof() -> None:
    """A stranger that speaks of results, or proves nothing, is cut off."""
    with (
        socket.create_server(("localhost", 0)) as door,
        socket.create_connection(door.getsockname()) as there,
    ):
        here, _ = door.accept()
        gate = ConnectionSettings(None, ())
        link = WorkerConnection(here, gate, 0.0)
        hand = secure_channel.TlsSession(secure_channel.worker_context(), server=False)
        while not hand.do_handshake():
            there.sendall(hand.take_output())
            assert link.receive() == []
            hand.feed(there.recv(1 << 16))
        hand.write(encode_frame(Results((CallOutcome(1, 0, Payload(pickle.dumps(print))),), 0)))
        there.sendall(hand.take_output())
        with pytest.raises(FrameError, match="before the worker has proved its key"):
            link.receive()
        link.close()
