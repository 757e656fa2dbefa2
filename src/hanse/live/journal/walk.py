"""Reading segments: one block after the other, and a verdict on why it ended.

The rule: a commit begins only after the one before it is durable, and a segment's file is made long enough,
durably, before anything is written to it. So a crash can only leave zeros in place of some sectors of the
last block. Everything else is damage.
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
"""Directory in which a repair prepares its files; there only while one is under way."""
_SEGMENT_NAME = re.compile(r"(\d{20})\.seg")
_SNAPSHOT_NAME = re.compile(r"(\d{20})\.snap")


def segment_name(first: int) -> str:
    """File name of the segment that begins with that record."""
    return f"{first:020d}.seg"


def snapshot_name(position: int) -> str:
    """File name of the snapshot of the state after that record."""
    return f"{position:020d}.snap"


class Listing(msgspec.Struct, frozen=True):
    """The files of a journal, each kind in the order of numbers."""

    segments: list[tuple[int, Path]]
    snapshots: list[tuple[int, Path]]
    temporary: list[Path]
    """Leftovers of files that were never finished."""


def listing(directory: Path) -> Listing:
    """What is in a journal's directory. Files with other names are not the journal's."""
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
    """What the next block must continue."""

    journal: bytes
    next: int
    """Number of the next record."""
    chain: bytes | None
    """Chain value of the block before; None: not known, take the first block's word."""
    allocated: int
    """Bytes that the segment's file is known to have."""


class Block(msgspec.Struct, frozen=True):
    """A block that passed every check."""

    offset: int
    head: Header
    payload: bytes

    def records(self) -> list[bytes]:
        """Its records, in order."""
        return layout.records(self.payload)


class End(StrEnum):
    """Why a walk along a segment ended."""

    CLEAN = "clean"
    """The rest is empty."""
    SEALED = "sealed"
    """The next segment goes on."""
    TORN = "torn"
    """The last block was not written completely; it was never acknowledged."""
    DAMAGED = "damaged"


class Walk:
    """A walk along one segment. Iterate to the end; then ``end`` and ``what`` say why it ended, ``offset``
    where, and ``link`` what the next block would have to continue."""

    def __init__(self, data: bytes, link: Link, offset: int = 0) -> None:
        self.data = data
        self.link = link
        self.offset = offset
        self.end = End.CLEAN
        self.what = ""
        """The damage, in words."""
        self.behind = False
        """Whether intact blocks stand behind the damage: then no writer at work can explain it."""
        self.cut = 0
        """Bytes from ``offset`` on that belong to a torn block."""

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
            return "a block whose hash chain does not continue that of the block before"
        return ""

    def _headless(self) -> None:
        rest = len(self.data) - self.offset
        sector = self.data[self.offset : self.offset + SECTOR]
        if sector.count(0) != len(sector):
            self._damaged("neither a block's header nor empty space")
        elif self._header_behind(self.offset):
            self._damaged("a block is missing before intact ones", behind=True)
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
            self._damaged("blocks behind the end of a full segment", behind=True)
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
    """A walk along a segment that somebody may be writing to. Iterate to the end; then ``walk`` is the last
    look, and ``damaged`` says whether what ended it is damage.

    A look at a file takes time: it may miss a block and see the next one, or see half of a block. So damage
    counts only if the file is nobody's, before the look and after it, or if a second look finds it at a place
    that intact blocks stood behind in the first. Every look but the last gets farther than the one before.
    """

    def __init__(self, path: Path, link: Link, in_use: Callable[[], bool]) -> None:
        self._path = path
        self._in_use = in_use
        self.walk = Walk(b"", link)
        self.damaged = False

    def __iter__(self) -> Iterator[Block]:
        seen = surely_written = -1
        quiet = False  # not known; who finds no damage need not ask
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
    """The first intact header of this journal at or behind ``offset`` that begins at record ``number`` or
    later. Blocks begin at sectors; elsewhere the magic is somebody's data."""
    while (offset := data.find(MAGIC, offset)) >= 0:
        if offset % SECTOR == 0:
            head = layout.header(data[offset : offset + SECTOR])
            if head is not None and head.journal == journal and head.first >= number:
                return offset, head
        offset += 1
    return None
