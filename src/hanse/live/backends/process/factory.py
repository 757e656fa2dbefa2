"""Construction of a process backend from the league file's settings."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from hanse.live.backends.factory import TASKS_DIRECTORY, tasks_directory
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.devices.device_claims import claim_devices, claims_directory
from hanse.live.backends.process.devices.device_plan import plan_devices
from hanse.live.backends.process.sandbox import choose_sandbox
from hanse.live.backends.process.task_users import choose_user
from hanse.live.hardware.machine import this_machine
from hanse.security.credentials import IDENTITY_FILE
from hanse.security.home import AUTHORITY, PEOPLE

if TYPE_CHECKING:
    from hanse.league.config import ClusterEntry

log = logging.getLogger(__name__)


def make_process_backend(entry: "ClusterEntry", directory: Path) -> ProcessBackend:
    """Return the backend of one runner of this cluster."""
    settings = entry.backend
    tasks = tasks_directory(settings, directory)
    allow_task_traversal(tasks.parent)
    sandbox, problem = choose_sandbox(settings.sandbox)
    if problem is not None:
        log.warning("tasks are not isolated from each other: they are all one user's, and %s", problem)
    plan = plan_devices(entry.nodes, this_machine().gpus, runner_name(entry, directory))
    return ProcessBackend(
        tasks,
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
        devices=claim_devices(plan, tasks, claims_directory()),
    )


def runner_name(entry: "ClusterEntry", directory: Path) -> str:
    """Return the name of the runner that a member's directory belongs to: a runner on a machine of its own
    has one of its name, every other runner is inside its warden's daemon."""
    names = [runner.name for runner in entry.runners]
    return directory.name if directory.name in names else entry.own_runner


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
