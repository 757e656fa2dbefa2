"""Survey of a journal: reads and checks all of it, for opening and for verification."""

from functools import partial
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.disk import in_use
from hanse.live.journal.errors import CorruptJournal, repair_command
from hanse.live.journal.layout import Floor, Identity
from hanse.live.journal.salvage import read_identity, salvage
from hanse.live.journal.walk import (
    IDENTITY_NAME,
    REPAIRING_NAME,
    End,
    Link,
    Listing,
    PatientWalk,
    Walk,
    listing,
    segment_name,
    snapshot_name,
)


class Segment(msgspec.Struct, frozen=True):
    """Segment in use."""

    first: int
    chain: bytes
    """Chain value before the segment."""
    allocated: int
    """Minimal length of its file."""


class LastBlock(msgspec.Struct, frozen=True):
    """Location of the newest block."""

    path: Path
    offset: int
    bytes: int
    closed: bool
    """True if it is the mark of an orderly close."""


class Survey:
    """Check of everything retained. ``run`` raises ``CorruptJournal`` at the first problem; the attributes
    keep the data found before it.

    ``live``: a process may be writing, so an unfinished last block belongs to the writer and is no damage.
    """

    def __init__(self, directory: Path, *, live: bool = False) -> None:
        self.directory = directory
        self.live = live
        self.identity = Identity(b"", 0)
        self.state: bytes | None = None
        """State of the newest snapshot."""
        self.snapshots: dict[int, int] = {}
        """Position and bytes of each retained snapshot, oldest first."""
        self.floor = Floor(0, 1, b"", 0)
        self.segments: list[Segment] = []
        self.records: list[bytes] = []
        """Records after the newest snapshot."""
        self.blocks = 0
        self.link = Link(b"", 1, None, 0)
        """Chain tip that the next block must continue."""
        self.tail_offset = 0
        self.cut = 0
        self.last_block: LastBlock | None = None
        self.mark = (0, b"")
        """Number of the last record and chain value after its block; 0: no record is retained."""
        self.sought = 0
        """Record whose chain value is kept, if a block ends with it."""
        self.sought_chain = b""
        self.leftovers: list[Path] = []
        """Files without meaning: unfinished files, and files left by an interrupted drop."""

    @property
    def position(self) -> int:
        """Position of the newest snapshot; 0: none."""
        return max(self.snapshots, default=0)

    def run(self) -> None:
        """Check all files."""
        files = listing(self.directory)
        self.leftovers += files.temporary
        if (self.directory / REPAIRING_NAME).exists():
            raise self._corrupt(
                self.directory / REPAIRING_NAME,
                0,
                "a repair was interrupted",
                "Run the repair again to finish it.",
            )
        identity = read_identity(self.directory)
        if identity is None:
            raise self._corrupt(self.directory / IDENTITY_NAME, 0, "the identity is missing or damaged")
        self.identity = identity
        self.floor = Floor(0, 1, layout.genesis(identity.journal), identity.allocated)
        self._look_at_snapshots(files)
        self._look_at_segments(files)
        if self.link.next <= self.position:
            raise self._corrupt(
                self.directory / segment_name(self.segments[-1].first),
                self.tail_offset,
                f"the journal ends with record {self.link.next - 1}, before snapshot {self.position}",
            )

    # --- snapshots ---------------------------------------------------------------------------------------

    def _look_at_snapshots(self, files: Listing) -> None:
        for position, path in reversed(files.snapshots):
            if position < self.floor.snapshot:
                self.leftovers.append(path)
                continue
            found = layout.snapshot(path.read_bytes())
            if found is None or found[0].journal != self.identity.journal or found[0].position != position:
                raise self._corrupt(path, 0, "a damaged snapshot", self._way_back(path))
            if not self.snapshots:
                self.floor, self.state = found[0].floor, found[1]
            self.snapshots[position] = path.stat().st_size
        self.snapshots = dict(sorted(self.snapshots.items()))
        if self.snapshots and min(self.snapshots) != self.floor.snapshot:
            raise self._corrupt(
                self.directory / snapshot_name(self.floor.snapshot),
                0,
                "a snapshot is missing",
                self._way_back(self.directory),
            )

    def _way_back(self, path: Path) -> str:
        """Describe the result of a repair without a snapshot."""
        best = salvage(self.directory)
        if best.base is None:
            return f"Nothing else in {self.directory} is complete: restore {path.name} from a copy."
        base = f"snapshot {best.base}" if best.base else "the first record"
        return (
            f"Without it the journal is complete from {base} to record {best.last}: "
            f"'{repair_command(self.directory)}' moves the damaged file aside and continues from there."
        )

    # --- segments ----------------------------------------------------------------------------------------

    def _look_at_segments(self, files: Listing) -> None:
        there = dict(files.segments)
        self.leftovers += [path for first, path in files.segments if first < self.floor.segment]
        self.link = Link(self.identity.journal, self.floor.segment, self.floor.chain, self.floor.allocated)
        while True:
            path = self.directory / segment_name(self.link.next)
            if self.link.next not in there and not (self.live and path.exists()):
                raise self._corrupt(path, 0, "a segment is missing")
            assert self.link.chain is not None
            self.segments.append(Segment(self.link.next, self.link.chain, self.link.allocated))
            walk = self._along(path)
            if walk.end is not End.SEALED:
                break
        self._look_behind(walk, [path for first, path in files.segments if first > self.segments[-1].first])

    def _along(self, path: Path) -> Walk:
        # A process that opens a journal holds its lock: nobody else writes, and one read is enough.
        looks = PatientWalk(path, self.link, partial(in_use, self.directory) if self.live else lambda: False)
        seen = self.position
        for block in looks:
            self.blocks += 1
            head = block.head
            closed = head.kind is layout.Kind.CLOSED
            self.last_block = LastBlock(path, block.offset, head.bytes, closed)
            if head.count:
                self.mark = (head.first + head.count - 1, head.chain)
                if self.mark[0] == self.sought:
                    self.sought_chain = head.chain
            if head.first + head.count - 1 > seen:
                self.records += block.records()[max(0, seen + 1 - head.first) :]
            self.link = looks.walk.link
        walk = looks.walk
        self.link, self.tail_offset = walk.link, walk.offset
        if looks.damaged:
            raise self._corrupt(path, walk.offset, walk.what)
        return walk

    def _look_behind(self, walk: Walk, later: list[Path]) -> None:
        """Check the segments after the last block: only one empty, not yet used segment is allowed."""
        if self.live:
            return
        for path in later:
            data = path.read_bytes()
            expected = path.name == segment_name(self.link.next) and data.count(0) == len(data)
            if walk.end is not End.CLEAN or not expected:
                raise self._corrupt(path, 0, "a segment after the end of the journal")
            self.leftovers.append(path)
        self.cut = walk.cut

    def _corrupt(self, file: Path, offset: int, what: str, advice: str = "") -> CorruptJournal:
        first = self.floor.segment if self.segments else 1
        last = self.link.next - 1 if self.segments else 0
        return CorruptJournal(file, offset, (first, last), what, advice)
