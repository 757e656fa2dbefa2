"""Files of a journal in its directory: their names, and a list of those that are there."""

import re
from pathlib import Path

import msgspec

IDENTITY_NAME = "journal"


REPAIRING_NAME = "repairing"
"""Directory in which a repair prepares its files; it exists only during a repair."""


_SEGMENT_NAME = re.compile(r"(\d{20})\.seg")


_SNAPSHOT_NAME = re.compile(r"(\d{20})\.snap")


def segment_name(first: int) -> str:
    """Return the file name of the segment that begins with a record."""
    return f"{first:020d}.seg"


def snapshot_name(position: int) -> str:
    """Return the file name of the snapshot of the state after a record."""
    return f"{position:020d}.snap"


class JournalFiles(msgspec.Struct, frozen=True):
    """Files of a journal, each kind in the order of numbers."""

    segments: list[tuple[int, Path]]
    snapshots: list[tuple[int, Path]]
    temporary: list[Path]
    """Files that were never finished."""


def list_files(directory: Path) -> JournalFiles:
    """List the files of a journal. Files with other names are ignored."""
    found = JournalFiles([], [], [])
    for path in sorted(directory.iterdir()):
        if match := _SEGMENT_NAME.fullmatch(path.name):
            found.segments.append((int(match[1]), path))
        elif match := _SNAPSHOT_NAME.fullmatch(path.name):
            found.snapshots.append((int(match[1]), path))
        elif path.name.endswith((".snap.tmp", ".seg.tmp", f"{IDENTITY_NAME}.tmp")):
            found.temporary.append(path)
    return found
