"""Directory for large payloads that an executor shares with the workers on the same file system.

It is in memory (``/dev/shm``) where possible, so that a megabyte costs a copy and no disk access. The outer
directory can be entered but not listed; the name of the inner one is sent over the channel only. All workers
may write there, because they often run as another user. The executor owns the directory: it removes each file
when it has read it, and the directory when it ends. A lock that is held as long as the executor's process
lives shows which directories are abandoned; the next executor of the same user removes those.
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

MEMORY_DIRECTORY: Final = Path("/dev/shm")  # noqa: S108  the names below it cannot be guessed
DIRECTORY_PREFIX: Final = "hanse-spool-"
FREE_BYTES_MIN: Final = 256 << 20
"""Bytes that must stay free on the device; otherwise payloads go over the channel."""
LOCK_FILE: Final = "lock"
TOKEN_FILE: Final = "token"  # noqa: S105  a file's name
NAME_BYTES: Final = 12

Buffer = bytes | memoryview


class StoreFile:
    """File of the shared store, removed when this object is garbage-collected."""

    __slots__ = ("_directory", "name")

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self.name = name

    def read(self, size: int) -> bytearray:
        """Return the content, of which ``size`` bytes are expected; the caller checks. Raises ``OSError``."""
        return read_file(f"{self._directory}/{self.name}", size)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"{self._directory}/{self.name}")  # noqa: PTH108  pathlib may be unloaded already


class SharedStore:
    """Shared store as both sides use it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, parts: Sequence[Buffer]) -> StoreFile | None:
        """Write a new file with these parts; None if it cannot be written."""
        name = write_file(self.directory, parts)
        return None if name is None else StoreFile(self.directory, name)

    def take_ownership(self, name: str) -> StoreFile:
        """Take over a file that the other side wrote. Raises ``OSError`` if this is no file's name."""
        if "/" in name or name in ("", ".", "..", LOCK_FILE, TOKEN_FILE):
            raise OSError(f"'{name}' is not the name of a payload")
        return StoreFile(self.directory, name)


def write_file(directory: str, parts: Sequence[Buffer]) -> str | None:
    """Write a new file that both sides may read; return its name, or None if it cannot be written."""
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
        os.fchmod(descriptor, 0o644)  # the other side may be another user, and the umask strict
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
    """Return the content of a file, of which ``size`` bytes are expected. Raises ``OSError``."""
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


class ExecutorStore(SharedStore):
    """Shared store of an executor, which creates and removes the directory."""

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        directory = Path(parent) if parent is not None else _default_parent()
        _remove_abandoned(directory)
        self._outer = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getuid()}-", dir=directory))
        self._lock = os.open(self._outer / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._outer.chmod(0o711)  # can be entered, not listed
        inner = self._outer / secrets.token_hex(NAME_BYTES)
        inner.mkdir()
        inner.chmod(0o1733)  # workers may write, not list; nobody removes another user's files
        super().__init__(str(inner))
        self.token = secrets.token_hex(NAME_BYTES)
        (inner / TOKEN_FILE).write_text(self.token, encoding="ascii")
        (inner / TOKEN_FILE).chmod(0o644)

    def close(self) -> None:
        """Remove the directory with all files. May be called twice."""
        if self._lock >= 0:
            shutil.rmtree(self._outer, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def can_use_store(directory: str, token: str) -> bool:
    """Return True if this process sees the store with that token and can write there."""
    if not directory:
        return False
    try:
        content = Path(directory, TOKEN_FILE).read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    if content != token:
        return False
    name = write_file(directory, (b"",))
    if name is None:
        return False
    with contextlib.suppress(OSError):
        Path(directory, name).unlink()
    return True


def _default_parent() -> Path:
    if MEMORY_DIRECTORY.is_dir() and os.access(MEMORY_DIRECTORY, os.W_OK | os.X_OK):
        return MEMORY_DIRECTORY
    return Path(tempfile.gettempdir())


def _remove_abandoned(parent: Path) -> None:
    """Remove stores of this user whose processes have ended."""
    for outer in parent.glob(f"{DIRECTORY_PREFIX}{os.getuid()}-*"):
        try:
            lock = os.open(outer / LOCK_FILE, os.O_RDWR)
        except OSError:  # another process creates or removes it right now
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(outer, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)
