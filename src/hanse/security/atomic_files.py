"""Small files that are written whole or not at all: keys, certificates, token lists."""

import os
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not exist yet; raise ``FileExistsError`` and change nothing if it does."""
    part = _write_temporary(path, data, mode)
    try:
        path.hardlink_to(part)
    finally:
        part.unlink()
    sync_directory(path.parent)


def replace(path: Path, data: bytes, mode: int) -> None:
    """Write a file, in place of an older one if there is one; it is durable on return."""
    _write_temporary(path, data, mode).replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(path: Path, data: bytes, mode: int) -> Path:
    """Write a durable file beside ``path``; its permissions never exceed ``mode``, not even for a moment."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return part
