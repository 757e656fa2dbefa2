"""Which backend a cluster's entry in the league file asks for."""

from pathlib import Path
from typing import Literal, cast

from hanse.live.backends.interface import Backend
from hanse.live.backends.null import NullBackend
from hanse.live.backends.process import ProcessBackend
from hanse.live.backends.slurm.make import make_slurm_backend
from hanse.live.league import BackendKind, ClusterEntry

TASKS = "tasks"
"""Where a runner keeps its tasks, in its member's directory or where the league file says."""


def make_backend(entry: ClusterEntry, directory: Path) -> Backend:
    """The backend of one runner of this cluster."""
    wanted = entry.backend
    place = (Path(wanted.directory) / directory.name if wanted.directory else directory) / TASKS
    if wanted.kind is BackendKind.NULL:
        return NullBackend(entry.nodes)
    if wanted.kind is BackendKind.SLURM:
        return make_slurm_backend(place, entry.name, entry.nodes, wanted.slurm, wanted.user)
    return ProcessBackend(
        place,
        entry.name,
        entry.nodes,
        user=wanted.user or "nobody",
        sandbox=cast("Literal['none', 'bwrap']", wanted.sandbox),
        output_bytes_max=wanted.output,
        driver=cast("Literal['auto', 'v2', 'v1', 'rlimit']", wanted.limits),
        disk_quota=wanted.disk,
    )
