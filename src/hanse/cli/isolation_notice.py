"""What ``hanse up`` says of tasks that are not isolated from each other, or not limited, on this machine."""

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanse.live.config.league import League


def isolation_notices(league: "League", home: Path) -> list[str]:
    """All that is to be said: a line for each thing that is not isolated or not limited."""
    lines = (
        isolation_notice(league, home),
        slurm_notice(league),
        hiding_notice(league),
        memory_notice(league),
    )
    return [line for line in lines if line is not None]


def slurm_notice(league: "League") -> str | None:
    """What Slurm does not keep apart; None: the league has no such cluster."""
    names = [entry.name for entry in league.clusters if entry.backend.kind == "slurm"]
    if not names:
        return None
    return (
        f"Tasks in {', '.join(names)} are not isolated from each other: on Slurm all run as one account, "
        "which can read their keys, output and records. Have only people submit who trust each other."
    )


def hiding_notice(league: "League") -> str | None:
    """Whether tasks of root's daemons see each other's command lines; None: they do not, or were let."""
    from hanse.live.backends.process.sandbox import hiding_problem  # noqa: PLC0415  hanse up is quick
    from hanse.live.backends.process.task_users import UserRange, chosen_user  # noqa: PLC0415  as above

    backends = [entry.backend for entry in league.clusters if entry.backend.kind == "process"]
    if os.geteuid() != 0 or not any(
        isinstance(chosen_user(backend.user, backend.users), UserRange)
        and backend.sandbox not in ("bwrap", "namespace")
        for backend in backends
    ):
        return None
    problem = hiding_problem()
    if problem is None:
        return None
    return (
        f"Tasks see that others run, and their command lines: no /proc of their own can be had ({problem})."
    )


def memory_notice(league: "League") -> str | None:
    """Whether the memory of tasks that ask for none is not limited here; None: it is."""
    from hanse.live.backends.process.cgroups import limits_memory  # noqa: PLC0415  hanse up is quick

    wanted = {entry.backend.limits for entry in league.clusters if entry.backend.kind == "process"}
    if all(limits_memory(driver) for driver in sorted(wanted)):
        return None
    return (
        "Memory of tasks without --mem is not limited, and with it only for each process by itself: no "
        "control groups can be used here."
    )


def isolation_notice(league: "League", home: Path) -> str | None:
    """What is not isolated, or closed to the tasks themselves, in a league that this process has started;
    None: nothing that the league file did not choose."""
    from hanse.live.backends.process.sandbox import AUTO, namespace_problem  # noqa: PLC0415  hanse up is quick
    from hanse.live.backends.process.task_users import chosen_user, has_ids  # noqa: PLC0415  as above

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
