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

from hanse.api.records import ErrorAnswer, ErrorText, LeagueAnswer, SubmitResult
from hanse.client.access_token import find_token
from hanse.client.contexts import Context, config_path, current_context, renew_context
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.transport import ANSWER_SECONDS_MAX, HttpReply, MemberEndpoint, NoAnswerError, is_address
from hanse.security.certificate_parser import CertificateError
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

REDIRECTS_MAX: Final = 4
OWNER_HEADER: Final = "x-hanse-broker"
LAST_BROKERS_FILE: Final = "last-brokers.json"
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


class Endpoints:
    """Endpoints of one context. For one thread."""

    def __init__(self, name: str, context: Context, token: str | None = None) -> None:
        """``token``: access token to use; None: that of the environment or of the context, if any."""
        self.name = name
        self.context = context
        self._token_argument = token
        self._token = find_token(context.token, token)
        self._endpoints: dict[tuple[Identity, str], MemberEndpoint] = {}
        self._last_broker = _load_last_brokers().get(name, "")
        self._moved_addresses: dict[tuple[Role, str], str] = {}
        """New addresses of members that do not answer at the context's address."""

    @classmethod
    def from_context(cls, name: str | None, token: str | None = None) -> "Endpoints":
        """Make the endpoints of the context of this name, or of the current one."""
        return cls(*current_context(name), token)

    def copy(self) -> "Endpoints":
        """Return the same endpoints with connections of their own, for another thread."""
        return Endpoints(self.name, self.context, self._token_argument)

    def check_token(self) -> None:
        """Raise ``CommandError`` if the token is malformed."""
        if self._token is not None:
            self._token.text()

    @property
    def has_answered(self) -> bool:
        """True if any member of the league has ever answered here."""
        return any(endpoint.answered for endpoint in self._endpoints.values())

    def broker_order(self) -> list[str]:
        """Return the brokers in the order of requests: the last one that answered first."""
        names = list(self.context.brokers)
        return sorted(
            names, key=lambda name: name != self._last_broker
        )  # stable: the others keep their order

    def iterate_brokers(self) -> Iterator[str]:
        """Yield the brokers in that order, then those that are new or moved. The members are fetched again if
        a broker did not answer or has a newer league file."""
        asked = {name: self._address(Role.BROKER, name) for name in self.broker_order()}
        yield from asked
        endpoints = [endpoint for (who, _), endpoint in self._endpoints.items() if who.role is Role.BROKER]
        if any(
            not endpoint.answered or endpoint.file_version > self.context.file_version
            for endpoint in endpoints
        ):
            self._refresh_members()
        later = [name for name in self.broker_order() if self._address(Role.BROKER, name) != asked.get(name)]
        yield from later

    def find_unanswered(self, silent: dict[str, str], answered: Collection[str]) -> dict[str, str]:
        """Return the silent brokers that belong to the league and did not answer at another address."""
        return {
            name: why for name, why in silent.items() if name in self.context.brokers and name not in answered
        }

    def is_all_silent(self, silent: dict[str, str]) -> bool:
        """Return True if these are all brokers of the league."""
        return all(name in silent for name in self.context.brokers)

    def broker(self, name: str, address: str = "") -> MemberEndpoint:
        """Return a broker's endpoint."""
        return self._endpoint(Role.BROKER, name, address or self._address(Role.BROKER, name))

    def has_cluster(self, name: str) -> bool:
        """Return True if there is such a cluster; if it is unknown, a broker is asked."""
        if name not in self.context.clusters:
            self._refresh_members()
        return name in self.context.clusters

    def cluster(self, name: str, address: str = "") -> MemberEndpoint:
        """Return the endpoint of a cluster's warden."""
        if not address and name not in self.context.clusters and not self._refresh_members():
            silent = "the context has no cluster '{}', and no broker answers"
            raise CommandError(silent.format(name), ExitCode.UNAVAILABLE, self._clusters_hint())
        if not address and name not in self.context.clusters:
            raise CommandError(
                f"there is no cluster '{name}' in this league", ExitCode.USAGE, self._clusters_hint()
            )
        return self._endpoint(Role.WARDEN, name, address or self._address(Role.WARDEN, name))

    def find_moved_cluster(self, endpoint: MemberEndpoint) -> MemberEndpoint | None:
        """Return the endpoint at a warden's new address, if it has one."""
        self._refresh_members()
        name = endpoint.server.name
        is_elsewhere = self._address(Role.WARDEN, name) != endpoint.address
        return self.cluster(name) if is_elsewhere else None

    def _clusters_hint(self) -> str:
        return f"there are: {', '.join(self.context.clusters) or 'none'}"

    def _address(self, role: Role, name: str) -> str:
        known = self.context.brokers if role is Role.BROKER else self.context.clusters
        return self._moved_addresses.get((role, name), "") or known.get(name, "")

    def runner(self, name: str, address: str) -> MemberEndpoint:
        """Return the endpoint of a runner on a machine of its own."""
        return self._endpoint(Role.RUNNER, name, address)

    def _endpoint(self, role: Role, name: str, address: str) -> MemberEndpoint:
        key = (Identity(self.context.league, role, name), address)
        if key not in self._endpoints:
            self._endpoints[key] = MemberEndpoint(
                address, key[0], Path(self.context.credentials), self._token
            )
        return self._endpoints[key]

    def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._save_moved_addresses()

    # --- members that joined, left or moved -----------------------------------------------------------------

    def _refresh_members(self) -> bool:
        """Fetch the members from a broker or else from the home; True if a broker answered."""
        for name in self.broker_order():
            endpoint = self.broker(name)
            if endpoint.tried and not endpoint.answered:
                continue  # it did not answer a moment ago
            with suppress(NoAnswerError, CommandError):
                answer = decode_reply(endpoint.request("GET", "/v1/league"), LeagueAnswer)
                self._apply_members(
                    {one.name: one.door for one in answer.brokers if is_address(one.door)},
                    {one.name: one.door for one in answer.clusters if is_address(one.door)},
                    endpoint.file_version,
                )
                return True
        self._read_members_at_home()
        return False

    def _read_members_at_home(self) -> None:
        """Read the league file, if there is one."""
        if not self.context.home:
            return
        from hanse.league.config import LeagueError  # noqa: PLC0415  only when nobody answers
        from hanse.league.file import load  # noqa: PLC0415  as above

        with suppress(OSError, LeagueError):
            league = load(Home(Path(self.context.home)).league_file)
            self._apply_members(
                {entry.name: str(entry.door) for entry in league.serving_brokers},
                {entry.name: str(entry.door) for entry in league.serving_clusters},
                league.version,
            )

    def _apply_members(self, brokers: dict[str, str], clusters: dict[str, str], version: int) -> None:
        """Use these members, unless an older file names them."""
        if not brokers or version < self.context.file_version:
            return
        before = self.context
        addresses = []
        for role, old, new in (
            (Role.BROKER, before.brokers, brokers),
            (Role.WARDEN, before.clusters, clusters),
        ):
            addresses.append({name: old.get(name) or address for name, address in new.items()})
            for name, address in new.items():
                old_endpoint = self._endpoints.get((Identity(before.league, role, name), old.get(name, "")))
                if old_endpoint is not None and not old_endpoint.answered and address != old_endpoint.address:
                    self._moved_addresses[role, name] = address
        self._save_context(before, msgspec.structs.replace(
            before, brokers=addresses[0], clusters=addresses[1], file_version=version
        ))  # fmt: skip

    def _save_moved_addresses(self) -> None:
        """Save the new addresses of members that have answered there."""
        brokers, clusters = dict(self.context.brokers), dict(self.context.clusters)
        for (role, name), address in self._moved_addresses.items():
            endpoint = self._endpoints.get((Identity(self.context.league, role, name), address))
            known = brokers if role is Role.BROKER else clusters
            if endpoint is not None and endpoint.answered and name in known:
                known[name] = address
        self._save_context(
            self.context, msgspec.structs.replace(self.context, brokers=brokers, clusters=clusters)
        )

    def _save_context(self, before: Context, now: Context) -> None:
        if now == before:
            return
        self.context = now
        with suppress(OSError, CommandError):  # the next command finds it again
            renew_context(self.name, before, now)

    def remember_broker(self, name: str) -> None:
        """Ask this broker first from now on, because it has answered."""
        if name == self._last_broker or (not self._last_broker and name == next(iter(self.context.brokers))):
            return
        self._last_broker = name
        try:
            known = {**_load_last_brokers(), self.name: name}
            part = _last_path().with_suffix(".part")
            part.write_bytes(msgspec.json.encode(known))
            part.replace(_last_path())
        except OSError:  # only a convenience: the next command finds it again
            return

    def ask_any_broker(
        self, method: str, target: str, body: bytes | None = None, seconds: float = ANSWER_SECONDS_MAX
    ) -> HttpReply:
        """Ask brokers until one answers; a busy one is skipped while there are others."""
        silent: dict[str, str] = {}
        busy: HttpReply | None = None
        for name in self.iterate_brokers():
            try:
                reply = self.broker(name).request(method, target, body, seconds)
            except NoAnswerError as error:
                silent[name] = str(error)
                continue
            if reply.status in BUSY:
                busy = reply
                continue
            self.remember_broker(name)
            return reply
        if busy is not None:
            raise refusal_error(busy)
        raise self.unreachable_error(silent)

    def ask_broker(self, broker: str, target: str) -> HttpReply:
        """Ask one broker, where each is asked; a busy broker counts as silent."""
        reply = self.broker(broker).request("GET", target)
        if reply.status in BUSY:
            raise NoAnswerError(refusal_error(reply).message, sent=True)
        return reply

    def unreachable_error(self, silent: dict[str, str]) -> CommandError:
        """Return the error when no broker answers, with the reasons and a hint."""
        reasons = "; ".join(
            f"{name} at {self._address(Role.BROKER, name) or '?'}: {why}" for name, why in silent.items()
        )
        expiry = self._expiry_text()
        if expiry:
            hint = "run 'hanse up' again if the league is on this machine, or join it again with 'hanse join'"
            return CommandError(expiry, ExitCode.UNAVAILABLE, hint)
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

    def _expiry_text(self) -> str:
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


def refusal_code(reply: HttpReply) -> str:
    """Return the code of a refusal; empty: it has none."""
    return _error_of(reply).code


def _error_of(reply: HttpReply) -> ErrorText:
    try:
        return msgspec.json.decode(reply.body, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorAnswer().error


def refusal_error(reply: HttpReply, subject: str = "") -> CommandError:
    """Convert a refusal to a ``CommandError``."""
    error = _error_of(reply)
    message = error.message or f"the server answered with status {reply.status}"
    status = _STATUSES.get(reply.status, ExitCode.FAILED)
    return CommandError(f"{subject}: {message}" if subject else message, status, error.hint)


def decode_refused_results(reply: HttpReply) -> tuple[SubmitResult, ...]:
    """Decode the results of each job from a refusal of jobs; empty if it is another refusal."""
    try:
        return msgspec.json.decode(reply.body, type=ErrorAnswer).results
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


def decode_reply(reply: HttpReply, kind: type[T]) -> T:
    """Decode an answer, or raise the error of a refusal."""
    if reply.status >= 300:
        raise refusal_error(reply)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"the answer cannot be decoded: {error}",
            ExitCode.UNAVAILABLE,
            "the league and this program may be of different versions; compare 'hanse status' and 'hanse -V'",
        ) from None


def _last_path() -> Path:
    return config_path().with_name(LAST_BROKERS_FILE)


def _load_last_brokers() -> dict[str, str]:
    """Load the broker that answered last for each context; empty if the file is unusable."""
    try:
        return msgspec.json.decode(_last_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
