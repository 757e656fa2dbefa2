"""What ``hanse up`` says of tasks that are not isolated from each other on this machine: a line or none."""

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanse.live.league import League


def isolation_notice(league: "League", home: Path) -> str | None:
    """What is not isolated, or closed to the tasks themselves, in a league that this process has started;
    None: nothing that the league file did not choose."""
    from hanse.live.backends.sandbox import AUTO, namespace_problem  # noqa: PLC0415  hanse up is quick
    from hanse.live.backends.task_users import chosen_user, has_ids  # noqa: PLC0415  as above

    backends = [entry.backend for entry in league.clusters if entry.backend.kind == "process"]
    if os.geteuid() != 0:
        problem = namespace_problem() if any(backend.sandbox == AUTO for backend in backends) else None
        if problem is None:
            return None
        return (
            f"Tasks are not isolated from each other, nor from this league's keys: all run as {_own_name()}, "
            f"and {problem}. Install bubblewrap, or let root start the league."
        )
    if any(not backend.user and not has_ids(backend.users) for backend in backends):
        return (
            "Tasks of different jobs are not isolated from each other: all run as nobody, because this "
            "container has no user ids for jobs. Name some that it has by 'users' of the backend."
        )
    if any(chosen_user(backend.user, backend.users) != "root" for backend in backends):
        closed = next((path for path in (*reversed(home.parents), home) if not _is_passable(path)), None)
        if closed is not None:
            return (
                f"Tasks cannot use their $HOME by its path: {closed} is closed to them. "
                f"Run 'chmod o+x {closed}', or choose another --home."
            )
    return None


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # an id without an account
        return f"user {os.geteuid()}"


def _is_passable(path: Path) -> bool:
    """Whether strangers may go through a directory."""
    return bool(path.stat().st_mode & stat.S_IXOTH)
