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
from hanse.live.journal.journal import Journal, Recovered
from hanse.live.journal.reading import History, history, read

__all__ = [
    "CorruptJournal",
    "History",
    "Journal",
    "JournalBehind",
    "JournalError",
    "JournalFull",
    "JournalInUse",
    "NotRetained",
    "RecordTooLarge",
    "Recovered",
    "UnknownFormat",
    "history",
    "read",
]
