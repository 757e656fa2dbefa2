"""Refusal of a home, or of a directory of a backend, that somebody else could change."""

from typing import TYPE_CHECKING

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from hanse.live.config.league import League
    from hanse.security.home import Home


def refuse_unsafe(home: "Home", member: str | None = None) -> None:
    """Leave if somebody else could change what a home says. ``member``: the only one that matters now."""
    from hanse.live.config.home_permissions import home_problem  # noqa: PLC0415  help texts must not wait for it

    problem = home_problem(home, member)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)


def refuse_unsafe_places(league: "League", member: str | None = None) -> None:
    """Leave if somebody else could change what backends of this league keep outside of its home."""
    from hanse.live.config.home_permissions import elsewhere_problem  # noqa: PLC0415  as above

    problem = elsewhere_problem(league, member)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)
