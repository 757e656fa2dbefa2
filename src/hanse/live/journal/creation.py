"""Creation of a journal in a directory that has none."""

import os
from pathlib import Path

from hanse.live.journal import layout
from hanse.live.journal.disk import Disk, write_file
from hanse.live.journal.errors import CorruptJournal, JournalError
from hanse.live.journal.files import IDENTITY_NAME, REPAIRING_NAME, list_files, segment_name
from hanse.live.journal.layout import JournalIdentity
from hanse.live.journal.segments import initial_size


def create_journal(directory: Path, disk: Disk, segment_bytes: int) -> None:
    """Create a journal if there is none. The identity file is written last: without it there is no journal
    yet, and the empty files of an interrupted creation are removed."""
    files = list_files(directory)
    if (directory / IDENTITY_NAME).exists() or (directory / REPAIRING_NAME).exists():
        return
    for _, path in files.segments:
        data = path.read_bytes()
        if data.count(0) != len(data) or files.snapshots:
            raise CorruptJournal(directory / IDENTITY_NAME, 0, (1, 0), "a journal without its identity")
    if files.snapshots:
        raise CorruptJournal(directory / IDENTITY_NAME, 0, (1, 0), "snapshots without a journal")
    for path in [*(path for _, path in files.segments), *files.temporary]:
        disk.unlink(path)
    size = initial_size(segment_bytes)
    fd = disk.create(directory / segment_name(1))
    try:
        disk.allocate(fd, 0, size)
        disk.sync_all(fd)
    finally:
        disk.close(fd)
    disk.sync_directory(directory)
    identity = layout.encode_identity(JournalIdentity(os.urandom(16), size))
    write_file(disk, directory / IDENTITY_NAME, [identity])


def require_journal(directory: Path) -> None:
    """Raise an error if there is no journal."""
    files = list_files(directory) if directory.is_dir() else None
    if files is None or not (files.segments or files.snapshots or (directory / IDENTITY_NAME).exists()):
        raise JournalError(f"there is no journal in {directory}")
