"""``hanse access``: access tokens, with which people and programs use the HTTP API without a certificate, and
the revocation of people."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hanse.cli.common_options import context_option, league_client
from hanse.cli.embedded.league_setup import PERSON
from hanse.client.contexts import Context
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.model.ids import SECOND
from hanse.security import atomic_files
from hanse.security.access_token_issuer import AccessTokenError, AccessTokenIssuer, IssuedToken
from hanse.security.access_tokens import ACCESS_DAYS, PEOPLE_ROLES
from hanse.security.certificate_authority import Authority, AuthorityError
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Role
from hanse.security.known_people import known_people
from hanse.security.revocation_list import ACCESS_DAYS_MAX

if TYPE_CHECKING:
    from hanse.api.records import RevokeAnswer
    from hanse.client.client import LeagueClient
    from hanse.client.endpoints import Endpoints

SERIALS_PER_REQUEST: Final = 1_000
NAMES_SHOWN_MAX: Final = 3
"""Similar names suggested for a misspelt one."""

_home = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), required=True, envvar="HANSE_HOME",
    help="The league's home on the machine of a broker.",
)  # fmt: skip


@click.group()
def access() -> None:
    """Create and list access tokens for programs without a certificate; revoke people.

    The HTTP API takes them as 'Authorization: Bearer TOKEN'. A token is shown once and not stored.
    """


@access.command("create")
@_home
@click.argument("name")
@click.option("--role", type=click.Choice([str(role) for role in PEOPLE_ROLES]), required=True)
@click.option(
    "--days", type=click.IntRange(1, ACCESS_DAYS_MAX), default=ACCESS_DAYS, show_default=True,
    help="Days until it expires.",
)  # fmt: skip
@click.option(
    "--into", type=click.Path(path_type=Path, dir_okay=False), default=None,
    help="Write it to this new file, readable by you alone, instead of the screen.",
)  # fmt: skip
def create(home: Path, name: str, role: str, days: int, into: Path | None) -> None:
    """Create a token for NAME and print it, or write it to a file."""
    if into is not None and into.exists():
        raise click.ClickException(f"{into} exists already and was not changed; choose another file")
    try:
        token = _ledger(home).create(Role(role), name, days)
    except AccessTokenError as error:
        raise click.ClickException(str(error)) from None
    if into is None:
        click.echo(token)
        return
    try:
        atomic_files.write_new(into, token.encode("ascii") + b"\n", atomic_files.PRIVATE)
    except OSError as error:
        raise click.ClickException(f"{into} cannot be written: {error.strerror}") from None
    click.echo(f"The token of {name} is in {into}: use it with 'hanse config set NAME --token-file {into}'.")


@access.command("list")
@_home
def list_tokens(home: Path) -> None:
    """List the tokens that have not expired, then the revoked names.

    The tokens themselves are not stored. The certificates of a revoked name are revoked too, up to the time
    shown.
    """
    try:
        tokens, names = _ledger(home).list_tokens(), _ledger(home).revoked_names()
    except AccessTokenError as error:
        raise click.ClickException(str(error)) from None
    for token in tokens:
        click.echo(_token_line(token))
    for name, until in names.items():
        click.echo(f"{name}  everything made until {_time_text(until)}  revoked")


@access.command("revoke")
@context_option
@click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), envvar="HANSE_HOME",
    help="The home of a broker, to end single tokens that were made there, or when no broker answers. "
    "Default: ask a broker of the current context, as an admin.",
)  # fmt: skip
@click.argument("name")
@click.option("--serial", default="", help="Only the token with this serial prefix; see 'hanse access list'.")
@click.option("--yes", is_flag=True, help="Revoke also your own NAME, and so your own certificate.")
@click.option("--unknown", is_flag=True, help="Revoke also a NAME that no reachable broker knows.")
def revoke(home: Path | None, name: str, serial: str, yes: bool, unknown: bool) -> None:
    """Revoke everything that NAME has until now, everywhere in the league.

    That is: access tokens, certificates of people, and join tokens that were not used. What is made for NAME
    afterwards is good, and a member of the league that is called NAME goes on. A machine that cannot be
    reached now learns of the revocation as soon as it can be reached. A NAME that neither the brokers nor the
    home know is refused: it may be misspelt.
    """
    if home is not None and Home(home.absolute()).has_authority:
        place = Home(home.absolute())
        if serial:
            _revoke_tokens(place, name, serial)
        else:
            _revoke_at_home(place, name, yes, unknown)
        return
    if serial:
        raise click.UsageError("--serial needs --home, where the list of tokens is")
    with league_client() as client:
        if not unknown:
            _refuse_unknown_name(name, *client.people())
        answer = _revoke_with_confirmation(client, name, yes)
    click.echo(f"{_revoked_text(name)} is revoked.")
    _print_answer(answer)


class NotConfirmedError(CommandError):
    """Refusal of a person to revoke their own certificate."""


class UnknownNameError(CommandError):
    """Unknown name in a revocation."""


def _refuse_unknown_name(name: str, names: set[str], silent: dict[str, str]) -> None:
    """Refuse a name that is not known, and suggest similar ones."""
    if name in names:
        return
    from difflib import get_close_matches  # noqa: PLC0415  only a misspelt name needs it

    similar = get_close_matches(name, sorted(names), n=NAMES_SHOWN_MAX)
    suggestion = f"did you mean {' or '.join(similar)}? " if similar else ""
    not_asked = f" ({', '.join(silent)} could not be asked)" if silent else ""
    raise UnknownNameError(
        f"nobody called {name!r} is known here{not_asked}, so nothing was revoked",
        ExitCode.USAGE,
        f"{suggestion}insist with '--unknown'",
    )


def _revoke_with_confirmation(client: "LeagueClient", name: str, yes: bool) -> "RevokeAnswer":
    """Ask a broker to revoke a name; ask for confirmation if it is the caller's own."""
    from hanse.client.client import OwnNameError  # noqa: PLC0415  only this asks the league

    try:
        return client.revoke(name, own=yes)
    except OwnNameError as error:
        _confirm(error.message)
        return client.revoke(name, own=True)


def _confirm(problem: str) -> None:
    """Ask for confirmation; a program confirms with ``--yes``."""
    text = "In the home of a broker, 'hanse renew --anew' makes a new certificate. Go on?"
    try:
        agreed = click.confirm(f"{problem[:1].upper()}{problem[1:]}.\n{text}", err=True)
    except click.Abort:  # no terminal to ask
        agreed = False
        click.echo(err=True)
    if not agreed:
        raise NotConfirmedError("nothing was revoked", ExitCode.FAILED, "insist with '--yes'")


def _revoke_at_home(home: Home, name: str, yes: bool, unknown: bool) -> None:
    """Ask a broker to spread the revocation, then write it where tokens are made: in this order, because
    afterwards this machine refuses a certificate of that name, which may be the caller's."""
    if not yes and name == _certificate_holder(home):
        _confirm(f"this ends the certificate in {home.person(PERSON)}, which you are using")
        yes = True
    try:
        known = {*known_people(home), *_ledger(home.path).revoked_names()}
    except AccessTokenError as error:
        raise click.ClickException(str(error)) from None
    answer: RevokeAnswer | CommandError
    try:
        with closing(_endpoints(home)) as endpoints:
            from hanse.client.client import LeagueClient  # noqa: PLC0415  only this asks the league

            client = LeagueClient(endpoints)
            if not unknown and name not in known:
                names, silent = client.people()
                known |= names
                _refuse_unknown_name(name, known, silent)
            answer = _revoke_with_confirmation(client, name, yes)
    except (NotConfirmedError, UnknownNameError):
        raise
    except CommandError as error:
        if not unknown:
            _refuse_unknown_name(name, known, {"the brokers": error.message})
        answer = error
    try:
        revoked = _ledger(home.path).revoke(name)
    except AccessTokenError as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"{_revoked_text(name)} is revoked ({len(revoked)} of the tokens made here). The servers of this "
        f"machine "
        "refuse it from now on."
    )
    if isinstance(answer, CommandError):
        raise _not_spread_error(answer)
    _print_answer(answer)


def _revoke_tokens(home: Home, name: str, serial: str) -> None:
    """Write the revocation of single tokens where they are made, then ask a broker to spread it."""
    from hanse.client.client import LeagueClient  # noqa: PLC0415  only this asks the league

    try:
        revoked = _ledger(home.path).revoke(name, serial)
    except AccessTokenError as error:
        raise click.ClickException(str(error)) from None
    if not revoked:
        raise click.ClickException(f"there is no such token of {name!r} to revoke; see 'hanse access list'")
    click.echo(f"{len(revoked)} of {name}'s tokens revoked. The servers of this machine refuse them now.")
    serials = [access.serial for access in revoked]
    try:
        with closing(_endpoints(home)) as endpoints:
            for first in range(0, len(serials), SERIALS_PER_REQUEST):
                answer = LeagueClient(endpoints).revoke(
                    serials=tuple(serials[first : first + SERIALS_PER_REQUEST])
                )
        _print_answer(answer)
    except CommandError as error:
        raise _not_spread_error(error) from None


def _not_spread_error(error: CommandError) -> CommandError:
    return CommandError(
        f"no broker could spread the revocation to other machines: {error.message}",
        error.status,
        "a broker on this machine tells them when it starts, or at the next request of a person",
    )


def _revoked_text(name: str) -> str:
    return f"Everything that {name} has until now (tokens and a person's certificates)"


def _certificate_holder(home: Home) -> str:
    """Return the name in the certificate of the commands in a league's home; empty if it cannot be read."""
    try:
        identity = Credentials(home.person(PERSON)).certificate().identity
    except (OSError, ValueError):
        return ""
    return identity.name if identity is not None else ""


def _endpoints(home: Home) -> "Endpoints":
    from hanse.client.endpoints import Endpoints  # noqa: PLC0415  only this asks the league

    return Endpoints("", _founder_context(home))


def _founder_context(home: Home) -> Context:
    """Return the context of the league's founder."""
    from hanse.league.config import LeagueError  # noqa: PLC0415  only this asks the league
    from hanse.league.file import load  # noqa: PLC0415  as above

    try:
        league_of_home = load(home.league_file)
    except (LeagueError, OSError) as error:
        raise CommandError(str(error), ExitCode.UNAVAILABLE) from None
    brokers = {entry.name: str(entry.door) for entry in league_of_home.brokers}
    return Context(league_of_home.name, str(home.path), str(home.person(PERSON)), brokers)


def _print_answer(answer: "RevokeAnswer") -> None:
    """Print which members refuse the revoked name."""
    click.echo(f"Refused from now on by: {', '.join(answer.told)}")
    if answer.owed:
        click.echo(f"Not reached; informed as soon as they answer: {', '.join(answer.owed)}")


def _ledger(home: Path) -> AccessTokenIssuer:
    place = Home(home.absolute())
    try:
        return AccessTokenIssuer(place, Authority.open(place.authority))
    except AuthorityError as error:
        raise click.ClickException(str(error)) from None


def _token_line(token: IssuedToken) -> str:
    """Format a token as a line of a list."""
    access = token.access
    state = "revoked" if token.revoked else f"until {_time_text(access.expires)}"
    return f"{access.name}  {access.role}  {access.serial[:12]}  {state}"


def _time_text(micro: int) -> str:
    return datetime.fromtimestamp(micro // SECOND, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
