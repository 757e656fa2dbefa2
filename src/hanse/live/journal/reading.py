"""Readers of a journal that do not open it for writing, also while its daemon writes.

Nothing is locked or changed. In a live journal the newest block may be visible shortly before it is durable;
a reader that needs durable records asks the journal's owner for ``durable``.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.creation import require_journal
from hanse.live.journal.disk import is_in_use
from hanse.live.journal.errors import CorruptJournal, JournalError, NotRetained
from hanse.live.journal.files import IDENTITY_NAME, list_files, segment_name
from hanse.live.journal.salvage import read_identity
from hanse.live.journal.segment_walk import ChainTip, RetryingWalk, WalkEnd

READ_TRIES_MAX = 3
"""Number of tries of a reader while the files change."""


class History(msgspec.Struct, frozen=True):
    """Retained history of a journal, from its beginning or from its oldest snapshot on."""

    snapshot: bytes | None
    """Oldest retained state; None: the records begin with record 1."""
    position: int
    """Number of the last record that this state includes; 0 without a state."""
    records: Iterator[tuple[int, bytes]]
    """Numbers and records, read lazily; one segment at a time is in memory."""


def read_records(directory: Path, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """Iterate over the records after number ``after``, with their numbers, with one segment in memory.

    Raises ``NotRetained`` at once if the next record is no longer kept, and ``CorruptJournal`` at damage. A
    block that a live journal is writing is not included.
    """
    require_journal(directory)
    identity = read_identity(directory)
    if identity is None:
        raise CorruptJournal(directory / IDENTITY_NAME, 0, (1, 0), "the identity is missing or damaged")
    firsts = [first for first, _ in list_files(directory).segments]
    begin = max((first for first in firsts if first <= after + 1), default=None)
    if begin is None:
        if not firsts:
            raise CorruptJournal(directory, 0, (1, 0), "a journal without segments")
        raise NotRetained(after, firsts[0])
    chain = layout.genesis_chain(identity.journal) if begin == 1 else None
    allocated = identity.allocated if begin == 1 else 0
    return _iterate_records(directory, ChainTip(identity.journal, begin, chain, allocated), after)


def read_history(directory: Path) -> History:
    """Read the retained history, to rebuild derived data or to replay it elsewhere."""
    require_journal(directory)
    for _ in range(READ_TRIES_MAX):
        files = list_files(directory)
        if files.segments and files.segments[0][0] == 1:
            return History(None, 0, read_records(directory))
        for position, path in files.snapshots:
            try:
                data = path.read_bytes()
                found = layout.decode_snapshot(data)
                if found is None:
                    raise CorruptJournal(path, 0, (1, 0), "a damaged snapshot")
                return History(found[1], position, read_records(directory, position))
            except (FileNotFoundError, NotRetained):
                continue  # dropped meanwhile, or a leftover of a drop: the next one is the oldest
    raise JournalError(f"the journal in {directory} has no beginning: neither record 1 nor a snapshot")


def _iterate_records(directory: Path, tip: ChainTip, after: int) -> Iterator[tuple[int, bytes]]:
    while True:
        first = tip.next
        path = directory / segment_name(first)
        walks = RetryingWalk(path, tip, partial(is_in_use, directory))
        try:
            for block in walks:
                number = block.head.first
                if number + block.head.count - 1 > after:
                    for record in block.records():
                        if number > after:
                            yield number, record
                        number += 1
        except FileNotFoundError:
            if is_in_use(directory):
                raise NotRetained(after, list_files(directory).segments[0][0]) from None
            raise CorruptJournal(path, 0, (first, first - 1), "a segment is missing") from None
        walk, tip = walks.walk, walks.walk.tip
        if walks.is_damaged:
            raise CorruptJournal(path, walk.offset, (first, tip.next - 1), walk.what)
        if walk.end is not WalkEnd.SEALED:
            return
