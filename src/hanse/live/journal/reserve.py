"""Reserve of disk space for a journal: the next segment, written as zeros before it is needed.

A process that fills the disk takes every byte that is freed. So the space is never freed: the reserve file is
renamed and becomes the next segment.
"""

from pathlib import Path
from typing import Final

from hanse.live.journal.disk import NO_SPACE_ERRNOS, Disk

RESERVE_NAME: Final = "reserve.seg.tmp"
"""Name of the temporary file; opening the journal removes a leftover one and creates its own."""
RESERVE_BYTES: Final = 4 << 20
"""Size of the reserve: enough for about ten thousand ends of tasks."""
FREE_FACTOR: Final = 4
"""The reserve is created only if the disk has this many times its bytes free, so as not to fill it."""


class Reserve:
    """Reserve file. Used only by the thread that writes the journal."""

    def __init__(self, directory: Path, disk: Disk, size: int) -> None:
        self._directory = directory
        self._path = directory / RESERVE_NAME
        self._disk = disk
        self._size = size
        self._fd: int | None = None

    def fill(self) -> None:
        """Create the file if it is missing, and if the disk has plenty of space."""
        if self._fd is not None or self._disk.free_bytes(self._directory) < FREE_FACTOR * self._size:
            return
        fd = self._disk.create(self._path)
        try:
            self._disk.allocate(fd, 0, self._size)
        except OSError as error:
            self._disk.close(fd)
            self._disk.unlink(self._path)
            if error.errno not in NO_SPACE_ERRNOS:
                raise
        else:
            self._fd = fd

    def rename_to(self, path: Path, needed: int) -> tuple[int, int] | None:
        """Rename the file; return its descriptor and size. None: there is no reserve, or it is too small."""
        if self._fd is None or self._size < needed:
            return None
        self._disk.rename(self._path, path)
        fd, self._fd = self._fd, None
        return fd, self._size

    def drop(self) -> None:
        """Remove the file."""
        if self._fd is not None:
            self.close()
            self._disk.unlink(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            self._disk.close(self._fd)
            self._fd = None
