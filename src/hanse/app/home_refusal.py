"""Refusal of a home, or of a directory of a backend, that somebody else could change."""

from typing import TYPE_CHECKING

from hanse.app.exit_codes import ExitCode
from hanse.app.told import CommandError

if TYPE_CHECKING:
    from hanse.live.home import Home
    from hanse.live.league import League


def refuse_unsafe(home: "Home", member: str | None = None) -> None:
    """Leave if somebody else could change what a home says. ``member``: the only one that matters now."""
    from hanse.live.home_check import home_problem  # noqa: PLC0415  help texts must not wait for it

    problem = home_problem(home, member)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)


def refuse_unsafe_places(league: "League", member: str | None = None) -> None:
    """Leave if somebody else could change what backends of this league keep outside of its home."""
    from hanse.live.home_check import elsewhere_problem  # noqa: PLC0415  as above

    problem = elsewhere_problem(league, member)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)
