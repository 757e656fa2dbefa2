"""The doors of a league: who to ask, in which order, and what an answer that is no answer means.

Brokers are asked in the order of the context, the one that answered last first. It is remembered beside the
file of contexts, so that a broker that swallows connections delays one command and not all of them.
"""

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hanse.app.access_token import token_of
from hanse.app.answers import ErrorAnswer, ErrorText, SubmitResult
from hanse.app.contexts import Context, config_path, current
from hanse.app.exit_codes import ExitCode
from hanse.app.told import CommandError
from hanse.app.transport import ANSWER_SECONDS_MAX, Door, Reply, SilentError
from hanse.live.identity.certificate import CertificateError
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import Identity, Role

REDIRECTS_MAX: Final = 4
OWNER_HEADER: Final = "x-hanse-broker"
LAST_FILE: Final = "last-brokers.json"
BUSY: Final = (429, 503)
"""Statuses of a broker that cannot answer just now: another one may."""

T = TypeVar("T")
_STATUSES: Final = {
    401: ExitCode.FORBIDDEN,
    403: ExitCode.FORBIDDEN,
    404: ExitCode.JOB_NOT_FOUND,
    413: ExitCode.BAD_JOB,
    422: ExitCode.BAD_JOB,
    429: ExitCode.UNAVAILABLE,
    503: ExitCode.UNAVAILABLE,
}


class Doors:
    """The doors of one context. Not for several threads: make one for each."""

    def __init__(self, name: str, context: Context, token: str | None = None) -> None:
        """``token``: an access token to show; None: that of the environment or of the context, if any."""
        self.name = name
        self.context = context
        self._given = token
        self._token = token_of(context.token, token)
        self._open: dict[tuple[Identity, str], Door] = {}
        self._last = _remembered().get(name, "")

    @classmethod
    def chosen(cls, name: str | None, token: str | None = None) -> "Doors":
        """Those of the context of this name, or of the current one."""
        return cls(*current(name), token)

    def another(self) -> "Doors":
        """The same doors with connections of their own, for another thread."""
        return Doors(self.name, self.context, self._given)

    def check(self) -> None:
        """Raise ``CommandError`` if the token that would be shown is none."""
        if self._token is not None:
            self._token.text()

    @property
    def heard(self) -> bool:
        """Whether anybody of the league has ever answered here."""
        return any(door.answered for door in self._open.values())

    def order(self) -> list[str]:
        """The brokers in the order in which they are asked: the last good one first."""
        names = list(self.context.brokers)
        return sorted(names, key=lambda name: name != self._last)  # stable: the others keep their order

    def broker(self, name: str, address: str = "") -> Door:
        """A broker's door."""
        return self._door(Role.BROKER, name, address or self.context.brokers[name])

    def cluster(self, name: str, address: str = "") -> Door:
        """The door of a cluster's warden."""
        found = address or self.context.clusters.get(name, "")
        if not found:
            known = ", ".join(self.context.clusters) or "none"
            raise CommandError(
                f"there is no cluster '{name}' in this league", ExitCode.USAGE, f"there are: {known}"
            )
        return self._door(Role.WARDEN, name, found)

    def runner(self, name: str, address: str) -> Door:
        """The door of a runner on a machine of its own."""
        return self._door(Role.RUNNER, name, address)

    def _door(self, role: Role, name: str, address: str) -> Door:
        key = (Identity(self.context.league, role, name), address)
        if key not in self._open:
            self._open[key] = Door(address, key[0], Path(self.context.credentials), self._token)
        return self._open[key]

    def close(self) -> None:
        """Let go of every connection."""
        for door in self._open.values():
            door.close()

    def good(self, name: str) -> None:
        """A broker has answered: ask it first from now on."""
        if name == self._last or (not self._last and name == next(iter(self.context.brokers))):
            return
        self._last = name
        try:
            known = {**_remembered(), self.name: name}
            part = _last_path().with_suffix(".part")
            part.write_bytes(msgspec.json.encode(known))
            part.replace(_last_path())
        except OSError:  # only a convenience: the next command finds out for itself
            return

    def any_broker(
        self, method: str, target: str, body: bytes | None = None, seconds: float = ANSWER_SECONDS_MAX
    ) -> Reply:
        """The first broker that answers; one that is busy is passed over while there are others."""
        silent: dict[str, str] = {}
        busy: Reply | None = None
        for name in self.order():
            try:
                reply = self.broker(name).ask(method, target, body, seconds)
            except SilentError as error:
                silent[name] = str(error)
                continue
            if reply.status in BUSY:
                busy = reply
                continue
            self.good(name)
            return reply
        if busy is not None:
            raise refusal(busy)
        raise self.unreachable(silent)

    def unreachable(self, silent: dict[str, str]) -> CommandError:
        """No broker answers: what that means here, and what to do."""
        reasons = "; ".join(
            f"{name} at {self.context.brokers.get(name, '?')}: {why}" for name, why in silent.items()
        )
        expired = self._expired()
        if expired:
            hint = "run 'hanse up' again if the league is on this machine, or join it again with 'hanse join'"
            return CommandError(expired, ExitCode.UNAVAILABLE, hint)
        if self.context.home:
            message = (
                f"the league '{self.context.league}' is not running here ({reasons or 'it has no brokers'})"
            )
            hint = "start it with 'hanse up', or choose another one with 'hanse config use NAME'"
        else:
            message = (
                f"no broker of the league '{self.context.league}' answers ({reasons or 'none is known'})"
            )
            hint = (
                "see that a broker of it runs, and try again; 'hanse config use NAME' chooses another league"
            )
        return CommandError(message, ExitCode.UNAVAILABLE, hint)

    def _expired(self) -> str:
        """A sentence if the reason is our own certificate."""
        if self._token is not None:
            return ""
        from hanse.live.clock import wall_now  # noqa: PLC0415  only this failure needs it

        try:
            certificate = Credentials(Path(self.context.credentials)).certificate()
        except (OSError, CertificateError):
            return ""
        if certificate.not_after > wall_now():
            return ""
        return f"the certificate in {self.context.credentials} has expired"


def refusal_code(reply: Reply) -> str:
    """A word for a door's refusal; empty: it has none."""
    return _error_of(reply).code


def _error_of(reply: Reply) -> ErrorText:
    try:
        return msgspec.json.decode(reply.body, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorAnswer().error


def refusal(reply: Reply, subject: str = "") -> CommandError:
    """A door's refusal as an error of the command."""
    error = _error_of(reply)
    said = error.message or f"the door answered with status {reply.status}"
    status = _STATUSES.get(reply.status, ExitCode.FAILED)
    return CommandError(f"{subject}: {said}" if subject else said, status, error.hint)


def refused_results(reply: Reply) -> tuple[SubmitResult, ...]:
    """What a refusal of jobs says of each of them; nothing if it is another refusal."""
    try:
        return msgspec.json.decode(reply.body, type=ErrorAnswer).results
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


def decoded(reply: Reply, kind: type[T]) -> T:
    """What an answer says, or why the request was not met."""
    if reply.status >= 300:
        raise refusal(reply)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"the answer was not understood: {error}",
            ExitCode.UNAVAILABLE,
            "the league and this program may be of different versions; compare 'hanse status' and 'hanse -V'",
        ) from None


def _last_path() -> Path:
    return config_path().with_name(LAST_FILE)


def _remembered() -> dict[str, str]:
    """Context -> the broker that answered last; whatever is wrong with the file, nothing."""
    try:
        return msgspec.json.decode(_last_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
