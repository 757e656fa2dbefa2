"""``hanse access``: tokens with which people and programs use a league's doors without a certificate."""

from datetime import UTC, datetime
from pathlib import Path

import click

from hanse.live.home import Home
from hanse.live.identity.access import ACCESS_DAYS, ACCESS_DAYS_MAX, PEOPLE, REVOKED_FILE
from hanse.live.identity.access_ledger import AccessError, AccessLedger, Given
from hanse.live.identity.authority import Authority, AuthorityError
from hanse.live.identity.identity import Role
from hanse.model.ids import SECOND

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
def create(home: Path, name: str, role: str, days: int) -> None:
    """Make a token for NAME and print it."""
    try:
        token = _ledger(home).create(Role(role), name, days)
    except AccessError as error:
        raise click.ClickException(str(error)) from None
    click.echo(token)


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
@_home
@click.argument("name")
@click.option("--serial", default="", help="Only the token whose serial begins so; see 'hanse access list'.")
def revoke(home: Path, name: str, serial: str) -> None:
    """End every token of NAME."""
    try:
        ended = _ledger(home).revoke(name, serial)
    except AccessError as error:
        raise click.ClickException(str(error)) from None
    if not ended:
        raise click.ClickException(f"there is no token of {name!r} to revoke; see 'hanse access list'")
    click.echo(f"{len(ended)} of {name}'s tokens revoked. The doors of this machine refuse them from now on.")
    click.echo(f"Copy {home / REVOKED_FILE} into the league's home on every other machine.")


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
