"""Reading a whole journal and checking all of it: what opening and verifying have in common."""

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
    """A segment that is in use."""

    first: int
    chain: bytes
    """Chain value before it."""
    allocated: int
    """Bytes that its file has at least."""


class LastBlock(msgspec.Struct, frozen=True):
    """Where the newest block stands."""

    path: Path
    offset: int
    bytes: int
    closed: bool
    """Whether it says that the journal was closed."""


class Survey:
    """A look at everything retained. ``run`` raises ``CorruptJournal`` at the first problem; what was found
    until then stays in the attributes.

    ``live`` says that somebody may be writing: an unfinished last block is then the writer's and no damage.
    """

    def __init__(self, directory: Path, *, live: bool = False) -> None:
        self.directory = directory
        self.live = live
        self.identity = Identity(b"", 0)
        self.state: bytes | None = None
        """Of the newest snapshot."""
        self.snapshots: dict[int, int] = {}
        """Position and bytes of each retained snapshot, oldest first."""
        self.floor = Floor(0, 1, b"", 0)
        self.segments: list[Segment] = []
        self.records: list[bytes] = []
        """Those after the newest snapshot."""
        self.blocks = 0
        self.link = Link(b"", 1, None, 0)
        """What the next block has to continue."""
        self.tail_offset = 0
        self.cut = 0
        self.last_block: LastBlock | None = None
        self.mark = (0, b"")
        """Number and chain value of the last record: of the last block that has any; 0: none is retained."""
        self.sought = 0
        """A record whose chain value is to be kept, if a block ends with it."""
        self.sought_chain = b""
        self.leftovers: list[Path] = []
        """Files that mean nothing any more: unfinished ones, and those an interrupted drop left."""

    @property
    def position(self) -> int:
        """Position of the newest snapshot; 0: none."""
        return max(self.snapshots, default=0)

    def run(self) -> None:
        """Look at everything."""
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
                f"the journal ends with record {self.link.next - 1}, and a snapshot has seen {self.position}",
            )

    # --- snapshots ---------------------------------------------------------------------------------------

    def _look_at_snapshots(self, files: Listing) -> None:
        for position, path in reversed(files.snapshots):
            if position < self.floor.snapshot:
                self.leftovers.append(path)
                continue
            found = layout.snapshot(path.read_bytes())
            if found is None or found[0].journal != self.identity.journal or found[0].position != position:
                raise self._corrupt(path, 0, "a snapshot that is not as it was written", self._way_back(path))
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
        """What a repair could do without that snapshot, in words."""
        best = salvage(self.directory)
        if best.base is None:
            return f"Nothing else in {self.directory} is complete: get {path.name} back from a copy."
        base = f"snapshot {best.base}" if best.base else "the first record"
        return (
            f"Without it the journal is complete from {base} to record {best.last}: "
            f"'{repair_command(self.directory)}' moves the damaged file aside and goes on from there."
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
        # Whoever opens a journal holds its lock: nobody else writes, and one look is enough.
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
        """Segments behind the last block: only an empty one that was about to be used may be there."""
        if self.live:
            return
        for path in later:
            data = path.read_bytes()
            expected = path.name == segment_name(self.link.next) and data.count(0) == len(data)
            if walk.end is not End.CLEAN or not expected:
                raise self._corrupt(path, 0, "a segment behind the end of the journal")
            self.leftovers.append(path)
        self.cut = walk.cut

    def _corrupt(self, file: Path, offset: int, what: str, advice: str = "") -> CorruptJournal:
        first = self.floor.segment if self.segments else 1
        last = self.link.next - 1 if self.segments else 0
        return CorruptJournal(file, offset, (first, last), what, advice)
