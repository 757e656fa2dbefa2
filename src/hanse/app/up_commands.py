"""``hanse up`` and ``hanse down``: a whole league on this machine with one command.

A league that is not up yet is wanted soon: the nursery (``nursery``) imports what the members need while this
process makes the league, so nothing heavy is imported here before it is under way.
"""

import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from hanse.app.contexts import Context, remove_context, save_context
from hanse.app.contexts import load as load_contexts
from hanse.app.exit_codes import ExitCode
from hanse.app.member_pids import running_members, stop_members
from hanse.app.nursery import Nursery
from hanse.app.starting import Outcome, daemon_environment, start_members
from hanse.app.task_user import python_problem, user_problem
from hanse.app.told import CommandError, refuse_unsafe, warn
from hanse.live.home import Home
from hanse.live.home_check import tighten_umask

if TYPE_CHECKING:
    from hanse.live.league import League

CLUSTERS_MAX: Final = 50
BROKERS_MAX: Final = 20
KNOCK_SECONDS_MAX: Final = 5.0
"""How long a member that runs already may take to answer at its door."""
ROOT_HOME: Final = Path("/var/lib/hanse/local")
"""Root's league: its tasks run as somebody else, who could not enter root's own directory."""


def default_home() -> Path:
    """Where the embedded league of this user lives."""
    chosen = os.environ.get("HANSE_HOME")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return ROOT_HOME
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "hanse" / "local"


_home = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), default=default_home,
    help="Where the league lives.  "
    "[default: $HANSE_HOME, ~/.local/state/hanse/local, or /var/lib/hanse/local for root]",
)  # fmt: skip


@click.command()
@_home
@click.option("--clusters", type=click.IntRange(1, CLUSTERS_MAX), default=3, show_default=True)
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), default=2, show_default=True)
@click.option(
    "--nodes", type=click.IntRange(1, 1_000), default=2, show_default=True, help="Nodes of each cluster."
)
@click.option("--from", "source", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A league file, instead of equal clusters on this machine.")  # fmt: skip
@click.option(
    "--user", default="", metavar="NAME",
    help="Who runs the tasks of the equal clusters if you are root.  [default: per-job, an id for each]",
)  # fmt: skip
@click.option(
    "--context", "context_name", default="", help="Name of the context.  [default: the league's name]"
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
    """Start a league on this machine, or what is missing of it, and say how to use it.

    Running it again is safe: members that run are left alone, members that died come back. A member that
    does not start is named, with the reason, and the status is 1; the others are up all the same.
    """
    _check_user(user, source)
    tighten_umask()
    refuse_unsafe(Home(home.absolute()))
    place = Home(home.resolve())
    _refuse_readonly(place)
    nursery = Nursery(daemon_environment()) if not running_members(place) else None
    from hanse.app.home_league import league_of  # noqa: PLC0415  behind the nursery
    from hanse.app.league_making import PERSON  # noqa: PLC0415  as above
    from hanse.live.identity.credentials import Credentials  # noqa: PLC0415  as above
    from hanse.live.league import LeagueError  # noqa: PLC0415  as above

    try:
        league = league_of(place, source, clusters, brokers, nodes)
        if user:
            league = _with_user(place, league, user)
        there_already = running_members(place)
        outcome = start_members(place, _verbs(league), record_digests, nursery)
    except LeagueError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if nursery is not None:
            nursery.close()
    save_context(context_name or league.name, _context(place, league), make_current=True)
    _knock(league, list(there_already), outcome)
    _say_how_it_is(place, league, outcome)
    _say_how_to_use_it()
    problem = python_problem(league)
    if problem is not None:
        warn(problem)
    mute = Credentials(place.person(PERSON)).problem()
    if mute is not None:
        warn(f"{mute}. Commands cannot say who you are: move it away and run 'hanse up' again")
    if outcome.gone or outcome.late or mute is not None:
        raise SystemExit(ExitCode.FAILED)


def _refuse_readonly(place: Home) -> None:
    """Leave if nothing could be kept in a home that is there."""
    if place.path.exists() and not os.access(place.path, os.W_OK):
        raise CommandError(
            f"{place.path} cannot be written",
            ExitCode.FILE,
            "see with 'ls -ld' whose it is, and with 'findmnt -T' whether its file system is read-only",
        )


def _say_how_it_is(place: Home, league: "League", outcome: Outcome) -> None:
    """What is there of the league and what is not, and why."""
    total = len(_verbs(league))
    missing = len(outcome.gone) + len(outcome.late)
    if not missing:
        click.echo(
            f"The league '{league.name}' is up: {_counted(len(league.serving_brokers), 'broker')}, "
            f"{_counted(len(league.serving_clusters), 'cluster')}, "
            f"{_nodes(league)} ({len(outcome.ready)} of {total} members started)."
        )
    else:
        state = "is up in part" if missing < total else "is not up"
        click.echo(f"The league '{league.name}' {state}: {total - missing} of {total} members are there.")
    click.echo(f"Its home is {place.path}\n")
    for name, why in outcome.gone.items():
        warn(f"{name} is not there: {why}")
    if outcome.gone:
        warn(
            "when the reason is gone, run 'hanse up' again: it starts what is missing. "
            f"The logs are {place.path}/MEMBER/log.jsonl"
        )
    for name in outcome.late:
        warn(f"{name} is still starting; 'hanse status' shows when it is there")


def _say_how_to_use_it() -> None:
    click.echo("  hanse status                         how it is")
    click.echo("  hanse submit -n 3 -- echo hello      run a command three times")
    click.echo("  hanse jobs                           what there is to do and was done")
    click.echo("  hanse why JOB                        why a job waits or runs where it does")
    click.echo("  hanse logs JOB                       what it has written")
    click.echo(
        "  hanse down                           stop the league; what runs goes on until its lease ends"
    )


def _verbs(league: "League") -> dict[str, str]:
    """The command that runs each member, in the order in which they are started."""
    return {
        **{entry.name: "warden" for entry in league.serving_clusters},
        **{runner.name: "runner" for entry in league.serving_clusters for runner in entry.runners},
        **{entry.name: "broker" for entry in league.serving_brokers},
    }


def _knock(league: "League", names: list[str], outcome: Outcome) -> None:
    """See whether members that ran before have opened their doors: one may be starting since then."""
    doors = {entry.name: entry.door for entry in league.brokers}
    for cluster in league.clusters:
        doors[cluster.name] = cluster.door
        doors.update({runner.name: runner.door for runner in cluster.runners})
    for name in names:
        if name not in doors:
            continue
        try:
            address = (doors[name].host, doors[name].port)
            socket.create_connection(address, timeout=KNOCK_SECONDS_MAX).close()
        except OSError:
            outcome.late.append(name)


def _check_user(user: str, source: Path | None) -> None:
    if user and source is not None:
        raise click.UsageError("with --from, say it in the league file: 'backend: {kind: ..., user: NAME}'")
    problem = user_problem(user) if user else None
    if problem is not None:
        raise click.UsageError(f"--user: {problem}")


def _with_user(home: Home, league: "League", user: str) -> "League":
    """The league of a home, with tasks that run as this user; it counts for members that are started now."""
    from hanse.live.league_file import store  # noqa: PLC0415  see the module's first words

    replace = msgspec.structs.replace
    clusters = tuple(replace(entry, backend=replace(entry.backend, user=user)) for entry in league.clusters)
    if clusters != league.clusters:
        league = replace(league, clusters=clusters)
        store(home.league_file, league)
    return league


def _nodes(league: "League") -> str:
    """How many nodes there are, in words; a cluster over Slurm finds its own when its warden starts."""
    known = sum(len(entry.nodes) for entry in league.clusters)
    if all(entry.nodes for entry in league.clusters):
        return f"{known} nodes"
    return f"{known} nodes and what Slurm lists" if known else "nodes as Slurm lists them"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@click.command()
@_home
@click.option(
    "--delete", is_flag=True, help="Also delete all its data: jobs, journals, output, certificates."
)
def down(home: Path, delete: bool) -> None:
    """Stop the league of this machine. Its jobs are kept, and go on when it comes up again."""
    place = Home(home.resolve())  # members are known by this name, however their home was named
    running = list(running_members(place))
    if not running and not place.league_file.is_file():
        raise click.ClickException(f"there is no league in {place.path}")
    called = _called(place)
    stopped = stop_members(place, running)
    click.echo(f"The league {called} is down ({_counted(stopped, 'member')} stopped).")
    if delete:
        shutil.rmtree(place.path)
        if home.is_symlink():
            home.unlink()
        for name, context in load_contexts().contexts.items():
            if context.home and Path(context.home).resolve() == place.path:
                remove_context(name)
        click.echo(f"{place.path} was deleted.")


def _called(place: Home) -> str:
    """How the league of a home is called; by its home if its file does not tell."""
    from hanse.live.league import LeagueError  # noqa: PLC0415  see the module's first words
    from hanse.live.league_file import load  # noqa: PLC0415  as above

    try:
        return f"'{load(place.league_file).name}'"
    except (LeagueError, OSError) as error:
        warn(f"the league's file cannot be used, which does not matter for stopping it: {error}")
        return f"in {place.path}"


def _context(home: Home, league: "League") -> Context:
    from hanse.app.league_making import PERSON  # noqa: PLC0415  see above

    return Context(
        league=league.name,
        home=str(home.path),
        credentials=str(home.person(PERSON)),
        brokers={entry.name: str(entry.door) for entry in league.serving_brokers},
        clusters={entry.name: str(entry.door) for entry in league.serving_clusters},
    )
