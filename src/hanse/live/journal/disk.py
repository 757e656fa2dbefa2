"""File operations of the journal, in one place, so that tests can replace them.

No operation retries or hides an error: after a failed ``fdatasync`` the kernel may have dropped unwritten
data and report success the next time.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from hanse.live.journal.errors import JournalInUse

LOCK_NAME = "lock"
LOCK_TRIES_MAX = 100
"""Number of tries to get the lock from readers, which hold it for microseconds."""
_PID_WIDTH = 20

NO_SPACE_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk."""
_ZEROS: Final = bytes(1 << 16)


class Disk:
    """File operations of the operating system."""

    def create(self, path: Path) -> int:
        """Create an empty file and open it for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def allocate(self, fd: int, begin: int, end: int) -> None:
        """Allocate disk space for these bytes, all zero, and make the file at least ``end`` bytes long.

        The zeros are really written: with space that is only reserved, every later sync must also record
        that it is now used (measured on ext4: 4 ms for a sync instead of 0.1).
        """
        os.posix_fallocate(fd, begin, end - begin)
        for at in range(begin, end, len(_ZEROS)):
            self.write(fd, _ZEROS[: end - at], at)

    def free_bytes(self, directory: Path) -> int:
        """Return the bytes available to unprivileged users on the disk of a directory."""
        stats = os.statvfs(directory)
        return stats.f_bavail * stats.f_frsize

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of ``data``; durable only after ``sync``."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(fd, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "the disk accepted no byte of a write")
            rest, offset = rest[written:], offset + written

    def sync(self, fd: int) -> None:
        """Make the written data durable."""
        os.fdatasync(fd)

    def sync_all(self, fd: int) -> None:
        """Make the written data and the file's size durable."""
        os.fsync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Make new, renamed and removed names in a directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file atomically, replacing a file of the new name."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()


DISK = Disk()


def write_file(disk: Disk, path: Path, parts: list[bytes]) -> None:
    """Write a file atomically: to a temporary name, made durable, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    if temporary.exists():
        disk.unlink(temporary)
    fd = disk.create(temporary)
    try:
        offset = 0
        for part in parts:
            disk.write(fd, part, offset)
            offset += len(part)
        disk.sync_all(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def lock(directory: Path) -> int:
    """Lock the journal for this process. Return a descriptor that holds the lock until it is closed.

    A forked child that does not ``exec`` shares the lock; otherwise the end of the process releases it.
    """
    fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES_MAX):
        if _try_flock(fd, fcntl.LOCK_EX):
            break
        if not _try_flock(fd, fcntl.LOCK_SH):
            pid = os.pread(fd, _PID_WIDTH, 0).strip()
            os.close(fd)
            raise JournalInUse(directory, int(pid) if pid.isdigit() else None)
    else:
        os.close(fd)
        raise JournalInUse(directory, None)
    try:
        os.pwrite(fd, b"%*d" % (_PID_WIDTH, os.getpid()), 0)
    except OSError as error:
        # A journal must also open on a full disk, to be read and to free space; the pid is only a hint.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            os.close(fd)
            raise
    return fd


def is_in_use(directory: Path) -> bool:
    """Return True if some process (perhaps this one) has the journal open for writing."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try_flock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
