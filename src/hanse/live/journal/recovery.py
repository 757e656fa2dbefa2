"""Preparation of a journal's directory for writing: creation, and recovery after a crash."""

import os
from pathlib import Path

from hanse.live.journal import layout
from hanse.live.journal.disk import Disk, write_file
from hanse.live.journal.errors import CorruptJournal, JournalError
from hanse.live.journal.layout import JournalIdentity
from hanse.live.journal.segments import initial_size
from hanse.live.journal.survey import Survey
from hanse.live.journal.walk import IDENTITY_NAME, REPAIRING_NAME, list_files, segment_name


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


def recover(directory: Path, disk: Disk, chain_at: int = 0) -> Survey:
    """Check all files, then bring them to the state after the last acknowledged commit.

    1. Overwrite a torn tail with zeros: the next block needs empty space, otherwise a tear in it could not be
       distinguished from damage.
    2. Write the newest block again. It may be complete only in memory: its writer was killed before its sync,
       or its sync failed and the kernel then regarded it as clean. It must be on disk before its records are
       used. The bytes are the same, so a crash during the write does no harm.
    3. Remove leftovers.

    ``chain_at``: record whose chain value is returned, if it is the last of a block.
    """
    survey = Survey(directory)
    survey.chain_at = chain_at
    survey.run()
    newest = directory / segment_name(survey.segments[-1].first)
    if survey.cut:
        _overwrite(disk, newest, bytes(survey.cut), survey.tail_offset)
    if (last := survey.last_block) is not None:
        with last.path.open("rb") as file:
            file.seek(last.offset)
            block = file.read(last.bytes)
        _overwrite(disk, last.path, block, last.offset)
    for path in survey.leftovers:
        disk.unlink(path)
    disk.sync_directory(directory)
    return survey


def _overwrite(disk: Disk, path: Path, data: bytes, offset: int) -> None:
    fd = disk.open(path)
    try:
        disk.write(fd, data, offset)
        disk.sync_all(fd)
    finally:
        disk.close(fd)
