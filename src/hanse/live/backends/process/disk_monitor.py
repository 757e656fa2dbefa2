"""Monitor of the tasks' disk usage: those above their quota, and what to remove before the disk is full.

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

from hanse.live.backends.process.kept_outputs import AttemptId
from hanse.live.disk_space import FilesystemSpace, read_filesystem_space

MEASURE_SECONDS: Final = 1.0
"""Time between two measurements of the disk."""
QUOTA_SHARE: Final = 4
"""Default quota of a task: one part in so many of the disk, of bytes and of files."""
FILES_MAX: Final = 1_000_000
"""Default quota of a task in files, where one part in ``QUOTA_SHARE`` is more or the file system does not
count files: a walk over so many takes seconds, and their removal as long."""
RESERVED_BYTES: Final = 512 << 20
"""Free bytes that tasks may not use; more than brokers need to accept jobs, so that these are not refused."""
RESERVED_FILES: Final = 16_384
"""Free inodes that tasks may not use, for the same reason: twice ``disk_space.LOW_FILES``."""
RESERVED_SHARE: Final = 10
"""On a small disk one part in so many is enough."""
EVICTION_SHARE: Final = 8
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


class DiskUsage(NamedTuple):
    """Disk usage of an attempt."""

    bytes: int
    files: int


class Eviction(NamedTuple):
    """An attempt that must end, and the reason."""

    key: AttemptId
    reason: str


class DiskShortage(NamedTuple):
    """Shortage of the reserve that tasks may not use."""

    bytes: int = 0
    files: int = 0


class DiskMonitor:
    """Monitor of the disk under one runner's tasks.

    ``quota`` limits the bytes of one task's files, and ``files_quota`` their number; 0: one part in
    ``QUOTA_SHARE`` of the disk, and of files at most ``FILES_MAX``. Output counts as files of the task. The
    lower task number breaks ties.
    """

    def __init__(self, directory: Path, quota: int = 0, files_quota: int = 0) -> None:
        self._directory = directory
        self._quota = quota
        self._files_quota = files_quota
        self._used_before = DiskUsage(0, 0)
        self._measured_at = float("-inf")
        self.disk_space: FilesystemSpace | None = None
        """The disk as of the latest measurement; None: there was none."""

    def measure_shortage(self) -> DiskShortage:
        """Measure the disk and return the shortage of the reserve. Blocks as long as the disk does."""
        self.disk_space = space = read_filesystem_space(self._directory)
        reserved = _reserved_usage(space)
        return DiskShortage(
            max(reserved.bytes - space.bytes_free, 0), max(reserved.files - space.files_free, 0)
        )

    def find_evictions(self, running: Collection[AttemptId], shortage: DiskShortage) -> list[Eviction]:
        """Return the running attempts that must end now: all above their quota, or else the largest user of
        what is short. Call after ``measure_shortage``; blocks in the same way."""
        space = self.disk_space
        assert space is not None, "evictions are chosen after a measurement"
        quota, files_quota = self._quotas(space)
        if not any(shortage) and not self._has_changed(space, quota, files_quota):
            return []
        usages = {key: self._measure_usage(key, files_quota) for key in sorted(running)}
        evictions = []
        for key, usage in usages.items():
            if usage.bytes > quota:
                reason = f"its files took {usage.bytes} bytes, and the limit of a task is {quota}"
                evictions.append(Eviction(key, reason))
            elif usage.files > files_quota:
                evictions.append(Eviction(key, f"it made more files than {files_quota}, the limit of a task"))
        if evictions or not usages or not any(shortage):
            return evictions
        return self._evict_largest(usages, space, shortage)

    def _evict_largest(
        self, usages: dict[AttemptId, DiskUsage], space: FilesystemSpace, shortage: DiskShortage
    ) -> list[Eviction]:
        """Return the attempt with most of what is short, if its end would help."""
        reserved = _reserved_usage(space)
        if shortage.files:
            largest = min(usages, key=lambda key: (-usages[key].files, key))
            if usages[largest].files * EVICTION_SHARE >= reserved.files:
                reason = (
                    f"the disk had nearly no inodes left, and it had the most files: {usages[largest].files}"
                )
                return [Eviction(largest, reason)]
        if shortage.bytes:
            unlinked = unlinked_bytes(self._directory, usages)
            totals = {key: usage.bytes + unlinked.get(key, 0) for key, usage in usages.items()}
            largest = min(totals, key=lambda key: (-totals[key], key))
            if totals[largest] * EVICTION_SHARE >= reserved.bytes:
                reason = f"the disk was nearly full, and its files took the most: {totals[largest]} bytes"
                return [Eviction(largest, reason)]
        return []

    def _quotas(self, space: FilesystemSpace) -> DiskUsage:
        files_default = min(FILES_MAX, space.files_total // QUOTA_SHARE) if space.files_total else FILES_MAX
        return DiskUsage(self._quota or space.bytes_total // QUOTA_SHARE, self._files_quota or files_default)

    def _has_changed(self, space: FilesystemSpace, quota: int, files_quota: int) -> bool:
        """True if the files must be measured again; if so, records that as done."""
        used = DiskUsage(space.bytes_total - space.bytes_free, space.files_total - space.files_free)
        before, now = self._used_before, time.monotonic()
        step = min(space.bytes_total // CHANGE_SHARE, quota // CHANGE_QUOTA_SHARE)
        changed = abs(used.bytes - before.bytes) >= step
        if space.files_total:
            step = min(space.files_total // CHANGE_SHARE, files_quota // CHANGE_QUOTA_SHARE)
            changed = changed or abs(used.files - before.files) >= step
        else:
            changed = changed or now - self._measured_at >= UNCOUNTED_SECONDS
        if changed:
            self._used_before, self._measured_at = used, now
        return changed

    def _measure_usage(self, key: AttemptId, files_max: int) -> DiskUsage:
        name = f"{key[0]}.{key[1]}"
        tree = tree_usage(self._directory / "work" / name, files_max)
        outputs = [self._directory / "output" / f"{name}.{stream}" for stream in ("stdout", "stderr")]
        written = [size for size in map(file_bytes, outputs) if size is not None]
        return DiskUsage(tree.bytes + sum(written), tree.files + len(written))


def _reserved_usage(space: FilesystemSpace) -> DiskUsage:
    """Return the reserve that tasks may not use."""
    files = min(RESERVED_FILES, space.files_total // RESERVED_SHARE)
    return DiskUsage(min(RESERVED_BYTES, space.bytes_total // RESERVED_SHARE), files)


def file_bytes(path: Path) -> int | None:
    """Return the disk usage of a file in bytes; None: it does not exist."""
    try:
        return path.lstat().st_blocks * BLOCK_BYTES
    except OSError:
        return None


def tree_usage(directory: Path, files_max: int = FILES_MAX) -> DiskUsage:
    """Return the usage below a directory, in bytes on the disk and in files. Links are not followed, and
    vanished files do not count. Above ``files_max`` files the walk ends and returns one file more than that:
    a sign of too many files, whose bytes are not all counted."""
    total = entries = 0
    waiting = [os.fspath(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_blocks * BLOCK_BYTES
                    entries += 1
                    if entries > files_max:
                        return DiskUsage(total, entries)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue
    return DiskUsage(total, entries)


def unlinked_bytes(directory: Path, running: Collection[AttemptId]) -> dict[AttemptId, int]:
    """Return the bytes of files that attempts keep open without a name, which no walk finds.

    A process belongs to the supervisor that is its ancestor, and a supervisor to the record that it has open.
    """
    device = directory.stat().st_dev
    records = f"{directory}/records/"
    parents = dict(_list_parents())
    names = {f"{records}{task}.{attempt}": (task, attempt) for task, attempt in running}
    owners: dict[int, AttemptId] = {}
    for pid in parents:
        for link in _list_open_files(pid):
            if (key := names.get(link)) is not None:
                owners[pid] = key
    sizes: dict[tuple[AttemptId, int], int] = {}
    for pid in parents:
        key = _find_owner(pid, parents, owners)
        if key is None or pid in owners:
            continue
        for path in _list_descriptors(pid):
            try:
                status = path.stat()
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
                sizes[key, status.st_ino] = status.st_blocks * BLOCK_BYTES
    sums: dict[AttemptId, int] = {}
    for (key, _), size in sizes.items():
        sums[key] = sums.get(key, 0) + size
    return sums


def _find_owner(pid: int, parents: dict[int, int], owners: dict[int, AttemptId]) -> AttemptId | None:
    """Return the attempt whose supervisor is an ancestor of a process."""
    steps = 0
    while pid > 1 and steps < len(parents):
        if pid in owners:
            return owners[pid]
        pid, steps = parents.get(pid, 0), steps + 1
    return None


def _list_parents() -> Iterator[tuple[int, int]]:
    """Yield each process of this machine and its parent."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            yield int(path.name), int(fields[1])


def _list_descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []


def _list_open_files(pid: int) -> Iterator[str]:
    for path in _list_descriptors(pid):
        try:
            yield str(path.readlink())
        except OSError:
            continue
