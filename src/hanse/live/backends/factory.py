"""Construction of the backend that a cluster's entry in the league file asks for."""

import logging
from pathlib import Path
from typing import Literal, cast

from hanse.live.backends.interface import Backend
from hanse.live.backends.null import NullBackend
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.sandbox import chosen_walls
from hanse.live.backends.process.task_users import chosen_user
from hanse.live.backends.slurm.factory import make_slurm_backend
from hanse.live.config.league import BackendKind, ClusterEntry
from hanse.security.credentials import IDENTITY_FILE
from hanse.security.home import AUTHORITY, PEOPLE

log = logging.getLogger(__name__)

TASKS = "tasks"
"""Directory of a runner's tasks, in its member's directory or where the league file says."""


def make_backend(entry: ClusterEntry, directory: Path) -> Backend:
    """Return the backend of one runner of this cluster."""
    wanted = entry.backend
    place = (Path(wanted.directory) / directory.name if wanted.directory else directory) / TASKS
    if wanted.kind is BackendKind.NULL:
        return NullBackend(entry.nodes)
    if wanted.kind is BackendKind.SLURM:
        log.warning("tasks are not isolated from each other: on Slurm all run as one account")
        return make_slurm_backend(place, entry.name, entry.nodes, wanted.slurm, wanted.user)
    open_to_tasks(place.parent)
    walls, problem = chosen_walls(wanted.sandbox)
    if problem is not None:
        log.warning("tasks are not isolated from each other: they are all one user's, and %s", problem)
    return ProcessBackend(
        place,
        entry.name,
        entry.nodes,
        user=chosen_user(wanted.user, wanted.users),
        sandbox=walls,
        hidden=kept_places(directory, wanted.directory),
        memory_default=wanted.memory_default,
        output_bytes_max=wanted.output,
        driver=cast("Literal['auto', 'v2', 'v1', 'rlimit']", wanted.limits),
        disk_quota=wanted.disk,
        files_quota=wanted.files,
    )


def kept_places(directory: Path, elsewhere: str = "") -> tuple[Path, ...]:
    """Return the directories of the league on this machine that tasks must not see: the member's own, those
    with keys beside it, and ``shared_parent`` (the parent of all runners' tasks) if it is given."""
    home = directory.parent
    known = [home / AUTHORITY, home / PEOPLE, *(path.parent for path in home.glob(f"*/{IDENTITY_FILE}"))]
    if elsewhere:
        known.append(Path(elsewhere))
    return (directory, *(path for path in known if path.is_dir() and path != directory))


def open_to_tasks(directory: Path) -> None:
    """Let tasks traverse a member's directory to their own below it, and close all other entries.

    A joining member creates the directory for its key first, and closed: then a task could not enter its own
    ``$HOME``. The member creates later files for itself alone, or in a directory that is closed here.
    """
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    for entry in directory.iterdir():
        if entry.name != TASKS and not entry.is_symlink():
            entry.chmod(0o700 if entry.is_dir() else 0o600)
    directory.chmod(0o711)
