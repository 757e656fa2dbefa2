"""Room on a disk, in bytes and in files: when new work is refused, so that taken work can go on.

A file system that has bytes left and no inodes takes no new file, which is as bad: no task can be started and
no journal goes on. So both are judged alike.
"""

import errno
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

LOW_BYTES: Final = 256 << 20
"""Below so many free bytes a broker takes no new jobs: what is taken already still has to be written."""
LOW_FILES: Final = 8_192
"""Below so many free inodes nothing new is taken either: every attempt that waits for its start needs a
record, a directory and two outputs, and a machine has up to two thousand of these."""
LOW_SHARE: Final = 20
"""On a small disk one part in so many is enough, of bytes and of inodes."""
LOOK_SECONDS: Final = 0.05
"""How old the latest look at the disk may be."""
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""What a write says that finds no room: the disk's is used up, or that of whoever writes."""


class Room(NamedTuple):
    """What a file system has and what of it may be used, in bytes and in files (inodes)."""

    bytes_total: int
    bytes_free: int
    files_total: int
    """0: it does not count them, and has as many as fit."""
    files_free: int

    def share(self, bytes_wanted: int, files_wanted: int, part: int) -> float:
        """How often the free room holds so much: of bytes or of files, whichever is less. On a small disk one
        part in ``part`` of it is taken instead of each amount."""
        found = self.bytes_free / max(min(bytes_wanted, self.bytes_total // part), 1)
        if self.files_total > 0:
            found = min(found, self.files_free / max(min(files_wanted, self.files_total // part), 1))
        return found

    @property
    def ratio(self) -> float:
        """The free room as a multiple of that below which nothing new is taken."""
        return self.share(LOW_BYTES, LOW_FILES, LOW_SHARE)

    @property
    def low(self) -> bool:
        """Whether so little is left that it is kept for what was taken already."""
        return self.ratio < 1.0


def room_of(directory: Path) -> Room:
    """The room of the file system that a directory is on, as of now."""
    facts = os.statvfs(directory)
    size = facts.f_frsize
    return Room(facts.f_blocks * size, facts.f_bavail * size, facts.f_files, facts.f_favail)


class DiskSpace:
    """The free room of the file system that a directory is on, looked at now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._looked_at = float("-inf")
        self._low = False

    def is_low(self) -> bool:
        """Whether so little room is left that it is kept for what was taken already."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._low = room_of(self._directory).low
        return self._low
