"""Reader of the output of attempts: from any offset, and following it while it grows.

Supervisors write the files. The kernel reports their growth (inotify); nothing polls.
"""

import asyncio
import ctypes
import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

from hanse.live.backends.async_files import AsyncFiles, DirectFiles
from hanse.live.backends.interface import Stream
from hanse.live.backends.process.kept_outputs import AttemptId

CHUNK_BYTES: Final = 1 << 16
"""The largest chunk of one read."""
FOLLOWERS_MAX: Final = 64
"""Followers at once; further ones are refused."""
_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_IN_Q_OVERFLOW: Final = 0x4000
_IN_MASK_ADD: Final = 0x2000_0000
_EVENT: Final = Struct("=iIII")
"""Watch, event mask, cookie, and the length of the name behind it."""
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS_BYTES: Final = 1 << 14


class OutputFile:
    """One output, opened when it exists. Every method blocks; they may run in different threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._lock = Lock()
        self._closed = False

    def open(self) -> bool:
        """Open the file if it exists; return True if it is open."""
        with self._lock:
            if self._file < 0 and not self._closed:
                try:
                    self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    return False
            return self._file >= 0

    def read(self, offset: int) -> bytes:
        """Return the next chunk; empty at the end, and of a file that is not open."""
        with self._lock:
            return os.pread(self._file, CHUNK_BYTES, offset) if self._file >= 0 else b""

    def close(self) -> None:
        """Close the file, after a call that runs in another thread."""
        with self._lock:
            self._closed = True
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


class InotifyWatches:
    """One inotify instance for all followers (a user usually may have 128), with the listeners of each
    watch."""

    def __init__(self, files: AsyncFiles) -> None:
        self._files = files
        self._inotify = -1
        self._listeners: dict[int, list[asyncio.Event]] = {}
        self._adding = 0
        """Watches on their way; until they are there the instance stays open."""
        self._unused: dict[int, None] = {}
        """Watches to remove when none is on its way: a new one for the same file has the same number."""

    async def add(self, path: Path, mask: int, listener: asyncio.Event) -> int:
        """Set ``listener`` at every event of ``mask`` on ``path``; return the number for ``remove``."""
        if self._inotify < 0:
            self._inotify = _libc.inotify_init1(_FLAGS)
            if self._inotify < 0:
                raise OSError(ctypes.get_errno(), "cannot follow an output: no more inotify instances")
            asyncio.get_running_loop().add_reader(self._inotify, self._read)
        self._adding += 1
        adding = self._files.submit(partial(_add_watch, self._inotify, path, mask | _IN_MASK_ADD))
        try:
            watch = await asyncio.shield(adding)
        except asyncio.CancelledError:
            adding.add_done_callback(self._on_abandoned)
            raise
        except OSError:
            self._end_adding()
            raise
        self._listeners.setdefault(watch, []).append(listener)
        self._end_adding()
        return watch

    def remove(self, watch: int, listener: asyncio.Event) -> None:
        """Stop setting this listener."""
        others = self._listeners[watch]
        others.remove(listener)
        if not others:
            del self._listeners[watch]
            self._unused[watch] = None
            self._clean_up()

    def _on_abandoned(self, adding: "asyncio.Future[int]") -> None:
        if not adding.cancelled() and adding.exception() is None:
            self._unused[adding.result()] = None
        self._end_adding()

    def _end_adding(self) -> None:
        self._adding -= 1
        self._clean_up()

    def _clean_up(self) -> None:
        """Remove the watches without listeners, and the instance without watches."""
        if self._adding:
            return
        for watch in self._unused:
            if watch not in self._listeners:
                _libc.inotify_rm_watch(self._inotify, watch)  # fails if the file is gone
        self._unused.clear()
        if not self._listeners and self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def _read(self) -> None:
        try:
            data = os.read(self._inotify, _EVENTS_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            numbers = list(self._listeners) if mask & _IN_Q_OVERFLOW else (watch,)
            for number in numbers:
                for listener in self._listeners.get(number, ()):
                    listener.set()


class OutputFollower:
    """Wakeup of a reader: when the output grows or appears, or when its attempt ends."""

    def __init__(self, path: Path, watches: InotifyWatches) -> None:
        self.wakeup = asyncio.Event()
        self._path, self._watches = path, watches
        self._watches_file = False
        self._watch = -1

    async def watch_directory(self) -> None:
        """Watch for the file to appear."""
        self._watch = await self._watches.add(self._path.parent, _IN_CREATE, self.wakeup)

    async def watch_file(self) -> None:
        """Watch only the growth of the file from now on."""
        if not self._watches_file:
            before = self._watch
            self._watch = await self._watches.add(self._path, _IN_MODIFY, self.wakeup)
            self._watches_file = True
            self._watches.remove(before, self.wakeup)
            self.wakeup.set()  # it may have grown before the watch

    def close(self) -> None:
        """Stop watching."""
        if self._watch >= 0:
            self._watches.remove(self._watch, self.wakeup)


class OutputReader:
    """Reader of the outputs in a directory. ``files``: access to it."""

    def __init__(self, directory: Path, files: AsyncFiles | None = None) -> None:
        self._directory = directory
        self._files = files if files is not None else DirectFiles()
        self._followers: dict[AttemptId, list[OutputFollower]] = {}
        self._watches = InotifyWatches(self._files)
        self._follower_count = 0

    def wake_followers(self, key: AttemptId) -> None:
        """Wake the followers of an attempt, which has ended: they read the rest."""
        for follower in self._followers.get(key, ()):
            follower.wakeup.set()

    async def read(
        self, key: AttemptId, stream: Stream, offset: int, follow: bool, is_alive: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output from ``offset`` on; with ``follow``, also later output while ``is_alive``."""
        path = self._directory / f"{key[0]}.{key[1]}.{stream}"
        follower = self._follow(key, path) if follow else None
        file = OutputFile(path)
        try:
            if follower is not None:
                await follower.watch_directory()
            while True:
                may_grow = (
                    follower is not None and is_alive()
                )  # before reading: an ended attempt writes no more
                if await self._files.submit(file.open) and follower is not None:
                    await follower.watch_file()
                while chunk := await self._files.submit(partial(file.read, offset)):
                    offset += len(chunk)
                    yield chunk
                    await asyncio.sleep(0)  # other tasks run between chunks
                if follower is None or not may_grow:
                    return
                await follower.wakeup.wait()
                follower.wakeup.clear()
        finally:
            self._files.submit(file.close)
            if follower is not None:
                self._unfollow(key, follower)

    def _follow(self, key: AttemptId, path: Path) -> OutputFollower:
        if self._follower_count >= FOLLOWERS_MAX:
            raise OSError(f"{FOLLOWERS_MAX} outputs are followed already; try again later")
        follower = OutputFollower(path, self._watches)
        self._follower_count += 1
        self._followers.setdefault(key, []).append(follower)
        return follower

    def _unfollow(self, key: AttemptId, follower: OutputFollower) -> None:
        follower.close()
        self._follower_count -= 1
        self._followers[key].remove(follower)
        if not self._followers[key]:
            del self._followers[key]


def _add_watch(inotify: int, path: Path, mask: int) -> int:
    """Add a watch. Blocks: it looks up the path."""
    watch = int(_libc.inotify_add_watch(inotify, os.fsencode(path), mask))
    if watch < 0:
        raise OSError(ctypes.get_errno(), f"cannot follow {path}")
    return watch


_libc: Final = ctypes.CDLL(None, use_errno=True)
