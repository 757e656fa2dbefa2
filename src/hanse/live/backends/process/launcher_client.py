"""Connection of the process backend to its launcher.

The launcher (``live/supervisor``) outlives the daemon, so the daemon connects to it by a socket in the
runner's directory. Requests of one turn of the event loop leave together; reports arrive in batches.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hanse.live.backends.process.launcher_protocol import (
    HELLO,
    READY,
    LauncherReport,
    read_reports,
    simple_request,
)
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


class LauncherClient:
    """Client with one connection at a time; ``open`` makes it, and again after a call of ``on_lost``."""

    def __init__(
        self,
        directory: Path,
        bases: tuple[Path, ...],
        on_reports: Callable[[list[LauncherReport]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._bases = tuple(os.fsencode(base) for base in bases)
        self._on_reports, self._on_lost = on_reports, on_lost
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._queue: list[bytes] = []
        self._queue_bytes = 0
        self._is_flushing = False
        self._unsent = memoryview(b"")
        self.pid = 0
        """The launcher's process number."""

    @property
    def is_open(self) -> bool:
        """True if there is a launcher to talk to."""
        return self._socket is not None

    async def open(self) -> list[LauncherReport]:
        """Connect, starting a launcher if there is none; return all reports of its records.

        Raises ``LauncherGoneError`` or ``SupervisorMissingError``. Requests that were sent before and not
        carried out are void.
        """
        assert self._socket is None, "the link is open already"
        self._buffer.clear()
        self._queue.clear()
        self._queue_bytes = 0
        self._unsent = memoryview(b"")
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                return await self._open()
        except TimeoutError:
            raise LauncherGoneError(f"no launcher answered within {OPEN_SECONDS_MAX} s") from None

    async def _open(self) -> list[LauncherReport]:
        reason = "it exited during the greeting"
        for _ in range(OPEN_TRIES_MAX):
            connection = await self._connect()
            if connection is None:
                reason = await self._spawn()
                connection = await self._connect()
            if connection is None:
                continue
            try:
                found = await self._handshake(connection)
            except OSError as error:
                connection.close()
                reason = str(error)
                continue
            except BaseException:
                connection.close()
                raise
            self._attach(connection)
            return found
        log = self._directory / LOG
        text = log.read_text(encoding="utf-8", errors="replace")[-300:].strip() if log.exists() else ""
        raise LauncherGoneError(f"the launcher of {self._directory} does not work: {text or reason}")

    async def _connect(self) -> socket.socket | None:
        """Connect to the running launcher; return None if there is none. By way of the open directory: the
        path of a socket is limited to 107 bytes."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, f"/proc/self/fd/{directory}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(directory)
        return connection

    async def _spawn(self) -> str:
        """Start a launcher and wait until it listens; return the fault, or an empty text."""
        program = supervisor_program()
        pid = os.posix_spawn(program, [str(program), str(self._directory)], {})
        status = await _wait_for_exit(pid)
        return "" if status == 0 else f"{program.name} ended with {status}"

    async def _handshake(self, connection: socket.socket) -> list[LauncherReport]:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(
            connection, simple_request(HELLO, number=source_checksum(), texts=self._bases)
        )
        found: list[LauncherReport] = []
        while not (found and found[-1].kind == READY):
            data = await loop.sock_recv(connection, READ_BYTES)
            if not data:
                raise LauncherGoneError(
                    "it is of another version: build it again (python setup.py build_kernel)"
                )
            self._buffer += data
            reports, used = read_reports(self._buffer)
            del self._buffer[:used]
            for index, report in enumerate(reports):
                found.append(report)
                if report.kind == READY and reports[index + 1 :]:
                    loop.call_soon(self._on_reports, reports[index + 1 :])  # reports since then
                    break
        self.pid = found.pop().task
        return found

    def _attach(self, connection: socket.socket) -> None:
        self._socket = connection
        asyncio.get_running_loop().add_reader(connection, self._on_readable)

    def send(self, request: bytes) -> bool:
        """Send a request; return False if too many wait already."""
        if self._queue_bytes + len(request) > BACKLOG_BYTES_MAX:
            return False
        self._queue.append(request)
        self._queue_bytes += len(request)
        if not self._is_flushing and self._socket is not None:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    def _flush(self) -> None:
        connection = self._socket
        self._is_flushing = False
        if connection is None:
            return
        loop = asyncio.get_running_loop()
        try:
            while self._queue or self._unsent:
                if not self._unsent:
                    self._unsent = memoryview(b"".join(self._queue))
                    self._queue.clear()
                sent = connection.send(self._unsent)
                self._unsent = self._unsent[sent:]
                self._queue_bytes -= sent
        except BlockingIOError:
            self._is_flushing = True
            loop.add_writer(connection, self._on_writable)
        except OSError as error:
            self._disconnect(str(error))

    def _on_writable(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket)
        self._flush()

    def _on_readable(self) -> None:
        assert self._socket is not None, "a reader without a connection"
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._disconnect(str(error))
            return
        if not data:
            self._disconnect("it ended")
            return
        self._buffer += data
        reports, used = read_reports(self._buffer)
        del self._buffer[:used]
        if reports:
            self._on_reports(reports)

    def _disconnect(self, reason: str) -> None:
        self._close_connection()
        self._on_lost(reason)

    def _close_connection(self) -> None:
        connection, self._socket = self._socket, None
        self._is_flushing = False
        if connection is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(connection)
            loop.remove_writer(connection)
            connection.close()

    async def close(self) -> None:
        """Send the queue, within a bounded time, and disconnect."""
        connection = self._socket
        if connection is not None and (self._queue or self._unsent):
            loop = asyncio.get_running_loop()
            loop.remove_writer(connection)
            data = bytes(self._unsent) + b"".join(self._queue)
            self._queue.clear()
            self._unsent = memoryview(b"")
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await loop.sock_sendall(connection, data)
            except (OSError, TimeoutError):
                pass  # the launcher is gone or hangs: no request was promised to take effect unread
        self._close_connection()


async def _wait_for_exit(pid: int) -> int:
    """Wait for the end of a child process, without a thread."""
    loop = asyncio.get_running_loop()
    exited = loop.create_future()
    process = os.pidfd_open(pid)

    def on_exit() -> None:
        if not exited.done():
            exited.set_result(None)

    loop.add_reader(process, on_exit)
    try:
        await exited
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        loop.remove_reader(process)
        os.close(process)


__all__ = ["BACKLOG_BYTES_MAX", "LauncherClient", "LauncherGoneError", "SupervisorMissingError"]
