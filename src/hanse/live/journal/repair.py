"""Check of a journal, and repair of a damaged one that deletes nothing.

A repair keeps all that is certainly right: the longest run of intact, linked records from the beginning or
from a snapshot. Files that are damaged, or that follow damage, are moved to ``damaged-<n>``, never deleted.
The numbers of lost records are used again; the report names them, for systems that have acted on them.

A repair may be interrupted at any point: it first prepares its files in ``repairing``, marks them complete,
and only then changes the journal; a second run continues from there.
"""

import shutil
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.creation import require_journal
from hanse.live.journal.disk import DISK, Disk, is_in_use, lock, write_file
from hanse.live.journal.errors import CorruptJournal
from hanse.live.journal.files import IDENTITY_NAME, REPAIRING_NAME, list_files, segment_name, snapshot_name
from hanse.live.journal.layout import Floor, JournalIdentity
from hanse.live.journal.salvage import Salvage, SegmentPiece, read_identity, salvage
from hanse.live.journal.segments import SEGMENT_BYTES, initial_size
from hanse.live.journal.survey import Survey

VERIFY_TRIES_MAX = 10
"""Number of tries of a check while a live journal drops files."""
_READY = "ready"


class JournalProblem(msgspec.Struct, frozen=True):
    """First problem found."""

    file: str
    offset: int
    what: str
    advice: str


class VerifyReport(msgspec.Struct, frozen=True):
    """Result of a check. With a problem, the counts are those before it."""

    live: bool
    """True if a process had the journal open: an unfinished last block was not checked."""
    first: int
    last: int
    """Numbers of the first and last good record retained; an empty range if the second is smaller."""
    blocks: int
    segments: int
    snapshots: int
    torn: int
    """Bytes of a torn tail: not a problem, the next opening cuts them off."""
    problem: JournalProblem | None

    @property
    def records(self) -> int:
        """Number of good records retained."""
        return max(0, self.last - self.first + 1)


class RepairReport(msgspec.Struct, frozen=True):
    """Result of a repair: what was kept and what was lost."""

    kept: tuple[int, int] | None
    """First and last readable record; None: none."""
    snapshot: int | None
    """Position of the snapshot that recovery begins with; None: none."""
    last: int
    """Number of the last record in the repaired journal: the next record gets the next number."""
    lost: tuple[int, int] | None
    """First and last record whose changes are lost. None: the state is complete."""
    lost_open: bool
    """True if more records than ``lost`` may be lost: the end is too damaged to tell."""
    history_lost: tuple[int, int] | None
    """First and last record that can no longer be read, but that the snapshot includes."""
    moved: tuple[str, ...]
    """Names of the files moved aside."""
    moved_to: str
    """Name of their directory, inside the journal's; empty: nothing was moved."""


class _Plan(msgspec.Struct, frozen=True):
    """Plan of a prepared repair, stored in ``repairing/ready``."""

    move: list[str]
    place: list[str]
    report: RepairReport


def verify(directory: Path) -> VerifyReport:
    """Check everything retained, without any change; also of a live journal."""
    require_journal(directory)
    for attempt in range(VERIFY_TRIES_MAX):
        live = is_in_use(directory)
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
            return _verify_report(
                survey, JournalProblem(found.file.name, found.offset, found.what, found.advice)
            )
        return _verify_report(survey, None)
    raise AssertionError("the last attempt returns or raises")


def _verify_report(survey: Survey, problem: JournalProblem | None) -> VerifyReport:
    return VerifyReport(
        survey.live,
        survey.floor.segment,
        survey.tip.next - 1 if survey.segments else survey.floor.segment - 1,
        survey.blocks,
        len(survey.segments),
        len(survey.snapshots),
        survey.cut,
        problem,
    )


def repair(directory: Path, *, segment_bytes: int = SEGMENT_BYTES, disk: Disk = DISK) -> RepairReport:
    """Make a damaged journal usable again. A sound journal is not changed (a torn tail is no damage).

    Raises ``JournalInUse`` while a process has it open. Needs disk space for the files that it rewrites: at
    most two segments and the retained snapshots.
    """
    require_journal(directory)
    lock_fd = lock(directory)
    try:
        ready = directory / REPAIRING_NAME / _READY
        if not ready.exists():
            if (directory / REPAIRING_NAME).exists():
                shutil.rmtree(directory / REPAIRING_NAME)  # only copies, of an incomplete preparation
            survey = Survey(directory)
            try:
                survey.run()
            except CorruptJournal:
                _prepare(directory, disk, segment_bytes)
            else:
                return _intact_report(survey)
        plan = msgspec.json.decode(ready.read_bytes(), type=_Plan)
        _apply_plan(directory, disk, plan)
        return plan.report
    finally:
        disk.close(lock_fd)


def _intact_report(survey: Survey) -> RepairReport:
    last = survey.tip.next - 1
    kept = (survey.floor.segment, last) if last >= survey.floor.segment else None
    base = min(survey.snapshots, default=None) if survey.floor.segment > 1 else None
    return RepairReport(kept, base, last, None, lost_open=False, history_lost=None, moved=(), moved_to="")


def _prepare(directory: Path, disk: Disk, segment_bytes: int) -> None:
    """Write the new files to ``repairing``, and the plan last."""
    best = salvage(directory)
    files = _new_files(directory, best, initial_size(segment_bytes))
    stay = {piece.path.name for piece in best.pieces if piece.is_whole_file} | {
        path.name for _, path in best.snapshots
    }
    stay -= {name for name, _ in files}
    found = list_files(directory)
    names = [path.name for _, path in [*found.segments, *found.snapshots] if path.name not in stay]
    if (directory / IDENTITY_NAME).exists() and IDENTITY_NAME in dict(files):
        names.append(IDENTITY_NAME)
    report = _repair_report(best, tuple(names), _damaged_directory(directory) if names else "")
    place = directory / REPAIRING_NAME
    place.mkdir()
    disk.sync_directory(directory)
    for name, data in files:
        write_file(disk, place / name, [data])
    plan = _Plan(names, [name for name, _ in files], report)
    write_file(disk, place / _READY, [msgspec.json.encode(plan)])


def _new_files(directory: Path, best: Salvage, first_size_bytes: int) -> list[tuple[str, bytes]]:
    """Build the files to write: partly good segments, an empty segment to continue in if one is needed, the
    newest snapshot if it refers to more files than are left, and the identity if it is damaged."""
    files = [
        (segment_name(piece.first), _read_piece(piece)) for piece in best.pieces if not piece.is_whole_file
    ]
    if best.pieces and best.pieces[-1].sealed:
        files.append((segment_name(best.last + 1), bytes(best.pieces[-1].next_file_bytes)))
    elif not best.pieces:
        files.append((segment_name(best.last + 1), bytes(first_size_bytes)))
    for position, path in best.snapshots[-1:]:
        decoded = layout.decode_snapshot(path.read_bytes())
        assert decoded is not None, "a salvaged snapshot was good a moment ago"
        head, state = decoded
        floor = _floor(best, first_size_bytes)
        if head.floor != msgspec.structs.replace(floor, allocated=head.floor.allocated):
            data = layout.encode_snapshot_head(best.journal, position, state, floor) + state
            files.append((snapshot_name(position), data))
    present = read_identity(directory)
    first_size = first_size_bytes if best.last == 0 and not best.pieces else 0
    if present is None or (first_size and present.allocated != first_size):
        files.append((IDENTITY_NAME, layout.encode_identity(JournalIdentity(best.journal, first_size))))
    return files


def _read_piece(piece: SegmentPiece) -> bytes:
    data = piece.path.read_bytes()[piece.begin : piece.end]
    return data.ljust(piece.file_bytes, b"\0")


def _floor(best: Salvage, first_size_bytes: int) -> Floor:
    oldest = min(position for position, _ in best.snapshots)
    if best.pieces:
        return Floor(oldest, best.pieces[0].first, best.pieces[0].before, 0)
    return Floor(oldest, best.last + 1, layout.restart_chain(best.journal, best.digest), first_size_bytes)


def _repair_report(best: Salvage, moved: tuple[str, ...], moved_to: str) -> RepairReport:
    first = best.pieces[0].first if best.pieces else best.last + 1
    kept = (first, best.last) if best.last >= first else None
    unread = (best.oldest, first - 1) if first > best.oldest and best.base else None
    return RepairReport(
        kept,
        best.base or None,
        best.last,
        (best.last + 1, best.known) if best.known > best.last else None,
        best.open_ended,
        unread,
        moved,
        moved_to,
    )


def _damaged_directory(directory: Path) -> str:
    number = 1
    while (directory / f"damaged-{number}").exists():
        number += 1
    return f"damaged-{number}"


def _apply_plan(directory: Path, disk: Disk, plan: _Plan) -> None:
    """Move the damaged files aside and the new files in. Steps that are already done are skipped."""
    prepared = directory / REPAIRING_NAME
    if plan.move:
        aside = directory / plan.report.moved_to
        aside.mkdir(exist_ok=True)
        disk.sync_directory(directory)
        for name in plan.move:
            # A file already aside was moved by an earlier try; the file of the same name is the new one.
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
