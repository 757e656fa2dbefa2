"""Walk along a segment: reads block after block, and determines the reason of its end.

A commit begins only after the commit before it is durable, and a segment's file gets its length, durably,
before anything is written to it. So a crash can only leave zeros in place of some sectors of the last block.
Everything else is damage.
"""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.layout import MAGIC, SECTOR, Header, Kind

IDENTITY_NAME = "journal"
REPAIRING_NAME = "repairing"
"""Directory in which a repair prepares its files; it exists only during a repair."""
_SEGMENT_NAME = re.compile(r"(\d{20})\.seg")
_SNAPSHOT_NAME = re.compile(r"(\d{20})\.snap")


def segment_name(first: int) -> str:
    """Return the file name of the segment that begins with a record."""
    return f"{first:020d}.seg"


def snapshot_name(position: int) -> str:
    """Return the file name of the snapshot of the state after a record."""
    return f"{position:020d}.snap"


class Listing(msgspec.Struct, frozen=True):
    """Files of a journal, each kind in the order of numbers."""

    segments: list[tuple[int, Path]]
    snapshots: list[tuple[int, Path]]
    temporary: list[Path]
    """Files that were never finished."""


def listing(directory: Path) -> Listing:
    """List the files of a journal. Files with other names are ignored."""
    found = Listing([], [], [])
    for path in sorted(directory.iterdir()):
        if match := _SEGMENT_NAME.fullmatch(path.name):
            found.segments.append((int(match[1]), path))
        elif match := _SNAPSHOT_NAME.fullmatch(path.name):
            found.snapshots.append((int(match[1]), path))
        elif path.name.endswith((".snap.tmp", ".seg.tmp", f"{IDENTITY_NAME}.tmp")):
            found.temporary.append(path)
    return found


class Link(msgspec.Struct, frozen=True):
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
        return layout.records(self.payload)


class End(StrEnum):
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

    def __init__(self, data: bytes, link: Link, offset: int = 0) -> None:
        self.data = data
        self.link = link
        self.offset = offset
        self.end = End.CLEAN
        self.what = ""
        """Description of the damage."""
        self.behind = False
        """True if intact blocks follow the damage: then a concurrent writer cannot explain it."""
        self.cut = 0
        """Bytes of a torn block, from ``offset`` on."""

    def __iter__(self) -> Iterator[Block]:
        while True:
            head = layout.header(self.data[self.offset : self.offset + SECTOR])
            if head is None:
                return self._headless()
            if misfit := self._misfit(head):
                return self._damaged(misfit, behind=True)
            raw = self.data[self.offset : self.offset + head.bytes]
            payload = layout.body(raw, head)
            if payload is None:
                return self._broken(head, raw)
            block = Block(self.offset, head, payload)
            sealed = head.kind is Kind.SEALED
            allocated = self.link.allocated if sealed else max(head.allocated, self.link.allocated)
            self.link = Link(head.journal, head.first + head.count, head.chain, allocated)
            self.offset += head.bytes
            yield block
            if sealed:
                return self._sealed(head)

    def _misfit(self, head: Header) -> str:
        if head.journal != self.link.journal:
            return "a block of another journal"
        if head.first != self.link.next:
            return f"a block that begins with record {head.first} where {self.link.next} should be"
        if self.link.chain is not None and head.previous != self.link.chain:
            return "a block that does not continue the hash chain of the block before"
        return ""

    def _headless(self) -> None:
        rest = len(self.data) - self.offset
        sector = self.data[self.offset : self.offset + SECTOR]
        if sector.count(0) != len(sector):
            self._damaged("neither a block's header nor empty space")
        elif self._header_behind(self.offset):
            self._damaged("a block is missing before intact blocks", behind=True)
        elif self.data.count(0, self.offset) != rest:
            self._torn()
        else:
            self._long_enough()

    def _broken(self, head: Header, raw: bytes) -> None:
        self.link = msgspec.structs.replace(self.link, allocated=max(head.allocated, self.link.allocated))
        behind = self._header_behind(self.offset + head.bytes)
        if behind or not layout.torn(raw):
            self._damaged("a block with a wrong checksum", behind=behind)
        else:
            self._torn()

    def _sealed(self, head: Header) -> None:
        if self._header_behind(self.offset):
            self._damaged("blocks after the end of a full segment", behind=True)
        elif self._long_enough():
            self.end = End.SEALED
            self.link = msgspec.structs.replace(self.link, allocated=head.allocated)

    def _torn(self) -> None:
        if self._long_enough():
            self.end = End.TORN
            used = len(self.data.rstrip(b"\0"))
            self.cut = max(0, min(-(-used // SECTOR) * SECTOR, len(self.data)) - self.offset)

    def _long_enough(self) -> bool:
        if len(self.data) >= self.link.allocated:
            return True
        self._damaged(f"the file ends here; it had {self.link.allocated} bytes")
        self.offset = len(self.data)
        return False

    def _damaged(self, what: str, *, behind: bool = False) -> None:
        self.end, self.what = End.DAMAGED, what
        self.behind = behind or self._header_behind(self.offset + SECTOR)

    def _header_behind(self, offset: int) -> bool:
        return next_header(self.data, offset, self.link.journal, self.link.next) is not None


class PatientWalk:
    """Walk along a segment that a process may be writing. After a complete iteration, ``walk`` is the last
    read, and ``is_damaged`` is True if damage ended it.

    A read takes time: it may miss a block and see the next one, or see half of a block. So damage counts only
    if no process has the journal open, before and after the read, or if a second read finds it at a place
    that had intact blocks after it in the first. Every read but the last gets farther than the one before.
    """

    def __init__(self, path: Path, link: Link, in_use: Callable[[], bool]) -> None:
        self._path = path
        self._in_use = in_use
        self.walk = Walk(b"", link)
        self.damaged = False

    def __iter__(self) -> Iterator[Block]:
        seen = surely_written = -1
        quiet = False  # unknown; without damage there is no need to check
        while True:
            self.walk = Walk(self._path.read_bytes(), self.walk.link, self.walk.offset)
            yield from self.walk
            if self.walk.end is not End.DAMAGED:
                return
            self.damaged = self.walk.offset == surely_written or (quiet and not self._in_use())
            if self.damaged or (self.walk.offset == seen and not self.walk.behind):
                return
            seen = self.walk.offset
            if self.walk.behind:
                surely_written = seen
            quiet = not self._in_use()


def next_header(data: bytes, offset: int, journal: bytes, number: int) -> tuple[int, Header] | None:
    """Find the first intact header of this journal at or after ``offset`` with a first record ``number`` or
    later. Blocks begin at sectors; elsewhere the magic is data of a record."""
    while (offset := data.find(MAGIC, offset)) >= 0:
        if offset % SECTOR == 0:
            head = layout.header(data[offset : offset + SECTOR])
            if head is not None and head.journal == journal and head.first >= number:
                return offset, head
        offset += 1
    return None
