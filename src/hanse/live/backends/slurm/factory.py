"""Construction of a Slurm backend from the league file's settings."""

from pathlib import Path

from hanse.core.config import NodeConfig
from hanse.live.backends.process.launch_requests import find_task_user
from hanse.live.backends.slurm.backend import SlurmBackend
from hanse.live.backends.slurm.cli import CliDriver
from hanse.live.backends.slurm.driver import SlurmDriver
from hanse.live.backends.slurm.rest import RestDriver
from hanse.live.backends.slurm.settings import SlurmSettings


def make_slurm_backend(
    directory: Path, cluster: str, nodes: tuple[NodeConfig, ...], settings: SlurmSettings, user: str
) -> SlurmBackend:
    """Return the backend of one runner. ``user``: runs the jobs if the daemon is root; empty: nobody."""
    run_as = find_task_user(user or "nobody")
    driver: SlurmDriver = (
        RestDriver(settings, run_as) if settings.driver == "rest" else CliDriver(settings, run_as)
    )
    return SlurmBackend(directory, cluster, nodes, driver, settings, run_as)
