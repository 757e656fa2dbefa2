"""User that runs the tasks of a league on this machine, and a check that this user can run this Python.

Daemons of root start the tasks of each job under a user id without an account
(``live.backends.process.task_users``); daemons over Slurm start them as ``nobody``, unless the league file
says otherwise. Such users cannot use an interpreter in root's home directory; the check reports this when the
league starts, not at the first call that fails.
"""

import os
import pwd
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanse.league.config import LeagueConfig

PER_JOB: Final = "per-job"
"""Same as in ``live.backends.process.task_users``, which is not imported before the league starts."""
_NO_ACCOUNT: Final = (-1, -1)
"""User and group of an id without an account; no file belongs to them."""


def user_problem(name: str) -> str | None:
    """Return why tasks cannot run as this user, as a sentence; None if they can."""
    if os.geteuid() != 0:
        return "only a league started by root can run tasks as another user"
    if name == PER_JOB:
        return None
    try:
        pwd.getpwnam(name)
    except KeyError:
        return f"there is no user called {name!r} on this machine"
    return None


def python_problem(league: "LeagueConfig") -> str | None:
    """Return why Python calls cannot run in a league of this process, in sentences; None if they can."""
    if os.geteuid() != 0:
        return None
    from hanse.league.backend_kinds import BACKENDS  # noqa: PLC0415  see the module's docstring

    default_users = {
        entry.backend.kind: BACKENDS.get(entry.backend.kind).task_user for entry in league.clusters
    }
    backends = [entry.backend for entry in league.clusters if default_users[entry.backend.kind]]
    for name in dict.fromkeys(backend.user or default_users[backend.kind] for backend in backends):
        try:
            user = _NO_ACCOUNT if name == PER_JOB else _user_ids(name)
        except KeyError:
            continue  # the warden reports the unknown user
        closed_path = next((path for path in _required_paths() if not _can_use(*user, path)), None)
        if closed_path is not None:
            user_text = "a separate user id for each job" if name == PER_JOB else name
            return (
                f"Python calls (hanse.Executor) will not run: tasks run as {user_text}, which cannot use "
                f"{closed_path}. "
                "Start the league with a Python that every user can run, or run the tasks as a user who "
                "can: 'hanse up --user NAME', or 'user' of the backend in the league file."
            )
    return None


def _required_paths() -> list[Path]:
    """Return the files that an interpreter like this one needs, and every directory on their paths."""
    files = [Path(sys.executable), Path(sys.executable).resolve(), Path(os.__file__).resolve()]
    files.append(Path(__file__).resolve())
    paths = [place for file in files for place in (*reversed(file.parents), file)]
    return list(dict.fromkeys(paths))


def _user_ids(name: str) -> tuple[int, int]:
    user = pwd.getpwnam(name)
    return user.pw_uid, user.pw_gid


def _can_use(uid: int, gid: int, path: Path) -> bool:
    """True if the mode of a path lets a user enter the directory or read the file."""
    if uid == 0:
        return True
    try:
        status = path.stat()
    except OSError:
        return False
    wanted = stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    if status.st_uid == uid:
        wanted <<= 6
    elif status.st_gid == gid:
        wanted <<= 3
    return bool(status.st_mode & wanted)
