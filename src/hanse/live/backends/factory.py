"""Construction of the backend that a cluster's entry in the league file asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hanse.league.backend_kinds import BACKENDS
from hanse.live.backends.interface import Backend

if TYPE_CHECKING:
    from hanse.league.config import BackendEntry, ClusterEntry

TASKS_DIRECTORY: Final = "tasks"
"""Directory of a runner's tasks, in its member's directory or where the league file says."""


def make_backend(entry: "ClusterEntry", directory: Path) -> Backend:
    """Return the backend of one runner of this cluster. ``directory``: of the runner's member."""
    kind = BACKENDS.get(entry.backend.kind)
    assert isinstance(entry.backend.settings, kind.settings), "the league file gives a kind its own settings"
    backend: Backend = kind.make(entry, directory)
    return backend


def tasks_directory(backend: "BackendEntry", directory: Path) -> Path:
    """Return the directory of a runner's tasks. ``directory``: of the runner's member."""
    return (Path(backend.directory) / directory.name if backend.directory else directory) / TASKS_DIRECTORY
