"""Recovery of a journal after a crash: its torn end is cut off before anything is written."""

from pathlib import Path

from hanse.live.journal.disk import Disk
from hanse.live.journal.files import segment_name
from hanse.live.journal.survey import Survey


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
