"""Context from an address, the authority's certificate and an access token: ``hanse config set``.

For machines and containers without a certificate of their own. The first broker that answers returns the
league's name and members; it is trusted because its certificate is signed by the given authority. That
certificate is copied beside the file of contexts; the token stays in its own file.
"""

import http.client
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hanse.api.records import ErrorAnswer, LeagueAnswer
from hanse.client.access_token import AccessToken
from hanse.client.contexts import Context, config_path
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.transport import ANSWER_SECONDS_MAX, failure_text, host_and_port
from hanse.security import atomic_files
from hanse.security.credentials import AUTHORITY_FILE, joining_context
from hanse.security.identity import name_problem

AUTHORITIES: Final = "authorities"
"""Directory beside the file of contexts; each context has a folder in it for its authority's certificate."""
AUTHORITY_BYTES_MAX: Final = 64 << 10
ANSWER_BYTES_MAX: Final = 8 << 20


def fetch_league(brokers: Sequence[str], authority: str, token: AccessToken) -> LeagueAnswer:
    """Fetch the league's description from the first of these brokers (``host:port`` each) that answers."""
    failures = []
    for address in brokers:
        try:
            return _fetch_league(address, joining_context(authority), token)
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{address}: {failure_text(error)}")
        except ValueError as error:
            raise CommandError(
                f"the authority's certificate cannot be used: {error}",
                ExitCode.CONFIG,
                "it is 'ca.pem', beside the certificate of any person or member of the league",
            ) from None
    raise CommandError(
        f"no broker answers ({'; '.join(failures)})",
        ExitCode.UNAVAILABLE,
        "--broker must be a broker's HTTPS address (HOST:PORT), as 'hanse config view' of a member shows it",
    )


def save_authority(name: str, authority: str) -> Path:
    """Save the authority's certificate for the context of this name; return its directory."""
    problem = name_problem(name)
    if problem is not None:
        raise CommandError(f"'{name}' cannot be a context: {problem}", ExitCode.USAGE, "choose another name")
    directory = config_path().absolute().parent / AUTHORITIES / name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_files.replace(directory / AUTHORITY_FILE, authority.encode("ascii"), atomic_files.PUBLIC)
    return directory


def read_authority(path: Path) -> str:
    """Read the text of a certificate file."""
    try:
        with path.open("rb") as file:
            return file.read(AUTHORITY_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        hint = "it is 'ca.pem', beside the certificate of any person or member of the league"
        raise CommandError(f"{path} cannot be read: {error}", ExitCode.FILE, hint) from None


def build_context(league: LeagueAnswer, directory: Path, token: Path) -> Context:
    """Build the context of a league from its description."""
    return Context(
        league=league.league,
        credentials=str(directory),
        brokers={one.name: one.door for one in league.brokers},
        clusters={one.name: one.door for one in league.clusters},
        token=str(token),
    )


def _fetch_league(address: str, context: ssl.SSLContext, token: AccessToken) -> LeagueAnswer:
    host, port = host_and_port(address)
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", "/v1/league", headers={"Authorization": f"Bearer {token.text()}"})
        response = connection.getresponse()
        data = response.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
    try:
        if response.status == 200:
            return msgspec.json.decode(data, type=LeagueAnswer)
        error = msgspec.json.decode(data, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = ErrorAnswer().error
    message = error.message or f"the broker at {address} answered with status {response.status}"
    if response.status == 401:
        raise token.refusal_error(error.code, message)
    raise CommandError(message, ExitCode.UNAVAILABLE, error.hint)
