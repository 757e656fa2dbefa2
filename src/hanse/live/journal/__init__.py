"""Append-only journal of a daemon: ordered, durable records, and snapshots."""

from hanse.live.journal.errors import (
    CorruptJournal,
    JournalBehind,
    JournalError,
    JournalFull,
    JournalInUse,
    NotRetained,
    RecordTooLarge,
    UnknownFormat,
)
from hanse.live.journal.journal import Journal, JournalContents
from hanse.live.journal.reading import History, read_history, read_records

__all__ = [
    "CorruptJournal",
    "History",
    "Journal",
    "JournalBehind",
    "JournalContents",
    "JournalError",
    "JournalFull",
    "JournalInUse",
    "NotRetained",
    "RecordTooLarge",
    "UnknownFormat",
    "read_history",
    "read_records",
]
