"""Room kept for a journal while the disk is full: the next segment, written as zeros before it is needed.

Somebody else who fills the disk takes every byte that is given back. So the room is not given back: the file
is renamed and becomes the next segment.
"""

from pathlib import Path
from typing import Final

from hanse.live.journal.disk import NO_ROOM, Disk

RESERVE_NAME: Final = "reserve.seg.tmp"
"""A temporary file: whoever opens the journal removes one that was left, and makes its own."""
RESERVE_BYTES: Final = 4 << 20
"""What is kept: about ten thousand ends of tasks."""
FREE_FACTOR: Final = 4
"""A reserve is made while the disk has this many times its bytes free: it must not fill the disk itself."""


class Reserve:
    """The file that is kept. Belongs to the thread that writes the journal."""

    def __init__(self, directory: Path, disk: Disk, size: int) -> None:
        self._directory = directory
        self._path = directory / RESERVE_NAME
        self._disk = disk
        self._size = size
        self._fd: int | None = None

    def fill(self) -> None:
        """Make the file where it is missing, if the disk has plenty of room."""
        if self._fd is not None or self._disk.free(self._directory) < FREE_FACTOR * self._size:
            return
        fd = self._disk.create(self._path)
        try:
            self._disk.allocate(fd, 0, self._size)
        except OSError as error:
            self._disk.close(fd)
            self._disk.unlink(self._path)
            if error.errno not in NO_ROOM:
                raise
        else:
            self._fd = fd

    def become(self, path: Path, needed: int) -> tuple[int, int] | None:
        """Give the file this name; its descriptor and size. None: there is no reserve, or it is too small."""
        if self._fd is None or self._size < needed:
            return None
        self._disk.rename(self._path, path)
        fd, self._fd = self._fd, None
        return fd, self._size

    def drop(self) -> None:
        """Remove the file."""
        if self._fd is not None:
            self.abandon()
            self._disk.unlink(self._path)

    def abandon(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            self._disk.close(self._fd)
            self._fd = None
