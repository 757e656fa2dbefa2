"""``hanse up`` and ``hanse down``: a whole league on this machine with one command.

A league that is not up yet is wanted soon: the nursery (``nursery``) imports what the members need while this
process makes the league, so nothing heavy is imported here before it is under way.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from hanse.app.access_token import TOKEN_VARIABLE
from hanse.app.contexts import Context, remove_context, save_context
from hanse.app.contexts import load as load_contexts
from hanse.app.isolation_notice import isolation_notice
from hanse.app.nursery import READY, Nursery, NurseryError
from hanse.app.task_user import python_problem, user_problem
from hanse.app.told import warn
from hanse.live.home import Home

if TYPE_CHECKING:
    from hanse.core.config import NodeConfig
    from hanse.live.league import League

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 15.0
CLUSTERS_MAX: Final = 50
BROKERS_MAX: Final = 20

FRUGAL: Final = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""Environment that keeps a daemon small: it has few threads, and its arrays are short."""
PIDS: Final = "pids.json"
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

    Running it again is safe: members that run are left alone, members that died come back.
    """
    place = Home(home.absolute())
    _check_user(user, source)
    nursery = Nursery(_daemon_environment()) if not _pids(place) else None
    from hanse.live.league import LeagueError  # noqa: PLC0415  behind the nursery

    try:
        league = _league(place, source, clusters, brokers, nodes)
        if user:
            league = _with_user(place, league, user)
        started = _start(place, league, record_digests, nursery)
    except LeagueError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if nursery is not None:
            nursery.close()
    save_context(context_name or league.name, _context(place, league), make_current=True)
    total = len(league.members())
    click.echo(
        f"The league '{league.name}' is up: {_counted(len(league.brokers), 'broker')}, "
        f"{_counted(len(league.clusters), 'cluster')}, "
        f"{_nodes(league)} ({started} of {total} members started)."
    )
    click.echo(f"Its home is {place.path}\n")
    click.echo("  hanse status                         how it is")
    click.echo("  hanse submit -n 3 -- echo hello      run a command three times")
    click.echo("  hanse jobs                           what there is to do and was done")
    click.echo("  hanse why JOB                        why a job waits or runs where it does")
    click.echo("  hanse logs JOB                       what it has written")
    click.echo(
        "  hanse down                           stop the league; what runs goes on until its lease ends"
    )
    for problem in (isolation_notice(league, place.path), python_problem(league)):
        if problem is not None:
            warn(problem)


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
    from hanse.live.league_file import load  # noqa: PLC0415  see the module's first words

    place = Home(home.absolute())
    if not place.league_file.is_file():
        raise click.ClickException(f"there is no league in {place.path}")
    league = load(place.league_file)
    stopped = stop_members(place, list(_pids(place)))
    click.echo(f"The league '{league.name}' is down ({stopped} members stopped).")
    if delete:
        shutil.rmtree(place.path)
        for name, context in load_contexts().contexts.items():
            if context.home == str(place.path):
                remove_context(name)
        click.echo(f"{place.path} was deleted.")


def _league(home: Home, source: Path | None, clusters: int, brokers: int, nodes: int) -> "League":
    """The league of a home; made now if there is none."""
    from hanse.app.league_making import certify, embedded, found, with_ports  # noqa: PLC0415  see above
    from hanse.live.identity.authority import Authority  # noqa: PLC0415  as above
    from hanse.live.league_file import load  # noqa: PLC0415  as above

    if home.league_file.is_file():
        league = load(home.league_file)
        if source is not None:
            league = _taken_up(home, league, load(source), source)
        authority = Authority.open(home.authority)
    else:
        fresh = load(source) if source is not None else embedded(clusters, brokers, _slices(clusters, nodes))
        league = with_ports(fresh)
        authority = found(home, league)
    certify(home, league, authority)
    return league


def _taken_up(home: Home, kept: "League", fresh: "League", source: Path) -> "League":
    """The league of a home, as its file says now; the ports that were chosen stay as they are."""
    from hanse.app.league_making import with_ports, with_ports_of  # noqa: PLC0415  see above
    from hanse.live.league import LeagueError  # noqa: PLC0415  as above
    from hanse.live.league_file import store  # noqa: PLC0415  as above

    if (fresh.name, fresh.members()) != (kept.name, kept.members()):
        raise LeagueError(
            f"{home.path} has another league; use another --home, or 'hanse down --delete' first"
        )
    league = with_ports_of(fresh, kept)
    if league == kept:
        return kept
    if _pids(home):
        raise LeagueError(
            f"{source} has changed since the league was started; run 'hanse down' first, then this again"
        )
    league = with_ports(league)
    store(home.league_file, league)
    return league


def _slices(clusters: int, nodes: int) -> "tuple[NodeConfig, ...]":
    """One cluster's nodes. Memory is shared out among the clusters; CPUs are not, so that a task of one CPU
    fits everywhere on a small machine: the embedded league is for trying things."""
    from hanse.live.backends.nodes import default_nodes  # noqa: PLC0415  see above

    whole = default_nodes(1)[0].capacity
    return default_nodes(nodes, cpu=max(whole.cpu, 1_000 * nodes), memory=whole.memory // clusters)


def _context(home: Home, league: "League") -> Context:
    from hanse.app.league_making import PERSON  # noqa: PLC0415  see above

    return Context(
        league=league.name,
        home=str(home.path),
        credentials=str(home.person(PERSON)),
        brokers={entry.name: str(entry.door) for entry in league.brokers},
        clusters={entry.name: str(entry.door) for entry in league.clusters},
    )


# --- processes ----------------------------------------------------------------------------------------------


def _start(home: Home, league: "League", record_digests: bool, nursery: Nursery | None) -> int:
    """Start every member that does not run, and wait until all of them say that they are ready."""
    pids = _pids(home)
    waiting: dict[int, str] = {}
    verbs = {
        **{entry.name: "warden" for entry in league.clusters},
        **{runner.name: "runner" for entry in league.clusters for runner in entry.runners},
        **{entry.name: "broker" for entry in league.brokers},
    }
    for name, verb in verbs.items():
        if name in pids:
            continue
        reader, pids[name] = _start_one(home, verb, name, record_digests, nursery)
        waiting[reader] = name
    _save_pids(home, pids)
    _await_ready(home, waiting)
    return len(waiting)


def _start_one(
    home: Home, verb: str, name: str, record_digests: bool, nursery: Nursery | None
) -> tuple[int, int]:
    """Start one member; the end of a pipe that tells when it is ready, and its process number."""
    if nursery is not None:
        directory = home.member(name)
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        with contextlib.suppress(NurseryError):  # without one it only takes longer
            return nursery.fork(_words(home, verb, name, READY, record_digests), directory / "log.jsonl")
    reader, process = start_member(home, verb, name, record_digests)
    return reader, process.pid


def _words(home: Home, verb: str, name: str, ready: str, record_digests: bool) -> list[str]:
    """The arguments of ``hanse`` that start a member."""
    words = [verb, name, "--home", str(home.path), "--ready-fd", ready]
    return [*words, "--record-digests"] if record_digests else words


def _daemon_environment() -> dict[str, str]:
    """What members are started with: all that is here but the token of whoever starts them."""
    given = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    return {**given, **FRUGAL}


def start_member(
    home: Home, verb: str, name: str, record_digests: bool = False, prefix: Sequence[str] = ()
) -> "tuple[int, subprocess.Popen[bytes]]":
    """Start one member in the background; the end of a pipe that tells when it is ready, and the process.

    ``prefix``: a program and its arguments that start the member in their turn.
    """
    reader, writer = os.pipe()
    directory = home.member(name)
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    words = _words(home, verb, name, str(writer), record_digests)
    command = [*prefix, sys.executable, "-m", "hanse", *words]
    with (directory / "log.jsonl").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
            start_new_session=True,
            env=_daemon_environment(),
        )
    os.close(writer)
    return reader, process


def _await_ready(home: Home, waiting: dict[int, str]) -> None:
    from hanse.live.league import LeagueError  # noqa: PLC0415  see above

    left = dict(waiting)
    deadline = time.monotonic() + START_SECONDS_MAX
    trouble = ""
    while left and not trouble:
        readable, _, _ = select.select(list(left), [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            late = ", ".join(left.values())
            trouble = f"{late} did not get ready in {START_SECONDS_MAX:.0f} s"
        for reader in readable:
            name = left.pop(reader)
            if not os.read(reader, 16):
                trouble = f"{name} ended at once: {_last_words(home, name)}"
    for reader in waiting:
        os.close(reader)
    if trouble:
        raise LeagueError(f"{trouble}\nSee the logs in {home.path}/*/log.jsonl; 'hanse down' stops the rest.")


def _last_words(home: Home, name: str) -> str:
    """The last line of a member's log."""
    lines = (
        (home.member(name) / "log.jsonl").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    )
    if not lines:
        return "it said nothing"
    with contextlib.suppress(msgspec.DecodeError, TypeError, KeyError):
        return str(msgspec.json.decode(lines[-1])["message"])
    return lines[-1]


def stop_members(home: Home, names: list[str]) -> int:
    """Stop members in good order, and wait for their end; how many there were."""
    pids = _pids(home)
    watched: dict[int, int] = {}
    for name in names:
        pid = pids.pop(name)
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            watched[descriptor] = pid
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    left = dict(watched)
    while left:
        readable, _, _ = select.select(list(left), [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            for pid in left.values():
                os.kill(pid, signal.SIGKILL)
            break
        for descriptor in readable:
            del left[descriptor]
    for descriptor in watched:
        os.close(descriptor)
    _save_pids(home, pids)
    return len(watched)


def kill_member(home: Home, name: str) -> None:
    """End a member as a crash would."""
    os.kill(_pids(home)[name], signal.SIGKILL)


def _pids(home: Home) -> dict[str, int]:
    """The members of a home that run, by name. A number that another program has now is not one of them."""
    try:
        saved = msgspec.json.decode((home.path / PIDS).read_bytes(), type=dict[str, int])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    return {name: pid for name, pid in saved.items() if _is_member(home, name, pid)}


def _is_member(home: Home, name: str, pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and name.encode() in words and str(home.path).encode() in words


def _save_pids(home: Home, pids: dict[str, int]) -> None:
    part = home.path / f"{PIDS}.part"
    part.write_bytes(msgspec.json.encode(pids))
    part.replace(home.path / PIDS)
