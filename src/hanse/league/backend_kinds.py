"""Registry of backends: what the league file, the daemons and the commands must know about each kind.

To add a backend: a folder with its ``BackendKind``, and an entry of the group ``hanse.backends``. A kind is
loaded wherever a league file is read, so its module imports the backend itself only in ``make``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.league.config import ClusterEntry
from hanse.model.field_descriptions import FileField
from hanse.model.field_reader import FieldReader
from hanse.registry import Registry


def read_no_settings(_: FieldReader) -> None:
    """Read the settings of a kind that has none."""


def no_data(_: Any) -> dict[str, object]:
    """Return the data of settings that do not exist."""
    return {}


def no_directories(_: Any, __: str) -> tuple[tuple[str, Path], ...]:
    """Return the directories of a kind that has none of its own."""
    return ()


class BackendKind(msgspec.Struct, frozen=True):
    """Kind of backend."""

    name: str
    """Name in the league file."""
    make: Callable[[ClusterEntry, Path], Any]
    """Function that makes the backend of one runner (a ``live.backends.interface.Backend``), given its
    cluster and the directory of its member."""
    title: str = ""
    """Name of the foreign system, for people; empty: tasks run in no other system."""
    settings: type = type(None)
    """Type of its own settings (``BackendEntry.settings``)."""
    fields: tuple[FileField, ...] = ()
    """Fields of its own settings in ``backend``, beside those of every backend."""
    read: Callable[[FieldReader], Any] = read_no_settings
    """Function that reads its own settings."""
    to_data: Callable[[Any], dict[str, object]] = no_data
    """Function that returns the settings that differ from the defaults, in the form of the file."""
    directories: Callable[[Any, str], tuple[tuple[str, Path], ...]] = no_directories
    """Function that returns the directories that the settings name for a cluster, each with the name of its
    option: no other user may write them."""
    discovers_nodes: bool = False
    """True if the file may leave the nodes out: the backend then reports them (``Backend.capacity``)."""
    runs_on_its_machine: bool = False
    """True if tasks run on the machine of their runner, whose hardware is then that of the nodes."""
    task_user: str = ""
    """User that runs the tasks of root's daemons where the file names none; empty: no program runs."""
    isolation_notice: str = ""
    """Reason why tasks are never isolated from each other, as a clause and a request; empty: they can be."""


BACKENDS: Final = Registry[BackendKind](
    "backend", "hanse.backends", ("process", "null", "slurm"), BackendKind.__struct_fields__
)
