"""Free space of a disk, in bytes and in inodes: when it is low, only accepted work goes on.

A file system with free bytes and no inodes takes no new file, which is as bad: no task can start and no
journal can grow. So both are checked alike.
"""

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Final, NamedTuple

LOW_BYTES: Final = 256 << 20
"""Free bytes below which a broker accepts no new jobs: accepted jobs still have to be written."""
LOW_FILES: Final = 8_192
"""Free inodes below which nothing new is accepted: every attempt that waits for its start needs a record, a
directory and two outputs, and a machine has up to two thousand of these."""
LOW_SHARE: Final = 20
"""On a small disk one part in this number is enough, of bytes and of inodes."""
CHECK_SECONDS: Final = 0.05
"""Longest age of the latest reading, in seconds."""
NO_SPACE_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of a write that finds no space: the disk is full, or the writer's quota is used up."""


def is_out_of_space(error: BaseException) -> bool:
    """True if an error, or one that caused it, is that of a write that found no space."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_SPACE_ERRNOS:
            return True
        if isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


class FilesystemSpace(NamedTuple):
    """Total and free space of a file system, in bytes and in files (inodes)."""

    bytes_total: int
    bytes_free: int
    files_total: int
    """0: the file system does not count inodes, and has as many as fit."""
    files_free: int

    def ratio_to(self, bytes_wanted: int, files_wanted: int, part: int) -> float:
        """Return the free space as a multiple of these amounts, the smaller of bytes and files. On a small
        disk one part in ``part`` replaces each amount."""
        ratio = self.bytes_free / max(min(bytes_wanted, self.bytes_total // part), 1)
        if self.files_total > 0:
            ratio = min(ratio, self.files_free / max(min(files_wanted, self.files_total // part), 1))
        return ratio

    @property
    def ratio(self) -> float:
        """Free space as a multiple of the amount below which nothing new is accepted."""
        return self.ratio_to(LOW_BYTES, LOW_FILES, LOW_SHARE)

    @property
    def is_low(self) -> bool:
        """True if the rest is reserved for work that was accepted already."""
        return self.ratio < 1.0


def read_filesystem_space(directory: Path) -> FilesystemSpace:
    """Read the space of the file system that holds a directory."""
    status = os.statvfs(directory)
    size = status.f_frsize
    return FilesystemSpace(status.f_blocks * size, status.f_bavail * size, status.f_files, status.f_favail)


class DiskSpaceCheck:
    """Free space of the file system that holds a directory, read now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._checked_at = float("-inf")
        self._low = False

    def is_low(self) -> bool:
        """Return True if the rest is reserved for work that was accepted already."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._low = read_filesystem_space(self._directory).is_low
        return self._low
