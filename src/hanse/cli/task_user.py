"""Who runs the tasks of a league on this machine, and whether they may run this Python.

Daemons of root start the tasks of each job as a user id without an account
(``live.backends.process.task_users``), those over Slurm as ``nobody``, unless the league file says otherwise.
An interpreter in root's own directory is closed to them: better said when the league is started than by the
first call that fails.
"""

import os
import pwd
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanse.live.config.league import League

NOBODY: Final = "nobody"
PER_JOB: Final = "per-job"
"""See ``live.backends.process.task_users``, which is not imported before the league is started."""
_STRANGER: Final = (-1, -1)
"""User and group that an id without an account is to every file: anybody else's."""


def user_problem(name: str) -> str | None:
    """Why tasks cannot run as this user, as a sentence; None if they can."""
    if os.geteuid() != 0:
        return "only a league that root starts can run tasks as somebody else"
    if name == PER_JOB:
        return None
    try:
        pwd.getpwnam(name)
    except KeyError:
        return f"there is no user called {name!r} on this machine"
    return None


def python_problem(league: "League") -> str | None:
    """Why Python calls cannot run in a league that this process has started, in sentences; None: they can."""
    if os.geteuid() != 0:
        return None
    backends = [entry.backend for entry in league.clusters if entry.backend.kind != "null"]
    usual = {"process": PER_JOB, "slurm": NOBODY}
    for name in dict.fromkeys(backend.user or usual[backend.kind] for backend in backends):
        try:
            user = _STRANGER if name == PER_JOB else _ids(name)
        except KeyError:
            continue  # its warden says so
        closed = next((path for path in _needed() if not _may_use(*user, path)), None)
        if closed is not None:
            who = "a user id of each job's own" if name == PER_JOB else name
            return (
                f"Python calls (hanse.Executor) will not run: tasks run as {who}, who may not use {closed}. "
                "Start the league with a Python that everybody may run, or let the tasks run as somebody who "
                "may: 'hanse up --user NAME', or 'user' of the backend in the league file."
            )
    return None


def _needed() -> list[Path]:
    """What an interpreter like this one needs, and every directory on the way there."""
    files = [Path(sys.executable), Path(sys.executable).resolve(), Path(os.__file__).resolve()]
    files.append(Path(__file__).resolve())
    found = [place for file in files for place in (*reversed(file.parents), file)]
    return list(dict.fromkeys(found))


def _ids(name: str) -> tuple[int, int]:
    user = pwd.getpwnam(name)
    return user.pw_uid, user.pw_gid


def _may_use(uid: int, gid: int, path: Path) -> bool:
    """Whether a user may enter a directory, or read a file, by its mode."""
    if uid == 0:
        return True
    try:
        facts = path.stat()
    except OSError:
        return False
    wanted = stat.S_IXOTH if stat.S_ISDIR(facts.st_mode) else stat.S_IROTH
    if facts.st_uid == uid:
        wanted <<= 6
    elif facts.st_gid == gid:
        wanted <<= 3
    return bool(facts.st_mode & wanted)
