"""``hanse up`` and ``hanse down``: a whole league on this machine with one command.

A league that is not up yet is wanted soon: the nursery (``prefork``) imports what the members need while this
process makes the league, so nothing heavy is imported here before it is under way.
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
from hanse.cli.embedded.member_processes import running_members, stop_members
from hanse.cli.embedded.member_start import Outcome, daemon_environment, start_members
from hanse.cli.embedded.prefork import Nursery
from hanse.cli.home_option import home_option
from hanse.cli.home_refusal import refuse_unsafe, refuse_unsafe_places
from hanse.cli.isolation_notice import isolation_notices
from hanse.cli.task_user import python_problem, user_problem
from hanse.client.contexts import Context, Kept, chosen_home, current, keep_context, refuse_taken, remove_home
from hanse.client.contexts import load as load_contexts
from hanse.client.errors import CommandError, warn
from hanse.client.exit_codes import ExitCode
from hanse.live.config.home_permissions import tighten_umask
from hanse.security.home import PEOPLE, Home

if TYPE_CHECKING:
    from hanse.live.config.league import League

CLUSTERS_MAX: Final = 50
BROKERS_MAX: Final = 20
KNOCK_SECONDS_MAX: Final = 5.0
"""How long a member that runs already may take to answer at its door."""


@click.command()
@home_option
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
    "--context",
    "context_name",
    default="",
    metavar="NAME",
    help="The context: of a league that is there, or the name of a new one's.  [default: the league's name]",
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
    home, context_name = chosen_home(home, context_name)
    refuse_unsafe(Home(home.absolute()))
    place = Home(home.resolve())
    _refuse_readonly(place)
    is_founding = not place.path.exists() or not any(place.path.iterdir())
    if context_name:
        refuse_taken(load_contexts(), context_name, Context("", str(place.path)))
    nursery = Nursery(daemon_environment()) if not running_members(place) else None
    from hanse.cli.embedded.home_league import league_of  # noqa: PLC0415  behind the nursery
    from hanse.live.config.league import LeagueError  # noqa: PLC0415  as above

    was_there = place.league_file.is_file()
    flags = ["--record-digests"] if record_digests else []
    if is_founding:
        flags.append("--founding")
    try:
        league = league_of(place, source, clusters, brokers, nodes)
        if user:
            league = _with_user(place, league, user)
        refuse_unsafe_places(league)
        there_already = running_members(place)
        outcome = start_members(place, _verbs(league), flags, nursery)
    except LeagueError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if nursery is not None:
            nursery.close()
    kept = keep_context(_context(place, league), context_name)
    _knock(league, list(there_already), outcome)
    _say_how_it_is(place, league, outcome)
    _say_context(league, kept, context_name)
    _say_how_to_use_it()
    is_mute = _warn_of_the_rest(place, league, was_there)
    if outcome.gone or outcome.late or is_mute:
        raise SystemExit(ExitCode.FAILED)


def _warn_of_the_rest(place: Home, league: "League", was_there: bool) -> bool:
    """What does not keep the league from being up; whether its commands will not work all the same."""
    from hanse.cli.embedded.league_setup import PERSON  # noqa: PLC0415  see the module's first words
    from hanse.security.credentials import Credentials  # noqa: PLC0415  as above

    invocation = click.get_current_context()
    asked = [f"--{name}" for name in ("clusters", "brokers", "nodes")
             if invocation.get_parameter_source(name) is ParameterSource.COMMANDLINE]  # fmt: skip
    if asked and was_there:
        warn(
            f"there was a league in {place.path} already, and it is kept as it is: {', '.join(asked)} "
            f"{'is' if len(asked) == 1 else 'are'} for a new one ('hanse down --delete' removes this one, "
            "--home puts another beside it)"
        )
    elif asked and invocation.params["source"] is not None:
        warn(f"the file of --from says it all; not used: {', '.join(asked)}")
    for problem in (*isolation_notices(league, place.path), python_problem(league)):
        if problem is not None:
            warn(problem)
    mute = Credentials(place.person(PERSON)).problem()
    if mute is not None:
        warn(f"{mute}. Commands cannot say who you are: move it away and run 'hanse up' again")
    return mute is not None


def _say_context(league: "League", kept: Kept, wanted: str) -> None:
    """Which context speaks to this league, if that is not plain."""
    if kept.is_new and kept.name not in (wanted, league.name):
        click.echo(f"Its context is '{kept.name}': another league has '{league.name}'.")
    if kept.before and kept.before != kept.name:
        click.echo(
            f"Commands speak to '{kept.name}' from now on; 'hanse config use {kept.before}' goes back to "
            f"'{kept.before}', and 'hanse --context NAME ...' is for one command.\n"
        )


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
    from hanse.live.config.league_file import store  # noqa: PLC0415  see the module's first words

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
@home_option
@click.option(
    "--delete", is_flag=True, help="Also delete all its data: jobs, journals, output, certificates."
)
@context_option
def down(home: Path, delete: bool) -> None:
    """Stop a league of this machine: that of --context, or of --home. Its jobs are kept, and go on when it
    comes up again."""
    home = _home_to_stop(home)
    place = Home(home.resolve())  # members are known by this name, however their home was named
    running = list(running_members(place))
    if not running and not _has_league(place):
        raise CommandError(f"there is no league in {place.path}", ExitCode.FAILED, _elsewhere())
    called = _called(place)
    stopped = stop_members(place, running)
    click.echo(f"The league {called} is down ({_counted(stopped, 'member')} stopped).")
    if delete:
        shutil.rmtree(place.path)
        if home.is_symlink():
            home.unlink()
        before = load_contexts().current
        left = remove_home(place.path)
        click.echo(f"{place.path} was deleted.")
        if left.current != before and left.current:
            click.echo(f"Commands speak to '{left.current}' from now on.")
        elif before and not left.current and left.contexts:
            click.echo(
                f"Choose the league to speak to: 'hanse config use NAME', of {', '.join(left.contexts)}."
            )


def _home_to_stop(given: Path) -> Path:
    """Which home ``hanse down`` is about; never another than the context that was named."""
    home, name = chosen_home(given)
    if name:
        context = current(name)[1]
        if not context.home:
            raise CommandError(
                f"the league of the context '{name}' does not live on this machine",
                ExitCode.CONFIG,
                "its members are stopped where they run, by their service manager",
            )
        if not Context("", str(home)).is_same_as(context):
            raise click.UsageError(f"--home is {home}, and the context '{name}' lives in {context.home}")
    return home


def _has_league(place: Home) -> bool:
    """Whether a directory is a league's home: somebody has keys there. Where there is only a file called
    league.yaml is somebody's own directory, which is not ours to delete."""
    known = (place.authority, place.path / PEOPLE)
    return any(path.is_dir() for path in known) or any(place.path.glob("*/identity.pem"))


def _elsewhere() -> str:
    """Where there are leagues that could be meant, as a hint."""
    names = [
        name for name, context in load_contexts().contexts.items() if context.home and not context.is_stale()
    ]
    return f"there is one for 'hanse down --context NAME' with each of: {', '.join(names)}" if names else ""


def _called(place: Home) -> str:
    """How the league of a home is called; by its home if its file does not tell."""
    from hanse.live.config.league import LeagueError  # noqa: PLC0415  see the module's first words
    from hanse.live.config.league_file import load  # noqa: PLC0415  as above

    try:
        return f"'{load(place.league_file).name}'"
    except (LeagueError, OSError) as error:
        warn(f"the league's file cannot be used, which does not matter for stopping it: {error}")
        return f"in {place.path}"


def _context(home: Home, league: "League") -> Context:
    from hanse.cli.embedded.league_setup import PERSON  # noqa: PLC0415  see above

    return Context(
        league=league.name,
        home=str(home.path),
        credentials=str(home.person(PERSON)),
        brokers={entry.name: str(entry.door) for entry in league.serving_brokers},
        clusters={entry.name: str(entry.door) for entry in league.serving_clusters},
        file_version=league.version,
    )
