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

AttemptId = tuple[TaskId, int]

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
_NOTE: Final = Struct("=qq")
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS_BYTES: Final = 1 << 14


class KeptOutputs:
    """Register of the outputs of forgotten attempts, and of those to drop: the oldest first."""

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self._bytes_max_initial = self._bytes_max = bytes_max
        self._count_max = count_max
        self._bytes = 0
        self._kept: dict[AttemptId, int] = {}
        self._dropped: dict[AttemptId, None] = {}
        """The latest dropped outputs, at most ``count_max``: readers get that as an answer."""

    def __contains__(self, key: AttemptId) -> bool:
        return key in self._kept

    def was_dropped(self, key: AttemptId) -> bool:
        """True if there was such an output, and it was dropped."""
        return key in self._dropped

    def note_dropped(self, key: AttemptId) -> None:
        """Remember that an output was dropped."""
        self._dropped[key] = None
        if len(self._dropped) > self._count_max:
            del self._dropped[next(iter(self._dropped))]

    def add(self, key: AttemptId, size: int) -> list[AttemptId]:
        """Keep one more; return those to drop for it."""
        self._bytes += size - self._kept.pop(key, 0)
        self._kept[key] = size
        return self._shrink()

    def set_bytes_max(self, bytes_max: int) -> list[AttemptId]:
        """Keep at most this many bytes from now on, and never more than at first; return those to drop."""
        self._bytes_max = min(self._bytes_max_initial, bytes_max)
        return self._shrink()

    def free_space(self, size: int, files: int) -> dict[AttemptId, int]:
        """Give up outputs until so many bytes and files are free, the oldest first; those without any byte
        have no file, and stay. Return those to drop, with the bytes of each."""
        dropped: dict[AttemptId, int] = {}
        freed = 0
        for key, kept_size in self._kept.items():
            if freed >= size and len(dropped) >= files:
                break
            if kept_size:
                dropped[key] = kept_size
                freed += kept_size
        for key in dropped:
            self._bytes -= self._kept.pop(key)
            self.note_dropped(key)
        return dropped

    def _shrink(self) -> list[AttemptId]:
        dropped = []
        while len(self._kept) > self._count_max or self._bytes > self._bytes_max:
            oldest = next(iter(self._kept))
            size = self._kept.pop(oldest)
            self._bytes -= size
            dropped.append(oldest)
            if size:
                self.note_dropped(oldest)
        return dropped

    def load(self, directory: Path, is_excluded: Callable[[AttemptId], bool]) -> list[AttemptId]:
        """Register the outputs in a directory, oldest first, except those of attempts not yet forgotten.

        Attempts that wrote nothing count as older than the others: they have nothing to lose.
        """
        dropped = []
        for key_silent in _read_silent(directory):
            if not is_excluded(key_silent):
                dropped += self.add(key_silent, 0)
        sizes: dict[AttemptId, int] = {}
        ages: dict[AttemptId, int] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                key = _parse_name(entry.name)
                if key is None or is_excluded(key):
                    continue
                status = entry.stat(follow_symlinks=False)
                sizes[key] = sizes.get(key, 0) + status.st_size
                ages[key] = max(ages.get(key, 0), status.st_mtime_ns)
        for key in sorted(sizes, key=lambda each: (ages[each], each)):
            dropped += self.add(key, sizes[key])
        return dropped


def _read_silent(directory: Path) -> Iterator[AttemptId]:
    """Yield forgotten attempts that wrote nothing, from the launcher's notes; a torn last note is ignored."""
    for name in ("silent.old", "silent"):
        try:
            notes = (directory / name).read_bytes()
        except FileNotFoundError:
            continue
        whole = notes[: len(notes) // _NOTE.size * _NOTE.size]
        for task, attempt in _NOTE.iter_unpack(whole):
            yield TaskId(task), attempt


def _parse_name(name: str) -> AttemptId | None:
    task, _, rest = name.partition(".")
    attempt, _, stream = rest.partition(".")
    if not (task.isdecimal() and attempt.isdecimal() and stream in ("stdout", "stderr")):
        return None
    return TaskId(int(task)), int(attempt)


class InotifyWatches:
    """One inotify instance for all followers (a user usually may have 128), with the listeners of each
    watch."""

    def __init__(self) -> None:
        self._inotify = -1
        self._listeners: dict[int, list[asyncio.Event]] = {}

    def add(self, path: Path, mask: int, listener: asyncio.Event) -> int:
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
        self._listeners.setdefault(watch, []).append(listener)
        return watch

    def remove(self, watch: int, listener: asyncio.Event) -> None:
        """Stop setting this listener."""
        others = self._listeners[watch]
        others.remove(listener)
        if not others:
            del self._listeners[watch]
            _libc.inotify_rm_watch(self._inotify, watch)  # fails if the file is gone, and the watch with it
            self._close_if_idle()

    def _close_if_idle(self) -> None:
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
        self._watch = watches.add(path.parent, _IN_CREATE, self.wakeup)

    def watch_file(self) -> None:
        """Watch only the growth of the file from now on."""
        if not self._watches_file:
            before = self._watch
            self._watch = self._watches.add(self._path, _IN_MODIFY, self.wakeup)
            self._watches_file = True
            self._watches.remove(before, self.wakeup)
            self.wakeup.set()  # it may have grown before the watch

    def close(self) -> None:
        """Stop watching."""
        self._watches.remove(self._watch, self.wakeup)


class OutputReader:
    """Reader of the outputs in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._followers: dict[AttemptId, list[OutputFollower]] = {}
        self._watches = InotifyWatches()
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
        file = -1
        try:
            while True:
                may_grow = (
                    follower is not None and is_alive()
                )  # before reading: an ended attempt writes no more
                file = file if file >= 0 else _open(path)
                if file >= 0 and follower is not None:
                    follower.watch_file()
                while file >= 0 and (chunk := os.pread(file, CHUNK_BYTES, offset)):
                    offset += len(chunk)
                    yield chunk
                    await asyncio.sleep(0)  # other tasks run between chunks
                if follower is None or not may_grow:
                    return
                await follower.wakeup.wait()
                follower.wakeup.clear()
        finally:
            if file >= 0:
                os.close(file)
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


def _open(path: Path) -> int:
    """Open a file to read; return -1 if it does not exist (yet)."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


_libc: Final = ctypes.CDLL(None, use_errno=True)
