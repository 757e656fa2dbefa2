"""What can go wrong with a journal, each with what to do next.

Exceptions and not values: whoever opens or writes a journal cannot go on without it.
"""

import shlex
from pathlib import Path


class JournalError(Exception):
    """Any trouble with a journal. After one from ``append`` or ``commit`` the journal refuses everything;
    only ``JournalBehind``, ``JournalFull`` and ``RecordTooLarge`` leave it usable."""


def repair_command(directory: Path) -> str:
    """What mends the journal in a member's directory."""
    member = directory.absolute().parent
    return f"hanse journal repair {member.name} --home {shlex.quote(str(member.parent))}"


class CorruptJournal(JournalError):  # noqa: N818  # it says what is the matter
    """What is on disk is not what was written, and no crash can explain it. Nothing was changed."""

    def __init__(self, file: Path, offset: int, good: tuple[int, int], what: str, advice: str = "") -> None:
        self.file = file
        """Where the first problem is."""
        self.offset = offset
        """Byte offset in that file."""
        self.first_good, self.last_good = good
        """Record numbers that can be read before the problem; an empty range when the second is smaller."""
        self.what = what
        self.advice = advice or (
            "Keep the files, find out what happened to the disk, then run "
            f"'{repair_command(file if file.is_dir() else file.parent)}': it moves the damaged files aside "
            "and says which records are lost."
        )
        readable = (
            f"records {self.first_good} to {self.last_good} before it are good"
            if self.last_good >= self.first_good
            else "no record before it is readable"
        )
        super().__init__(f"{file} at byte {offset}: {what}; {readable}. {self.advice}")


class JournalInUse(JournalError):  # noqa: N818  # it says what is the matter
    """Another process has the journal open. Two writers would destroy it."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        self.pid = pid
        """Who holds it; None when its holder has not said."""
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"the journal in {directory} is in use by {holder}; stop that one first")


class JournalFull(JournalError):  # noqa: N818  # it says what is the matter
    """The disk is full. Nothing that was not acknowledged before is durable; an open journal keeps what was
    appended, and writes it with a later commit."""

    def __init__(self, directory: Path, needed: int) -> None:
        self.needed = needed
        """Bytes that must be free at least before it is worth trying again."""
        super().__init__(f"no room for the journal in {directory}: free at least {needed} bytes")


class JournalBehind(JournalError):  # noqa: N818  # it says what is the matter
    """More has been appended than one commit may hold: commit, then append again. Nothing is lost and the
    journal stays usable."""

    def __init__(self, pending: int, limit: int) -> None:
        super().__init__(f"{pending} bytes wait for a commit and at most {limit} may: commit first")


class RecordTooLarge(JournalError):  # noqa: N818  # it says what is the matter
    """A record beyond what the journal takes. It was not appended, and the journal stays usable."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a record of {size} bytes; the largest the journal takes has {limit}")


class NotRetained(JournalError):  # noqa: N818  # it says what is the matter
    """A reader wants records that are no longer kept."""

    def __init__(self, after: int, oldest: int) -> None:
        self.oldest = oldest
        """Number of the oldest record that can be read."""
        super().__init__(
            f"records after {after} were asked for and {oldest} is the oldest kept: start from the history"
        )


class UnknownFormat(JournalError):  # noqa: N818  # it says what is the matter
    """The journal was written by a later version of this program."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"the journal has format {version}, and this program reads {known}: use a newer one")
