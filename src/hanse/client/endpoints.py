"""The doors of a league: who to ask, in which order, and what an answer that is no answer means.

Brokers are asked in the order of the context, the one that answered last first. It is remembered beside the
file of contexts, so that a broker that swallows connections delays one command and not all of them.

A context lists the members of its time. Brokers say with every answer which league file they live by; when
that is another one, when a door does not answer or a name is not known, the members are asked for anew and
kept. Of a member that is known already the address stays, which may lead there from here alone, until another
one has answered in its place.
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
        self._moved: dict[tuple[Role, str], str] = {}
        """Where members are to be found that do not answer where the context says."""

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

    def everyone(self) -> Iterator[str]:
        """The brokers in that order; when all of them were asked and the league may have others by now, or
        elsewhere, these too."""
        asked = {name: self._address(Role.BROKER, name) for name in self.order()}
        yield from asked
        doors = [door for (who, _), door in self._open.items() if who.role is Role.BROKER]
        if any(not door.answered or door.file_version > self.context.file_version for door in doors):
            self._learn()
        later = [name for name in self.order() if self._address(Role.BROKER, name) != asked.get(name)]
        yield from later

    def missed(self, silent: dict[str, str], heard: Collection[str]) -> dict[str, str]:
        """Those of the silent that belong to the league and were not found elsewhere."""
        return {
            name: why for name, why in silent.items() if name in self.context.brokers and name not in heard
        }

    def all_silent(self, silent: dict[str, str]) -> bool:
        """Whether these are all the brokers that there are."""
        return all(name in silent for name in self.context.brokers)

    def broker(self, name: str, address: str = "") -> Door:
        """A broker's door."""
        return self._door(Role.BROKER, name, address or self._address(Role.BROKER, name))

    def has_cluster(self, name: str) -> bool:
        """Whether there is such a cluster; if it is not known, a broker is asked."""
        if name not in self.context.clusters:
            self._learn()
        return name in self.context.clusters

    def cluster(self, name: str, address: str = "") -> Door:
        """The door of a cluster's warden."""
        if not address and name not in self.context.clusters and not self._learn():
            silent = "the context knows no cluster '{}', and no broker answers that could know it"
            raise CommandError(silent.format(name), ExitCode.UNAVAILABLE, self._known_clusters())
        if not address and name not in self.context.clusters:
            raise CommandError(
                f"there is no cluster '{name}' in this league", ExitCode.USAGE, self._known_clusters()
            )
        return self._door(Role.WARDEN, name, address or self._address(Role.WARDEN, name))

    def moved_cluster(self, silent: Door) -> Door | None:
        """The door of a warden elsewhere, if one that does not answer is to be found there by now."""
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
        self._settle()

    # --- members that came, left or moved -------------------------------------------------------------------

    def _learn(self) -> bool:
        """Find out who the members are, from a broker or else from the home; whether anybody could tell."""
        for name in self.order():
            door = self.broker(name)
            if door.tried and not door.answered:
                continue  # it was silent a moment ago
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
        """Read the league file, where there is one."""
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
        """Believe in these members, unless an older file names them."""
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
        """Keep the new addresses of members that have answered there."""
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
        with suppress(OSError, CommandError):  # the next command finds out for itself
            renew_context(self.name, before, now)

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
        """No broker answers: what that means here, and what to do."""
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
            hint = (
                "see that a broker of it runs, and try again; 'hanse config use NAME' chooses another league"
            )
        return CommandError(message, ExitCode.UNAVAILABLE, hint)

    def _expired(self) -> str:
        """A sentence if the reason is our own certificate."""
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
