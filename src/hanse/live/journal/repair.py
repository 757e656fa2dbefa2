"""Checking a journal, and making a damaged one usable again without throwing anything away.

A repair keeps the most that is certainly right: the longest run of intact, linked records from the beginning
or from a snapshot. Whatever is damaged, or stands behind damage, is moved to ``damaged-<n>``, never deleted.
The record numbers that are lost are given out again; who has acted on them elsewhere is told by the report.

A repair can be interrupted anywhere: it first prepares its files in ``repairing``, marks them complete, and
only then changes the journal; run again, it goes on from there.
"""

import shutil
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.disk import DISK, Disk, in_use, lock, write_file
from hanse.live.journal.errors import CorruptJournal
from hanse.live.journal.layout import Floor, Identity
from hanse.live.journal.recovery import exists
from hanse.live.journal.salvage import Piece, Salvage, read_identity, salvage
from hanse.live.journal.segments import SEGMENT_BYTES, first_room
from hanse.live.journal.survey import Survey
from hanse.live.journal.walk import IDENTITY_NAME, REPAIRING_NAME, listing, segment_name, snapshot_name

VERIFY_TRIES_MAX = 10
"""How often a check begins anew when a live journal drops files under its eyes."""
_READY = "ready"


class Problem(msgspec.Struct, frozen=True):
    """The first thing found wrong."""

    file: str
    offset: int
    what: str
    advice: str


class Verdict(msgspec.Struct, frozen=True):
    """What a check found. With a problem the counts are those up to it."""

    live: bool
    """Whether somebody had the journal open: its unfinished last block, if any, was not judged."""
    first: int
    last: int
    """Numbers of the first and last good record retained; an empty range when the second is smaller."""
    blocks: int
    segments: int
    snapshots: int
    torn: int
    """Bytes of a torn tail: not a problem, the next opening cuts them."""
    problem: Problem | None

    @property
    def records(self) -> int:
        """How many good records are retained."""
        return max(0, self.last - self.first + 1)


class Repaired(msgspec.Struct, frozen=True):
    """What a repair kept and what it could not."""

    kept: tuple[int, int] | None
    """First and last record that can still be read; None: none."""
    snapshot: int | None
    """Position of the snapshot to begin with, if there is one to begin with."""
    last: int
    """Record whose state the journal now ends with: the next record gets the number after it."""
    lost: tuple[int, int] | None
    """Records that are gone, first and last, with all they did. None: the state is complete."""
    lost_open: bool
    """Whether more records than ``lost`` says may be gone: the end is too damaged to tell."""
    history_lost: tuple[int, int] | None
    """Records that can no longer be read one by one, though the snapshot has seen them."""
    moved: tuple[str, ...]
    """Files moved aside."""
    moved_to: str
    """Directory they are in, inside the journal's; empty: nothing was moved."""


class _Plan(msgspec.Struct, frozen=True):
    """A repair that is ready to be carried out; stands in ``repairing/ready``."""

    move: list[str]
    place: list[str]
    report: Repaired


def verify(directory: Path) -> Verdict:
    """Check everything retained. Changes nothing; a live journal may be checked too."""
    exists(directory)
    for attempt in range(VERIFY_TRIES_MAX):
        live = in_use(directory)
        survey = Survey(directory, live=live)
        try:
            survey.run()
        except FileNotFoundError:
            if not live or attempt == VERIFY_TRIES_MAX - 1:
                raise
            continue
        except CorruptJournal as found:
            if live and attempt < VERIFY_TRIES_MAX - 1 and not found.file.exists():
                continue
            return _verdict(survey, Problem(found.file.name, found.offset, found.what, found.advice))
        return _verdict(survey, None)
    raise AssertionError("the last attempt returns or raises")


def _verdict(survey: Survey, problem: Problem | None) -> Verdict:
    return Verdict(
        survey.live,
        survey.floor.segment,
        survey.link.next - 1 if survey.segments else survey.floor.segment - 1,
        survey.blocks,
        len(survey.segments),
        len(survey.snapshots),
        survey.cut,
        problem,
    )


def repair(directory: Path, *, segment_bytes: int = SEGMENT_BYTES, disk: Disk = DISK) -> Repaired:
    """Make the journal usable again. One without a problem is left as it is (a torn tail is none).

    Raises ``JournalInUse`` while somebody has it open. Needs room for the files it writes anew: at most two
    segments and the retained snapshots.
    """
    exists(directory)
    lock_fd = lock(directory)
    try:
        ready = directory / REPAIRING_NAME / _READY
        if not ready.exists():
            if (directory / REPAIRING_NAME).exists():
                shutil.rmtree(directory / REPAIRING_NAME)  # copies only, of a repair that was not ready
            survey = Survey(directory)
            try:
                survey.run()
            except CorruptJournal:
                _prepare(directory, disk, segment_bytes)
            else:
                return _nothing_wrong(survey)
        plan = msgspec.json.decode(ready.read_bytes(), type=_Plan)
        _carry_out(directory, disk, plan)
        return plan.report
    finally:
        disk.close(lock_fd)


def _nothing_wrong(survey: Survey) -> Repaired:
    last = survey.link.next - 1
    kept = (survey.floor.segment, last) if last >= survey.floor.segment else None
    base = min(survey.snapshots, default=None) if survey.floor.segment > 1 else None
    return Repaired(kept, base, last, None, lost_open=False, history_lost=None, moved=(), moved_to="")


def _prepare(directory: Path, disk: Disk, segment_bytes: int) -> None:
    """Write the new files to ``repairing``, and last the plan."""
    best = salvage(directory)
    files = _new_files(directory, best, first_room(segment_bytes))
    stay = {piece.path.name for piece in best.pieces if piece.whole} | {
        path.name for _, path in best.snapshots
    }
    stay -= {name for name, _ in files}
    found = listing(directory)
    names = [path.name for _, path in [*found.segments, *found.snapshots] if path.name not in stay]
    if (directory / IDENTITY_NAME).exists() and IDENTITY_NAME in dict(files):
        names.append(IDENTITY_NAME)
    report = _report(best, tuple(names), _aside(directory) if names else "")
    place = directory / REPAIRING_NAME
    place.mkdir()
    disk.sync_directory(directory)
    for name, data in files:
        write_file(disk, place / name, [data])
    plan = _Plan(names, [name for name, _ in files], report)
    write_file(disk, place / _READY, [msgspec.json.encode(plan)])


def _new_files(directory: Path, best: Salvage, room: int) -> list[tuple[str, bytes]]:
    """What has to be written anew: segments that are only partly good, an empty one to go on with where that
    is needed, the newest snapshot if it promises more than is left, and the identity if it is damaged."""
    files = [(segment_name(piece.first), _excerpt(piece)) for piece in best.pieces if not piece.whole]
    if best.pieces and best.pieces[-1].sealed:
        files.append((segment_name(best.last + 1), bytes(best.pieces[-1].following)))
    elif not best.pieces:
        files.append((segment_name(best.last + 1), bytes(room)))
    for position, path in best.snapshots[-1:]:
        decoded = layout.snapshot(path.read_bytes())
        assert decoded is not None, "a salvaged snapshot was good a moment ago"
        head, state = decoded
        floor = _floor(best, room)
        if head.floor != msgspec.structs.replace(floor, allocated=head.floor.allocated):
            data = layout.snapshot_head(best.journal, position, state, floor) + state
            files.append((snapshot_name(position), data))
    present = read_identity(directory)
    first_size = room if best.last == 0 and not best.pieces else 0
    if present is None or (first_size and present.allocated != first_size):
        files.append((IDENTITY_NAME, layout.encode_identity(Identity(best.journal, first_size))))
    return files


def _excerpt(piece: Piece) -> bytes:
    data = piece.path.read_bytes()[piece.begin : piece.end]
    return data.ljust(piece.room, b"\0")


def _floor(best: Salvage, room: int) -> Floor:
    oldest = min(position for position, _ in best.snapshots)
    if best.pieces:
        return Floor(oldest, best.pieces[0].first, best.pieces[0].before, 0)
    return Floor(oldest, best.last + 1, layout.restart(best.journal, best.digest), room)


def _report(best: Salvage, moved: tuple[str, ...], moved_to: str) -> Repaired:
    first = best.pieces[0].first if best.pieces else best.last + 1
    kept = (first, best.last) if best.last >= first else None
    unread = (best.oldest, first - 1) if first > best.oldest and best.base else None
    return Repaired(
        kept,
        best.base or None,
        best.last,
        (best.last + 1, best.known) if best.known > best.last else None,
        best.open_ended,
        unread,
        moved,
        moved_to,
    )


def _aside(directory: Path) -> str:
    number = 1
    while (directory / f"damaged-{number}").exists():
        number += 1
    return f"damaged-{number}"


def _carry_out(directory: Path, disk: Disk, plan: _Plan) -> None:
    """Move the damaged files aside and the new ones in. Every step that is done already is passed over."""
    prepared = directory / REPAIRING_NAME
    if plan.move:
        aside = directory / plan.report.moved_to
        aside.mkdir(exist_ok=True)
        disk.sync_directory(directory)
        for name in plan.move:
            # What is aside already was moved by an earlier try; what has its name now is the new file.
            if (directory / name).exists() and not (aside / name).exists():
                disk.rename(directory / name, aside / name)
        disk.sync_directory(aside)
        disk.sync_directory(directory)
    for name in plan.place:
        if (prepared / name).exists():
            disk.rename(prepared / name, directory / name)
    disk.sync_directory(prepared)
    disk.sync_directory(directory)
    disk.unlink(prepared / _READY)
    prepared.rmdir()
    disk.sync_directory(directory)
