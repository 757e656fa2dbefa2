"""Endpoints of a league's members: the order of requests, and errors from refusals.

Brokers are asked in the order of the context, the one that answered last first. That one is stored beside the
file of contexts, so that a broker that swallows connections delays one command and not all of them.

A context lists the members at one time. Each broker's answer has the version of its league file. If that
differs, if an endpoint does not answer or a name is unknown, the members are fetched again and saved. A known
member keeps its address, which may work only from here, until it has answered at a new one.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hanse.client.access_token import token_of
from hanse.client.contexts import Context, config_path, current, renew_context
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.responses import ErrorAnswer, ErrorText, LeagueAnswer, SubmitResult
from hanse.client.transport import ANSWER_SECONDS_MAX, Door, Reply, SilentError, is_address
from hanse.security.certificate_fields import CertificateError
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

REDIRECTS_MAX: Final = 4
OWNER_HEADER: Final = "x-hanse-broker"
LAST_FILE: Final = "last-brokers.json"
BUSY: Final = (429, 503)
"""Statuses of a broker that cannot answer now; another one may."""

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
    """Endpoints of one context. For one thread."""

    def __init__(self, name: str, context: Context, token: str | None = None) -> None:
        """``token``: access token to use; None: that of the environment or of the context, if any."""
        self.name = name
        self.context = context
        self._given = token
        self._token = token_of(context.token, token)
        self._open: dict[tuple[Identity, str], Door] = {}
        self._last = _remembered().get(name, "")
        self._moved: dict[tuple[Role, str], str] = {}
        """New addresses of members that do not answer at the context's address."""

    @classmethod
    def chosen(cls, name: str | None, token: str | None = None) -> "Doors":
        """Make the endpoints of the context of this name, or of the current one."""
        return cls(*current(name), token)

    def another(self) -> "Doors":
        """Return the same endpoints with connections of their own, for another thread."""
        return Doors(self.name, self.context, self._given)

    def check(self) -> None:
        """Raise ``CommandError`` if the token is malformed."""
        if self._token is not None:
            self._token.text()

    @property
    def heard(self) -> bool:
        """True if any member of the league has ever answered here."""
        return any(door.answered for door in self._open.values())

    def order(self) -> list[str]:
        """Return the brokers in the order of requests: the last one that answered first."""
        names = list(self.context.brokers)
        return sorted(names, key=lambda name: name != self._last)  # stable: the others keep their order

    def everyone(self) -> Iterator[str]:
        """Yield the brokers in that order, then those that are new or moved. The members are fetched again if
        a broker did not answer or has a newer league file."""
        asked = {name: self._address(Role.BROKER, name) for name in self.order()}
        yield from asked
        doors = [door for (who, _), door in self._open.items() if who.role is Role.BROKER]
        if any(not door.answered or door.file_version > self.context.file_version for door in doors):
            self._learn()
        later = [name for name in self.order() if self._address(Role.BROKER, name) != asked.get(name)]
        yield from later

    def missed(self, silent: dict[str, str], heard: Collection[str]) -> dict[str, str]:
        """Return the silent brokers that belong to the league and did not answer at another address."""
        return {
            name: why for name, why in silent.items() if name in self.context.brokers and name not in heard
        }

    def all_silent(self, silent: dict[str, str]) -> bool:
        """Return True if these are all brokers of the league."""
        return all(name in silent for name in self.context.brokers)

    def broker(self, name: str, address: str = "") -> Door:
        """Return a broker's endpoint."""
        return self._door(Role.BROKER, name, address or self._address(Role.BROKER, name))

    def has_cluster(self, name: str) -> bool:
        """Return True if there is such a cluster; if it is unknown, a broker is asked."""
        if name not in self.context.clusters:
            self._learn()
        return name in self.context.clusters

    def cluster(self, name: str, address: str = "") -> Door:
        """Return the endpoint of a cluster's warden."""
        if not address and name not in self.context.clusters and not self._learn():
            silent = "the context has no cluster '{}', and no broker answers"
            raise CommandError(silent.format(name), ExitCode.UNAVAILABLE, self._known_clusters())
        if not address and name not in self.context.clusters:
            raise CommandError(
                f"there is no cluster '{name}' in this league", ExitCode.USAGE, self._known_clusters()
            )
        return self._door(Role.WARDEN, name, address or self._address(Role.WARDEN, name))

    def moved_cluster(self, silent: Door) -> Door | None:
        """Return the endpoint at a warden's new address, if it has one."""
        self._learn()
        name = silent.server.name
        is_elsewhere = self._address(Role.WARDEN, name) != silent.address
        return self.cluster(name) if is_elsewhere else None

    def _known_clusters(self) -> str:
        return f"there are: {', '.join(self.context.clusters) or 'none'}"

    def _address(self, role: Role, name: str) -> str:
        known = self.context.brokers if role is Role.BROKER else self.context.clusters
        return self._moved.get((role, name), "") or known.get(name, "")

    def runner(self, name: str, address: str) -> Door:
        """Return the endpoint of a runner on a machine of its own."""
        return self._door(Role.RUNNER, name, address)

    def _door(self, role: Role, name: str, address: str) -> Door:
        key = (Identity(self.context.league, role, name), address)
        if key not in self._open:
            self._open[key] = Door(address, key[0], Path(self.context.credentials), self._token)
        return self._open[key]

    def close(self) -> None:
        """Close all connections."""
        for door in self._open.values():
            door.close()
        self._settle()

    # --- members that joined, left or moved -----------------------------------------------------------------

    def _learn(self) -> bool:
        """Fetch the members from a broker or else from the home; True if a broker answered."""
        for name in self.order():
            door = self.broker(name)
            if door.tried and not door.answered:
                continue  # it did not answer a moment ago
            with suppress(SilentError, CommandError):
                answer = decoded(door.ask("GET", "/v1/league"), LeagueAnswer)
                self._take(
                    {one.name: one.door for one in answer.brokers if is_address(one.door)},
                    {one.name: one.door for one in answer.clusters if is_address(one.door)},
                    door.file_version,
                )
                return True
        self._learn_at_home()
        return False

    def _learn_at_home(self) -> None:
        """Read the league file, if there is one."""
        if not self.context.home:
            return
        from hanse.live.config.league import LeagueError  # noqa: PLC0415  only when nobody answers
        from hanse.live.config.league_file import load  # noqa: PLC0415  as above

        with suppress(OSError, LeagueError):
            league = load(Home(Path(self.context.home)).league_file)
            self._take(
                {entry.name: str(entry.door) for entry in league.serving_brokers},
                {entry.name: str(entry.door) for entry in league.serving_clusters},
                league.version,
            )

    def _take(self, brokers: dict[str, str], clusters: dict[str, str], version: int) -> None:
        """Use these members, unless an older file names them."""
        if not brokers or version < self.context.file_version:
            return
        before = self.context
        kept = []
        for role, old, new in (
            (Role.BROKER, before.brokers, brokers),
            (Role.WARDEN, before.clusters, clusters),
        ):
            kept.append({name: old.get(name) or door for name, door in new.items()})
            for name, door in new.items():
                silent = self._open.get((Identity(before.league, role, name), old.get(name, "")))
                if silent is not None and not silent.answered and door != silent.address:
                    self._moved[role, name] = door
        self._keep(before, msgspec.structs.replace(
            before, brokers=kept[0], clusters=kept[1], file_version=version
        ))  # fmt: skip

    def _settle(self) -> None:
        """Save the new addresses of members that have answered there."""
        brokers, clusters = dict(self.context.brokers), dict(self.context.clusters)
        for (role, name), address in self._moved.items():
            door = self._open.get((Identity(self.context.league, role, name), address))
            known = brokers if role is Role.BROKER else clusters
            if door is not None and door.answered and name in known:
                known[name] = address
        self._keep(self.context, msgspec.structs.replace(self.context, brokers=brokers, clusters=clusters))

    def _keep(self, before: Context, now: Context) -> None:
        if now == before:
            return
        self.context = now
        with suppress(OSError, CommandError):  # the next command finds it again
            renew_context(self.name, before, now)

    def good(self, name: str) -> None:
        """Ask this broker first from now on, because it has answered."""
        if name == self._last or (not self._last and name == next(iter(self.context.brokers))):
            return
        self._last = name
        try:
            known = {**_remembered(), self.name: name}
            part = _last_path().with_suffix(".part")
            part.write_bytes(msgspec.json.encode(known))
            part.replace(_last_path())
        except OSError:  # only a convenience: the next command finds it again
            return

    def any_broker(
        self, method: str, target: str, body: bytes | None = None, seconds: float = ANSWER_SECONDS_MAX
    ) -> Reply:
        """Ask brokers until one answers; a busy one is skipped while there are others."""
        silent: dict[str, str] = {}
        busy: Reply | None = None
        for name in self.everyone():
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
        """Return the error when no broker answers, with the reasons and a hint."""
        reasons = "; ".join(
            f"{name} at {self._address(Role.BROKER, name) or '?'}: {why}" for name, why in silent.items()
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
            hint = "start one of its brokers, and try again; 'hanse config use NAME' chooses another league"
        return CommandError(message, ExitCode.UNAVAILABLE, hint)

    def _expired(self) -> str:
        """Return a sentence if the client's own certificate has expired."""
        if self._token is not None:
            return ""
        from hanse.security.wall_time import wall_now  # noqa: PLC0415  only this failure needs it

        try:
            certificate = Credentials(Path(self.context.credentials)).certificate()
        except (OSError, CertificateError):
            return ""
        if certificate.not_after > wall_now():
            return ""
        return f"the certificate in {self.context.credentials} has expired"


def refusal_code(reply: Reply) -> str:
    """Return the code of a refusal; empty: it has none."""
    return _error_of(reply).code


def _error_of(reply: Reply) -> ErrorText:
    try:
        return msgspec.json.decode(reply.body, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorAnswer().error


def refusal(reply: Reply, subject: str = "") -> CommandError:
    """Convert a refusal to a ``CommandError``."""
    error = _error_of(reply)
    said = error.message or f"the server answered with status {reply.status}"
    status = _STATUSES.get(reply.status, ExitCode.FAILED)
    return CommandError(f"{subject}: {said}" if subject else said, status, error.hint)


def refused_results(reply: Reply) -> tuple[SubmitResult, ...]:
    """Decode the results of each job from a refusal of jobs; empty if it is another refusal."""
    try:
        return msgspec.json.decode(reply.body, type=ErrorAnswer).results
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


def decoded(reply: Reply, kind: type[T]) -> T:
    """Decode an answer, or raise the error of a refusal."""
    if reply.status >= 300:
        raise refusal(reply)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"the answer cannot be decoded: {error}",
            ExitCode.UNAVAILABLE,
            "the league and this program may be of different versions; compare 'hanse status' and 'hanse -V'",
        ) from None


def _last_path() -> Path:
    return config_path().with_name(LAST_FILE)


def _remembered() -> dict[str, str]:
    """Load the broker that answered last for each context; empty if the file is unusable."""
    try:
        return msgspec.json.decode(_last_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
