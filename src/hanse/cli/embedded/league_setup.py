"""Creation of a league on this machine: a league file with free ports, the authority, the certificates."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hanse.core.config import NodeConfig
from hanse.league.config import Address, BrokerEntry, ClusterEntry, LeagueConfig, LeagueError, RunnerEntry
from hanse.league.file import store
from hanse.security.auth_refusal import AuthRefusal
from hanse.security.certificate_authority import HOSTS_MAX, Authority, AuthorityError, hosts_problem
from hanse.security.credentials import Credentials
from hanse.security.enrollment import certificate_request, new_key
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

CLUSTER_NAMES: Final = ("north", "south", "east", "west", "harbour", "island")
"""Names of an embedded league's clusters; further clusters are numbered."""
PERSON: Final = "admin"
LOOPBACK: Final = ("localhost", "127.0.0.1")

Entry = TypeVar("Entry", BrokerEntry, ClusterEntry, RunnerEntry)


def embedded_league(clusters: int, brokers: int, nodes: tuple[NodeConfig, ...]) -> LeagueConfig:
    """Return the league that ``hanse up`` creates without a league file: equal clusters on this machine."""
    entries = []
    for number in range(clusters):
        name = CLUSTER_NAMES[number] if number < len(CLUSTER_NAMES) else f"cluster-{number + 1}"
        entry = ClusterEntry(name, Address(), Address(), ())
        nodes_of_cluster = []
        for position, node in enumerate(nodes):
            attributes = {**dict(node.attributes), "zone": "ab"[position % 2]}
            nodes_of_cluster.append(
                NodeConfig(node.capacity, tuple(sorted(attributes.items())), entry.own_runner)
            )
        entries.append(msgspec.structs.replace(entry, nodes=tuple(nodes_of_cluster)))
    return LeagueConfig(
        "local",
        tuple(BrokerEntry(f"broker-{number + 1}", Address(), Address()) for number in range(brokers)),
        tuple(entries),
    )


def with_ports(league: LeagueConfig) -> LeagueConfig:
    """Return the league with a free port for every address that has none."""
    with ExitStack() as held:

        def choose_port(address: Address, _: str) -> Address:
            if address.port:
                return address
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listener = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                listener.bind((address.host, 0))
            except OSError as error:
                raise LeagueError(f"no port is free on {address.host}: {error}") from None
            return Address(address.host, listener.getsockname()[1])

        return _with_addresses(league, choose_port)


def with_ports_of(league: LeagueConfig, other: LeagueConfig) -> LeagueConfig:
    """Return the league with the ports that ``other`` has for the same members, where ``league`` has none."""
    known: dict[str, Address] = {}

    def record_address(address: Address, place: str) -> Address:
        known[place] = address
        return address

    def choose_known(address: Address, place: str) -> Address:
        before = known.get(place, address)
        return before if not address.port and before.host == address.host else address

    _with_addresses(other, record_address)
    return _with_addresses(league, choose_known)


def _with_addresses(league: LeagueConfig, choose: Callable[[Address, str], Address]) -> LeagueConfig:
    """Return the league with every address replaced by ``choose(address, place)``; ``place`` is a key."""

    def replace_addresses(entry: Entry) -> Entry:
        return msgspec.structs.replace(
            entry,
            address=choose(entry.address, f"{entry.name} address"),
            door=choose(entry.door, f"{entry.name} door"),
        )

    clusters = tuple(
        msgspec.structs.replace(
            replace_addresses(entry), runners=tuple(replace_addresses(runner) for runner in entry.runners)
        )
        for entry in league.clusters
    )
    return msgspec.structs.replace(
        league, brokers=tuple(replace_addresses(entry) for entry in league.brokers), clusters=clusters
    )


def create_league(home: Home, league: LeagueConfig) -> Authority:
    """Write the league file and create the league's authority. Refuse to replace an existing league."""
    home.path.mkdir(mode=0o711, parents=True, exist_ok=True)
    if home.league_file.exists():
        raise LeagueError(f"there is a league in {home.path} already; nothing was changed")
    try:
        authority = Authority.create(home.authority, league.name)
    except AuthorityError as error:
        raise LeagueError(str(error)) from None
    store(home.league_file, league)
    return authority


def roles_of(league: LeagueConfig) -> dict[str, Role]:
    """Return the role of every member."""
    return {
        **{entry.name: Role.BROKER for entry in league.brokers},
        **{entry.name: Role.WARDEN for entry in league.clusters},
        **{runner.name: Role.RUNNER for entry in league.clusters for runner in entry.runners},
    }


def certify(home: Home, league: LeagueConfig, authority: Authority) -> None:
    """Issue a certificate to every member that has none, and to the person who started the league."""
    for name, role in roles_of(league).items():
        if league.is_retired(name):
            continue
        identity = Identity(league.name, role, name)
        certify_one(authority, home.member(name), identity, league.hosts_of(name))
    certify_founder(home, league, authority)


def certify_founder(home: Home, league: LeagueConfig, authority: Authority) -> None:
    """Issue a certificate to the person who started the league, unless there is one."""
    founder = Identity(league.name, Role.ADMIN, PERSON)
    certify_one(authority, home.person(PERSON), founder, revocations=home.path)


def certify_one(
    authority: Authority,
    directory: Path,
    identity: Identity,
    hosts: tuple[str, ...] = (),
    revocations: Path | None = None,
) -> None:
    """Write a key and a certificate to a directory, unless it holds a valid one. ``hosts``: where a member
    listens, beside this machine's own names; ``revocations``: the directory that says until when a person's
    name is revoked; a new certificate counts as later."""
    credentials = Credentials(directory)
    if credentials.path.exists() and _is_valid_long_enough(credentials):
        return
    key = new_key()
    known_hosts = [host for host in dict.fromkeys((*LOOPBACK, *hosts)) if not hosts_problem([host])]
    after = -1 if revocations is None else _revoked_until(revocations, identity.name)
    certificate = authority.issue(identity, certificate_request(key), known_hosts[:HOSTS_MAX], after=after)
    if isinstance(certificate, AuthRefusal):
        raise LeagueError(f"no certificate for {identity}: {certificate.detail}")
    credentials.store(key, certificate, authority.certificate)


def _revoked_until(home: Path, name: str) -> int:
    from hanse.security.revocation_list import RevocationListError, revoked_until  # noqa: PLC0415  as above
    from hanse.security.wall_time import wall_now  # noqa: PLC0415  as above

    try:
        return revoked_until(home, name, wall_now())
    except RevocationListError as error:
        raise LeagueError(f"no certificate for {name}: {error}") from None


def _is_valid_long_enough(credentials: Credentials) -> bool:
    """True if the certificate is valid for some time yet; its holder renews it. A damaged certificate is
    kept: its user reports it."""
    from hanse.security.certificate_parser import is_due_for_renewal  # noqa: PLC0415  with the clock, used here only
    from hanse.security.wall_time import wall_now  # noqa: PLC0415  as above

    try:
        return not is_due_for_renewal(credentials.path, wall_now())
    except ValueError:
        return True
