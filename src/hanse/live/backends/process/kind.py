"""The kind of backend ``process``: tasks are processes of the runner's machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hanse.league.backend_kinds import BackendKind
from hanse.live.backends.process.task_users import PER_JOB

if TYPE_CHECKING:
    from hanse.league.config import ClusterEntry
    from hanse.live.backends.interface import Backend


def make(entry: "ClusterEntry", directory: Path) -> "Backend":
    """Return the backend of one runner."""
    from hanse.live.backends.process.factory import make_process_backend  # noqa: PLC0415  only daemons need it

    return make_process_backend(entry, directory)


PROCESS: Final = BackendKind(name="process", make=make, task_user=PER_JOB, runs_on_its_machine=True)
