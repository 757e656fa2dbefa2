"""Check that no other user can change a league's home: its league file and keys control the members.

Before anything is started: the home, our files in it, and the directories above it belong to us or to root,
and no other user may write them. A sticky directory above, such as ``/tmp``, is allowed. The same holds for
the files that a runner keeps of its tasks (records, output, state of watchdogs, locks), also where a backend
keeps them elsewhere. The working directories of tasks are not checked, because they belong to the users of
the tasks; nor is what the account of a Slurm backend writes in the shared directory.
"""

import grp
import itertools
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hanse.security.home import AUTHORITY, PEOPLE, Home

if TYPE_CHECKING:
    from hanse.live.config.league import BackendEntry, League

SAFE_UMASK: Final = 0o022
"""Mask that lets no other user write our files."""
_JOURNAL: Final = "journal"
_TASKS: Final = "tasks"
"""Directory of a runner's tasks, in its member's directory or elsewhere (``backends.factory``)."""
_LISTED: Final = ("records", "output")
"""Directories with a file for each attempt. Of working directories only the outermost is checked."""
_SHARED: Final = "shared"
_ACCOUNTS: Final = ("records", "output", "keys")
"""Directories that the account of the tasks owns in a shared directory of Slurm."""
_HOME_CURE: Final = "use another --home"
_ACCESS_LIST: Final = "system.posix_acl_access"
_ALL_USERS: Final = ["0", "0", "4294967295"]
"""Fields of ``uid_map`` of a process that sees the real id of every user."""


def tighten_umask() -> None:
    """Make all files of this process unwritable for others, whatever umask it was started with."""
    os.umask(os.umask(SAFE_UMASK) | SAFE_UMASK)


def home_problem(home: Home, member: str | None = None) -> str | None:
    """Return who else could change this home, and the remedy, as sentences; None: nobody.

    ``member``: the only one whose directory is checked; None: all members.
    """
    return _first_problem(_above(home.path), _ours(home, member), _HOME_CURE)


def elsewhere_problem(league: "League", member: str | None = None) -> str | None:
    """Return the same for the directories of backends outside of the home.

    ``member``: the warden or runner whose tasks are checked; None: every warden.
    """
    for entry in league.serving_clusters:
        if member not in (None, entry.name, *(runner.name for runner in entry.runners)):
            continue
        backend = entry.backend
        for option, place, inside in _elsewhere(backend, entry.name, member or entry.name):
            cure = f"name another {option} in the league file"
            problem = _first_problem(_above(place), itertools.chain([place], inside), cure)
            if problem is not None:
                return problem
    return None


def _elsewhere(
    backend: "BackendEntry", cluster: str, member: str
) -> Iterator[tuple[str, Path, Iterator[Path]]]:
    """Yield the option that names a directory, the runner's part of it, and our paths in there."""
    if backend.directory:
        place = Path(backend.directory) / member
        yield "'directory'", place, _kept(place / _TASKS)
    if backend.slurm.shared_dir:
        shared = Path(backend.slurm.shared_dir) / cluster
        yield "'shared_dir'", shared, _shared(shared)


def _first_problem(above: Iterable[Path], ours: Iterable[Path], cure: str) -> str | None:
    """Return the problem of the first path that another user could change."""
    try:
        for path in above:
            problem = _problem(path, above=True, cure=cure)
            if problem is not None:
                return problem
        for path in ours:
            problem = _problem(path, above=False, cure=cure)
            if problem is not None:
                return problem
    except PermissionError as error:
        return (
            f"{error.filename} cannot be checked by {_user(os.geteuid())}: {error.strerror}; do this "
            f"as the user whose home it is, or {cure}"
        )
    return None


def _above(path: Path) -> list[Path]:
    """Return the directories above a path, by its name and by its target, from the root downwards."""
    ways = (path.absolute(), path.resolve())
    return list(dict.fromkeys(step for way in ways for step in reversed(way.parents)))


def _ours(home: Home, member: str | None) -> Iterator[Path]:
    """Yield the home and our paths in it: all but the files of tasks."""
    yield home.path
    for entry in _entries(home.path):
        yield entry
        shared = entry.name in (PEOPLE, AUTHORITY)
        if not entry.is_dir() or not (shared or member in (None, entry.name)):
            continue
        for inner in _entries(entry):
            if inner.name == _TASKS and not shared:
                yield from _kept(inner)
                continue
            yield inner
            if shared or inner.name == _JOURNAL:
                yield from _entries(inner)


def _kept(tasks: Path) -> Iterator[Path]:
    """Yield the paths that a runner keeps of its tasks: the directory, its entries, files of attempts."""
    yield tasks
    for entry in _entries(tasks):
        yield entry
        if entry.name in _LISTED:
            yield from _entries(entry)
        elif entry.name == _SHARED:
            yield from _shared(entry)


def _shared(directory: Path) -> Iterator[Path]:
    """Yield our paths in a shared directory of Slurm: the orders, the lease, the runner's name."""
    for entry in _entries(directory):
        if entry.name not in _ACCOUNTS:
            yield entry
            yield from _entries(entry)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _problem(path: Path, above: bool, cure: str) -> str | None:
    """Return the problem of one path, and the remedy; None: no problem. A symbolic link is checked with its
    target and with the directories above that."""
    try:
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            if not _is_trusted(about.st_uid, above):
                return _foreign(path, about.st_uid, cure)
            if not above:
                steps = (_problem(step, True, cure) for step in _above(path))
                trouble = next((step for step in steps if step is not None), None)
                if trouble is not None:
                    return trouble
            about = path.stat()
    except FileNotFoundError:
        return None  # not made yet, or removed meanwhile
    if not _is_trusted(about.st_uid, above):
        return _foreign(path, about.st_uid, cure)
    if above and about.st_mode & stat.S_ISVTX:
        return None
    if about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and not _is_alone(path, about)):
        return (
            f"others may write {path} and so change what the league does; close it with "
            f"'chmod go-w {shlex.quote(str(path))}', or {cure}"
        )
    return None


def _foreign(path: Path, owner: int, cure: str) -> str:
    own = _user(os.geteuid())
    return (
        f"{path} belongs to {_user(owner)}, who could change what the league does; you are {own}. If it is "
        f"yours, take it with 'chown {own} {shlex.quote(str(path))}'; if not, {cure}"
    )


def _is_trusted(owner: int, above: bool) -> bool:
    """True if this owner is allowed: ourselves, or root. Where users are indistinguishable, as in a
    container without privileges, directories above the home are left to the container's owner."""
    return owner in (0, os.geteuid()) or (above and owner == _unknown_user())


def _unknown_user() -> int | None:
    """Return the id that the kernel shows for users who cannot be seen here; None: all can be seen."""
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _ALL_USERS:
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def _is_alone(path: Path, about: os.stat_result) -> bool:
    """True if a file's group is private to its owner. With an access list the group's bits stand for all
    users in the list, so the answer is False."""
    try:
        owner, group = pwd.getpwuid(about.st_uid), grp.getgrgid(about.st_gid)
        listed = _ACCESS_LIST in os.listxattr(path)
    except (KeyError, OSError):
        return False
    own = owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name
    return own and not listed and set(group.gr_mem) <= {owner.pw_name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
