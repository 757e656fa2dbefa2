"""The output of attempts: read from any place, followed as it grows, and kept for a while after they are
forgotten.

Files are written by the supervisors. Growth is heard from the kernel (inotify), never polled.
"""

import asyncio
import ctypes
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

from hanse.live.backends.interface import Stream
from hanse.model.ids import TaskId

Key = tuple[TaskId, int]

PIECE_BYTES: Final = 1 << 16
"""The largest piece that is read at once."""
FOLLOWERS_MAX: Final = 64
"""Followers at once; further ones are refused. Each needs one of the system's inotify instances."""
_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS_BYTES: Final = 1 << 14


class KeptOutputs:
    """Which outputs of forgotten attempts are there, and which must go: the oldest first."""

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self._bytes_max, self._count_max = bytes_max, count_max
        self._bytes = 0
        self._kept: dict[Key, int] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    def add(self, key: Key, size: int) -> list[Key]:
        """Keep one more; tells which to drop for it."""
        self._bytes += size - self._kept.pop(key, 0)
        self._kept[key] = size
        dropped = []
        while len(self._kept) > self._count_max or self._bytes > self._bytes_max:
            oldest = next(iter(self._kept))
            self._bytes -= self._kept.pop(oldest)
            dropped.append(oldest)
        return dropped

    def load(self, directory: Path, besides: Callable[[Key], bool]) -> list[Key]:
        """Take over what is in a directory, oldest first, but for the attempts not yet forgotten."""
        sizes: dict[Key, int] = {}
        ages: dict[Key, int] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                key = _key(entry.name)
                if key is None or besides(key):
                    continue
                facts = entry.stat(follow_symlinks=False)
                sizes[key] = sizes.get(key, 0) + facts.st_size
                ages[key] = max(ages.get(key, 0), facts.st_mtime_ns)
        dropped = []
        for key in sorted(sizes, key=lambda each: (ages[each], each)):
            dropped += self.add(key, sizes[key])
        return dropped


def _key(name: str) -> Key | None:
    task, _, rest = name.partition(".")
    attempt, _, stream = rest.partition(".")
    if not (task.isdecimal() and attempt.isdecimal() and stream in ("stdout", "stderr")):
        return None
    return TaskId(int(task)), int(attempt)


class Follower:
    """Wakes whoever reads an output: when it grew, appeared, or when its attempt ended."""

    def __init__(self, path: Path) -> None:
        self.woken = asyncio.Event()
        self._path = path
        self._watches_file = False
        self._inotify = _libc.inotify_init1(_FLAGS)
        if self._inotify < 0:
            raise OSError(ctypes.get_errno(), "cannot follow an output: no more inotify instances")
        asyncio.get_running_loop().add_reader(self._inotify, self._wake)
        self._parent = self._watch(path.parent, _IN_CREATE)

    def file_is_there(self) -> None:
        """From now on only the growth of the file matters."""
        if not self._watches_file:
            self._watches_file = True
            self._watch(self._path, _IN_MODIFY)
            _libc.inotify_rm_watch(self._inotify, self._parent)
            self.woken.set()  # it may have grown before it was watched

    def _watch(self, path: Path, mask: int) -> int:
        watch = int(_libc.inotify_add_watch(self._inotify, os.fsencode(path), mask))
        if watch < 0:
            raise OSError(ctypes.get_errno(), f"cannot follow {path}")
        return watch

    def _wake(self) -> None:
        try:
            os.read(self._inotify, _EVENTS_BYTES)
        except BlockingIOError:
            return
        self.woken.set()

    def close(self) -> None:
        """Stop listening."""
        asyncio.get_running_loop().remove_reader(self._inotify)
        os.close(self._inotify)


class Outputs:
    """The outputs in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._followers: dict[Key, list[Follower]] = {}
        self._count = 0

    def ended(self, key: Key) -> None:
        """An attempt has ended: who follows it reads the rest."""
        for follower in self._followers.get(key, ()):
            follower.woken.set()

    async def read(
        self, key: Key, stream: Stream, offset: int, follow: bool, alive: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """The output from ``offset`` on; while ``alive`` and with ``follow``, also what comes."""
        path = self._directory / f"{key[0]}.{key[1]}.{stream}"
        follower = self._follow(key, path) if follow else None
        file = -1
        try:
            while True:
                goes_on = follower is not None and alive()  # asked before reading: nothing comes after it
                file = file if file >= 0 else _open(path)
                if file >= 0 and follower is not None:
                    follower.file_is_there()
                while file >= 0 and (piece := os.pread(file, PIECE_BYTES, offset)):
                    offset += len(piece)
                    yield piece
                    await asyncio.sleep(0)  # others have their turn between pieces
                if follower is None or not goes_on:
                    return
                await follower.woken.wait()
                follower.woken.clear()
        finally:
            if file >= 0:
                os.close(file)
            if follower is not None:
                self._unfollow(key, follower)

    def _follow(self, key: Key, path: Path) -> Follower:
        if self._count >= FOLLOWERS_MAX:
            raise OSError(f"{FOLLOWERS_MAX} outputs are followed already; try again later")
        follower = Follower(path)
        self._count += 1
        self._followers.setdefault(key, []).append(follower)
        return follower

    def _unfollow(self, key: Key, follower: Follower) -> None:
        follower.close()
        self._count -= 1
        self._followers[key].remove(follower)
        if not self._followers[key]:
            del self._followers[key]


def _open(path: Path) -> int:
    """A file to read, or -1 if it is not there (yet)."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


_libc: Final = ctypes.CDLL(None, use_errno=True)
