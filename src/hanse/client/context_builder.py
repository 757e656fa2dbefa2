"""Making a context out of an address, the authority's certificate and an access token: ``hanse config set``.

For machines and containers that have no certificate of their own. The first broker that answers says how the
league is called and who is in it; it is believed because its certificate is of the given authority. That
certificate is copied beside the file of contexts, the token stays in its own file.
"""

import http.client
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hanse.client.access_token import Token
from hanse.client.contexts import Context, config_path
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.responses import ErrorAnswer, LeagueAnswer
from hanse.client.transport import ANSWER_SECONDS_MAX, host_and_port, reason
from hanse.security import atomic_files
from hanse.security.credentials import AUTHORITY_FILE, joining_context
from hanse.security.identity import name_problem

AUTHORITIES: Final = "authorities"
"""Beside the file of contexts: a directory for each of them, with the certificate of its authority."""
AUTHORITY_BYTES_MAX: Final = 64 << 10
ANSWER_BYTES_MAX: Final = 8 << 20


def introduced(brokers: Sequence[str], authority: str, token: Token) -> LeagueAnswer:
    """The league as the first of these brokers (``host:port`` each) that answers describes it."""
    trouble = []
    for address in brokers:
        try:
            return _asked(address, joining_context(authority), token)
        except (OSError, http.client.HTTPException) as error:
            trouble.append(f"{address}: {reason(error)}")
        except ValueError as error:
            raise CommandError(
                f"the authority's certificate cannot be used: {error}",
                ExitCode.CONFIG,
                "it is 'ca.pem', beside the certificate of anybody who belongs to the league",
            ) from None
    raise CommandError(
        f"no broker answers ({'; '.join(trouble)})",
        ExitCode.UNAVAILABLE,
        "--broker is the door of a broker, as 'hanse config view' of somebody in the league shows it",
    )


def keep_authority(name: str, authority: str) -> Path:
    """Keep the authority's certificate for the context of this name; the directory that has it."""
    problem = name_problem(name)
    if problem is not None:
        raise CommandError(f"'{name}' cannot be a context: {problem}", ExitCode.USAGE, "choose another name")
    directory = config_path().absolute().parent / AUTHORITIES / name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_files.replace(directory / AUTHORITY_FILE, authority.encode("ascii"), atomic_files.PUBLIC)
    return directory


def read_authority(path: Path) -> str:
    """The text of a certificate's file."""
    try:
        with path.open("rb") as file:
            return file.read(AUTHORITY_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        hint = "it is 'ca.pem', beside the certificate of anybody who belongs to the league"
        raise CommandError(f"{path} cannot be read: {error}", ExitCode.FILE, hint) from None


def context_of(league: LeagueAnswer, directory: Path, token: Path) -> Context:
    """The context of a league that was introduced."""
    return Context(
        league=league.league,
        credentials=str(directory),
        brokers={one.name: one.door for one in league.brokers},
        clusters={one.name: one.door for one in league.clusters},
        token=str(token),
    )


def _asked(address: str, context: ssl.SSLContext, token: Token) -> LeagueAnswer:
    host, port = host_and_port(address)
    door = http.client.HTTPSConnection(host, port, context=context, timeout=ANSWER_SECONDS_MAX)
    try:
        door.request("GET", "/v1/league", headers={"Authorization": f"Bearer {token.text()}"})
        answer = door.getresponse()
        data = answer.read(ANSWER_BYTES_MAX)
    finally:
        door.close()
    try:
        if answer.status == 200:
            return msgspec.json.decode(data, type=LeagueAnswer)
        error = msgspec.json.decode(data, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = ErrorAnswer().error
    message = error.message or f"the broker at {address} answered with status {answer.status}"
    if answer.status == 401:
        raise token.refused(error.code, message)
    raise CommandError(message, ExitCode.UNAVAILABLE, error.hint)
