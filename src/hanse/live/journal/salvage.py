"""Salvage of a damaged journal: finds runs of linked blocks, and the best state to continue from.

Used only for damaged journals; it reads every file.
"""

import os
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.files import IDENTITY_NAME, JournalFiles, list_files, segment_name
from hanse.live.journal.layout import BlockKind, Header, JournalIdentity, SnapshotHead
from hanse.live.journal.segment_walk import Block, ChainTip, Walk, WalkEnd, next_header


class SegmentPiece(msgspec.Struct, frozen=True):
    """Run of linked, intact blocks within one segment."""

    path: Path
    begin: int
    end: int
    """Byte offsets in the file."""
    first: int
    next: int
    """Number of the first record, and one more than the number of the last."""
    before: bytes
    after: bytes
    """Chain values before and after."""
    file_bytes: int
    """Length of the file according to its blocks."""
    next_file_bytes: int
    """If ``sealed``: length of the next segment's file."""
    sealed: bool
    is_whole_file: bool
    """True if the file holds nothing else, and can stay unchanged."""


class Salvage(msgspec.Struct, frozen=True):
    """Best part of a journal that can be kept."""

    journal: bytes
    base: int | None
    """Position of the snapshot to begin with; 0: no snapshot, begin with record 1; None: nothing."""
    digest: bytes
    """Digest of this snapshot; empty without one."""
    pieces: list[SegmentPiece]
    """Pieces with the records to keep, in order."""
    last: int
    """Number of the last record that the kept state and records cover; 0: none."""
    snapshots: list[tuple[int, Path]]
    """Good snapshots that fit the kept records."""
    oldest: int
    """Number of the oldest retained record."""
    known: int
    """Highest record number found anywhere."""
    open_ended: bool
    """True if the end is so damaged that there may have been records after ``known``."""


def salvage(directory: Path) -> Salvage:
    """Read all files, and choose the base and run that reach the highest record; among equals the oldest
    base, because it keeps the most history."""
    files = list_files(directory)
    journal = _find_journal(directory, files) or os.urandom(16)
    identity = read_identity(directory)
    search = _Search(
        journal, identity.allocated if identity and [first for first, _ in files.segments[:1]] == [1] else 0
    )
    for _, path in files.segments:
        search.search_segment(path)
    runs = _join_pieces(search.pieces)
    snapshots = _find_good_snapshots(files, journal)
    floors = [head.floor.segment for _, _, head in snapshots[-1:]]
    oldest = min([*floors, *(first for first, _ in files.segments)], default=1)
    known = max([search.known, *(position for position, _ in files.snapshots)])
    open_ended = search.open_ended or not files.segments
    bases: list[tuple[int, int, bytes, list[SegmentPiece]]] = [
        (run[-1].next - 1, 0, b"", run)
        for run in runs
        if run[0].first == 1 and run[0].before == layout.genesis_chain(journal)
    ]
    for position, _, head in snapshots:
        fitting = [run for run in runs if run[0].first <= position + 1 <= run[-1].next]
        run = max(fitting, key=lambda each: each[-1].next, default=[])
        bases.append((run[-1].next - 1 if run else position, position, head.digest, run))
    if not bases:
        return Salvage(journal, None, b"", [], 0, [], oldest, known, open_ended)
    last, base, digest, run = max(bases, key=lambda each: (each[0], -each[1]))
    kept = [(position, path) for position, path, _ in snapshots if base <= position <= last]
    return Salvage(journal, base, digest, run, last, kept, oldest, known, open_ended)


def read_identity(directory: Path) -> JournalIdentity | None:
    """Read the identity of a journal; None if it is missing or damaged."""
    try:
        return layout.decode_identity((directory / IDENTITY_NAME).read_bytes())
    except FileNotFoundError:
        return None


def _find_journal(directory: Path, files: JournalFiles) -> bytes | None:
    """Find the journal's id: in its identity, else in the first intact block, else in a snapshot."""
    if (known := read_identity(directory)) is not None:
        return known.journal
    for _, path in files.segments:
        data = path.read_bytes()
        for offset in range(0, len(data), layout.SECTOR):
            if (head := layout.decode_header(data[offset : offset + layout.SECTOR])) is not None:
                return head.journal
    for _, path in files.snapshots:
        if (found := layout.decode_snapshot(path.read_bytes())) is not None:
            return found[0].journal
    return None


def _find_good_snapshots(files: JournalFiles, journal: bytes) -> list[tuple[int, Path, SnapshotHead]]:
    good = []
    for position, path in files.snapshots:
        found = layout.decode_snapshot(path.read_bytes())
        if found is not None and found[0].position == position and found[0].journal == journal:
            good.append((position, path, found[0]))
    return good


class _Search:
    """Search of all segments for pieces, for the highest record number, and for damage at the end."""

    def __init__(self, journal: bytes, allocated: int) -> None:
        self.journal = journal
        self.pieces: list[SegmentPiece] = []
        self.known = 0
        self.open_ended = False
        self._allocated = allocated
        """Minimal length of the file of the next segment."""

    def search_segment(self, path: Path) -> None:
        """Search one more segment."""
        data = path.read_bytes()
        at, walk = 0, None
        while (found := next_header(data, at, self.journal, 0)) is not None:
            begin, head = found
            self.known = max(self.known, head.first + head.count - 1)
            walk = Walk(data, ChainTip(head.journal, head.first, head.previous, 0), begin)
            last, room = None, 0
            for block in walk:
                last = block
                room = room if block.head.kind is BlockKind.SEALED else max(room, block.head.allocated)
            if last is None:
                at = begin + head.byte_count
            else:
                at = last.offset + last.head.byte_count
                self.known = max(self.known, last.head.first + last.head.count - 1)
                self.pieces.append(_piece(path, begin, head, walk, last, room))
        self._judge_end(data, at, walk)

    def _judge_end(self, data: bytes, at: int, walk: Walk | None) -> None:
        explained = walk is not None and walk.end is not WalkEnd.DAMAGED
        unreadable = not explained and data.count(0, at) != max(0, len(data) - at)
        short = len(data) < max(
            self._allocated, walk.tip.allocated if walk and walk.end is not WalkEnd.SEALED else 0
        )
        # A sealed segment has a successor: the end is open unless one more call follows.
        sealed = walk is not None and walk.end is WalkEnd.SEALED
        self.open_ended = unreadable or short or sealed
        self._allocated = walk.tip.allocated if walk is not None and sealed else 0


def _piece(path: Path, begin: int, head: Header, walk: Walk, last: Block, room: int) -> SegmentPiece:
    sealed = last.head.kind is BlockKind.SEALED
    clean = walk.end in (WalkEnd.SEALED, WalkEnd.CLEAN)
    return SegmentPiece(
        path,
        begin,
        last.offset + last.head.byte_count,
        head.first,
        last.head.first + last.head.count,
        head.previous,
        last.head.chain,
        room,
        last.head.allocated if sealed else 0,
        sealed,
        is_whole_file=begin == 0 and clean and path.name == segment_name(head.first),
    )


def _join_pieces(pieces: list[SegmentPiece]) -> list[list[SegmentPiece]]:
    """Join pieces where the sealed end of a segment links to the beginning of the next."""
    runs: list[list[SegmentPiece]] = []
    for piece in pieces:
        if runs:
            before = runs[-1][-1]
            meets = before.sealed and piece.begin == 0 and before.next == piece.first
            if meets and before.after == piece.before:
                runs[-1].append(piece)
                continue
        runs.append([piece])
    # Drop a first piece that holds only the sealed end of a segment.
    trimmed = [run[1:] if run[0].sealed and run[0].first == run[0].next else run for run in runs]
    return [run for run in trimmed if run]
