"""An access token as a client holds it: where it comes from, and what is said when a door does not take it.

A token comes from the program itself (``hanse.Client(token=...)``), from ``$HANSE_TOKEN``, or from the file
that the context names, in this order. It goes into one header of a request to a member whose certificate was
checked, and nowhere else: no message, no ``repr`` and no command line ever holds it. A file is read again for
every request, so that a new token in it counts at once.
"""

import os
import stat
from pathlib import Path
from typing import Final

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

TOKEN_VARIABLE: Final = "HANSE_TOKEN"  # noqa: S105  the name of a variable
TOKEN_BYTES_MAX: Final = 1_024
BEGINNING: Final = "hanse-access-1."
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""What a file with a secret grants to nobody."""
_HINTS: Final = {
    "token_expired": "its time is over: an admin makes a new one with 'hanse access create'",
    "token_revoked": "somebody ended it: ask an admin for a new one ('hanse access create')",
    "token_unknown": "it is damaged or of another league: compare it with what 'hanse access create' gave",
}


class Token:
    """A token, by its source. Its text is asked for when it is sent."""

    def __init__(self, source: str, text: str = "", path: Path | None = None) -> None:
        self.source = source
        """As people call it: ``$HANSE_TOKEN``, or the file."""
        self._text = text
        self._path = path

    def __repr__(self) -> str:
        return f"<access token of {self.source}>"

    def text(self) -> str:
        """The token as a header takes it. Raises ``CommandError`` if it is none."""
        text = (self._text if self._path is None else _read(self._path)).strip()
        if not text.startswith(BEGINNING) or not text.isascii() or not text.isprintable() or " " in text:
            hint = f"one begins with '{BEGINNING}'; 'hanse access create' makes it"
            if text.startswith("hanse-"):
                hint = f"a join token is for 'hanse join' only; {hint}"
            raise CommandError(f"{self.source} holds no access token", ExitCode.CONFIG, hint)
        return text

    def refused(self, code: str, message: str) -> CommandError:
        """What to say when a door does not believe it."""
        hint = _HINTS.get(code, "an admin makes one with 'hanse access create'")
        return CommandError(message, ExitCode.FORBIDDEN, f"{hint}; the one that was shown is {self.source}")


def token_of(path: str, given: str | None = None) -> Token | None:
    """The token to show: the program's own, that of the environment, or that of the context's file; None if
    there is none, and a certificate is shown instead."""
    if given is not None:
        return Token("the argument 'token'", given)
    if os.environ.get(TOKEN_VARIABLE):
        return Token(f"${TOKEN_VARIABLE}", os.environ[TOKEN_VARIABLE])
    if path:
        return Token(f"in {path}", path=Path(path))
    return None


def _read(path: Path) -> str:
    """What a file of the user's own holds; one that others may read is refused, as ssh refuses such keys."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(TOKEN_BYTES_MAX + 2)
    except OSError as error:
        raise CommandError(
            f"the access token in {path} cannot be read: {error.strerror}",
            ExitCode.CONFIG,
            "put it there again, or choose another file with 'hanse config set NAME --token-file FILE'",
        ) from None
    if mode & OTHERS:
        raise CommandError(
            f"others may read {path}, which holds an access token", ExitCode.CONFIG, f"run 'chmod 600 {path}'"
        )
    return data.decode("ascii", errors="replace")
