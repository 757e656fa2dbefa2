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
    from hanse.league.config import BackendEntry, LeagueConfig

SAFE_UMASK: Final = 0o022
"""Mask that lets no other user write our files."""
_JOURNAL: Final = "journal"
_TASKS: Final = "tasks"
"""Directory of a runner's tasks, in its member's directory or elsewhere (``backends.factory``)."""
_ATTEMPT_DIRECTORIES: Final = ("records", "output")
"""Directories with a file for each attempt. Of working directories only the outermost is checked."""
_SHARED: Final = "shared"
_TASK_ACCOUNT_DIRECTORIES: Final = ("records", "output", "keys")
"""Directories that the account of the tasks owns in a shared directory of Slurm."""
_HOME_REMEDY: Final = "use another --home"
_ACCESS_LIST: Final = "system.posix_acl_access"
_INITIAL_UID_MAP: Final = ["0", "0", "4294967295"]
"""Fields of ``uid_map`` of a process that sees the real id of every user."""


def tighten_umask() -> None:
    """Make all files of this process unwritable for others, whatever umask it was started with."""
    os.umask(os.umask(SAFE_UMASK) | SAFE_UMASK)


def home_problem(home: Home, member: str | None = None) -> str | None:
    """Return who else could change this home, and the remedy, as sentences; None: nobody.

    ``member``: the only one whose directory is checked; None: all members.
    """
    return _first_problem(_parent_directories(home.path), _home_paths(home, member), _HOME_REMEDY)


def backend_directory_problem(league: "LeagueConfig", member: str | None = None) -> str | None:
    """Return the same for the directories of backends outside of the home.

    ``member``: the warden or runner whose tasks are checked; None: every warden.
    """
    for entry in league.serving_clusters:
        if member not in (None, entry.name, *(runner.name for runner in entry.runners)):
            continue
        backend = entry.backend
        for option, place, inside in _backend_directories(backend, entry.name, member or entry.name):
            remedy = f"name another {option} in the league file"
            problem = _first_problem(_parent_directories(place), itertools.chain([place], inside), remedy)
            if problem is not None:
                return problem
    return None


def _backend_directories(
    backend: "BackendEntry", cluster: str, member: str
) -> Iterator[tuple[str, Path, Iterator[Path]]]:
    """Yield the option that names a directory, the runner's part of it, and our paths in there."""
    from hanse.league.backend_kinds import BACKENDS  # noqa: PLC0415  'hanse up' asks before it imports much

    if backend.directory:
        place = Path(backend.directory) / member
        yield "'directory'", place, _task_paths(place / _TASKS)
    for option, place in BACKENDS.get(backend.kind).directories(backend.settings, cluster):
        yield option, place, _shared_paths(place)


def _first_problem(parents: Iterable[Path], paths: Iterable[Path], remedy: str) -> str | None:
    """Return the problem of the first path that another user could change."""
    try:
        for path in parents:
            problem = _path_problem(path, is_parent=True, remedy=remedy)
            if problem is not None:
                return problem
        for path in paths:
            problem = _path_problem(path, is_parent=False, remedy=remedy)
            if problem is not None:
                return problem
    except PermissionError as error:
        return (
            f"{error.filename} cannot be checked by {_user_name(os.geteuid())}: {error.strerror}; do this "
            f"as the user whose home it is, or {remedy}"
        )
    return None


def _parent_directories(path: Path) -> list[Path]:
    """Return the directories above a path, by its name and by its target, from the root downwards."""
    ways = (path.absolute(), path.resolve())
    return list(dict.fromkeys(step for way in ways for step in reversed(way.parents)))


def _home_paths(home: Home, member: str | None) -> Iterator[Path]:
    """Yield the home and our paths in it: all but the files of tasks."""
    yield home.path
    for entry in _list_directory(home.path):
        yield entry
        shared = entry.name in (PEOPLE, AUTHORITY)
        if not entry.is_dir() or not (shared or member in (None, entry.name)):
            continue
        for inner in _list_directory(entry):
            if inner.name == _TASKS and not shared:
                yield from _task_paths(inner)
                continue
            yield inner
            if shared or inner.name == _JOURNAL:
                yield from _list_directory(inner)


def _task_paths(tasks: Path) -> Iterator[Path]:
    """Yield the paths that a runner keeps of its tasks: the directory, its entries, files of attempts."""
    yield tasks
    for entry in _list_directory(tasks):
        yield entry
        if entry.name in _ATTEMPT_DIRECTORIES:
            yield from _list_directory(entry)
        elif entry.name == _SHARED:
            yield from _shared_paths(entry)


def _shared_paths(directory: Path) -> Iterator[Path]:
    """Yield our paths in a shared directory of Slurm: the orders, the lease, the runner's name."""
    for entry in _list_directory(directory):
        if entry.name not in _TASK_ACCOUNT_DIRECTORIES:
            yield entry
            yield from _list_directory(entry)


def _list_directory(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _path_problem(path: Path, is_parent: bool, remedy: str) -> str | None:
    """Return the problem of one path, and the remedy; None: no problem. A symbolic link is checked with its
    target and with the directories above that."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            if not _is_trusted(status.st_uid, is_parent):
                return _owner_problem(path, status.st_uid, remedy)
            if not is_parent:
                steps = (_path_problem(step, True, remedy) for step in _parent_directories(path))
                problem = next((step for step in steps if step is not None), None)
                if problem is not None:
                    return problem
            status = path.stat()
    except FileNotFoundError:
        return None  # not made yet, or removed meanwhile
    if not _is_trusted(status.st_uid, is_parent):
        return _owner_problem(path, status.st_uid, remedy)
    if is_parent and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not _is_private_group(path, status)
    ):
        return (
            f"others may write {path} and so change what the league does; close it with "
            f"'chmod go-w {shlex.quote(str(path))}', or {remedy}"
        )
    return None


def _owner_problem(path: Path, owner: int, remedy: str) -> str:
    own = _user_name(os.geteuid())
    return (
        f"{path} belongs to {_user_name(owner)}, who could change what the league does; you are {own}. "
        f"If it is "
        f"yours, take it with 'chown {own} {shlex.quote(str(path))}'; if not, {remedy}"
    )


def _is_trusted(owner: int, is_parent: bool) -> bool:
    """True if this owner is allowed: ourselves, or root. Where users are indistinguishable, as in a
    container without privileges, directories above the home are left to the container's owner."""
    return owner in (0, os.geteuid()) or (is_parent and owner == _overflow_user())


def _overflow_user() -> int | None:
    """Return the id that the kernel shows for users who cannot be seen here; None: all can be seen."""
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _INITIAL_UID_MAP:
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def _is_private_group(path: Path, status: os.stat_result) -> bool:
    """True if a file's group is private to its owner. With an access list the group's bits stand for all
    users in the list, so the answer is False."""
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
        listed = _ACCESS_LIST in os.listxattr(path)
    except (KeyError, OSError):
        return False
    own = owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name
    return own and not listed and set(group.gr_mem) <= {owner.pw_name}


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
