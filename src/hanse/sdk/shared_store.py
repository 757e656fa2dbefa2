"""A directory for large parcels that an executor and those hands share that see the same file system.

It lies in memory (``/dev/shm``) where there is such a thing, so that a megabyte costs a copy and no disk. The
outer directory may be entered and not listed; the inner one has a name that is told over the channel only.
Whoever is told may write there, because hands often run as somebody else; the executor owns it, and removes
every file when it is taken, and the whole when it ends. What a killed executor left behind is removed by the
next one of the same user: a lock that is held as long as its process lives tells the two apart.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")  # noqa: S108  the names below it are nobody's to guess
PREFIX: Final = "hanse-spool-"
FREE_BYTES_MIN: Final = 256 << 20
"""Parcels go over the channel when less than this would be left on the device."""
LOCK: Final = "lock"
TOKEN: Final = "token"  # noqa: S105  a file's name
NAME_BYTES: Final = 12

Buffer = bytes | memoryview


class SpoolFile:
    """One file of the spool; it is removed when nobody holds this object any more."""

    __slots__ = ("_directory", "name")

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self.name = name

    def read(self, size: int) -> bytearray:
        """Its content. Raises ``OSError``; whoever wants ``size`` bytes checks that there are as many."""
        return read_file(f"{self._directory}/{self.name}", size)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"{self._directory}/{self.name}")  # noqa: PTH108  may run when pathlib is gone already


class Spool:
    """A spool as one side uses it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, parts: Sequence[Buffer]) -> SpoolFile | None:
        """A new file with these parts; None if it cannot be written."""
        name = write_file(self.directory, parts)
        return None if name is None else SpoolFile(self.directory, name)

    def taken(self, name: str) -> SpoolFile:
        """A file that the other side wrote; it is ours from now on. Raises ``OSError`` for no file's name."""
        if "/" in name or name in ("", ".", "..", LOCK, TOKEN):
            raise OSError(f"'{name}' is no parcel")
        return SpoolFile(self.directory, name)


def write_file(directory: str, parts: Sequence[Buffer]) -> str | None:
    """Write a new file that both sides may read; its name, or None if there is no room or no way."""
    name = secrets.token_hex(NAME_BYTES)
    path = f"{directory}/{name}"
    size = sum(map(len, parts))
    try:
        facts = os.statvfs(directory)
        if facts.f_bavail * facts.f_frsize < size + FREE_BYTES_MIN:
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        return None
    try:
        os.fchmod(descriptor, 0o644)  # the other side may be another user, and the mask a strict one
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view) :]
    except OSError:  # the device is full
        with contextlib.suppress(OSError):
            Path(path).unlink()
        return None
    finally:
        os.close(descriptor)
    return name


def read_file(path: str, size: int) -> bytearray:
    """The content of a file, of which ``size`` bytes are expected. Raises ``OSError``."""
    data = bytearray(size)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        view = memoryview(data)
        done = 0
        while done < size:
            count = os.readv(descriptor, [view[done:]])
            if not count:
                break
            done += count
        view.release()
    finally:
        os.close(descriptor)
    del data[done:]
    return data


class OwnSpool(Spool):
    """The spool of an executor."""

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        chosen = Path(parent) if parent is not None else _default_parent()
        _sweep(chosen)
        self._outer = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getuid()}-", dir=chosen))
        self._lock = os.open(self._outer / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._outer.chmod(0o711)  # to be entered, not listed
        inner = self._outer / secrets.token_hex(NAME_BYTES)
        inner.mkdir()
        inner.chmod(0o1733)  # hands may write and not look around; nobody removes what is somebody else's
        super().__init__(str(inner))
        self.token = secrets.token_hex(NAME_BYTES)
        (inner / TOKEN).write_text(self.token, encoding="ascii")
        (inner / TOKEN).chmod(0o644)

    def close(self) -> None:
        """Remove it with all that is in it. May be called twice."""
        if self._lock >= 0:
            shutil.rmtree(self._outer, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def sees(directory: str, token: str) -> bool:
    """Whether this process sees the spool of that token, and can write there."""
    if not directory:
        return False
    try:
        seen = Path(directory, TOKEN).read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    if seen != token:
        return False
    name = write_file(directory, (b"",))
    if name is None:
        return False
    with contextlib.suppress(OSError):
        Path(directory, name).unlink()
    return True


def _default_parent() -> Path:
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK):
        return MEMORY
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    """Remove spools of this user whose processes are gone."""
    for outer in parent.glob(f"{PREFIX}{os.getuid()}-*"):
        try:
            lock = os.open(outer / LOCK, os.O_RDWR)
        except OSError:  # it is being made at this moment, or removed
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(outer, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)
