"""Refusal of a home, or of a backend directory, that another user could change."""

from typing import TYPE_CHECKING

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from hanse.league.config import LeagueConfig
    from hanse.security.home import Home


def refuse_unsafe(home: "Home", member: str | None = None) -> None:
    """Refuse a home that another user could change. ``member``: check only this member's directory."""
    from hanse.live.config.home_permissions import home_problem  # noqa: PLC0415  keeps help texts fast

    problem = home_problem(home, member)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)


def refuse_unsafe_places(league: "LeagueConfig", member: str | None = None) -> None:
    """Refuse a league whose backends keep files outside its home that another user could change."""
    from hanse.live.config.home_permissions import backend_directory_problem  # noqa: PLC0415  as above

    problem = backend_directory_problem(league, member)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)
