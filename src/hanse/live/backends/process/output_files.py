"""Output of attempts: reading from any offset, following, and retention after the attempts are forgotten.

Supervisors write the files. The kernel reports their growth (inotify); nothing polls.
"""

import asyncio
import ctypes
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from hanse.live.backends.interface import Stream
from hanse.model.ids import TaskId

Key = tuple[TaskId, int]

PIECE_BYTES: Final = 1 << 16
"""The largest chunk of one read."""
FOLLOWERS_MAX: Final = 64
"""Followers at once; further ones are refused."""
_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_IN_Q_OVERFLOW: Final = 0x4000
_IN_MASK_ADD: Final = 0x2000_0000
_EVENT: Final = Struct("=iIII")
"""Watch, event mask, cookie, and the length of the name behind it."""
_NOTE: Final = Struct("=qq")
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS_BYTES: Final = 1 << 14


class KeptOutputs:
    """Register of the outputs of forgotten attempts, and of those to drop: the oldest first."""

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self._bytes_most = self._bytes_max = bytes_max
        self._count_max = count_max
        self._bytes = 0
        self._kept: dict[Key, int] = {}
        self._dropped: dict[Key, None] = {}
        """The latest dropped outputs, at most ``count_max``: readers get that as an answer."""

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    def was_dropped(self, key: Key) -> bool:
        """True if there was such an output, and it was dropped."""
        return key in self._dropped

    def note_dropped(self, key: Key) -> None:
        """Remember that an output was dropped."""
        self._dropped[key] = None
        if len(self._dropped) > self._count_max:
            del self._dropped[next(iter(self._dropped))]

    def add(self, key: Key, size: int) -> list[Key]:
        """Keep one more; return those to drop for it."""
        self._bytes += size - self._kept.pop(key, 0)
        self._kept[key] = size
        return self._shrink()

    def bound(self, bytes_max: int) -> list[Key]:
        """Keep at most this many bytes from now on, and never more than at first; return those to drop."""
        self._bytes_max = min(self._bytes_most, bytes_max)
        return self._shrink()

    def relieve(self, size: int, files: int) -> dict[Key, int]:
        """Give up outputs until so many bytes and files are free, the oldest first; those without any byte
        have no file, and stay. Return those to drop, with the bytes of each."""
        dropped: dict[Key, int] = {}
        freed = 0
        for key, kept in self._kept.items():
            if freed >= size and len(dropped) >= files:
                break
            if kept:
                dropped[key] = kept
                freed += kept
        for key in dropped:
            self._bytes -= self._kept.pop(key)
            self.note_dropped(key)
        return dropped

    def _shrink(self) -> list[Key]:
        dropped = []
        while len(self._kept) > self._count_max or self._bytes > self._bytes_max:
            oldest = next(iter(self._kept))
            size = self._kept.pop(oldest)
            self._bytes -= size
            dropped.append(oldest)
            if size:
                self.note_dropped(oldest)
        return dropped

    def load(self, directory: Path, besides: Callable[[Key], bool]) -> list[Key]:
        """Register the outputs in a directory, oldest first, except those of attempts not yet forgotten.

        Attempts that wrote nothing count as older than the others: they have nothing to lose.
        """
        dropped = []
        for silent in _silent(directory):
            if not besides(silent):
                dropped += self.add(silent, 0)
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
        for key in sorted(sizes, key=lambda each: (ages[each], each)):
            dropped += self.add(key, sizes[key])
        return dropped


def _silent(directory: Path) -> Iterator[Key]:
    """Yield forgotten attempts that wrote nothing, from the launcher's notes; a torn last note is ignored."""
    for name in ("silent.old", "silent"):
        try:
            notes = (directory / name).read_bytes()
        except FileNotFoundError:
            continue
        whole = notes[: len(notes) // _NOTE.size * _NOTE.size]
        for task, attempt in _NOTE.iter_unpack(whole):
            yield TaskId(task), attempt


def _key(name: str) -> Key | None:
    task, _, rest = name.partition(".")
    attempt, _, stream = rest.partition(".")
    if not (task.isdecimal() and attempt.isdecimal() and stream in ("stdout", "stderr")):
        return None
    return TaskId(int(task)), int(attempt)


class Watches:
    """One inotify instance for all followers (a user usually may have 128), with the listeners of each
    watch."""

    def __init__(self) -> None:
        self._inotify = -1
        self._woken: dict[int, list[asyncio.Event]] = {}

    def add(self, path: Path, mask: int, woken: asyncio.Event) -> int:
        """Set ``listener`` at every event of ``mask`` on ``path``; return the number for ``remove``."""
        if self._inotify < 0:
            self._inotify = _libc.inotify_init1(_FLAGS)
            if self._inotify < 0:
                raise OSError(ctypes.get_errno(), "cannot follow an output: no more inotify instances")
            asyncio.get_running_loop().add_reader(self._inotify, self._read)
        watch = int(_libc.inotify_add_watch(self._inotify, os.fsencode(path), mask | _IN_MASK_ADD))
        if watch < 0:
            error = ctypes.get_errno()
            self._close_if_idle()
            raise OSError(error, f"cannot follow {path}")
        self._woken.setdefault(watch, []).append(woken)
        return watch

    def remove(self, watch: int, woken: asyncio.Event) -> None:
        """Stop setting this listener."""
        others = self._woken[watch]
        others.remove(woken)
        if not others:
            del self._woken[watch]
            _libc.inotify_rm_watch(self._inotify, watch)  # fails if the file is gone, and the watch with it
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._woken and self._inotify >= 0:
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
            numbers = list(self._woken) if mask & _IN_Q_OVERFLOW else (watch,)
            for number in numbers:
                for woken in self._woken.get(number, ()):
                    woken.set()


class Follower:
    """Wakeup of a reader: when the output grows or appears, or when its attempt ends."""

    def __init__(self, path: Path, watches: Watches) -> None:
        self.woken = asyncio.Event()
        self._path, self._watches = path, watches
        self._watches_file = False
        self._watch = watches.add(path.parent, _IN_CREATE, self.woken)

    def file_is_there(self) -> None:
        """Watch only the growth of the file from now on."""
        if not self._watches_file:
            before = self._watch
            self._watch = self._watches.add(self._path, _IN_MODIFY, self.woken)
            self._watches_file = True
            self._watches.remove(before, self.woken)
            self.woken.set()  # it may have grown before the watch

    def close(self) -> None:
        """Stop watching."""
        self._watches.remove(self._watch, self.woken)


class Outputs:
    """Reader of the outputs in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._followers: dict[Key, list[Follower]] = {}
        self._watches = Watches()
        self._count = 0

    def ended(self, key: Key) -> None:
        """Wake the followers of an attempt, which has ended: they read the rest."""
        for follower in self._followers.get(key, ()):
            follower.woken.set()

    async def read(
        self, key: Key, stream: Stream, offset: int, follow: bool, alive: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output from ``offset`` on; with ``follow``, also later output while ``is_alive``."""
        path = self._directory / f"{key[0]}.{key[1]}.{stream}"
        follower = self._follow(key, path) if follow else None
        file = -1
        try:
            while True:
                goes_on = follower is not None and alive()  # before reading: an ended attempt writes no more
                file = file if file >= 0 else _open(path)
                if file >= 0 and follower is not None:
                    follower.file_is_there()
                while file >= 0 and (piece := os.pread(file, PIECE_BYTES, offset)):
                    offset += len(piece)
                    yield piece
                    await asyncio.sleep(0)  # other tasks run between chunks
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
        follower = Follower(path, self._watches)
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
    """Open a file to read; return -1 if it does not exist (yet)."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


_libc: Final = ctypes.CDLL(None, use_errno=True)
