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
from hanse.live.journal.journal import Journal
from hanse.live.journal.walk import IDENTITY_NAME, REPAIRING_NAME, listing
from hanse.security.atomic_files import PRIVATE, replace

REACHED: Final = "reached.json"
OLDER: Final = "journal-is-older"
"""Marker file: the peers remember more of this member than its journal has."""
REACHED_SECONDS: Final = 10.0
"""Longest time that the file may lag behind the journal of a running member."""
WITNESSES: Final = ("eras.json", "clock.json")
"""Files that a member writes after its journal was made: their presence proves that there was a journal."""
log = logging.getLogger(__name__)


class ForgetfulError(JournalError):
    """A member has lost a part of its history and must not start."""


class Reached(msgspec.Struct, frozen=True):
    """Last position of a journal that was on disk."""

    journal: str
    """Identity of the journal, in hexadecimal."""
    position: int
    chain: str = ""
    """Hash chain of the journal after that record, in hexadecimal; empty: not known."""


def read_reached(directory: Path) -> Reached | None:
    """Return the high-water mark of a member's directory; None if there is none."""
    path = directory / REACHED
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reached)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ForgetfulError(
            f"{path} is damaged ({error}), so the journal beside it may be an older copy. "
            f"If you are sure that it is the newest, delete {path} and start {directory.name} again."
        ) from None


def write_reached(directory: Path, journal: Journal) -> Reached:
    """Write the high-water mark durably."""
    reached = Reached(journal.identity, *journal.mark)
    replace(directory / REACHED, msgspec.json.encode(reached), PRIVATE)
    return reached


async def keep_reached(directory: Path, journal: Journal) -> None:
    """Write the high-water mark whenever the journal has grown, at most every ``HIGH_WATER_MARK_SECONDS``. A
    write that fails is tried again: an older file is true as well."""
    last = journal.durable
    while True:
        await asyncio.sleep(REACHED_SECONDS)
        if journal.durable == last:
            continue
        try:
            last = (await asyncio.to_thread(write_reached, directory, journal)).position
        except OSError as error:
            log.warning("%s could not be written: %s", REACHED, error)


def end_reached(directory: Path, journal: Journal) -> None:
    """Write the high-water mark when the journal is closed; if that fails the older one counts."""
    try:
        write_reached(directory, journal)
    except OSError as error:
        log.warning("%s could not be written: %s", REACHED, error)


def refuse_missing(directory: Path, journal: Path) -> None:
    """Raise if the member was started before and its journal is not there."""
    if _is_there(journal):
        return
    reached = read_reached(directory)
    witnesses = [name for name in WITNESSES if (directory / name).exists()]
    if reached is not None:
        told = f"{directory.name} had reached record {reached.position} of its journal"
        witnesses.append(REACHED)
    elif witnesses:
        told = f"{directory.name} was started before ({' and '.join(witnesses)} exist)"
    else:
        return
    files = ", ".join(str(directory / name) for name in witnesses)
    raise ForgetfulError(f"{told}, and there is no journal in {journal}. {_what_to_do(files)}")


def refuse_older(directory: Path, reached: Reached | None, journal: Journal, chain: str) -> None:
    """Raise if the journal is not the member's, ends before the high-water mark, or has another record there.
    ``chain``: its hash chain after the record of the mark; empty: not retained."""
    if reached is None:
        return
    if reached.journal != journal.identity:
        found = f"the journal found is another one ({journal.identity[:8]}, not {reached.journal[:8]})"
    elif journal.position < reached.position:
        found = f"the journal found ends with record {journal.position}: it is an older copy"
    elif reached.chain and chain != reached.chain and (chain or _is_within(journal, reached.position)):
        found = "the journal found has other records there: it is a copy that was continued separately"
    else:
        return
    raise ForgetfulError(
        f"{directory.name} had reached record {reached.position} of its journal, and {found}. "
        f"{_what_to_do(str(directory / REACHED))}"
    )


def _is_within(journal: Journal, position: int) -> bool:
    """True if the block that ended with this record would be retained."""
    return position > journal.snapshot_position


def refuse_behind(directory: Path, witness: str, seen: int, position: int) -> None:
    """Raise if a file that is written after the journal has seen more records than the journal has now."""
    if seen > position:
        raise ForgetfulError(
            f"{directory.name} had reached record {seen} of its journal ({witness} has seen it), and the "
            f"journal found ends with record {position}. {_what_to_do(f'{directory / witness}*')}"
        )


def refuse_contradicted(directory: Path) -> None:
    """Raise if an earlier start found that the peers remember more than the journal."""
    marker = directory / OLDER
    if marker.exists():
        raise ForgetfulError(
            f"{marker.read_text(encoding='utf-8')} (After restoring the newest copy, delete {marker}: "
            f"the peers are asked again.)"
        )


def _what_to_do(files: str) -> str:
    return (
        "It would forget promises that its peers remember, and use numbers a second time. Mount the volume "
        "of the journal, or restore the newest copy of it. If it is lost, let the peers take over its jobs, "
        "and add the member under a new name at the end of the league file. (Delete "
        f"{files} to start it anyway: it is refused if a peer remembers more of it.)"
    )


def _is_there(journal: Path) -> bool:
    """True if there is a journal, even a damaged one; False for a directory that an interrupted first start
    left."""
    if not journal.is_dir():
        return False
    if (journal / IDENTITY_NAME).exists() or (journal / REPAIRING_NAME).exists():
        return True
    files = listing(journal)
    return bool(files.snapshots or files.segments)
