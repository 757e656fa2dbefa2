"""Construction of the backend that a cluster's entry in the league file asks for."""

import logging
from pathlib import Path
from typing import Literal, cast

from hanse.live.backends.interface import Backend
from hanse.live.backends.null import NullBackend
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.sandbox import choose_sandbox
from hanse.live.backends.process.task_users import choose_user
from hanse.live.backends.slurm.factory import make_slurm_backend
from hanse.live.config.league import BackendKind, ClusterEntry
from hanse.security.credentials import IDENTITY_FILE
from hanse.security.home import AUTHORITY, PEOPLE

log = logging.getLogger(__name__)

TASKS_DIRECTORY = "tasks"
"""Directory of a runner's tasks, in its member's directory or where the league file says."""


def make_backend(entry: ClusterEntry, directory: Path) -> Backend:
    """Return the backend of one runner of this cluster."""
    settings = entry.backend
    tasks_directory = (
        Path(settings.directory) / directory.name if settings.directory else directory
    ) / TASKS_DIRECTORY
    if settings.kind is BackendKind.NULL:
        return NullBackend(entry.nodes)
    if settings.kind is BackendKind.SLURM:
        log.warning("tasks are not isolated from each other: on Slurm all run as one account")
        return make_slurm_backend(tasks_directory, entry.name, entry.nodes, settings.slurm, settings.user)
    allow_task_traversal(tasks_directory.parent)
    sandbox, problem = choose_sandbox(settings.sandbox)
    if problem is not None:
        log.warning("tasks are not isolated from each other: they are all one user's, and %s", problem)
    return ProcessBackend(
        tasks_directory,
        entry.name,
        entry.nodes,
        user=choose_user(settings.user, settings.users),
        sandbox=sandbox,
        hidden=private_directories(directory, settings.directory),
        memory_default=settings.memory_default,
        output_bytes_max=settings.output,
        driver=cast("Literal['auto', 'v2', 'v1', 'rlimit']", settings.limits),
        disk_quota=settings.disk,
        files_quota=settings.files,
    )


def private_directories(directory: Path, shared_parent: str = "") -> tuple[Path, ...]:
    """Return the directories of the league on this machine that tasks must not see: the member's own, those
    with keys beside it, and ``shared_parent`` (the parent of all runners' tasks) if it is given."""
    home = directory.parent
    directories = [
        home / AUTHORITY,
        home / PEOPLE,
        *(path.parent for path in home.glob(f"*/{IDENTITY_FILE}")),
    ]
    if shared_parent:
        directories.append(Path(shared_parent))
    return (directory, *(path for path in directories if path.is_dir() and path != directory))


def allow_task_traversal(directory: Path) -> None:
    """Let tasks traverse a member's directory to their own below it, and close all other entries.

    A joining member creates the directory for its key first, and closed: then a task could not enter its own
    ``$HOME``. The member creates later files for itself alone, or in a directory that is closed here.
    """
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    for entry in directory.iterdir():
        if entry.name != TASKS_DIRECTORY and not entry.is_symlink():
            entry.chmod(0o700 if entry.is_dir() else 0o600)
    directory.chmod(0o711)
