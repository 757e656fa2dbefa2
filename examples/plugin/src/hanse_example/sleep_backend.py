"""The backend ``sleep``: it runs nothing, and every task lasts as long as the league file says.

A league file is read by every member and by some commands, so this module imports the backend itself only
where one is made.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from hanse.league.backend_kinds import BackendKind
from hanse.model.field_descriptions import FileField
from hanse.model.field_reader import FieldReader
from hanse.model.quantities import parse_duration

if TYPE_CHECKING:
    from hanse.league.config import ClusterEntry
    from hanse.live.backends.interface import Backend


class SleepSettings(msgspec.Struct, frozen=True):
    """Settings of a cluster."""

    duration: int = 0
    """Run time of every task in microseconds."""


def read(fields: FieldReader) -> SleepSettings:
    """Read the settings from ``backend`` of a cluster; problems are noted with the fields."""
    return SleepSettings(fields.read("duration", parse_duration, SleepSettings().duration))


def to_data(settings: SleepSettings) -> dict[str, object]:
    """Return the settings as the league file has them."""
    return {"duration": f"{settings.duration}us"} if settings.duration else {}


def make(entry: "ClusterEntry", directory: Path) -> "Backend":
    """Return the backend of one runner; it needs no directory."""
    from hanse.live.backends.null import NullBackend  # noqa: PLC0415  only daemons need it

    del directory
    settings = entry.backend.settings
    assert isinstance(settings, SleepSettings)
    return NullBackend(entry.nodes, duration=settings.duration)


SLEEP: Final = BackendKind(
    name="sleep",
    make=make,
    settings=SleepSettings,
    fields=(FileField("duration", "time", "0", "", "Run time of every task.", "duration: 1s"),),
    read=read,
    to_data=to_data,
)
