"""Errors of a journal, each with the next step.

They are exceptions, not values: a caller that opens or writes a journal cannot go on without it.
"""

import shlex
from pathlib import Path


class JournalError(Exception):
    """Base class of the errors of a journal. After an error from ``append`` or ``commit`` the journal refuses
    every call; only ``JournalBehind``, ``JournalFull`` and ``RecordTooLarge`` leave it usable."""


def repair_command(directory: Path) -> str:
    """Return the command that repairs the journal in a member's directory."""
    member = directory.absolute().parent
    return f"hanse journal repair {member.name} --home {shlex.quote(str(member.parent))}"


class CorruptJournal(JournalError):  # noqa: N818  # it says what is the matter
    """The files differ from what was written, and no crash can explain it. Nothing was changed."""

    def __init__(self, file: Path, offset: int, good: tuple[int, int], what: str, advice: str = "") -> None:
        self.file = file
        """File with the first problem."""
        self.offset = offset
        """Byte offset in that file."""
        self.first_good, self.last_good = good
        """Range of record numbers that can be read before the problem; empty if the second is smaller."""
        self.what = what
        self.advice = advice or (
            "Keep the files, find out what happened to the disk, then run "
            f"'{repair_command(file if file.is_dir() else file.parent)}': it moves the damaged files aside "
            "and says which records are lost."
        )
        readable = (
            f"records {self.first_good} to {self.last_good} before it are intact"
            if self.last_good >= self.first_good
            else "no record before it is readable"
        )
        super().__init__(f"{file} at byte {offset}: {what}; {readable}. {self.advice}")


class JournalInUse(JournalError):  # noqa: N818  # it says what is the matter
    """Another process has the journal open. Two writers would destroy it."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        self.pid = pid
        """Process that has the journal open; None if it has not recorded its number."""
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"the journal in {directory} is in use by {holder}; stop it first")


class JournalFull(JournalError):  # noqa: N818  # it says what is the matter
    """The disk is full. Only records acknowledged before are durable; an open journal keeps the appended
    records, and writes them with a later commit."""

    def __init__(self, directory: Path, needed: int) -> None:
        self.needed = needed
        """Minimal number of free bytes for another try."""
        super().__init__(f"no space for the journal in {directory}: free at least {needed} bytes")


class JournalBehind(JournalError):  # noqa: N818  # it says what is the matter
    """The uncommitted records exceed the limit of one commit: commit, then append again. Nothing is lost and
    the journal stays usable."""

    def __init__(self, pending: int, limit: int) -> None:
        super().__init__(f"{pending} bytes are uncommitted, and the limit is {limit}: commit first")


class RecordTooLarge(JournalError):  # noqa: N818  # it says what is the matter
    """The record exceeds the size limit. It was not appended, and the journal stays usable."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the record has {size} bytes, and the limit is {limit}")


class NotRetained(JournalError):  # noqa: N818  # it says what is the matter
    """The requested records are no longer kept."""

    def __init__(self, after: int, oldest: int) -> None:
        self.oldest = oldest
        """Number of the oldest readable record."""
        super().__init__(
            f"records after {after} were requested, and {oldest} is the oldest kept: begin with the history"
        )


class UnknownFormat(JournalError):  # noqa: N818  # it says what is the matter
    """The journal was written by a later version of this program."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"the journal has format {version}, and this program reads {known}: use a newer one")
