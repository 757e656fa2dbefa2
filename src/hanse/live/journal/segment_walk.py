"""Walk along a segment: reads block after block, and determines the reason of its end.

A commit begins only after the commit before it is durable, and a segment's file gets its length, durably,
before anything is written to it. So a crash can only leave zeros in place of some sectors of the last block.
Everything else is damage.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.layout import MAGIC, SECTOR, BlockKind, Header


class ChainTip(msgspec.Struct, frozen=True):
    """End of the chain so far, which the next block must continue."""

    journal: bytes
    next: int
    """Number of the next record."""
    chain: bytes | None
    """Chain value of the block before; None: unknown, accept any value in the first block."""
    allocated: int
    """Minimal length of the segment's file."""


class Block(msgspec.Struct, frozen=True):
    """Block that passed every check."""

    offset: int
    head: Header
    payload: bytes

    def records(self) -> list[bytes]:
        """Return the records, in order."""
        return layout.decode_records(self.payload)


class WalkEnd(StrEnum):
    """Reason of the end of a walk."""

    CLEAN = "clean"
    """The rest of the file is empty."""
    SEALED = "sealed"
    """The journal continues in the next segment."""
    TORN = "torn"
    """The last block is incomplete; it was never acknowledged."""
    DAMAGED = "damaged"


class Walk:
    """Walk along one segment. After a complete iteration, ``end`` and ``what`` give the reason of the end,
    ``offset`` its place, and ``tip`` the chain that the next block must continue."""

    def __init__(self, data: bytes, tip: ChainTip, offset: int = 0) -> None:
        self.data = data
        self.tip = tip
        self.offset = offset
        self.end = WalkEnd.CLEAN
        self.what = ""
        """Description of the damage."""
        self.has_blocks_after = False
        """True if intact blocks follow the damage: then a concurrent writer cannot explain it."""
        self.cut_bytes = 0
        """Bytes of a torn block, from ``offset`` on."""

    def __iter__(self) -> Iterator[Block]:
        while True:
            head = layout.decode_header(self.data[self.offset : self.offset + SECTOR])
            if head is None:
                return self._end_without_header()
            if misfit := self._misfit(head):
                return self._end_damaged(misfit, has_blocks_after=True)
            raw = self.data[self.offset : self.offset + head.byte_count]
            payload = layout.decode_body(raw, head)
            if payload is None:
                return self._end_in_bad_block(head, raw)
            block = Block(self.offset, head, payload)
            sealed = head.kind is BlockKind.SEALED
            allocated = self.tip.allocated if sealed else max(head.allocated, self.tip.allocated)
            self.tip = ChainTip(head.journal, head.first + head.count, head.chain, allocated)
            self.offset += head.byte_count
            yield block
            if sealed:
                return self._end_sealed(head)

    def _misfit(self, head: Header) -> str:
        if head.journal != self.tip.journal:
            return "a block of another journal"
        if head.first != self.tip.next:
            return f"a block that begins with record {head.first} where {self.tip.next} should be"
        if self.tip.chain is not None and head.previous != self.tip.chain:
            return "a block that does not continue the hash chain of the block before"
        return ""

    def _end_without_header(self) -> None:
        rest = len(self.data) - self.offset
        sector = self.data[self.offset : self.offset + SECTOR]
        if sector.count(0) != len(sector):
            self._end_damaged("neither a block's header nor empty space")
        elif self._has_header_after(self.offset):
            self._end_damaged("a block is missing before intact blocks", has_blocks_after=True)
        elif self.data.count(0, self.offset) != rest:
            self._end_torn()
        else:
            self._check_length()

    def _end_in_bad_block(self, head: Header, raw: bytes) -> None:
        self.tip = msgspec.structs.replace(self.tip, allocated=max(head.allocated, self.tip.allocated))
        has_blocks_after = self._has_header_after(self.offset + head.byte_count)
        if has_blocks_after or not layout.is_torn(raw):
            self._end_damaged("a block with a wrong checksum", has_blocks_after=has_blocks_after)
        else:
            self._end_torn()

    def _end_sealed(self, head: Header) -> None:
        if self._has_header_after(self.offset):
            self._end_damaged("blocks after the end of a full segment", has_blocks_after=True)
        elif self._check_length():
            self.end = WalkEnd.SEALED
            self.tip = msgspec.structs.replace(self.tip, allocated=head.allocated)

    def _end_torn(self) -> None:
        if self._check_length():
            self.end = WalkEnd.TORN
            used = len(self.data.rstrip(b"\0"))
            self.cut_bytes = max(0, min(-(-used // SECTOR) * SECTOR, len(self.data)) - self.offset)

    def _check_length(self) -> bool:
        if len(self.data) >= self.tip.allocated:
            return True
        self._end_damaged(f"the file ends here; it had {self.tip.allocated} bytes")
        self.offset = len(self.data)
        return False

    def _end_damaged(self, what: str, *, has_blocks_after: bool = False) -> None:
        self.end, self.what = WalkEnd.DAMAGED, what
        self.has_blocks_after = has_blocks_after or self._has_header_after(self.offset + SECTOR)

    def _has_header_after(self, offset: int) -> bool:
        return next_header(self.data, offset, self.tip.journal, self.tip.next) is not None


class RetryingWalk:
    """Walk along a segment that a process may be writing. After a complete iteration, ``walk`` is the last
    read, and ``is_damaged`` is True if damage ended it.

    A read takes time: it may miss a block and see the next one, or see half of a block. So damage counts only
    if no process has the journal open, before and after the read, or if a second read finds it at a place
    that had intact blocks after it in the first. Every read but the last gets farther than the one before.
    """

    def __init__(self, path: Path, tip: ChainTip, is_in_use: Callable[[], bool]) -> None:
        self._path = path
        self._is_in_use = is_in_use
        self.walk = Walk(b"", tip)
        self.is_damaged = False

    def __iter__(self) -> Iterator[Block]:
        last_offset = written_offset = -1
        was_unused = False  # unknown; without damage there is no need to check
        while True:
            self.walk = Walk(self._path.read_bytes(), self.walk.tip, self.walk.offset)
            yield from self.walk
            if self.walk.end is not WalkEnd.DAMAGED:
                return
            self.is_damaged = self.walk.offset == written_offset or (was_unused and not self._is_in_use())
            if self.is_damaged or (self.walk.offset == last_offset and not self.walk.has_blocks_after):
                return
            last_offset = self.walk.offset
            if self.walk.has_blocks_after:
                written_offset = last_offset
            was_unused = not self._is_in_use()


def next_header(data: bytes, offset: int, journal: bytes, number: int) -> tuple[int, Header] | None:
    """Find the first intact header of this journal at or after ``offset`` with a first record ``number`` or
    later. Blocks begin at sectors; elsewhere the magic is data of a record."""
    while (offset := data.find(MAGIC, offset)) >= 0:
        if offset % SECTOR == 0:
            head = layout.decode_header(data[offset : offset + SECTOR])
            if head is not None and head.journal == journal and head.first >= number:
                return offset, head
        offset += 1
    return None
