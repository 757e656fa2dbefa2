"""``hanse up`` and ``hanse down``: a whole league on this machine with one command.

The prefork server (``prefork``) imports what the members need while this process creates the league, so this
process imports nothing heavy before the server has started.
"""

import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from click.core import ParameterSource

from hanse.cli.common_options import context_option
from hanse.cli.embedded.background_start import StartOutcome, daemon_environment, start_members
from hanse.cli.embedded.prefork import PreforkServer
from hanse.cli.embedded.running_members import running_members, stop_members
from hanse.cli.home_option import home_option
from hanse.cli.home_refusal import refuse_unsafe, refuse_unsafe_places
from hanse.cli.isolation_notice import isolation_notices
from hanse.cli.task_user import python_problem, user_problem
from hanse.client.contexts import (
    Context,
    SavedContext,
    check_name_free,
    current_context,
    keep_context,
    remove_home,
    resolve_home,
)
from hanse.client.contexts import load as load_contexts
from hanse.client.errors import CommandError, warn
from hanse.client.exit_codes import ExitCode
from hanse.live.config.home_permissions import tighten_umask
from hanse.security.home import PEOPLE, Home

if TYPE_CHECKING:
    from hanse.league.config import LeagueConfig

CLUSTERS_MAX: Final = 50
BROKERS_MAX: Final = 20
CONNECT_SECONDS_MAX: Final = 5.0
"""Time a member that runs already has to accept a connection."""


@click.command()
@home_option
@click.option("--clusters", type=click.IntRange(1, CLUSTERS_MAX), default=3, show_default=True)
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), default=2, show_default=True)
@click.option(
    "--nodes", type=click.IntRange(1, 1_000), default=2, show_default=True, help="Nodes of each cluster."
)
@click.option("--from", "source", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="League file, instead of equal clusters on this machine.")  # fmt: skip
@click.option(
    "--user", default="", metavar="NAME",
    help="User that runs the tasks if you are root.  [default: per-job, an id for each job]",
)  # fmt: skip
@click.option(
    "--context",
    "context_name",
    default="",
    metavar="NAME",
    help="Context of an existing league, or name for that of a new one.  [default: the league's name]",
)
@click.option("--record-digests", is_flag=True, hidden=True)
def up(
    home: Path,
    clusters: int,
    brokers: int,
    nodes: int,
    source: Path | None,
    user: str,
    context_name: str,
    record_digests: bool,
) -> None:
    """Start a league on this machine, or its missing members, and print how to use it.

    Running it again is safe: members that run are left alone, members that died are restarted. A member that
    does not start is named, with the reason, and the status is 1; the others are up all the same.
    """
    _check_user(user, source)
    tighten_umask()
    home, context_name = resolve_home(home, context_name)
    refuse_unsafe(Home(home.absolute()))
    place = Home(home.resolve())
    _refuse_readonly(place)
    is_founding = not place.path.exists() or not any(place.path.iterdir())
    if context_name:
        check_name_free(load_contexts(), context_name, Context("", str(place.path)))
    prefork_server = PreforkServer(daemon_environment()) if not running_members(place) else None
    from hanse.cli.embedded.home_league import load_or_create_league  # noqa: PLC0415  after the prefork server
    from hanse.league.config import LeagueError  # noqa: PLC0415  as above

    was_there = place.league_file.is_file()
    flags = ["--record-digests"] if record_digests else []
    if is_founding:
        flags.append("--founding")
    try:
        league = load_or_create_league(place, source, clusters, brokers, nodes)
        if user:
            league = _with_user(place, league, user)
        refuse_unsafe_places(league)
        already_running = running_members(place)
        outcome = start_members(place, _member_commands(league), flags, prefork_server)
    except LeagueError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if prefork_server is not None:
            prefork_server.close()
    kept = keep_context(_make_context(place, league), context_name)
    _check_running_members(league, list(already_running), outcome)
    _print_outcome(place, league, outcome)
    _print_context(league, kept, context_name)
    _print_usage()
    has_no_credentials = _print_warnings(place, league, was_there)
    if outcome.gone or outcome.late or has_no_credentials:
        raise SystemExit(ExitCode.FAILED)


def _print_warnings(place: Home, league: "LeagueConfig", was_there: bool) -> bool:
    """Print warnings about a league that is up; True if its commands will not work all the same."""
    from hanse.cli.embedded.league_setup import PERSON  # noqa: PLC0415  see the module's docstring
    from hanse.security.credentials import Credentials  # noqa: PLC0415  as above

    invocation = click.get_current_context()
    given_options = [f"--{name}" for name in ("clusters", "brokers", "nodes")
             if invocation.get_parameter_source(name) is ParameterSource.COMMANDLINE]  # fmt: skip
    if given_options and was_there:
        warn(
            f"there was a league in {place.path} already, and it was not changed: {', '.join(given_options)} "
            f"{'is' if len(given_options) == 1 else 'are'} for a new one ('hanse down --delete' removes "
            f"this one, "
            "--home creates another)"
        )
    elif given_options and invocation.params["source"] is not None:
        warn(f"the file of --from sets everything; not used: {', '.join(given_options)}")
    for problem in (*isolation_notices(league, place.path), python_problem(league)):
        if problem is not None:
            warn(problem)
    credentials_problem = Credentials(place.person(PERSON)).problem()
    if credentials_problem is not None:
        warn(f"{credentials_problem}. Commands cannot identify you: move it away and run 'hanse up' again")
    return credentials_problem is not None


def _print_context(league: "LeagueConfig", kept: SavedContext, wanted: str) -> None:
    """Print the league's context, if it is not obvious."""
    if kept.is_new and kept.name not in (wanted, league.name):
        click.echo(f"Its context is '{kept.name}': another league has '{league.name}'.")
    if kept.previous and kept.previous != kept.name:
        click.echo(
            f"Commands now use '{kept.name}'; 'hanse config use {kept.previous}' goes back to "
            f"'{kept.previous}', and 'hanse --context NAME ...' is for one command.\n"
        )


def _refuse_readonly(place: Home) -> None:
    """Refuse a home that cannot be written."""
    if place.path.exists() and not os.access(place.path, os.W_OK):
        raise CommandError(
            f"{place.path} cannot be written",
            ExitCode.FILE,
            "check its owner with 'ls -ld', and with 'findmnt -T' whether its file system is read-only",
        )


def _print_outcome(place: Home, league: "LeagueConfig", outcome: StartOutcome) -> None:
    """Print which members run, which do not, and why."""
    total = len(_member_commands(league))
    missing = len(outcome.gone) + len(outcome.late)
    if not missing:
        click.echo(
            f"The league '{league.name}' is up: {_count_text(len(league.serving_brokers), 'broker')}, "
            f"{_count_text(len(league.serving_clusters), 'cluster')}, "
            f"{_node_count_text(league)} ({len(outcome.ready)} of {total} members started)."
        )
    else:
        state = "is up in part" if missing < total else "is not up"
        click.echo(f"The league '{league.name}' {state}: {total - missing} of {total} members are there.")
    click.echo(f"Its home is {place.path}\n")
    for name, why in outcome.gone.items():
        warn(f"{name} did not start: {why}")
    if outcome.gone:
        warn(
            "when the problem is solved, run 'hanse up' again: it starts the missing members. "
            f"The logs are {place.path}/MEMBER/log.jsonl"
        )
    for name in outcome.late:
        warn(f"{name} is still starting; 'hanse status' shows when it answers")


def _print_usage() -> None:
    click.echo("  hanse status                         show the state of the league")
    click.echo("  hanse submit -n 3 -- echo hello      run a command three times")
    click.echo("  hanse jobs                           list the jobs")
    click.echo("  hanse why JOB                        explain why a job waits or runs where it runs")
    click.echo("  hanse logs JOB                       print its output")
    click.echo("  hanse down                           stop the league; tasks run until their lease ends")


def _member_commands(league: "LeagueConfig") -> dict[str, str]:
    """Return the command that runs each member, in the order of their start."""
    return {
        **{entry.name: "warden" for entry in league.serving_clusters},
        **{runner.name: "runner" for entry in league.serving_clusters for runner in entry.runners},
        **{entry.name: "broker" for entry in league.serving_brokers},
    }


def _check_running_members(league: "LeagueConfig", names: list[str], outcome: StartOutcome) -> None:
    """Mark members that ran before but do not accept connections as late: one may still be starting."""
    endpoints = {entry.name: entry.door for entry in league.brokers}
    for cluster in league.clusters:
        endpoints[cluster.name] = cluster.door
        endpoints.update({runner.name: runner.door for runner in cluster.runners})
    for name in names:
        if name not in endpoints:
            continue
        try:
            address = (endpoints[name].host, endpoints[name].port)
            socket.create_connection(address, timeout=CONNECT_SECONDS_MAX).close()
        except OSError:
            outcome.late.append(name)


def _check_user(user: str, source: Path | None) -> None:
    if user and source is not None:
        raise click.UsageError("with --from, set it in the league file: 'backend: {kind: ..., user: NAME}'")
    problem = user_problem(user) if user else None
    if problem is not None:
        raise click.UsageError(f"--user: {problem}")


def _with_user(home: Home, league: "LeagueConfig", user: str) -> "LeagueConfig":
    """Return the league of a home with tasks that run as this user; it affects members that start now."""
    from hanse.league.file import store  # noqa: PLC0415  see the module's docstring

    replace = msgspec.structs.replace
    clusters = tuple(replace(entry, backend=replace(entry.backend, user=user)) for entry in league.clusters)
    if clusters != league.clusters:
        league = replace(league, clusters=clusters)
        store(home.league_file, league)
    return league


def _node_count_text(league: "LeagueConfig") -> str:
    """Return the number of nodes, as text; a backend may find a cluster's nodes when its warden starts."""
    from hanse.league.backend_kinds import BACKENDS  # noqa: PLC0415  see the module's docstring

    known = sum(len(entry.nodes) for entry in league.clusters)
    if all(entry.nodes for entry in league.clusters):
        return f"{known} nodes"
    finders = [BACKENDS.get(entry.backend.kind) for entry in league.clusters if not entry.nodes]
    who = " and ".join(dict.fromkeys(kind.title or kind.name for kind in finders))
    verb = "list" if " and " in who else "lists"
    return f"{known} nodes and what {who} {verb}" if known else f"nodes as {who} {verb} them"


def _count_text(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@click.command()
@home_option
@click.option(
    "--delete", is_flag=True, help="Also delete all its data: jobs, journals, output, certificates."
)
@context_option
def down(home: Path, delete: bool) -> None:
    """Stop a league on this machine: that of --context, or of --home. Its jobs are kept, and go on when it
    starts again."""
    home = _choose_home_to_stop(home)
    place = Home(home.resolve())  # members are known by the resolved path
    running = list(running_members(place))
    if not running and not _has_league(place):
        raise CommandError(f"there is no league in {place.path}", ExitCode.FAILED, _other_leagues_hint())
    league_name = _league_name(place)
    stopped = stop_members(place, running)
    click.echo(f"The league {league_name} is down ({_count_text(stopped, 'member')} stopped).")
    if delete:
        shutil.rmtree(place.path)
        if home.is_symlink():
            home.unlink()
        before = load_contexts().current
        remaining = remove_home(place.path)
        click.echo(f"{place.path} was deleted.")
        if remaining.current != before and remaining.current:
            click.echo(f"Commands now use '{remaining.current}'.")
        elif before and not remaining.current and remaining.contexts:
            click.echo(
                f"Choose the league to use: 'hanse config use NAME', of {', '.join(remaining.contexts)}."
            )


def _choose_home_to_stop(given: Path) -> Path:
    """Return the home that ``hanse down`` stops; never another than that of the named context."""
    home, name = resolve_home(given)
    if name:
        context = current_context(name)[1]
        if not context.home:
            raise CommandError(
                f"the league of the context '{name}' is not on this machine",
                ExitCode.CONFIG,
                "stop its members where they run, with their service manager",
            )
        if not Context("", str(home)).is_same_as(context):
            raise click.UsageError(f"--home is {home}, and the context '{name}' lives in {context.home}")
    return home


def _has_league(place: Home) -> bool:
    """True if a directory is a league's home: it has keys. A directory that has only a file called
    league.yaml is a user's own, and must not be deleted."""
    known = (place.authority, place.path / PEOPLE)
    return any(path.is_dir() for path in known) or any(place.path.glob("*/identity.pem"))


def _other_leagues_hint() -> str:
    """Return a hint with the leagues that could be meant."""
    names = [
        name for name, context in load_contexts().contexts.items() if context.home and not context.is_stale()
    ]
    return f"there is one for 'hanse down --context NAME' with each of: {', '.join(names)}" if names else ""


def _league_name(place: Home) -> str:
    """Return the name of a home's league; its path if the league file cannot be read."""
    from hanse.league.config import LeagueError  # noqa: PLC0415  see the module's docstring
    from hanse.league.file import load  # noqa: PLC0415  as above

    try:
        return f"'{load(place.league_file).name}'"
    except (LeagueError, OSError) as error:
        warn(f"the league file cannot be used; the league is stopped all the same: {error}")
        return f"in {place.path}"


def _make_context(home: Home, league: "LeagueConfig") -> Context:
    from hanse.cli.embedded.league_setup import PERSON  # noqa: PLC0415  see above

    return Context(
        league=league.name,
        home=str(home.path),
        credentials=str(home.person(PERSON)),
        brokers={entry.name: str(entry.door) for entry in league.serving_brokers},
        clusters={entry.name: str(entry.door) for entry in league.serving_clusters},
        file_version=league.version,
    )
