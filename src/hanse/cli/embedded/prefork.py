"""Prefork server of ``hanse up``: one process that imports everything once, and forks the members.

Five interpreters that each import NumPy and the rest take seconds on a small machine; five forks take
milliseconds. Every member is still its own process: with its own session, its own log and the command line
that also starts it alone (``hanse broker NAME --home HOME``); it can be stopped and started alone. The
prefork process has no threads, opens nothing, and ends when the league is up.

``PreforkServer`` is the side of ``hanse up``; ``python -m hanse.cli.embedded.prefork`` is the process.
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

PRELOADED_MODULES: Final = (
    "hanse.cli.main", "hanse.cli.commands.daemons", "hanse.live.broker_daemon", "hanse.live.warden_daemon",
    "hanse.live.backends.process.kind", "hanse.live.backends.process.factory", "hanse.policy.queue_orders",
    "hanse.policy.placers", "hanse.policy.cluster_rankers", "hanse.policy.sizers",
    "uvloop", "uvicorn.lifespan.off", "encodings.ascii", "encodings.idna", "_strptime",
)  # fmt: skip
"""Modules that members of a league of ``hanse up`` import, loaded before the fork."""
REQUEST_BYTES_MAX: Final = 1 << 14
"""Bytes of the longest request; homes have short paths."""
TITLE_BYTES_MAX: Final = 1 << 12
"""Room for a member's command line, in bytes."""
_ARGUMENTS_BEGIN: Final = 45
_ARGUMENTS_END: Final = 46
"""Fields of ``/proc/self/stat``, counted behind the name, with the address of the command line."""


class ForkRequest(msgspec.Struct, frozen=True):
    """Request to start one member."""

    words: tuple[str, ...]
    """Arguments of ``hanse``; ``READY_FD`` stands for the file descriptor of the readiness pipe."""
    log: str
    """File to which the member appends its output."""


READY_FD: Final = "{ready}"


class PreforkError(OSError):
    """Loss of the prefork process; members can be started one by one instead."""


class PreforkServer:
    """Prefork process that is importing or ready. Started as early as possible, because it takes a while."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._connection, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                [
                    sys.executable,
                    "-m",
                    "hanse.cli.embedded.prefork",
                    str(server_end.fileno()),
                    " " * TITLE_BYTES_MAX,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(server_end.fileno(),),
                start_new_session=True,
                env=dict(environment),
            )

    def fork(self, words: Sequence[str], log: Path) -> tuple[int, int]:
        """Start a member; return the read end of its readiness pipe, and its process id."""
        reader, writer = os.pipe()
        try:
            socket.send_fds(
                self._connection, [msgspec.json.encode(ForkRequest(tuple(words), str(log)))], [writer]
            )
            answer = self._connection.recv(REQUEST_BYTES_MAX)
        except OSError:
            answer = b""
        finally:
            os.close(writer)
        if not answer:
            os.close(reader)
            raise PreforkError("the prefork process is gone")
        return reader, msgspec.json.decode(answer, type=int)

    def close(self) -> None:
        """Close the connection and wait for the prefork process to end."""
        self._connection.close()
        self._process.wait()


# --- the process --------------------------------------------------------------------------------------------


def serve(connection: socket.socket) -> NoReturn:
    """Import the modules, then fork a member for each request. Never returns, even in a member."""
    preload()
    gc.collect()
    gc.freeze()  # members skip these objects in garbage collection, and share their memory
    while True:
        data, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 1)
        if not data:
            os._exit(0)
        request = msgspec.json.decode(data, type=ForkRequest)
        pid = os.fork()
        if pid == 0:
            connection.close()
            _run_member(request, files[0])
        os.close(files[0])
        with suppress(OSError):  # 'hanse up' may be gone; the next receive tells
            connection.send(msgspec.json.encode(pid))


def preload() -> None:
    """Import what members import, and read the entry points in which they look names up."""
    for name in PRELOADED_MODULES:
        import_module(name)
    from hanse.registry.entry_points import all_entries  # noqa: PLC0415  keeps 'hanse up' light

    all_entries()


def _run_member(request: ForkRequest, ready: int) -> NoReturn:
    """Turn this process into a member."""
    os.setsid()
    try:
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError:
        os._exit(ExitCode.FILE)  # 'hanse up' finds the same problem when it reads the log
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    words = [str(ready) if word == READY_FD else word for word in request.words]
    command = [sys.executable, "-m", "hanse", *words]
    if not set_title(command):
        os.set_inheritable(ready, True)
        os.execv(command[0], command)  # noqa: S606  our program: slower, but found by its command line
    sys.argv = ["hanse", *words]
    from hanse.cli.main import run  # noqa: PLC0415  loaded already, with the commands

    raise SystemExit(run(words))


def set_title(command: Sequence[str]) -> bool:
    """Write another command line over that of this process, for process lists; False if impossible.

    The kernel shows the memory in which it once put the arguments: those of this process end with room.
    """
    text = "\0".join(command).encode() + b"\0"
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    begin, end = int(stat[_ARGUMENTS_BEGIN]), int(stat[_ARGUMENTS_END])
    if not begin or len(text) >= end - begin or not _command_line().endswith(b" " * TITLE_BYTES_MAX + b"\0"):
        return False
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
    return _command_line().startswith(text)


def _command_line() -> bytes:
    return Path("/proc/self/cmdline").read_bytes()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
