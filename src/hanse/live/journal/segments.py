"""Segments of a journal: blocks are written into the newest segment, which grows, then into the next one.

A segment's space is allocated in advance, in steps that quadruple from 64 KiB to the segment's size. This
makes ``fdatasync`` cheap (no new length to record) and detects a full disk before anything is half written;
the steps keep the segment of an idle daemon at 64 KiB. A step costs one more sync, four times in 16 MiB.
Every block records the length of its file, so that a cut file is detected. If the disk has no space, the
reserve becomes the next segment.
"""

from pathlib import Path

from hanse.live.journal import layout
from hanse.live.journal.disk import NO_SPACE_ERRNOS, Disk
from hanse.live.journal.files import segment_name
from hanse.live.journal.layout import SECTOR, BlockKind
from hanse.live.journal.reserve import RESERVE_BYTES, Reserve
from hanse.live.journal.survey import Segment, Survey

SEGMENT_BYTES = 16 << 20
"""Size at which a segment is full. A larger block gets a larger segment."""
SEGMENT_BYTES_FIRST = 64 << 10
"""Initial size of a segment."""
GROWTH = 4
"""Growth factor of a segment's space."""
PAGE = 4096
"""Space is allocated in multiples of this number of bytes."""


class NoSpace(Exception):  # noqa: N818  # it says what is the matter
    """The disk does not have the needed bytes free. Nothing was written: the call may be repeated."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


def initial_size(segment_bytes: int) -> int:
    """Return the initial size of a segment: at most one step below its size, at least four sectors."""
    return min(SEGMENT_BYTES_FIRST, max(4 * SECTOR, segment_bytes // GROWTH // SECTOR * SECTOR))


class Segments:
    """Writer of a journal's segments, for one thread at a time. Errors of the operating system are raised
    unchanged, and nothing may be written after one. A full disk is detected at the allocation, before any
    write (``NoSpace``), and changes nothing."""

    def __init__(self, directory: Path, disk: Disk, segment_bytes: int, survey: Survey) -> None:
        self._directory = directory
        self._disk = disk
        self._segment_bytes = max(segment_bytes, 4 * SECTOR)
        self._journal = survey.identity.journal
        self._next = survey.tip.next
        assert survey.tip.chain is not None
        self._chain = survey.tip.chain
        self.mark = survey.mark
        """Number and chain value of the last record; see ``Survey.mark``."""
        self._offset = survey.tail_offset
        self._allocated = survey.tip.allocated
        self._closed = survey.last_block is not None and survey.last_block.closed
        self.segments = survey.segments
        """Segments in use, oldest first; the last one is written. Others may copy the list, and drop from
        its front."""
        self._fd = disk.open(directory / segment_name(self.segments[-1].first))
        self._reserve = Reserve(directory, disk, min(RESERVE_BYTES, self._segment_bytes))
        self._reserve.fill()

    def write(self, records: list[bytes]) -> None:
        """Write one block with these records, durably."""
        size = layout.block_bytes(sum(map(len, records)) + layout.PREFIX_BYTES * len(records))
        try:
            self._ensure_space(size)
        except OSError as error:
            if error.errno in NO_SPACE_ERRNOS:
                raise NoSpace(size) from error
            raise
        self._write_block(BlockKind.RECORDS, records, self._allocated)

    def close(self) -> None:
        """Write the mark of an orderly close, if it fits into the allocated space; close the files."""
        try:
            if not self._closed and self._offset + 2 * SECTOR <= self._allocated:
                self._write_block(BlockKind.CLOSED, [], self._allocated)
            self._reserve.drop()
        finally:
            self.close_files()

    def close_files(self) -> None:
        """Close the files."""
        self._reserve.close()
        self._disk.close(self._fd)

    def _write_block(self, kind: BlockKind, records: list[bytes], allocated: int) -> None:
        block, chain = layout.encode_block(
            kind,
            self._next,
            records,
            allocated=allocated,
            journal=self._journal,
            previous=self._chain,
        )
        assert self._offset + len(block) <= self._allocated, "a block must fit into the room that was taken"
        self._disk.write(self._fd, block, self._offset)
        self._disk.sync(self._fd)
        self._offset += len(block)
        self._next += len(records)
        self._chain = chain
        if records:
            self.mark = (self._next - 1, chain)  # one assignment: other threads read it
        self._closed = kind is BlockKind.CLOSED

    def _ensure_space(self, size: int) -> None:
        """Ensure space for a block of ``size`` bytes and, after it, one sector for the next header."""
        end = self._offset + size + SECTOR
        if end <= self._allocated:
            return
        empty = self.segments[-1].first == self._next
        if not empty and end > self._segment_bytes:
            self._start_segment(size + SECTOR)
            return
        try:
            self._grow(end)
        except NoSpace:
            if empty or not self._start_in_reserve(size + SECTOR):
                raise
        else:
            self._reserve.fill()

    def _grow(self, needed: int) -> None:
        """Enlarge this segment, durably before the space is used. The header of the next block, in the sector
        that was kept free, records the new length: a cut of the file removes this header, or the header
        reveals the cut."""
        size = self._allocate(self._fd, self._allocated, needed)
        self._disk.sync_all(self._fd)
        self._allocated = size

    def _start_segment(self, needed: int) -> None:
        """Start a new segment: create it, then write the sealing block of the old one, then use it."""
        try:
            fd, size = self._create_segment(self._directory / segment_name(self._next), needed)
        except NoSpace:
            if not self._start_in_reserve(needed):
                raise
        else:
            self._switch_to(fd, size)
            self._reserve.fill()

    def _create_segment(self, path: Path, needed: int) -> tuple[int, int]:
        """Create a segment; return its descriptor and size. Without space, leave no file."""
        fd = self._disk.create(path)
        try:
            return fd, self._allocate(fd, 0, max(needed, initial_size(self._segment_bytes)))
        except BaseException as error:
            self._disk.close(fd)
            if isinstance(error, NoSpace):
                self._disk.unlink(path)
            raise

    def _start_in_reserve(self, needed: int) -> bool:
        """Start a new segment in the reserve. Return False if the reserve is too small."""
        kept = self._reserve.rename_to(self._directory / segment_name(self._next), needed)
        if kept is None:
            return False
        self._switch_to(*kept)
        return True

    def _switch_to(self, fd: int, size: int) -> None:
        """Make a new segment durable, write the sealing block of the old one, and use the new one."""
        try:
            self._disk.sync_all(fd)
            self._disk.sync_directory(self._directory)
            self._write_block(BlockKind.SEALED, [], size)
        except BaseException:
            self._disk.close(fd)
            raise
        self._disk.close(self._fd)
        self._fd, self._offset, self._allocated = fd, 0, size
        self.segments.append(Segment(self._next, self._chain, size))

    def _allocate(self, fd: int, before: int, needed: int) -> int:
        """Allocate the next step, at least ``needed`` bytes, or only these if the disk has no more. Return
        the file's new size. With ``before`` 0 the file is new and begins with the needed bytes."""
        needed = -(-needed // PAGE) * PAGE
        step = min(before * GROWTH, self._segment_bytes)
        for size in sorted({max(needed, step), needed}, reverse=True):
            try:
                self._disk.allocate(fd, before, size)
            except OSError as error:
                if error.errno not in NO_SPACE_ERRNOS:
                    raise
                self._disk.truncate(fd, before)
            else:
                return size
        raise NoSpace(needed - before + PAGE)  # also room for the mark of an orderly close
