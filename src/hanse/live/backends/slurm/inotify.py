"""Watch of a directory by the kernel: the names of files that appear there.

It is a shortcut, not a guarantee: network file systems do not report what other hosts do, so the listener
must also scan the directory now and then.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

_IN_CREATE: Final = 0x100
_IN_MOVED_TO: Final = 0x80
_IN_Q_OVERFLOW: Final = 0x4000
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENT: Final = Struct("=iIII")
"""Watch, event mask, cookie, and the length of the name behind it."""
_EVENTS_BYTES: Final = 1 << 16


def make_inotify(directory: Path) -> int:
    """Open an inotify instance that reports new files in ``directory``. Blocks: it looks up the path."""
    inotify = int(_libc.inotify_init1(_FLAGS))
    if inotify < 0:
        raise OSError(ctypes.get_errno(), "no more inotify instances")
    watch = _libc.inotify_add_watch(inotify, os.fsencode(directory), _IN_CREATE | _IN_MOVED_TO)
    if watch < 0:
        error = ctypes.get_errno()
        os.close(inotify)
        raise OSError(error, f"cannot watch {directory}")
    return inotify


class DirectoryWatch:
    """Watch that calls ``on_files_created`` with the names of new files, or with None if it missed some.

    ``inotify``: an instance by ``make_inotify``; this object closes it.
    """

    def __init__(self, inotify: int, on_files_created: Callable[[list[str] | None], None]) -> None:
        self._inotify = inotify
        self._on_files_created = on_files_created
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._inotify, self._read)

    def close(self) -> None:
        """Stop watching."""
        if self._inotify >= 0:
            self._loop.remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def _read(self) -> None:
        try:
            data = os.read(self._inotify, _EVENTS_BYTES)
        except BlockingIOError:
            return
        names: list[str] | None = []
        at = 0
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & _IN_Q_OVERFLOW:
                names = None
            elif names is not None:
                names.append(os.fsdecode(name))
        self._on_files_created(names)


_libc: Final = ctypes.CDLL(None, use_errno=True)
