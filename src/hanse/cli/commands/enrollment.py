"""``hanse init``, ``hanse token``, ``hanse join`` and ``hanse renew``: certificates of members and people."""

import http.client
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from hanse.cli.embedded.league_setup import (
    PERSON,
    certify_founder,
    certify_one,
    create_league,
    roles_of,
    with_ports,
)
from hanse.client.contexts import Context, keep_context
from hanse.client.errors import CommandError, warn
from hanse.league.config import LeagueConfig, LeagueError
from hanse.league.file import load
from hanse.live.config.home_permissions import tighten_umask
from hanse.model.ids import SECOND
from hanse.model.problem import Problem
from hanse.model.quantities import parse_duration
from hanse.security import atomic_files
from hanse.security.auth_refusal import AuthRefusal
from hanse.security.certificate_authority import Authority, AuthorityError
from hanse.security.credentials import Credentials, joining_context
from hanse.security.enrollment import accept, certificate_request, check_authority, new_key
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
from hanse.security.join_tokens import JoinTokenError, JoinTokenStore
from hanse.security.revocation_list import RevocationListError, revoked_until
from hanse.security.wall_time import wall_now

REQUEST_SECONDS_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 8 << 20

_home = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), required=True, envvar="HANSE_HOME",
    help="The league's home on this machine.",
)  # fmt: skip


@click.command()
@_home
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--member", "members", multiple=True, help="A member that runs on this machine; repeatable.")
def init(home: Path, file: Path, members: tuple[str, ...]) -> None:
    """Create a league from a league FILE: a private authority, and a certificate for yourself.

    Members named with --member get their certificates at once: the first broker cannot ask another. The
    members on other machines then join with tokens: see 'hanse token create' and 'hanse join'.
    """
    place = Home(home.absolute())
    tighten_umask()
    try:
        league = with_ports(load(file))
        roles = _roles_with_members(league, members, file)
        authority = create_league(place, league)
        certify_founder(place, league, authority)
        for name in members:
            identity = Identity(league.name, roles[name], name)
            certify_one(authority, place.member(name), identity, league.hosts_of(name))
    except LeagueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"The league '{league.name}' was created in {place.path}")
    click.echo(f"Its authority: {authority.fingerprint}")
    _save_context(_remote_context(league, place.person(PERSON)))
    _print_next_steps(place, league, members)


def _remote_context(league: LeagueConfig, credentials: Path) -> Context:
    """Return the context of a person with credentials here, for a league with members anywhere."""
    return Context(
        league=league.name,
        credentials=str(credentials),
        brokers={entry.name: str(entry.door) for entry in league.serving_brokers},
        clusters={entry.name: str(entry.door) for entry in league.serving_clusters},
        file_version=league.version,
    )


def _save_context(context: Context) -> None:
    """Save the context and make it current; warn if it cannot be saved."""
    try:
        kept = keep_context(context)
    except (CommandError, OSError) as error:
        reason = error.message if isinstance(error, CommandError) else error
        warn(f"no context was saved, so commands do not find this league: {reason}")
        return
    way_back = (
        f"; 'hanse config use {kept.previous}' goes back" if kept.previous not in ("", kept.name) else ""
    )
    click.echo(f"Commands now use it, with the context '{kept.name}'{way_back}.")


def _print_next_steps(place: Home, league: LeagueConfig, members: tuple[str, ...]) -> None:
    """Print the next commands, in the order in which they must run."""
    here = [entry for entry in league.brokers if entry.name in members]
    others = [f"{role} {name}" for name, role in roles_of(league).items() if name not in members]
    if not here:
        click.echo(
            "No broker has a certificate yet, and joining needs a running broker. Run all members on "
            f"this machine ('hanse up --home {place.path}'), or delete {place.path} and create the league "
            "with --member BROKER."
        )
        return
    click.echo("\nNext, on this machine (your service manager starts members, see deploy/README.md):")
    for name, role in roles_of(league).items():  # brokers first: the others connect to them
        if name in members:
            click.echo(f"  hanse {role} {name} --home {place.path}")
    click.echo("  hanse status")
    if others:
        click.echo(f"Then a token for each of {', '.join(others)}:")
        click.echo(f"  hanse token create --home {place.path} {others[0]}")
        click.echo("and on the machine of each, before its first start:")
        click.echo(f"  hanse join --home HOME {here[0].door} --token TOKEN")


def _roles_with_members(league: LeagueConfig, members: tuple[str, ...], file: Path) -> dict[str, Role]:
    """Return the roles of the league's members; refuse ``members`` not in the league."""
    roles = roles_of(league)
    for name in members:
        if name not in roles:
            raise LeagueError(f"{file} has no member called {name!r}; there are: {', '.join(roles)}")
    return roles


@click.group()
def token() -> None:
    """Create single-use tokens with which members and people join."""


@token.command("create")
@_home
@click.argument("role", type=click.Choice([str(role) for role in Role]))
@click.argument("name")
@click.option("--for", "lifetime", default="24h", show_default=True, help="Time until it expires.")
def token_create(home: Path, role: str, name: str, lifetime: str) -> None:
    """Create a token for one certificate with this ROLE and NAME, and print it."""
    place = Home(home.absolute())
    span = parse_duration(lifetime, "--for")
    if isinstance(span, Problem):
        raise click.UsageError(f"--for: {span.rule}")
    try:
        authority = Authority.open(place.authority)
        if Role(role).is_member and name not in load(place.league_file).members():
            raise click.ClickException(
                f"the league has no member called {name!r}; add it to {place.league_file} first"
            )
        after = -1 if Role(role).is_member else revoked_until(place.path, name, wall_now())
        click.echo(
            JoinTokenStore(place.authority, authority.fingerprint).create(Role(role), name, span, after)
        )
    except (AuthorityError, JoinTokenError, RevocationListError) as error:
        raise click.ClickException(str(error)) from None


@click.command()
@_home
@click.argument("door")
@click.option(
    "--token",
    "secret",
    envvar="HANSE_JOIN_TOKEN",
    required=True,
    help="Token of 'hanse token create'; better in $HANSE_JOIN_TOKEN, which 'ps' does not show.",
)
def join(home: Path, door: str, secret: str) -> None:
    """Join the league of the broker at DOOR (host:port): fetch a certificate and the league file."""
    place = Home(home.absolute())
    tighten_umask()
    host, colon, port = door.rpartition(":")
    if not colon or not port.isdigit():
        raise click.UsageError("DOOR must be host:port, the HTTP address of a broker")
    try:
        authority = str(
            _send_request(host, int(port), _unverified_context(), "GET", "/v1/authority", None)["authority"]
        )
        refusal = check_authority(authority, secret)
        if refusal is not None:
            raise click.ClickException(refusal.detail)
        key = new_key()
        join_request = {"csr": certificate_request(key), "token": secret, "hosts": []}
        answer = _send_request(host, int(port), joining_context(authority), "POST", "/v1/join", join_request)
    except (OSError, http.client.HTTPException) as error:
        raise click.ClickException(f"the broker at {door} could not be asked: {error}") from None
    _store_credentials(place, key, answer, authority)


@click.command()
@_home
@click.argument("name")
@click.option(
    "--anew", is_flag=True,
    help="Renew even if revoked. Only in the home of a broker; elsewhere join again with a new token.",
)  # fmt: skip
def renew(home: Path, name: str, anew: bool) -> None:
    """Renew the certificate of NAME, a person who joined from this machine, before it expires.

    Members renew their own certificates. Run this now and then for programs that have a certificate, such as
    Prometheus: it makes a new key, asks a broker, and replaces the file. A certificate that was revoked is
    not renewed.
    """
    from hanse.live.ca.process import renew_own  # noqa: PLC0415  only this needs it

    place = Home(home.absolute())
    directory = place.person(name) if place.person(name).is_dir() else place.member(name)
    credentials = Credentials(directory)
    if not credentials.path.is_file():
        raise click.ClickException(f"there is no certificate of {name!r} in {place.path}")
    try:
        renew_own(place, {"directory": str(directory), "anew": anew})
    except SystemExit as error:
        raise click.ClickException(f"the certificate could not be renewed: {error}") from None
    ends = datetime.fromtimestamp(credentials.certificate().not_after / SECOND, UTC)
    click.echo(f"Renewed; it ends on {ends:%Y-%m-%d at %H:%M} UTC.")


def _store_credentials(home: Home, key: str, answer: dict[str, Any], authority: str) -> None:
    """Store the credentials and the league file of the answer."""
    spare = Credentials(home.path / "joining")
    identity = accept(spare, key, answer["certificate"], authority)
    if isinstance(identity, AuthRefusal):
        raise click.ClickException(identity.detail)
    directory = home.member(identity.name) if identity.role.is_member else home.person(identity.name)
    Credentials(directory).store(key, answer["certificate"], authority)
    spare.path.unlink()
    spare.authority_path.unlink()
    spare.directory.rmdir()
    atomic_files.replace(home.league_file, str(answer["league"]).encode(), atomic_files.PUBLIC)
    league = load(home.league_file)
    click.echo(f"You are {identity}.")
    if identity.role.is_member:
        click.echo(f"Start it: hanse {identity.role} {identity.name} --home {home.path}")
        return
    _save_context(_remote_context(league, directory))
    click.echo("Look around: hanse status")


def _unverified_context() -> ssl.SSLContext:
    """Return a context without verification, for data checked by the token's fingerprint; send no secrets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _send_request(
    host: str, port: int, context: ssl.SSLContext, method: str, path: str, body: object
) -> dict[str, Any]:
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=REQUEST_SECONDS_MAX)
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body))
        answer = connection.getresponse()
        decoded: dict[str, Any] = msgspec.json.decode(answer.read(ANSWER_BYTES_MAX))
    finally:
        connection.close()
    if answer.status != 200:
        raise click.ClickException(f"{decoded['error']['message']}. {decoded['error']['hint']}")
    return decoded
