"""Connection of the process backend to its launcher.

The launcher (``supervisor.c``) outlives the daemon, so the daemon connects to it by a socket in the runner's
directory. Requests of one turn of the event loop leave together; reports arrive in batches.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hanse.live.backends.process.launcher_protocol import HELLO, READY, News, read_news, simple
from hanse.live.supervisor import SupervisorMissingError, source_checksum, supervisor_program

SOCKET: Final = "launcher"
LOG: Final = "launcher.log"
OPEN_SECONDS_MAX: Final = 60
"""Time limit for finding, starting and greeting a launcher, with all of its reports."""
OPEN_TRIES_MAX: Final = 5
"""Launchers that may exit during the greeting: one of another version does, once."""
BACKLOG_BYTES_MAX: Final = 64 << 20
"""Requests waiting for a launcher that is slow or gone; more are refused."""
CLOSE_SECONDS_MAX: Final = 5
"""Time limit of ``close`` for sending the queue."""
READ_BYTES: Final = 1 << 18


class LauncherGoneError(ConnectionError):
    """The launcher cannot be reached or started; the message gives the reason."""


class LauncherLink:
    """Client with one connection at a time; ``open`` makes it, and again after a call of ``on_lost``."""

    def __init__(
        self,
        directory: Path,
        bases: tuple[Path, ...],
        heard: Callable[[list[News]], None],
        lost: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._bases = tuple(os.fsencode(base) for base in bases)
        self._heard, self._lost = heard, lost
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._flushing = False
        self._unsent = memoryview(b"")
        self.pid = 0
        """The launcher's process number."""

    @property
    def is_open(self) -> bool:
        """True if there is a launcher to talk to."""
        return self._socket is not None

    async def open(self) -> list[News]:
        """Connect, starting a launcher if there is none; return all reports of its records.

        Raises ``LauncherGoneError`` or ``SupervisorMissingError``. Requests that were sent before and not
        carried out are void.
        """
        assert self._socket is None, "the link is open already"
        self._buffer.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._unsent = memoryview(b"")
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                return await self._open()
        except TimeoutError:
            raise LauncherGoneError(f"no launcher answered within {OPEN_SECONDS_MAX} s") from None

    async def _open(self) -> list[News]:
        reason = "it exited during the greeting"
        for _ in range(OPEN_TRIES_MAX):
            connection = await self._connect()
            if connection is None:
                reason = await self._spawn()
                connection = await self._connect()
            if connection is None:
                continue
            try:
                found = await self._greet(connection)
            except OSError as error:
                connection.close()
                reason = str(error)
                continue
            except BaseException:
                connection.close()
                raise
            self._take_over(connection)
            return found
        log = self._directory / LOG
        text = log.read_text(encoding="utf-8", errors="replace")[-300:].strip() if log.exists() else ""
        raise LauncherGoneError(f"the launcher of {self._directory} does not work: {text or reason}")

    async def _connect(self) -> socket.socket | None:
        """Connect to the running launcher; return None if there is none. By way of the open directory: the
        path of a socket is limited to 107 bytes."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        place = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, f"/proc/self/fd/{place}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(place)
        return connection

    async def _spawn(self) -> str:
        """Start a launcher and wait until it listens; return the fault, or an empty text."""
        program = supervisor_program()
        pid = os.posix_spawn(program, [str(program), str(self._directory)], {})
        status = await _exit_status(pid)
        return "" if status == 0 else f"{program.name} ended with {status}"

    async def _greet(self, connection: socket.socket) -> list[News]:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, simple(HELLO, number=source_checksum(), texts=self._bases))
        found: list[News] = []
        while not (found and found[-1].kind == READY):
            data = await loop.sock_recv(connection, READ_BYTES)
            if not data:
                raise LauncherGoneError(
                    "it is of another version: build it again (python setup.py build_kernel)"
                )
            self._buffer += data
            news, used = read_news(self._buffer)
            del self._buffer[:used]
            for index, each in enumerate(news):
                found.append(each)
                if each.kind == READY and news[index + 1 :]:
                    loop.call_soon(self._heard, news[index + 1 :])  # reports since then
                    break
        self.pid = found.pop().task
        return found

    def _take_over(self, connection: socket.socket) -> None:
        self._socket = connection
        asyncio.get_running_loop().add_reader(connection, self._readable)

    def send(self, request: bytes) -> bool:
        """Send a request; return False if too many wait already."""
        if self._waiting_bytes + len(request) > BACKLOG_BYTES_MAX:
            return False
        self._waiting.append(request)
        self._waiting_bytes += len(request)
        if not self._flushing and self._socket is not None:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    def _flush(self) -> None:
        connection = self._socket
        self._flushing = False
        if connection is None:
            return
        loop = asyncio.get_running_loop()
        try:
            while self._waiting or self._unsent:
                if not self._unsent:
                    self._unsent = memoryview(b"".join(self._waiting))
                    self._waiting.clear()
                sent = connection.send(self._unsent)
                self._unsent = self._unsent[sent:]
                self._waiting_bytes -= sent
        except BlockingIOError:
            self._flushing = True
            loop.add_writer(connection, self._flush_on)
        except OSError as error:
            self._drop(str(error))

    def _flush_on(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket)
        self._flush()

    def _readable(self) -> None:
        assert self._socket is not None, "a reader without a connection"
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(str(error))
            return
        if not data:
            self._drop("it ended")
            return
        self._buffer += data
        news, used = read_news(self._buffer)
        del self._buffer[:used]
        if news:
            self._heard(news)

    def _drop(self, why: str) -> None:
        self._let_go()
        self._lost(why)

    def _let_go(self) -> None:
        connection, self._socket = self._socket, None
        self._flushing = False
        if connection is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(connection)
            loop.remove_writer(connection)
            connection.close()

    async def close(self) -> None:
        """Send the queue, within a bounded time, and disconnect."""
        connection = self._socket
        if connection is not None and (self._waiting or self._unsent):
            loop = asyncio.get_running_loop()
            loop.remove_writer(connection)
            data = bytes(self._unsent) + b"".join(self._waiting)
            self._waiting.clear()
            self._unsent = memoryview(b"")
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await loop.sock_sendall(connection, data)
            except (OSError, TimeoutError):
                pass  # the launcher is gone or hangs: no request was promised to take effect unread
        self._let_go()


async def _exit_status(pid: int) -> int:
    """Wait for the end of a child process, without a thread."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    watch = os.pidfd_open(pid)

    def ended() -> None:
        if not over.done():
            over.set_result(None)

    loop.add_reader(watch, ended)
    try:
        await over
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        loop.remove_reader(watch)
        os.close(watch)


__all__ = ["BACKLOG_BYTES_MAX", "LauncherGoneError", "LauncherLink", "SupervisorMissingError"]
