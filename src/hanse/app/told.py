"""How commands tell what went wrong: one sentence, what to do next, and the status to end with."""

from typing import IO, TYPE_CHECKING, Any

import click

from hanse.app.exit_codes import ExitCode

if TYPE_CHECKING:
    from hanse.live.home import Home
    from hanse.live.league import League


class CommandError(click.ClickException):
    """What was asked for cannot be done. Shown on standard error as a sentence and a hint."""

    def __init__(self, message: str, status: ExitCode, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """The sentence, then what to do next."""
        click.echo(f"hanse: {self.message}", file=file, err=file is None)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=file is None)


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


def warn(message: str) -> None:
    """Something that does not stop the command, but that its user should know."""
    click.echo(f"hanse: {message}", err=True)
