"""High-water mark of a journal: a small file beside it, which outlives the journal.

A journal cannot show that it is missing, that it is an older copy of itself, or that it belongs to another
member. This file can: it has the journal's identity, the last position known to be on disk, and the value of
the journal's hash chain there, which no other tail of the same length has. It is written when a member
starts, now and then while it runs, and at its orderly end; it may lag behind the journal, and is never ahead
of it. A member whose journal ends before it is refused, because its peers remember its promises.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.journal.errors import JournalError
from hanse.live.journal.files import IDENTITY_NAME, REPAIRING_NAME, list_files
from hanse.live.journal.journal import Journal
from hanse.security.atomic_files import PRIVATE, replace

HIGH_WATER_MARK_FILE: Final = "reached.json"
JOURNAL_OLDER_FILE: Final = "journal-is-older"
"""Marker file: the peers remember more of this member than its journal has."""
HIGH_WATER_MARK_SECONDS: Final = 10.0
"""Longest time that the file may lag behind the journal of a running member."""
WITNESS_FILES: Final = ("eras.json", "clock.json")
"""Files that a member writes after its journal was made: their presence proves that there was a journal."""
log = logging.getLogger(__name__)


class LostHistoryError(JournalError):
    """A member has lost a part of its history and must not start."""


class HighWaterMark(msgspec.Struct, frozen=True):
    """Last position of a journal that was on disk."""

    journal: str
    """Identity of the journal, in hexadecimal."""
    position: int
    chain: str = ""
    """Hash chain of the journal after that record, in hexadecimal; empty: not known."""


def read_high_water_mark(directory: Path) -> HighWaterMark | None:
    """Return the high-water mark of a member's directory; None if there is none."""
    path = directory / HIGH_WATER_MARK_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=HighWaterMark)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise LostHistoryError(
            f"{path} is damaged ({error}), so the journal beside it may be an older copy. "
            f"If you are sure that it is the newest, delete {path} and start {directory.name} again."
        ) from None


def write_high_water_mark(directory: Path, journal: Journal) -> HighWaterMark:
    """Write the high-water mark durably."""
    mark = HighWaterMark(journal.identity, *journal.mark)
    replace(directory / HIGH_WATER_MARK_FILE, msgspec.json.encode(mark), PRIVATE)
    return mark


async def keep_high_water_mark(directory: Path, journal: Journal) -> None:
    """Write the high-water mark whenever the journal has grown, at most every ``HIGH_WATER_MARK_SECONDS``. A
    write that fails is tried again: an older file is true as well."""
    last = journal.durable
    while True:
        await asyncio.sleep(HIGH_WATER_MARK_SECONDS)
        if journal.durable == last:
            continue
        try:
            last = (await asyncio.to_thread(write_high_water_mark, directory, journal)).position
        except OSError as error:
            log.warning("%s could not be written: %s", HIGH_WATER_MARK_FILE, error)


def write_final_high_water_mark(directory: Path, journal: Journal) -> None:
    """Write the high-water mark when the journal is closed; if that fails the older one counts."""
    try:
        write_high_water_mark(directory, journal)
    except OSError as error:
        log.warning("%s could not be written: %s", HIGH_WATER_MARK_FILE, error)


def refuse_missing_journal(directory: Path, journal: Path) -> None:
    """Raise if the member was started before and its journal is not there."""
    if _has_journal(journal):
        return
    mark = read_high_water_mark(directory)
    witnesses = [name for name in WITNESS_FILES if (directory / name).exists()]
    if mark is not None:
        statement = f"{directory.name} had reached record {mark.position} of its journal"
        witnesses.append(HIGH_WATER_MARK_FILE)
    elif witnesses:
        statement = f"{directory.name} was started before ({' and '.join(witnesses)} exist)"
    else:
        return
    files = ", ".join(str(directory / name) for name in witnesses)
    raise LostHistoryError(f"{statement}, and there is no journal in {journal}. {_remedy(files)}")


def refuse_older_journal(directory: Path, mark: HighWaterMark | None, journal: Journal, chain: str) -> None:
    """Raise if the journal is not the member's, ends before the high-water mark, or has another record there.
    ``chain``: its hash chain after the record of the mark; empty: not retained."""
    if mark is None:
        return
    if mark.journal != journal.identity:
        problem = f"the journal found is another one ({journal.identity[:8]}, not {mark.journal[:8]})"
    elif journal.position < mark.position:
        problem = f"the journal found ends with record {journal.position}: it is an older copy"
    elif mark.chain and chain != mark.chain and (chain or _is_retained(journal, mark.position)):
        problem = "the journal found has other records there: it is a copy that was continued separately"
    else:
        return
    raise LostHistoryError(
        f"{directory.name} had reached record {mark.position} of its journal, and {problem}. "
        f"{_remedy(str(directory / HIGH_WATER_MARK_FILE))}"
    )


def _is_retained(journal: Journal, position: int) -> bool:
    """True if the block that ended with this record would be retained."""
    return position > journal.snapshot_position


def refuse_journal_behind(directory: Path, witness: str, seen: int, position: int) -> None:
    """Raise if a file that is written after the journal has seen more records than the journal has now."""
    if seen > position:
        raise LostHistoryError(
            f"{directory.name} had reached record {seen} of its journal ({witness} has seen it), and the "
            f"journal found ends with record {position}. {_remedy(f'{directory / witness}*')}"
        )


def refuse_known_older(directory: Path) -> None:
    """Raise if an earlier start found that the peers remember more than the journal."""
    marker = directory / JOURNAL_OLDER_FILE
    if marker.exists():
        raise LostHistoryError(
            f"{marker.read_text(encoding='utf-8')} (After restoring the newest copy, delete {marker}: "
            f"the peers are asked again.)"
        )


def _remedy(files: str) -> str:
    return (
        "It would forget promises that its peers remember, and use numbers a second time. Mount the volume "
        "of the journal, or restore the newest copy of it. If it is lost, let the peers take over its jobs, "
        "and add the member under a new name at the end of the league file. (Delete "
        f"{files} to start it anyway: it is refused if a peer remembers more of it.)"
    )


def _has_journal(journal: Path) -> bool:
    """True if there is a journal, even a damaged one; False for a directory that an interrupted first start
    left."""
    if not journal.is_dir():
        return False
    if (journal / IDENTITY_NAME).exists() or (journal / REPAIRING_NAME).exists():
        return True
    files = list_files(journal)
    return bool(files.snapshots or files.segments)
