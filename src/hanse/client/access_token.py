"""Access token of a client: its sources, and the hints when a server refuses it.

A token comes from the program itself (``hanse.Client(token=...)``), from ``$HANSE_TOKEN``, or from the file
that the context names, in this order. It is sent in one header of requests to members with a checked
certificate, and never appears in a message, a ``repr`` or a command line. The file is read again for every
request, so that a new token in it is used at once.
"""

import os
import stat
from pathlib import Path
from typing import Final

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

TOKEN_VARIABLE: Final = "HANSE_TOKEN"  # noqa: S105  the name of a variable
TOKEN_BYTES_MAX: Final = 1_024
TOKEN_PREFIX: Final = "hanse-access-1."  # noqa: S105  the beginning of each token
GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""Permissions that a file with a secret must not have."""
_HINTS: Final = {
    "token_expired": "it has expired: an admin makes a new one with 'hanse access create'",
    "token_revoked": "it was revoked: ask an admin for a new one ('hanse access create')",
    "token_unknown": "it is damaged or of another league: compare it with that of 'hanse access create'",
}


class AccessToken:
    """Access token by its source. Its text is read when it is sent."""

    def __init__(self, source: str, text: str = "", path: Path | None = None) -> None:
        self.source = source
        """Name of the source for messages: ``$HANSE_TOKEN``, or the file."""
        self._text = text
        self._path = path

    def __repr__(self) -> str:
        return f"<access token of {self.source}>"

    def text(self) -> str:
        """Return the token for a header. Raises ``CommandError`` if it is malformed."""
        text = (self._text if self._path is None else _read_token_file(self._path)).strip()
        if not text.startswith(TOKEN_PREFIX) or not text.isascii() or not text.isprintable() or " " in text:
            hint = f"a token begins with '{TOKEN_PREFIX}'; 'hanse access create' makes one"
            if text.startswith("hanse-"):
                hint = f"a join token is for 'hanse join' only; {hint}"
            raise CommandError(f"{self.source} holds no access token", ExitCode.CONFIG, hint)
        return text

    def refusal_error(self, code: str, message: str) -> CommandError:
        """Return the error for a token that a server refused."""
        hint = _HINTS.get(code, "an admin makes one with 'hanse access create'")
        return CommandError(message, ExitCode.FORBIDDEN, f"{hint}; the refused token is {self.source}")


def find_token(path: str, argument: str | None = None) -> AccessToken | None:
    """Return the token to send: the program's own, the environment's, or that of the context's file. None:
    there is no token, and a certificate is used instead."""
    if argument is not None:
        return AccessToken("the argument 'token'", argument)
    if os.environ.get(TOKEN_VARIABLE):
        return AccessToken(f"${TOKEN_VARIABLE}", os.environ[TOKEN_VARIABLE])
    if path:
        return AccessToken(f"in {path}", path=Path(path))
    return None


def _read_token_file(path: Path) -> str:
    """Read a token from the user's file; a file that others may read is refused, as ssh refuses such keys."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(TOKEN_BYTES_MAX + 2)
    except OSError as error:
        raise CommandError(
            f"the access token in {path} cannot be read: {error.strerror}",
            ExitCode.CONFIG,
            "restore it, or choose another file with 'hanse config set NAME --token-file FILE'",
        ) from None
    if mode & GROUP_AND_OTHERS:
        raise CommandError(
            f"others may read {path}, which holds an access token", ExitCode.CONFIG, f"run 'chmod 600 {path}'"
        )
    return data.decode("ascii", errors="replace")
