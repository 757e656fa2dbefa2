"""How far a member had come: a small file beside its journal, which outlives the journal.

A journal cannot tell that it is missing, that it is an older copy of itself, or that it is somebody else's.
This file can: it has the journal's identity, the last position known to be on disk, and the value of the
journal's hash chain there, which no other tail of the same length has. It is written when a
member starts, now and then while it runs, and at its orderly end; it may lag behind the journal, and is never
ahead of it. A member whose journal ends before it is refused, because others remember what it promised.
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
"""Left by a member whose peers remember more of it than its journal does."""
REACHED_SECONDS: Final = 10.0
"""How long the file may lag behind the journal of a running member."""
WITNESSES: Final = ("eras.json", "clock.json")
"""Files that a member writes after its journal was made: where they are, there was one."""
log = logging.getLogger(__name__)


class ForgetfulError(JournalError):
    """A member must not come back as if it remembered everything."""


class Reached(msgspec.Struct, frozen=True):
    """The last position of a journal that was on disk."""

    journal: str
    """The journal's identity, in hexadecimal."""
    position: int
    chain: str = ""
    """The journal's hash chain behind that record, in hexadecimal; empty: not known."""


def read_reached(directory: Path) -> Reached | None:
    """How far the member of this directory had come; None: it has not said."""
    path = directory / REACHED
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reached)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ForgetfulError(
            f"{path} is not as it was written ({error}), so nobody can tell whether the journal beside it is "
            f"the newest. If you are sure that it is, delete {path} and start {directory.name} again."
        ) from None


def write_reached(directory: Path, journal: Journal) -> Reached:
    """Put on record how far the member has come, durably."""
    reached = Reached(journal.identity, *journal.mark)
    replace(directory / REACHED, msgspec.json.encode(reached), PRIVATE)
    return reached


async def keep_reached(directory: Path, journal: Journal) -> None:
    """Write it again whenever the journal has grown, at most every ``REACHED_SECONDS``. A disk that does not
    take it now is tried again: an older file is true as well."""
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
    """Write it for the last time, when the journal is closed; if that fails the older one counts."""
    try:
        write_reached(directory, journal)
    except OSError as error:
        log.warning("%s could not be written: %s", REACHED, error)


def refuse_missing(directory: Path, journal: Path) -> None:
    """Raise if the member has lived and its journal is not there."""
    if _is_there(journal):
        return
    reached = read_reached(directory)
    witnesses = [name for name in WITNESSES if (directory / name).exists()]
    if reached is not None:
        told = f"{directory.name} had reached record {reached.position} of its journal"
        witnesses.append(REACHED)
    elif witnesses:
        told = f"{directory.name} has lived before ({' and '.join(witnesses)} say so)"
    else:
        return
    files = ", ".join(str(directory / name) for name in witnesses)
    raise ForgetfulError(f"{told}, and there is no journal in {journal}. {_what_to_do(files)}")


def refuse_older(directory: Path, reached: Reached | None, journal: Journal, chain: str) -> None:
    """Raise if the journal is not the one that the member had, ends before what it had reached, or went
    another way there. ``chain``: its hash chain behind the record reached; empty: that is not retained."""
    if reached is None:
        return
    if reached.journal != journal.identity:
        found = f"the journal found is another one ({journal.identity[:8]}, not {reached.journal[:8]})"
    elif journal.position < reached.position:
        found = f"the journal found ends with record {journal.position}: it is an older copy"
    elif reached.chain and chain != reached.chain and (chain or _is_within(journal, reached.position)):
        found = "the journal found has other records there: it is a copy that went on by itself"
    else:
        return
    raise ForgetfulError(
        f"{directory.name} had reached record {reached.position} of its journal, and {found}. "
        f"{_what_to_do(str(directory / REACHED))}"
    )


def _is_within(journal: Journal, position: int) -> bool:
    """Whether the block that ended with this record would be retained."""
    return position > journal.snapshot_position


def refuse_behind(directory: Path, witness: str, seen: int, position: int) -> None:
    """Raise if a file that is written behind the journal has seen more of it than there is now."""
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
            f"{marker.read_text(encoding='utf-8')} (When the newest copy is back, delete {marker}: the peers "
            f"are asked again.)"
        )


def _what_to_do(files: str) -> str:
    return (
        "It would forget promises that its peers remember, and give numbers a second time. Mount the volume "
        "that the journal is on, or put the newest copy of it back. If it is gone, let the peers adopt its "
        "work, and bring the member back under a new name at the end of the league file. (Delete "
        f"{files} to start it all the same: it is refused if a peer remembers more of it.)"
    )


def _is_there(journal: Path) -> bool:
    """Whether there is a journal, if only a damaged one; a directory that an interrupted first start left is
    none."""
    if not journal.is_dir():
        return False
    if (journal / IDENTITY_NAME).exists() or (journal / REPAIRING_NAME).exists():
        return True
    files = listing(journal)
    return bool(files.snapshots or files.segments)
