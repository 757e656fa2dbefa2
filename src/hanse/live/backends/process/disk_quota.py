"""Disk usage of tasks: those above their quota, and what to remove before the disk is full.

File systems have quotas for users, seldom for directories, and not everywhere. So this module measures the
files: after a change of the disk's free space, and in a thread, because a disk may hang. It counts files too:
a disk without a free inode is as full as one without a free byte.
"""

import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hanse.live.backends.process.output_files import Key
from hanse.live.disk_space import Room, room_of

LOOK_SECONDS: Final = 1.0
"""Time between two measurements of the disk."""
QUOTA_SHARE: Final = 4
"""Default quota of a task: one part in so many of the disk, of bytes and of files."""
FILES_MAX: Final = 1_000_000
"""Default quota of a task in files, where one part in ``QUOTA_SHARE`` is more or the file system does not
count files: a walk over so many takes seconds, and their removal as long."""
KEPT_BYTES: Final = 512 << 20
"""Free bytes that tasks may not use; more than brokers need to accept jobs, so that these are not refused."""
KEPT_FILES: Final = 16_384
"""Free inodes that tasks may not use, for the same reason: twice ``disk_space.LOW_FILES``."""
KEPT_SHARE: Final = 10
"""On a small disk one part in so many is enough."""
HELP_SHARE: Final = 8
"""A task is ended for its files only if they are one part in so many of the reserve: ending another would not
help."""
CHANGE_SHARE: Final = 500
"""The files are measured again when the usage has changed by one part in so many of the disk, or"""
CHANGE_QUOTA_SHARE: Final = 8
"""by one part in so many of the quota, which may be small on a large disk."""
UNCOUNTED_SECONDS: Final = 60.0
"""Period of measurements where the file system does not count files, for any free space."""
BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks`` in every file system."""


class Taken(NamedTuple):
    """Disk usage of an attempt."""

    bytes: int
    files: int


class Offender(NamedTuple):
    """An attempt that must end, and the reason."""

    key: Key
    why: str


class Crowding(NamedTuple):
    """Shortage of the reserve that tasks may not use."""

    bytes: int = 0
    files: int = 0


class DiskWatch:
    """Monitor of the disk under one runner's tasks.

    ``quota`` limits the bytes of one task's files, and ``files_quota`` their number; 0: one part in
    ``QUOTA_SHARE`` of the disk, and of files at most ``FILES_MAX``. Output counts as files of the task. The
    lower task number breaks ties.
    """

    def __init__(self, directory: Path, quota: int = 0, files_quota: int = 0) -> None:
        self._directory = directory
        self._quota = quota
        self._files_quota = files_quota
        self._used_before = Taken(0, 0)
        self._measured_at = float("-inf")
        self.room: Room | None = None
        """The disk as of the latest measurement; None: there was none."""

    def look(self) -> Crowding:
        """Measure the disk and return the shortage of the reserve. Blocks as long as the disk does."""
        self.room = room = room_of(self._directory)
        kept = _kept(room)
        return Crowding(max(kept.bytes - room.bytes_free, 0), max(kept.files - room.files_free, 0))

    def offenders(self, running: Collection[Key], missing: Crowding) -> list[Offender]:
        """Return the running attempts that must end now: all above their quota, or else the largest user of
        what is short. Call after ``measure_shortage``; blocks in the same way."""
        room = self.room
        assert room is not None, "evictions are chosen after a measurement"
        quota, files_quota = self._quotas(room)
        if not any(missing) and not self._has_changed(room, quota, files_quota):
            return []
        sizes = {key: self._taken(key, files_quota) for key in sorted(running)}
        over = []
        for key, size in sizes.items():
            if size.bytes > quota:
                why = f"its files took {size.bytes} bytes, and the limit of a task is {quota}"
                over.append(Offender(key, why))
            elif size.files > files_quota:
                over.append(Offender(key, f"it made more files than {files_quota}, the limit of a task"))
        if over or not sizes or not any(missing):
            return over
        return self._largest(sizes, room, missing)

    def _largest(self, sizes: dict[Key, Taken], room: Room, missing: Crowding) -> list[Offender]:
        """Return the attempt with most of what is short, if its end would help."""
        kept = _kept(room)
        if missing.files:
            largest = min(sizes, key=lambda key: (-sizes[key].files, key))
            if sizes[largest].files * HELP_SHARE >= kept.files:
                why = f"the disk had nearly no inodes left, and it had the most files: {sizes[largest].files}"
                return [Offender(largest, why)]
        if missing.bytes:
            nameless = unlinked_bytes(self._directory, sizes)
            taken = {key: size.bytes + nameless.get(key, 0) for key, size in sizes.items()}
            largest = min(taken, key=lambda key: (-taken[key], key))
            if taken[largest] * HELP_SHARE >= kept.bytes:
                why = f"the disk was nearly full, and its files took the most: {taken[largest]} bytes"
                return [Offender(largest, why)]
        return []

    def _quotas(self, room: Room) -> Taken:
        usual = min(FILES_MAX, room.files_total // QUOTA_SHARE) if room.files_total else FILES_MAX
        return Taken(self._quota or room.bytes_total // QUOTA_SHARE, self._files_quota or usual)

    def _has_changed(self, room: Room, quota: int, files_quota: int) -> bool:
        """True if the files must be measured again; if so, records that as done."""
        used = Taken(room.bytes_total - room.bytes_free, room.files_total - room.files_free)
        before, now = self._used_before, time.monotonic()
        step = min(room.bytes_total // CHANGE_SHARE, quota // CHANGE_QUOTA_SHARE)
        changed = abs(used.bytes - before.bytes) >= step
        if room.files_total:
            step = min(room.files_total // CHANGE_SHARE, files_quota // CHANGE_QUOTA_SHARE)
            changed = changed or abs(used.files - before.files) >= step
        else:
            changed = changed or now - self._measured_at >= UNCOUNTED_SECONDS
        if changed:
            self._used_before, self._measured_at = used, now
        return changed

    def _taken(self, key: Key, files_max: int) -> Taken:
        name = f"{key[0]}.{key[1]}"
        found = tree_taken(self._directory / "work" / name, files_max)
        outputs = [self._directory / "output" / f"{name}.{stream}" for stream in ("stdout", "stderr")]
        written = [size for size in map(file_bytes, outputs) if size is not None]
        return Taken(found.bytes + sum(written), found.files + len(written))


def _kept(room: Room) -> Taken:
    """Return the reserve that tasks may not use."""
    files = min(KEPT_FILES, room.files_total // KEPT_SHARE)
    return Taken(min(KEPT_BYTES, room.bytes_total // KEPT_SHARE), files)


def file_bytes(path: Path) -> int | None:
    """Return the disk usage of a file in bytes; None: it does not exist."""
    try:
        return path.lstat().st_blocks * BLOCK_BYTES
    except OSError:
        return None


def tree_taken(directory: Path, files_max: int = FILES_MAX) -> Taken:
    """Return the usage below a directory, in bytes on the disk and in files. Links are not followed, and
    vanished files do not count. Above ``files_max`` files the walk ends and returns one file more than that:
    a sign of too many files, whose bytes are not all counted."""
    taken = entries = 0
    waiting = [os.fspath(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    facts = entry.stat(follow_symlinks=False)
                    taken += facts.st_blocks * BLOCK_BYTES
                    entries += 1
                    if entries > files_max:
                        return Taken(taken, entries)
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue
    return Taken(taken, entries)


def unlinked_bytes(directory: Path, running: Collection[Key]) -> dict[Key, int]:
    """Return the bytes of files that attempts keep open without a name, which no walk finds.

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
    """Return the attempt whose supervisor is an ancestor of a process."""
    seen = 0
    while pid > 1 and seen < len(parents):
        if pid in owners:
            return owners[pid]
        pid, seen = parents.get(pid, 0), seen + 1
    return None


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process of this machine and its parent."""
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
