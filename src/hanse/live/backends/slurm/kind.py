"""The kind of backend ``slurm``: tasks are jobs of a Slurm cluster."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hanse.league.backend_kinds import BackendKind
from hanse.live.backends.factory import tasks_directory
from hanse.live.backends.slurm.league_fields import SLURM_TABLE, read_slurm_settings, slurm_to_data
from hanse.live.backends.slurm.settings import SlurmSettings

if TYPE_CHECKING:
    from hanse.league.config import ClusterEntry
    from hanse.live.backends.interface import Backend

log = logging.getLogger(__name__)


def make(entry: "ClusterEntry", directory: Path) -> "Backend":
    """Return the backend of one runner."""
    from hanse.live.backends.slurm.factory import make_slurm_backend  # noqa: PLC0415  only daemons need it

    log.warning("tasks are not isolated from each other: on Slurm all run as one account")
    settings, tasks = entry.backend.settings, tasks_directory(entry.backend, directory)
    assert isinstance(settings, SlurmSettings)
    return make_slurm_backend(tasks, entry.name, entry.nodes, settings, entry.backend.user)


def shared_directories(settings: SlurmSettings, cluster: str) -> tuple[tuple[str, Path], ...]:
    """Return the cluster's part of the directory that all its nodes see."""
    return (("'shared_dir'", Path(settings.shared_dir) / cluster),) if settings.shared_dir else ()


SLURM: Final = BackendKind(
    name="slurm",
    make=make,
    title="Slurm",
    settings=SlurmSettings,
    fields=SLURM_TABLE,
    read=read_slurm_settings,
    to_data=slurm_to_data,
    directories=shared_directories,
    discovers_nodes=True,
    task_user="nobody",
    isolation_notice=(
        "on Slurm all run as one account, which can read their keys, output and records. Let only people "
        "submit who trust each other."
    ),
)
