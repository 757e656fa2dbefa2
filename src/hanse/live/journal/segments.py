"""Writing blocks: into the newest segment, which grows, and into the next one when it is full.

A segment's room is taken before it is needed, in steps that quadruple from 64 KiB to the segment's size. Room
taken in advance makes ``fdatasync`` cheap (no new length to record) and shows a full disk before anything is
half written; the steps keep the segment of an idle daemon at 64 KiB of disk. A step costs one more sync, four
times in 16 MiB. Every block says how much room its file has, so that a file cut short is noticed. When the
disk has no room, the reserve becomes the next segment.
"""

from pathlib import Path

from hanse.live.journal import layout
from hanse.live.journal.disk import NO_ROOM, Disk
from hanse.live.journal.layout import SECTOR, Kind
from hanse.live.journal.reserve import RESERVE_BYTES, Reserve
from hanse.live.journal.survey import Segment, Survey
from hanse.live.journal.walk import segment_name

SEGMENT_BYTES = 16 << 20
"""Size at which a segment is full. A block that is larger by itself gets a larger segment of its own."""
SEGMENT_BYTES_FIRST = 64 << 10
"""Room that a segment begins with."""
GROWTH = 4
"""By what factor a segment's room grows."""
PAGE = 4096
"""Room is asked for in multiples of this many bytes."""


class NoRoom(Exception):  # noqa: N818  # it says what is the matter
    """The disk has not that many bytes left. Nothing was written: the same may be tried again."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


def first_room(segment_bytes: int) -> int:
    """Bytes that a segment begins with: one step below its size at most, four sectors at least."""
    return min(SEGMENT_BYTES_FIRST, max(4 * SECTOR, segment_bytes // GROWTH // SECTOR * SECTOR))


class Segments:
    """The writing end of a journal's segments. One thread at a time. Errors of the operating system come out
    as they are, and nothing may be written any more after one. A full disk is found when room is taken,
    before anything is written (``NoRoom``), and leaves everything as it was."""

    def __init__(self, directory: Path, disk: Disk, segment_bytes: int, found: Survey) -> None:
        self._directory = directory
        self._disk = disk
        self._segment_bytes = max(segment_bytes, 4 * SECTOR)
        self._journal = found.identity.journal
        self._next = found.link.next
        assert found.link.chain is not None
        self._chain = found.link.chain
        self.mark = found.mark
        """Number and chain value of the last record; see ``Survey.mark``."""
        self._offset = found.tail_offset
        self._allocated = found.link.allocated
        self._closed = found.last_block is not None and found.last_block.closed
        self.segments = found.segments
        """Those in use, oldest first; the last is written to. Others may copy it, and drop from its front."""
        self._fd = disk.open(directory / segment_name(self.segments[-1].first))
        self._reserve = Reserve(directory, disk, min(RESERVE_BYTES, self._segment_bytes))
        self._reserve.fill()

    def write(self, records: list[bytes]) -> None:
        """One block with these records, durable."""
        size = layout.extent(sum(map(len, records)) + layout.PREFIX_BYTES * len(records))
        try:
            self._make_room(size)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoom(size) from error
            raise
        self._put(Kind.RECORDS, records, self._allocated)

    def finish(self) -> None:
        """Say that the journal is closed in good order, if there is room for that; let go of the file."""
        try:
            if not self._closed and self._offset + 2 * SECTOR <= self._allocated:
                self._put(Kind.CLOSED, [], self._allocated)
            self._reserve.drop()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files."""
        self._reserve.abandon()
        self._disk.close(self._fd)

    def _put(self, kind: Kind, records: list[bytes], allocated: int) -> None:
        block, chain = layout.encode(
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
            self.mark = (self._next - 1, chain)  # both at once: others read it
        self._closed = kind is Kind.CLOSED

    def _make_room(self, size: int) -> None:
        """Room for a block of ``size`` and, behind it, for the one sector that says where it goes on."""
        end = self._offset + size + SECTOR
        if end <= self._allocated:
            return
        empty = self.segments[-1].first == self._next
        if not empty and end > self._segment_bytes:
            self._roll(size + SECTOR)
            return
        try:
            self._grow(end)
        except NoRoom:
            if empty or not self._roll_into_reserve(size + SECTOR):
                raise
        else:
            self._reserve.fill()

    def _grow(self, needed: int) -> None:
        """More room for this segment, durable before it is used. The header of the next block, in the sector
        that was kept free, is the first to tell of it: whoever cuts the file cuts that header or is told on
        by it."""
        size = self._take(self._fd, self._allocated, needed)
        self._disk.sync_all(self._fd)
        self._allocated = size

    def _roll(self, needed: int) -> None:
        """Go on in a new segment: first it exists, then the old one says so, then it is used."""
        try:
            fd, size = self._create(self._directory / segment_name(self._next), needed)
        except NoRoom:
            if not self._roll_into_reserve(needed):
                raise
        else:
            self._go_on_in(fd, size)
            self._reserve.fill()

    def _create(self, path: Path, needed: int) -> tuple[int, int]:
        """A new segment with room; its descriptor and size. Without room there is no file either."""
        fd = self._disk.create(path)
        try:
            return fd, self._take(fd, 0, max(needed, first_room(self._segment_bytes)))
        except BaseException as error:
            self._disk.close(fd)
            if isinstance(error, NoRoom):
                self._disk.unlink(path)
            raise

    def _roll_into_reserve(self, needed: int) -> bool:
        """Go on in the room that was kept; whether there is so much."""
        kept = self._reserve.become(self._directory / segment_name(self._next), needed)
        if kept is None:
            return False
        self._go_on_in(*kept)
        return True

    def _go_on_in(self, fd: int, size: int) -> None:
        """Make a new segment durable, say at the end of the old one that it exists, and use it."""
        try:
            self._disk.sync_all(fd)
            self._disk.sync_directory(self._directory)
            self._put(Kind.SEALED, [], size)
        except BaseException:
            self._disk.close(fd)
            raise
        self._disk.close(self._fd)
        self._fd, self._offset, self._allocated = fd, 0, size
        self.segments.append(Segment(self._next, self._chain, size))

    def _take(self, fd: int, before: int, needed: int) -> int:
        """Room for ``needed`` bytes and as many more as the next step has, or only those when there are no
        more; the file's new size. With ``before`` 0 the file is new and begins with what is needed."""
        needed = -(-needed // PAGE) * PAGE
        step = min(before * GROWTH, self._segment_bytes)
        for size in sorted({max(needed, step), needed}, reverse=True):
            try:
                self._disk.allocate(fd, before, size)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._disk.truncate(fd, before)
            else:
                return size
        raise NoRoom(needed - before + PAGE)  # the mark of an orderly close may have to go first
