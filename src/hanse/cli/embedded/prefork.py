"""From where ``hanse up`` gets its members: one process that imports everything once, and forks them.

Five interpreters that each import NumPy and the rest take seconds on a small machine; five forks take
milliseconds. Every member is a process of its own all the same: in its own session, with its own log, under
the very command line that starts it alone (``hanse broker NAME --home HOME``), and it can be stopped and
started alone. The nursery holds no threads, opens nothing, and is gone when the league is up.

``Nursery`` is the side of ``hanse up``; ``python -m hanse.cli.embedded.prefork`` is the process.
"""

import ctypes
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from hanse.client.exit_codes import ExitCode

MODULES: Final = (
    "hanse.cli.commands.daemons", "hanse.live.broker_daemon", "hanse.live.warden_daemon",
    "uvloop", "uvicorn.lifespan.off", "encodings.idna", "_strptime",
)  # fmt: skip
"""What members import, before they are told apart."""
ORDER_BYTES_MAX: Final = 1 << 14
"""The longest order; homes have short paths."""
TITLE_BYTES_MAX: Final = 1 << 12
"""Room for a member's command line."""
_ARGUMENTS_BEGIN: Final = 45
_ARGUMENTS_END: Final = 46
"""Where the kernel says a command line is: fields of ``/proc/self/stat``, counted behind the name."""


class Order(msgspec.Struct, frozen=True):
    """One member to start."""

    words: tuple[str, ...]
    """The arguments of ``hanse``; ``READY`` stands for the file descriptor that tells when it is ready."""
    log: str
    """The file that it appends its output to."""


READY: Final = "{ready}"


class NurseryError(OSError):
    """The nursery is gone; members can be started one by one instead."""


class Nursery:
    """A nursery that is warming up, or warm. Started as early as possible, because it takes a while."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                [
                    sys.executable,
                    "-m",
                    "hanse.cli.embedded.prefork",
                    str(theirs.fileno()),
                    " " * TITLE_BYTES_MAX,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=dict(environment),
            )

    def fork(self, words: Sequence[str], log: Path) -> tuple[int, int]:
        """Start a member; the end of a pipe that tells when it is ready, and its process number."""
        reader, writer = os.pipe()
        try:
            socket.send_fds(self._line, [msgspec.json.encode(Order(tuple(words), str(log)))], [writer])
            answer = self._line.recv(ORDER_BYTES_MAX)
        except OSError:
            answer = b""
        finally:
            os.close(writer)
        if not answer:
            os.close(reader)
            raise NurseryError("the process that starts members is gone")
        return reader, msgspec.json.decode(answer, type=int)

    def close(self) -> None:
        """No more members are to come."""
        self._line.close()
        self._process.wait()


# --- the process --------------------------------------------------------------------------------------------


def serve(line: socket.socket) -> NoReturn:
    """Import, then fork whatever is ordered. Comes back never: neither here nor in a member."""
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # what is here stays; members need not look at it, and share its memory
    while True:
        data, files, _, _ = socket.recv_fds(line, ORDER_BYTES_MAX, 1)
        if not data:
            os._exit(0)
        order = msgspec.json.decode(data, type=Order)
        pid = os.fork()
        if pid == 0:
            line.close()
            _become(order, files[0])
        os.close(files[0])
        with suppress(OSError):  # whoever ordered it may be gone; the next look at the line tells
            line.send(msgspec.json.encode(pid))


def _become(order: Order, ready: int) -> NoReturn:
    """Be a member from here on."""
    os.setsid()
    try:
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError:
        os._exit(ExitCode.FILE)  # whoever ordered it finds the same when it looks into the log
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    words = [str(ready) if word == READY else word for word in order.words]
    command = [sys.executable, "-m", "hanse", *words]
    if not set_title(command):
        os.set_inheritable(ready, True)
        os.execv(command[0], command)  # noqa: S606  our own program: slower, but found by its command line
    sys.argv = ["hanse", *words]
    from hanse.cli.main import run  # noqa: PLC0415  loaded already, with the commands

    raise SystemExit(run(words))


def set_title(command: Sequence[str]) -> bool:
    """Write another command line over this process's own, for whoever looks for it; False if that cannot be.

    The kernel shows the memory in which it once put the arguments: ours end with room for this.
    """
    text = "\0".join(command).encode() + b"\0"
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    begin, end = int(stat[_ARGUMENTS_BEGIN]), int(stat[_ARGUMENTS_END])
    if not begin or len(text) >= end - begin or not _shown().endswith(b" " * TITLE_BYTES_MAX + b"\0"):
        return False
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
    return _shown().startswith(text)


def _shown() -> bytes:
    return Path("/proc/self/cmdline").read_bytes()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
