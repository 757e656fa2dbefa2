"""Survey of a journal: reads and checks all of it, for opening and for verification."""

from functools import partial
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.disk import is_in_use
from hanse.live.journal.errors import CorruptJournal, repair_command
from hanse.live.journal.files import (
    IDENTITY_NAME,
    REPAIRING_NAME,
    JournalFiles,
    list_files,
    segment_name,
    snapshot_name,
)
from hanse.live.journal.layout import Floor, JournalIdentity
from hanse.live.journal.salvage import read_identity, salvage
from hanse.live.journal.segment_walk import ChainTip, RetryingWalk, Walk, WalkEnd


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
        self.identity = JournalIdentity(b"", 0)
        self.state: bytes | None = None
        """State of the newest snapshot."""
        self.snapshots: dict[int, int] = {}
        """Position and bytes of each retained snapshot, oldest first."""
        self.floor = Floor(0, 1, b"", 0)
        self.segments: list[Segment] = []
        self.records: list[bytes] = []
        """Records after the newest snapshot."""
        self.blocks = 0
        self.tip = ChainTip(b"", 1, None, 0)
        """Chain tip that the next block must continue."""
        self.tail_offset = 0
        self.cut = 0
        self.last_block: LastBlock | None = None
        self.mark = (0, b"")
        """Number of the last record and chain value after its block; 0: no record is retained."""
        self.chain_at = 0
        """Record whose chain value is kept, if a block ends with it."""
        self.chain_value = b""
        self.leftovers: list[Path] = []
        """Files without meaning: unfinished files, and files left by an interrupted drop."""

    @property
    def position(self) -> int:
        """Position of the newest snapshot; 0: none."""
        return max(self.snapshots, default=0)

    def run(self) -> None:
        """Check all files."""
        files = list_files(self.directory)
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
        self.floor = Floor(0, 1, layout.genesis_chain(identity.journal), identity.allocated)
        self._check_snapshots(files)
        self._check_segments(files)
        if self.tip.next <= self.position:
            raise self._corrupt(
                self.directory / segment_name(self.segments[-1].first),
                self.tail_offset,
                f"the journal ends with record {self.tip.next - 1}, before snapshot {self.position}",
            )

    # --- snapshots ---------------------------------------------------------------------------------------

    def _check_snapshots(self, files: JournalFiles) -> None:
        for position, path in reversed(files.snapshots):
            if position < self.floor.snapshot:
                self.leftovers.append(path)
                continue
            found = layout.decode_snapshot(path.read_bytes())
            if found is None or found[0].journal != self.identity.journal or found[0].position != position:
                raise self._corrupt(path, 0, "a damaged snapshot", self._recovery_advice(path))
            if not self.snapshots:
                self.floor, self.state = found[0].floor, found[1]
            self.snapshots[position] = path.stat().st_size
        self.snapshots = dict(sorted(self.snapshots.items()))
        if self.snapshots and min(self.snapshots) != self.floor.snapshot:
            raise self._corrupt(
                self.directory / snapshot_name(self.floor.snapshot),
                0,
                "a snapshot is missing",
                self._recovery_advice(self.directory),
            )

    def _recovery_advice(self, path: Path) -> str:
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

    def _check_segments(self, files: JournalFiles) -> None:
        there = dict(files.segments)
        self.leftovers += [path for first, path in files.segments if first < self.floor.segment]
        self.tip = ChainTip(self.identity.journal, self.floor.segment, self.floor.chain, self.floor.allocated)
        while True:
            path = self.directory / segment_name(self.tip.next)
            if self.tip.next not in there and not (self.live and path.exists()):
                raise self._corrupt(path, 0, "a segment is missing")
            assert self.tip.chain is not None
            self.segments.append(Segment(self.tip.next, self.tip.chain, self.tip.allocated))
            walk = self._check_segment(path)
            if walk.end is not WalkEnd.SEALED:
                break
        self._check_later_segments(
            walk, [path for first, path in files.segments if first > self.segments[-1].first]
        )

    def _check_segment(self, path: Path) -> Walk:
        # A process that opens a journal holds its lock: nobody else writes, and one read is enough.
        walks = RetryingWalk(
            path, self.tip, partial(is_in_use, self.directory) if self.live else lambda: False
        )
        seen = self.position
        for block in walks:
            self.blocks += 1
            head = block.head
            closed = head.kind is layout.BlockKind.CLOSED
            self.last_block = LastBlock(path, block.offset, head.byte_count, closed)
            if head.count:
                self.mark = (head.first + head.count - 1, head.chain)
                if self.mark[0] == self.chain_at:
                    self.chain_value = head.chain
            if head.first + head.count - 1 > seen:
                self.records += block.records()[max(0, seen + 1 - head.first) :]
            self.tip = walks.walk.tip
        walk = walks.walk
        self.tip, self.tail_offset = walk.tip, walk.offset
        if walks.is_damaged:
            raise self._corrupt(path, walk.offset, walk.what)
        return walk

    def _check_later_segments(self, walk: Walk, later: list[Path]) -> None:
        """Check the segments after the last block: only one empty, not yet used segment is allowed."""
        if self.live:
            return
        for path in later:
            data = path.read_bytes()
            expected = path.name == segment_name(self.tip.next) and data.count(0) == len(data)
            if walk.end is not WalkEnd.CLEAN or not expected:
                raise self._corrupt(path, 0, "a segment after the end of the journal")
            self.leftovers.append(path)
        self.cut = walk.cut_bytes

    def _corrupt(self, file: Path, offset: int, what: str, advice: str = "") -> CorruptJournal:
        first = self.floor.segment if self.segments else 1
        last = self.tip.next - 1 if self.segments else 0
        return CorruptJournal(file, offset, (first, last), what, advice)
