"""Warnings of ``hanse up`` about tasks that this machine does not isolate or limit."""

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanse.league.config import LeagueConfig


def isolation_notices(league: "LeagueConfig", home: Path) -> list[str]:
    """Return all warnings: a line for each thing that is not isolated or not limited."""
    lines = (
        isolation_notice(league, home),
        *backend_notices(league),
        hiding_notice(league),
        memory_notice(league),
        *device_notices(league),
    )
    return [line for line in lines if line is not None]


def backend_notices(league: "LeagueConfig") -> list[str]:
    """Return what the backends of the league never isolate, a line for each kind."""
    from hanse.league.backend_kinds import BACKENDS  # noqa: PLC0415  keeps 'hanse up' fast

    names: dict[str, list[str]] = {}
    for entry in league.clusters:
        names.setdefault(entry.backend.kind, []).append(entry.name)
    notices = {kind: BACKENDS.get(kind).isolation_notice for kind in names}
    return [
        f"Tasks in {', '.join(names[kind])} are not isolated from each other: {notice}"
        for kind, notice in notices.items()
        if notice
    ]


def hiding_notice(league: "LeagueConfig") -> str | None:
    """Return a warning if tasks of root's daemons see each other's command lines; None if not, or allowed."""
    from hanse.league.config import UserRange  # noqa: PLC0415  as above
    from hanse.live.backends.process.sandbox import hiding_problem  # noqa: PLC0415  keeps 'hanse up' fast
    from hanse.live.backends.process.task_users import choose_user  # noqa: PLC0415  as above

    backends = [entry.backend for entry in league.clusters if entry.backend.kind == "process"]
    if os.geteuid() != 0 or not any(
        isinstance(choose_user(backend.user, backend.users), UserRange)
        and backend.sandbox not in ("bwrap", "namespace")
        for backend in backends
    ):
        return None
    problem = hiding_problem()
    if problem is None:
        return None
    return f"Tasks see other tasks and their command lines: they cannot get a /proc of their own ({problem})."


def memory_notice(league: "LeagueConfig") -> str | None:
    """Return a warning if the memory of tasks that ask for none is not limited; None if it is."""
    from hanse.live.backends.process.cgroups import has_memory_limit  # noqa: PLC0415  keeps 'hanse up' fast

    wanted = {entry.backend.limits for entry in league.clusters if entry.backend.kind == "process"}
    if all(has_memory_limit(driver) for driver in sorted(wanted)):
        return None
    return (
        "Memory of tasks without --mem is not limited, and with --mem only per process: control groups "
        "cannot be used here."
    )


def device_notices(league: "LeagueConfig") -> list[str]:
    """Return a line for each device of this machine that is not assigned, missing or not fenced."""
    from hanse.league.config import LeagueError  # noqa: PLC0415  keeps 'hanse up' fast
    from hanse.live.backends.process.devices.device_fence import find_device_warnings  # noqa: PLC0415  as above

    lines = []
    for entry in league.clusters:
        nodes = [node for node in entry.nodes if node.runner == entry.own_runner]
        if entry.backend.kind != "process" or not any(node.capacity.gpu or node.devices for node in nodes):
            continue
        try:
            lines += [f"Devices of {entry.name}: {warning}." for warning in find_device_warnings(entry)]
        except (LeagueError, OSError):  # the daemon reports the fault, and does not start
            continue
    return lines


def isolation_notice(league: "LeagueConfig", home: Path) -> str | None:
    """Return what is not isolated, or closed to the tasks, in a league of this process; None if nothing but
    what the league file chose."""
    from hanse.live.backends.process.sandbox import AUTO, namespace_problem  # noqa: PLC0415  as above
    from hanse.live.backends.process.task_users import choose_user, has_ids  # noqa: PLC0415  as above

    backends = [entry.backend for entry in league.clusters if entry.backend.kind == "process"]
    if os.geteuid() != 0:
        problem = namespace_problem() if any(backend.sandbox == AUTO for backend in backends) else None
        if problem is None:
            return None
        return (
            f"Tasks are not isolated from each other, nor from this league's keys: all run as "
            f"{_user_name()}, "
            f"and {problem}. Install bubblewrap, or start the league as root."
        )
    if any(not backend.user and not has_ids(backend.users) for backend in backends):
        return (
            "Tasks of different jobs are not isolated from each other: all run as nobody, because this "
            "container has no user ids for jobs. Name ids that it has with 'users' of the backend."
        )
    if any(choose_user(backend.user, backend.users) != "root" for backend in backends):
        closed_path = next((path for path in (*reversed(home.parents), home) if not _is_passable(path)), None)
        if closed_path is not None:
            return (
                f"Tasks cannot use their $HOME by its path: {closed_path} is closed to them. "
                f"Run 'chmod o+x {closed_path}', or choose another --home."
            )
    return None


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # an id without an account
        return f"user {os.geteuid()}"


def _is_passable(path: Path) -> bool:
    """True if other users can pass through a directory."""
    return bool(path.stat().st_mode & stat.S_IXOTH)
