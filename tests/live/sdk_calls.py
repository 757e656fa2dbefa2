"""What the tests of the SDK have called, in modules that workers can import by name."""

import atexit
import os
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

import hanse

ROOT = Path(__file__).parent.parent.parent
GATE_SECONDS_MAX = 60.0


def keyword(a: object, b: object) -> dict[str, object]:
    return {"a": a, "b": b}


def fails(text: str) -> NoReturn:
    raise ValueError(text)


def gives_a_lock() -> object:
    return threading.Lock()


class OddError(Exception):
    """Can be pickled, and not be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


def raises_odd() -> NoReturn:
    raise OddError("odd", "even")


def interrupts() -> NoReturn:
    raise KeyboardInterrupt


def later(seconds: float, value: Any) -> Any:
    time.sleep(seconds)
    return value


def doubled(data: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return 2 * data


def repeated(text: bytes, times: int) -> bytes:
    return text * times


def slow_block(size: int) -> bytes:
    time.sleep(0.3)  # so that the next call is there, waiting for it
    return b"\1" * size


def size_and_sum(block: bytes) -> tuple[int, int]:
    return len(block), sum(block)


def dies_once(flag: str) -> str:
    if Path(flag).exists():
        return "second"
    Path(flag).touch()
    os._exit(7)


def hoards(megabytes: int) -> int:
    return len(b"\1" * (megabytes << 20))


def stays() -> int:
    """Leave a thread behind that keeps the interpreter from ending."""
    threading.Thread(target=time.sleep, args=(1_000,)).start()
    return os.getpid()


def pid_then_sleep() -> None:
    time.sleep(1_000)


@hanse.task(where='zone == "b"', retries=2)
def tasked(x: int) -> tuple[str, int]:
    """Doubled, and by whom."""
    return "tasked", 2 * x


class Gate:
    """A call that stays until it is let through, whatever process it is in."""

    def __init__(self) -> None:
        self._path = tempfile.mkdtemp(prefix="hanse-gate-")
        atexit.register(shutil.rmtree, self._path)  # not before: a worker may yet come to it
        Path(self._path).chmod(0o777)
        for name in ("in", "out"):
            os.mkfifo(f"{self._path}/{name}")
            Path(self._path, name).chmod(0o666)
        self._in = os.open(f"{self._path}/in", os.O_RDWR)
        self._out = os.open(f"{self._path}/out", os.O_RDWR)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Pass, (self._path,)

    def wait(self) -> str:
        """For the worker; see ``_Pass``."""
        raise AssertionError("only its copy in a worker waits")

    def command(self) -> str:
        """The same for a program."""
        return f"printf x >{self._path}/in; head -c1 <{self._path}/out >/dev/null"

    def entered(self, seconds: float) -> None:
        """Wait until the call is there."""
        del seconds
        assert os.read(self._in, 1) == b"x"

    def open(self) -> None:
        os.write(self._out, b"x")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._out, b"xxxx")  # whoever is still in there


class _Pass:
    """The gate as a worker has it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def wait(self) -> str:
        with Path(self._path, "in").open("wb", buffering=0) as there:
            there.write(b"x")
        with Path(self._path, "out").open("rb", buffering=0) as gate:
            gate.read(1)
        return "through"


def knock(address: tuple[str, int]) -> None:
    """Somebody who is no worker: garbage, silence, and TLS without a key."""
    from hanse.sdk.workers import secure_channel
    from hanse.sdk.workers.worker_protocol import FrameDecoder, Hello, encode_frame

    with socket.create_connection(address) as garbage:
        garbage.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while garbage.recv(100):  # an alert, perhaps; then the end
            pass
    with socket.create_connection(address, 10) as stranger:
        sealed = secure_channel.TlsSession(secure_channel.worker_context(), server=False)
        while not sealed.do_handshake():
            stranger.sendall(sealed.take_output())
            sealed.feed(stranger.recv(1 << 16))
        stranger.sendall(sealed.take_output())
        while not list(FrameDecoder().feed(sealed.read())):
            sealed.feed(stranger.recv(1 << 16))
        hello = Hello(b"n" * 32, b"p" * 32, "1-0", 0, 1, "north", "0", 1, "3.11")
        sealed.write(encode_frame(hello))
        stranger.sendall(sealed.take_output())
        assert stranger.recv(1 << 16) == b""  # hung up: no welcome, nothing else
