"""Room that the files of tasks take: who has more than its quota, and who must end before the disk is full.

File systems have quotas for users, seldom for directories, and not everywhere. So the files are measured:
when the room on the disk has changed, and in a thread, because a disk may hang.
"""

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hanse.live.backends.outputs import Key

LOOK_SECONDS: Final = 1.0
"""Time between two looks at the disk while tasks run."""
QUOTA_SHARE: Final = 4
"""The usual quota of a task: one part in so many of the disk."""
KEPT_BYTES: Final = 512 << 20
"""Free room that tasks may not use; more than brokers need to take jobs, so that these are not refused."""
KEPT_SHARE: Final = 10
"""On a small disk one part in so many is enough."""
HELP_SHARE: Final = 8
"""A task is ended for its files only if they are one part in so many of the room to be kept: ending another
would not help."""
CHANGE_SHARE: Final = 500
"""The files are measured again when the room has changed by one part in so many of the disk."""
ENTRIES_MAX: Final = 100_000
"""Files of one task that are measured at most; the rest is not counted."""
BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, whatever the file system."""


class Offender(NamedTuple):
    """An attempt that must end, and why."""

    key: Key
    why: str


class DiskWatch:
    """The disk under one runner's work directories.

    ``quota`` is what the files of one task may take, in bytes; 0: one part in ``QUOTA_SHARE`` of the disk.
    Ties are broken by the lower task number.
    """

    def __init__(self, directory: Path, quota: int = 0) -> None:
        self._directory = directory
        self._quota = quota
        self._used_before = 0

    def look(self, running: Collection[Key]) -> list[Offender]:
        """Who must end now, of the attempts that run. Blocks as long as the disk does."""
        facts = os.statvfs(self._directory)
        total, free = facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
        kept = min(KEPT_BYTES, total // KEPT_SHARE)
        crowded = free < kept
        used = total - free
        if not crowded and abs(used - self._used_before) < total // CHANGE_SHARE:
            return []
        self._used_before = used
        sizes = {key: tree_bytes(self._directory / "work" / f"{key[0]}.{key[1]}") for key in running}
        quota = self._quota or total // QUOTA_SHARE
        over = [
            Offender(key, f"its files took {sizes[key]} bytes, and {quota} is the most for one task")
            for key in sorted(sizes)
            if sizes[key] > quota
        ]
        if over or not crowded or not sizes:
            return over
        for key, size in unlinked_bytes(self._directory, sizes).items():
            sizes[key] += size
        largest = min(sizes, key=lambda key: (-sizes[key], key))
        if sizes[largest] * HELP_SHARE < kept:
            return []
        why = f"the disk was nearly full, and its files took the most: {sizes[largest]} bytes"
        return [Offender(largest, why)]


def tree_bytes(directory: Path) -> int:
    """What the files below a directory take on the disk. Links are not followed, and what vanishes meanwhile
    takes nothing."""
    taken = entries = 0
    waiting = [os.fspath(directory)]
    while waiting and entries < ENTRIES_MAX:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    facts = entry.stat(follow_symlinks=False)
                    taken += facts.st_blocks * BLOCK_BYTES
                    entries += 1
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue
    return taken


def unlinked_bytes(directory: Path, running: Collection[Key]) -> dict[Key, int]:
    """What files take that attempts keep open and have no name any more, so that no walk finds them.

    A process belongs to the supervisor that is its ancestor, and a supervisor to the record that it has open.
    """
    device = directory.stat().st_dev
    records = f"{directory}/records/"
    parents = dict(_parents())
    names = {f"{records}{task}.{attempt}": (task, attempt) for task, attempt in running}
    owners: dict[int, Key] = {}
    for pid in parents:
        for link in _open_files(pid):
            if (key := names.get(link)) is not None:
                owners[pid] = key
    taken: dict[tuple[Key, int], int] = {}
    for pid in parents:
        key = _owner(pid, parents, owners)
        if key is None or pid in owners:
            continue
        for path in _descriptors(pid):
            try:
                facts = path.stat()
            except OSError:
                continue
            if facts.st_nlink == 0 and facts.st_dev == device and stat.S_ISREG(facts.st_mode):
                taken[key, facts.st_ino] = facts.st_blocks * BLOCK_BYTES
    sums: dict[Key, int] = {}
    for (key, _), size in taken.items():
        sums[key] = sums.get(key, 0) + size
    return sums


def _owner(pid: int, parents: dict[int, int], owners: dict[int, Key]) -> Key | None:
    """The attempt whose supervisor is an ancestor of a process."""
    seen = 0
    while pid > 1 and seen < len(parents):
        if pid in owners:
            return owners[pid]
        pid, seen = parents.get(pid, 0), seen + 1
    return None


def _parents() -> Iterator[tuple[int, int]]:
    """Each process of this machine and its parent."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            yield int(path.name), int(fields[1])


def _descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []


def _open_files(pid: int) -> Iterator[str]:
    for path in _descriptors(pid):
        try:
            yield str(path.readlink())
        except OSError:
            continue
