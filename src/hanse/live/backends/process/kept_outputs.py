"""Output files of forgotten attempts: which are kept, and which are dropped for younger ones."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from hanse.model.ids import TaskId

AttemptId = tuple[TaskId, int]

_NOTE: Final = Struct("=qq")


class KeptOutputs:
    """Register of the outputs of forgotten attempts, and of those to drop: the oldest first."""

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self._bytes_max_initial = self._bytes_max = bytes_max
        self._count_max = count_max
        self._bytes = 0
        self._kept: dict[AttemptId, int] = {}
        self._dropped: dict[AttemptId, None] = {}
        """The latest dropped outputs, at most ``count_max``: readers get that as an answer."""

    def __contains__(self, key: AttemptId) -> bool:
        return key in self._kept

    def was_dropped(self, key: AttemptId) -> bool:
        """True if there was such an output, and it was dropped."""
        return key in self._dropped

    def note_dropped(self, key: AttemptId) -> None:
        """Remember that an output was dropped."""
        self._dropped[key] = None
        if len(self._dropped) > self._count_max:
            del self._dropped[next(iter(self._dropped))]

    def add(self, key: AttemptId, size: int) -> list[AttemptId]:
        """Keep one more; return those to drop for it."""
        self._bytes += size - self._kept.pop(key, 0)
        self._kept[key] = size
        return self._shrink()

    def set_bytes_max(self, bytes_max: int) -> list[AttemptId]:
        """Keep at most this many bytes from now on, and never more than at first; return those to drop."""
        self._bytes_max = min(self._bytes_max_initial, bytes_max)
        return self._shrink()

    def free_space(self, size: int, files: int) -> dict[AttemptId, int]:
        """Give up outputs until so many bytes and files are free, the oldest first; those without any byte
        have no file, and stay. Return those to drop, with the bytes of each."""
        dropped: dict[AttemptId, int] = {}
        freed = 0
        for key, kept_size in self._kept.items():
            if freed >= size and len(dropped) >= files:
                break
            if kept_size:
                dropped[key] = kept_size
                freed += kept_size
        for key in dropped:
            self._bytes -= self._kept.pop(key)
            self.note_dropped(key)
        return dropped

    def _shrink(self) -> list[AttemptId]:
        dropped = []
        while len(self._kept) > self._count_max or self._bytes > self._bytes_max:
            oldest = next(iter(self._kept))
            size = self._kept.pop(oldest)
            self._bytes -= size
            dropped.append(oldest)
            if size:
                self.note_dropped(oldest)
        return dropped

    def load(self, directory: Path, is_excluded: Callable[[AttemptId], bool]) -> list[AttemptId]:
        """Register the outputs in a directory, oldest first, except those of attempts not yet forgotten.

        Attempts that wrote nothing count as older than the others: they have nothing to lose.
        """
        dropped = []
        for key_silent in _read_silent(directory):
            if not is_excluded(key_silent):
                dropped += self.add(key_silent, 0)
        sizes: dict[AttemptId, int] = {}
        ages: dict[AttemptId, int] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                key = _parse_name(entry.name)
                if key is None or is_excluded(key):
                    continue
                status = entry.stat(follow_symlinks=False)
                sizes[key] = sizes.get(key, 0) + status.st_size
                ages[key] = max(ages.get(key, 0), status.st_mtime_ns)
        for key in sorted(sizes, key=lambda each: (ages[each], each)):
            dropped += self.add(key, sizes[key])
        return dropped


def _read_silent(directory: Path) -> Iterator[AttemptId]:
    """Yield forgotten attempts that wrote nothing, from the launcher's notes; a torn last note is ignored."""
    for name in ("silent.old", "silent"):
        try:
            notes = (directory / name).read_bytes()
        except FileNotFoundError:
            continue
        whole = notes[: len(notes) // _NOTE.size * _NOTE.size]
        for task, attempt in _NOTE.iter_unpack(whole):
            yield TaskId(task), attempt


def _parse_name(name: str) -> AttemptId | None:
    task, _, rest = name.partition(".")
    attempt, _, stream = rest.partition(".")
    if not (task.isdecimal() and attempt.isdecimal() and stream in ("stdout", "stderr")):
        return None
    return TaskId(int(task)), int(attempt)
