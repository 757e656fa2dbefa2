"""``hanse access``: tokens with which people and programs use a league's doors without a certificate."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hanse.app.contexts import Context
from hanse.app.exit_codes import ExitCode
from hanse.app.league_making import PERSON
from hanse.app.league_options import context_option, league
from hanse.app.told import CommandError
from hanse.live.home import Home
from hanse.live.identity import files
from hanse.live.identity.access import ACCESS_DAYS, PEOPLE
from hanse.live.identity.access_ledger import AccessError, AccessLedger, Given
from hanse.live.identity.authority import Authority, AuthorityError
from hanse.live.identity.identity import Role
from hanse.live.identity.revoked import ACCESS_DAYS_MAX
from hanse.model.ids import SECOND

if TYPE_CHECKING:
    from hanse.app.answers import RevokeAnswer

SERIALS_PER_REQUEST: Final = 1_000

_home = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), required=True, envvar="HANSE_HOME",
    help="The league's home on the machine where it was founded.",
)  # fmt: skip


@click.group()
def access() -> None:
    """Access tokens: for curl, scripts and programs that show no certificate.

    Doors take them as 'Authorization: Bearer TOKEN'. Only their bearers have them: they are shown once.
    """


@access.command("create")
@_home
@click.argument("name")
@click.option("--role", type=click.Choice([str(role) for role in PEOPLE]), required=True)
@click.option(
    "--days", type=click.IntRange(1, ACCESS_DAYS_MAX), default=ACCESS_DAYS, show_default=True,
    help="How long it is good.",
)  # fmt: skip
@click.option(
    "--into", type=click.Path(path_type=Path, dir_okay=False), default=None,
    help="A new file for it, for you alone, instead of the screen.",
)  # fmt: skip
def create(home: Path, name: str, role: str, days: int, into: Path | None) -> None:
    """Make a token for NAME and print it, or keep it in a file."""
    if into is not None and into.exists():
        raise click.ClickException(f"{into} is there already, and is left as it is; choose another file")
    try:
        token = _ledger(home).create(Role(role), name, days)
    except AccessError as error:
        raise click.ClickException(str(error)) from None
    if into is None:
        click.echo(token)
        return
    try:
        files.write_new(into, token.encode("ascii") + b"\n", files.PRIVATE)
    except OSError as error:
        raise click.ClickException(f"{into} cannot be written: {error.strerror}") from None
    click.echo(f"The token of {name} is in {into}: use it with 'hanse config set NAME --token-file {into}'.")


@access.command("list")
@_home
def listed(home: Path) -> None:
    """List the tokens that have not expired; not the tokens themselves, which nobody keeps."""
    try:
        given = _ledger(home).listed()
    except AccessError as error:
        raise click.ClickException(str(error)) from None
    for one in given:
        click.echo(_line(one))


@access.command("revoke")
@context_option
@click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), envvar="HANSE_HOME",
    help="The league's home where it was founded, to end single tokens or when no broker answers. Default: "
    "ask a broker of the current context, as an admin.",
)  # fmt: skip
@click.argument("name")
@click.option("--serial", default="", help="Only the token whose serial begins so; see 'hanse access list'.")
def revoke(home: Path | None, name: str, serial: str) -> None:
    """End every token of NAME, at every door of the league.

    A door that cannot be reached now is told as soon as it can be.
    """
    if home is not None and Home(home.absolute()).authority.is_dir():
        _revoke_at_home(Home(home.absolute()), name, serial)
        return
    if serial:
        raise click.UsageError("--serial needs --home, where the list of tokens is")
    with league() as client:
        answer = client.revoke(name)
    click.echo(f"Every token that {name} has until now is revoked.")
    _tell(answer)


def _revoke_at_home(home: Home, name: str, serial: str) -> None:
    """Write it down where tokens are made, then let a broker spread it."""
    from hanse.app.client import Client  # noqa: PLC0415  only this asks the league
    from hanse.app.doors import Doors  # noqa: PLC0415  as above

    try:
        ended = _ledger(home.path).revoke(name, serial)
    except AccessError as error:
        raise click.ClickException(str(error)) from None
    if not ended:
        raise click.ClickException(f"there is no token of {name!r} to revoke; see 'hanse access list'")
    click.echo(f"{len(ended)} of {name}'s tokens revoked. The doors of this machine refuse them from now on.")
    serials = [access.serial for access in ended]
    try:
        with closing(Doors("", _own_context(home))) as doors:
            for first in range(0, len(serials), SERIALS_PER_REQUEST):
                answer = Client(doors).revoke(serials=tuple(serials[first : first + SERIALS_PER_REQUEST]))
        _tell(answer)
    except CommandError as error:
        raise CommandError(
            f"no broker could be asked to tell the other machines: {error.message}",
            error.status,
            "a broker on this machine tells them when it starts, or when it is next shown a token",
        ) from None


def _own_context(home: Home) -> Context:
    """The league as its founder reaches it."""
    from hanse.live.league import LeagueError  # noqa: PLC0415  as above
    from hanse.live.league_file import load  # noqa: PLC0415  as above

    try:
        league_of_home = load(home.league_file)
    except (LeagueError, OSError) as error:
        raise CommandError(str(error), ExitCode.UNAVAILABLE) from None
    brokers = {entry.name: str(entry.door) for entry in league_of_home.brokers}
    return Context(league_of_home.name, str(home.path), str(home.person(PERSON)), brokers)


def _tell(answer: "RevokeAnswer") -> None:
    """Who has heard of it."""
    click.echo(f"Refused from now on by: {', '.join(answer.told)}")
    if answer.owed:
        click.echo(f"Not reached; told as soon as they are back: {', '.join(answer.owed)}")


def _ledger(home: Path) -> AccessLedger:
    place = Home(home.absolute())
    try:
        return AccessLedger(place, Authority.open(place.authority))
    except AuthorityError as error:
        raise click.ClickException(str(error)) from None


def _line(given: Given) -> str:
    """A token in a list."""
    access = given.access
    until = datetime.fromtimestamp(access.expires // SECOND, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    state = "revoked" if given.revoked else f"until {until}"
    return f"{access.name}  {access.role}  {access.serial[:12]}  {state}"
