"""Files by which the kernel describes this machine, below a root that tests replace."""

from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 1 << 22
"""Bytes of a file that are read: ``/proc/cpuinfo`` of a thousand CPUs has about half of it."""
READ_BYTES: Final = 1 << 16
"""Bytes of one read: files below ``/proc/sys`` refuse large ones."""
ENTRIES_MAX: Final = 4_096
"""Entries of a directory that are listed."""


class HostFiles:
    """Files below ``root``. What is missing or closed reads as empty."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def read(self, path: str) -> str:
        """Return the text of a file without spaces around it; empty: it cannot be read."""
        try:
            with (self.root / path).open("rb", buffering=0) as file:
                data = b""
                while len(data) < FILE_BYTES_MAX and (piece := file.read(READ_BYTES)):
                    data += piece
        except OSError:
            return ""
        return data.decode("utf-8", "replace").strip("\0 \n\t")

    def read_number(self, path: str) -> int:
        """Return the number in a file; 0: it is missing, negative, or none."""
        text = self.read(path)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0

    def entries(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty: it cannot be read."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())[:ENTRIES_MAX]
        except OSError:
            return []

    def has(self, path: str) -> bool:
        """True if there is such a file or directory."""
        return (self.root / path).exists()


def numbered(names: list[str], prefix: str) -> list[int]:
    """Return the numbers of names that are this prefix and a number, in order."""
    rests = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return sorted(int(rest) for rest in rests if rest.isascii() and rest.isdecimal() and len(rest) < 10)
