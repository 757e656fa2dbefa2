"""The few things a journal asks of the operating system, in one place, so that tests can stand in between.

Nothing here retries or hides an error: after a failed ``fdatasync`` the kernel may have dropped what could
not be written and report success the next time.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from hanse.live.journal.errors import JournalInUse

LOCK_NAME = "lock"
LOCK_TRIES_MAX = 100
"""How often an opener that only meets readers, who hold the lock for microseconds, tries again."""
_PID_WIDTH = 20

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk says."""
_ZEROS: Final = bytes(1 << 16)


class Disk:
    """The operating system's files."""

    def create(self, path: Path) -> int:
        """A new, empty file, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """An existing file, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Let go of a file."""
        os.close(fd)

    def allocate(self, fd: int, begin: int, end: int) -> None:
        """Room on the disk for these bytes, all zero, and a file that is at least ``end`` long.

        The zeros are really written: room that is only reserved makes every later sync record that it is in
        use now (measured on ext4: 4 ms a sync instead of 0.1).
        """
        os.posix_fallocate(fd, begin, end - begin)
        for at in range(begin, end, len(_ZEROS)):
            self.write(fd, _ZEROS[: end - at], at)

    def free(self, directory: Path) -> int:
        """Bytes that anybody may still write to the disk under a directory."""
        facts = os.statvfs(directory)
        return facts.f_bavail * facts.f_frsize

    def truncate(self, fd: int, size: int) -> None:
        """Give room back."""
        os.ftruncate(fd, size)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """All of ``data`` to the operating system; durable only after ``sync``."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(fd, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "the disk took nothing of a write")
            rest, offset = rest[written:], offset + written

    def sync(self, fd: int) -> None:
        """What was written is on disk when this comes back."""
        os.fdatasync(fd)

    def sync_all(self, fd: int) -> None:
        """As ``sync``, and the file's size too."""
        os.fsync(fd)

    def sync_directory(self, directory: Path) -> None:
        """New, renamed and removed names are on disk when this comes back."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Change a name, in one step, replacing what has the new one."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()


DISK = Disk()


def write_file(disk: Disk, path: Path, parts: list[bytes]) -> None:
    """A whole file under its name, or nothing: written beside it, made durable, renamed."""
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
    """Take the journal for this process; the returned descriptor holds it until it is closed.

    A forked child that does not ``exec`` shares the lock; every other way of ending gives it back.
    """
    fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES_MAX):
        if _try(fd, fcntl.LOCK_EX):
            break
        if not _try(fd, fcntl.LOCK_SH):
            pid = os.pread(fd, _PID_WIDTH, 0).strip()
            os.close(fd)
            raise JournalInUse(directory, int(pid) if pid.isdigit() else None)
    else:
        os.close(fd)
        raise JournalInUse(directory, None)
    try:
        os.pwrite(fd, b"%*d" % (_PID_WIDTH, os.getpid()), 0)
    except OSError as error:
        # A journal must open on a full disk too, to be read and to have room made; the number is a courtesy.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            os.close(fd)
            raise
    return fd


def in_use(directory: Path) -> bool:
    """Whether some process (perhaps this one) has the journal open for writing."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
