"""League of a home: created if the home has none, else loaded, with the changes of a changed league file."""

from pathlib import Path

import msgspec

from hanse.cli.embedded.league_setup import certify, create_league, embedded_league, with_ports, with_ports_of
from hanse.cli.embedded.running_members import running_members
from hanse.client.errors import warn
from hanse.core.config import NodeConfig
from hanse.league.config import LeagueConfig, LeagueError
from hanse.league.file import load, store
from hanse.live.backends.process.host_nodes import default_nodes
from hanse.security.certificate_authority import Authority, AuthorityError
from hanse.security.credentials import Credentials
from hanse.security.home import Home


def load_or_create_league(
    home: Home, source: Path | None, clusters: int, brokers: int, nodes: int
) -> LeagueConfig:
    """Load the league of a home, or create it; then certify every member that has no certificate.

    ``source``: a league file; without one, a new league has equal clusters.
    """
    if home.league_file.is_file():
        league = load(home.league_file)
        if source is not None:
            league = _apply_changed_file(home, league, load(source), source)
        try:
            authority = Authority.open(home.authority)
        except AuthorityError as error:
            return _keep_without_authority(home, league, error)
        if not home.is_founding:
            _refuse_foreign_members(
                home, league, f"{home.path} is the home of a broker that has joined its league"
            )
    else:
        fresh = (
            load(source)
            if source is not None
            else embedded_league(clusters, brokers, _embedded_nodes(clusters, nodes))
        )
        league = with_ports(fresh)
        authority = create_league(home, league)
    certify(home, league, authority)
    return league


def _keep_without_authority(home: Home, league: LeagueConfig, error: AuthorityError) -> LeagueConfig:
    """Keep a league running on its present certificates when its authority cannot be opened."""
    _refuse_foreign_members(home, league, str(error))
    warn(f"{error}. The league runs until its certificates expire. Restore {home.authority} before then")
    return league


def _refuse_foreign_members(home: Home, league: LeagueConfig, why: str) -> None:
    """Refuse a league with uncertified members: they run on other machines, and must not start here."""
    uncertified = [
        name
        for name in league.members()
        if not league.is_retired(name) and not Credentials(home.member(name)).path.exists()
    ]
    if uncertified:
        raise LeagueError(
            f"{why}, and there are no certificates for {', '.join(uncertified)}. 'hanse up' is for leagues "
            f"created in their homes; start a member that has joined with 'hanse broker', "
            f"'hanse warden' or 'hanse runner'"
        )


def _apply_changed_file(home: Home, kept: LeagueConfig, fresh: LeagueConfig, source: Path) -> LeagueConfig:
    """Return the league of a home with the changes of its league file; ports chosen before stay."""
    if fresh.name != kept.name:
        raise LeagueError(
            f"{home.path} has another league, '{kept.name}'; use another --home, or 'hanse down --delete'"
        )
    misplaced = _find_misplaced_member(kept, fresh)
    if misplaced:
        raise LeagueError(
            f"{source}: {misplaced}. Members are numbered by their places in the file: keep the members of "
            f"{home.path}, even one that will not return, and add new ones at the end"
        )
    league = msgspec.structs.replace(with_ports_of(fresh, kept), version=kept.version)
    if league == kept:
        return kept
    if running_members(home):
        raise LeagueError(
            f"{source} has changed since the league was started; run 'hanse down', then this again"
        )
    league = msgspec.structs.replace(with_ports(league), version=kept.version + 1)
    store(home.league_file, league)
    return league


def _find_misplaced_member(kept: LeagueConfig, fresh: LeagueConfig) -> str:
    """Describe a member that is not at its place in a newer league file; empty if all are."""
    lists = [
        ("broker", [entry.name for entry in kept.brokers], [entry.name for entry in fresh.brokers]),
        ("cluster", [entry.name for entry in kept.clusters], [entry.name for entry in fresh.clusters]),
    ]
    for kind, before, after in lists:
        for place, name in enumerate(before):
            if name not in after:
                return f"the {kind} '{name}' is missing"
            if after[place] != name:
                return f"the {kind} '{name}' is no longer at its place"
    runners = {runner.name: entry.name for entry in fresh.clusters for runner in entry.runners}
    for entry in kept.clusters:
        for runner in entry.runners:
            if runners.get(runner.name) != entry.name:
                return f"the runner '{runner.name}' of {entry.name} is missing"
    return ""


def _embedded_nodes(clusters: int, nodes: int) -> tuple[NodeConfig, ...]:
    """Return the nodes of one cluster. Clusters share the memory; each cluster counts all CPUs, so that a
    task of one CPU fits everywhere on a small machine: the embedded league is for trials."""
    whole = default_nodes(1)[0].capacity
    return default_nodes(nodes, cpu=max(whole.cpu, 1_000 * nodes), memory=whole.memory // clusters)
