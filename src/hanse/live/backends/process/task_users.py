"""User ids for jobs: under a root daemon each job's tasks run as a user id of their own.

So the kernel keeps tasks of different jobs apart: environment, memory, working directory, files and signals
of one user id are closed to another. Ids come from a range that no account has. Each runner of a machine
reserves a *block* of that range by a file in ``/var/lib/hanse-users``, which outlives the runner, because its
tasks do, and a boot, because their directories do. The runner of a block assigns each id once before it uses
any again. No file lists the ids in use: this module reads them from processes, owners of working directories,
and entries in directories that everybody may write to.
"""

import fcntl
import os
import pwd
import secrets
import signal
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from hanse.league.config import UserRange
from hanse.model.ids import JobId, TaskId, job_of
from hanse.security.atomic_files import PRIVATE, replace

PER_JOB: Final = "per-job"
"""The name of this choice, in place of an account."""
BLOCK_IDS_MAX: Final = 100_000
"""Ids of one runner; a smaller range has smaller blocks."""
BLOCKS_PER_RANGE: Final = 16
"""Blocks of a small range, so that it serves several runners of a machine."""
RESERVATIONS: Final = Path("/var/lib/hanse-users")
SHARED_DIRECTORIES: Final = tuple(Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"))  # noqa: S108  they are only scanned
"""Directories that any task may write to; only their direct entries are scanned."""
ENTRIES_MAX: Final = 100_000
"""Entries that are scanned in one such directory."""
_IPC_FILES: Final = tuple(Path("/proc/sysvipc") / name for name in ("shm", "sem", "msg"))
_ID_MAP_FILES: Final = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))
_PROC: Final = Path("/proc")
_SUBORDINATE_ID_FILES: Final = (Path("/etc/subuid"), Path("/etc/subgid"))

AttemptId = tuple[TaskId, int]


class UsersMissingError(OSError):
    """No user ids are available for jobs; the message gives the reason and the next step."""


class JobUserPool:
    """Pool of the user ids of one runner: one for each job with attempts here.

    ``directory`` belongs to the runner; its attempts have their working directories in ``work`` below it.
    """

    def __init__(self, users: UserRange, directory: Path, reservations: Path = RESERVATIONS) -> None:
        check_unused(users)
        self._block = reserve_block(users, directory, reservations)
        self._work = directory / "work"
        self._uid_of_attempt: dict[AttemptId, int] = {}
        self._attempt_counts: dict[int, int] = {}
        """Attempts of each id in use."""
        self._uid_of_job: dict[JobId, int] = {}
        self._excluded: frozenset[int] = frozenset()
        self._candidates: Iterator[int] = iter(())

    @property
    def used_count(self) -> int:
        """The number of ids in use."""
        return len(self._attempt_counts)

    def assign(self, key: AttemptId, uid: int) -> None:
        """Record the id of an attempt that was found alive."""
        if uid in self._block and key not in self._uid_of_attempt:
            self._uid_of_attempt[key] = uid
            self._attempt_counts[uid] = self._attempt_counts.get(uid, 0) + 1
            self._uid_of_job.setdefault(job_of(key[0]), uid)

    def rescan(self) -> None:
        """Prepare the ids for ``allocate``. Kill processes of the block that belong to no attempt."""
        self._excluded = self._find_leftovers() | self._attempt_counts.keys()
        start = self._block.start + secrets.randbelow(len(self._block))
        self._candidates = chain(range(start, self._block.stop), range(self._block.start, start))

    def allocate(self, key: AttemptId) -> int | None:
        """Return the id for an attempt, the same for all attempts of its job; None if all are in use."""
        job = job_of(key[0])
        uid = self._uid_of_job.get(job)
        if uid is None:
            uid = self._find_unused()
            if uid is None:
                return None
        self.assign(key, uid)
        return uid

    def release(self, key: AttemptId) -> None:
        """Release the id of a forgotten attempt. An id without attempts is used again after all others."""
        uid = self._uid_of_attempt.pop(key, None)
        if uid is None:
            return
        self._attempt_counts[uid] -= 1
        if self._attempt_counts[uid] == 0:
            del self._attempt_counts[uid]
            job = job_of(key[0])
            if self._uid_of_job.get(job) == uid:
                del self._uid_of_job[job]

    def _find_unused(self) -> int | None:
        if len(self._attempt_counts) >= len(self._block):
            return None
        for _ in range(2):
            for uid in self._candidates:
                if uid not in self._attempt_counts and uid not in self._excluded:
                    return uid
            self.rescan()  # all were used once: find those without leftovers
        return None

    def _find_leftovers(self) -> frozenset[int]:
        """Return the ids with leftovers, which must not be assigned. Kill such processes: an ended attempt
        has none, unless its supervisor and launcher were killed. Keep files and System V objects in shared
        directories: their removal frees the id."""
        owners = chain(_list_owners(self._work), *map(_list_owners, SHARED_DIRECTORIES), _list_ipc_owners())
        found = {uid for uid in owners if uid in self._block}
        for entry in _PROC.iterdir():
            if entry.name.isdecimal():
                uid = self._check_process(int(entry.name))
                if uid is not None:
                    found.add(uid)
        return frozenset(found)

    def _check_process(self, pid: int) -> int | None:
        """Return the id of a process if it is of this block; kill the process if no attempt has that id."""
        uid = uid_of(pid)
        if uid is None or uid not in self._block:
            return None
        if uid not in self._attempt_counts:
            try:
                handle = os.pidfd_open(pid)
            except OSError:  # it has ended
                return uid
            try:
                if uid_of(pid) == uid:  # it, and not another one with its number
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)
        return uid


def choose_user(configured: str, users: UserRange) -> str | UserRange:
    """Return the user of a root daemon's tasks: an id for each job, unless the league file names an account,
    or the machine (a container) lacks such ids and the file does not ask for them."""
    if configured == PER_JOB or (not configured and has_ids(users)):
        return users
    return configured or "nobody"


def has_ids(users: UserRange) -> bool:
    """True if this user namespace has these user and group ids; a container's may have few."""
    return all(has_range(path.read_text(encoding="ascii"), users) for path in _ID_MAP_FILES)


def has_range(id_map: str, users: UserRange) -> bool:
    """True if the text of an ``uid_map`` has a line that includes the whole range."""
    lines = [[int(word) for word in line.split()] for line in id_map.splitlines()]
    stop = users.first + users.count
    return any(inside <= users.first and stop <= inside + count for inside, _, count in lines)


def check_unused(users: UserRange) -> None:
    """Raise ``UsersMissingError`` if an account has one of these ids or may hand it on to containers, or if
    the ids do not exist here."""
    if users.problem:
        raise UsersMissingError(f"{users.problem}: change 'users' of the backend in the league file")
    last = users.first + users.count - 1
    advice = "choose others by 'users: {first: N, count: M}' of the backend, or one account by 'user: NAME'"
    if not has_ids(users):
        raise UsersMissingError(f"this container has no user ids {users.first} to {last}: {advice}")
    for account in pwd.getpwall():
        if users.first <= account.pw_uid <= last:
            raise UsersMissingError(f"the user ids for jobs include {account.pw_name}'s: {advice}")
    for path in _SUBORDINATE_ID_FILES:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split(":")
            if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal():
                first = int(fields[1])
                if first <= last and users.first < first + int(fields[2]):
                    raise UsersMissingError(f"the user ids for jobs overlap with {path} ({line}): {advice}")


def reserve_block(users: UserRange, directory: Path, reservations: Path = RESERVATIONS) -> range:
    """Return the block of ids of a runner: its present one, or the first that no existing runner has."""
    size = min(BLOCK_IDS_MAX, max(1, users.count // BLOCKS_PER_RANGE))
    try:
        reservations.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(reservations / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsersMissingError(
            f"no user ids for jobs can be reserved in {reservations} ({error.strerror}): let root write "
            f"there, "
            "or choose one account by 'user: NAME'"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holders = {path: _read_holder(path) for path in reservations.iterdir() if path.name != "lock"}
        taken = []
        for path, holder in holders.items():
            first, _, count = path.name.partition("-")
            if not (first.isdecimal() and count.isdecimal()):
                continue
            block = range(int(first), int(first) + int(count))
            if holder == directory and users.first <= block.start and block.stop <= users.first + users.count:
                return block
            if holder is not None and holder.exists():
                taken.append(block)
            else:
                path.unlink()
        for first_id in range(users.first, users.first + users.count - size + 1, size):
            block = range(first_id, first_id + size)
            if not any(block.start < other.stop and other.start < block.stop for other in taken):
                replace(reservations / f"{block.start}-{size}", os.fsencode(directory), PRIVATE)
                return block
    finally:
        os.close(lock)
    raise UsersMissingError(
        f"all {len(taken)} blocks of user ids for jobs belong to other runners of this machine "
        f"({reservations}): "
        "give the backend more by 'users: {first: N, count: M}', or one account by 'user: NAME'"
    )


def _read_holder(path: Path) -> Path | None:
    text = path.read_bytes()
    return Path(os.fsdecode(text)) if text else None


def _list_owners(directory: Path) -> Iterator[int]:
    """Yield the owners of the entries of a directory."""
    try:
        entries = os.scandir(directory)
    except OSError:  # not every machine has it
        return
    with entries:
        for entry in islice(entries, ENTRIES_MAX):
            try:
                yield entry.stat(follow_symlinks=False).st_uid
            except FileNotFoundError:  # just removed
                continue


def _list_ipc_owners() -> Iterator[int]:
    """Yield the owners and creators of the System V objects of this machine."""
    for path in _IPC_FILES:
        try:
            head, *lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):  # a kernel without them
            continue
        columns = [at for at, name in enumerate(head.split()) if name in ("uid", "cuid")]
        for line in lines:
            words = line.split()
            yield from (int(words[at]) for at in columns)


def uid_of(pid: int) -> int | None:
    """Return the user id of a process. The owner of its directory in ``/proc`` may differ: a process can
    close it."""
    try:
        text = (_PROC / str(pid) / "status").read_bytes()
    except OSError:  # it has ended
        return None
    _, found, behind = text.partition(b"\nUid:\t")
    return int(behind.split(None, 1)[0]) if found else None
