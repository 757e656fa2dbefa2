"""``hanse league``: showing the league file, and changing it while the league runs."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hanse.cli.common_options import league_client as asking
from hanse.cli.common_options import league_options, print_json
from hanse.client.errors import CommandError, warn
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from hanse.api.league_file_records import ApplyAnswer
    from hanse.client.client import LeagueClient
    from hanse.league.config import LeagueConfig
    from hanse.model.problem import Problem

CHANGES_MAX: Final = 5
"""Attempts to add or retire a member when other changes of the file come between."""


@click.group()
def league() -> None:
    """Show and change the league file: its members, and the resources of each cluster.

    The file has a version, which a majority of the brokers agrees on, and is the same everywhere. Any broker
    accepts a change; every member then restarts with it, one after the other. Tasks go on meanwhile.
    """


@league.command("show")
@league_options
def show(as_json: bool) -> None:
    """Print the league file as it is now."""
    with asking() as client:
        found = client.league_file()
    if as_json:
        print_json(found)
        return
    click.echo(found.text, nl=not found.text.endswith("\n"))


_force = click.option("--force", is_flag=True, help="Retire a cluster even if tasks may run there.")
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")


@league.command("apply")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_force
@_dry_run
@league_options
def apply(file: Path, force: bool, dry_run: bool, as_json: bool) -> None:
    """Change the league to FILE: the output of 'hanse league show', with your changes."""
    text = file.read_text(encoding="utf-8")
    with asking() as client:
        _print_answer(client.apply_league_file(text, force, dry_run), dry_run, as_json)


@league.command("add")
@click.argument("kind", type=click.Choice(["broker", "cluster"]))
@click.argument("name")
@click.option("--address", required=True, metavar="HOST:PORT", help="Address for its peers.")
@click.option("--door", required=True, metavar="HOST:PORT", help="HTTP address for people.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes of a cluster.")
@click.option("--cpus", default="1", show_default=True, help="Of each node.")
@click.option("--memory", default="1GiB", show_default=True, help="Of each node.")
@_dry_run
@league_options
def add(kind: str, name: str, address: str, door: str, dry_run: bool, as_json: bool, **nodes: object) -> None:
    """Add a member at the end of the league file; then create a token for it, and join from its machine.

    For a cluster with unequal nodes, other backends or runners: 'hanse league show', then 'apply'.
    """
    entry: dict[str, object] = {"name": name, "address": address, "door": door}
    if kind == "cluster":
        entry["nodes"] = [{"count": nodes["nodes"], "cpus": nodes["cpus"], "memory": nodes["memory"]}]
    with asking() as client:
        _print_answer(
            _change(client, lambda before: _with_member(before, f"{kind}s", entry), False, dry_run),
            dry_run,
            as_json,
        )
    if not dry_run and not as_json:
        role = "broker" if kind == "broker" else "warden"
        click.echo(
            f"Next: 'hanse token create {role} {name}' beside a broker, then 'hanse join' on its machine."
        )


@league.command("retire")
@click.argument("name")
@_force
@_dry_run
@league_options
def retire(name: str, force: bool, dry_run: bool, as_json: bool) -> None:
    """Take the broker or cluster NAME out of the league.

    A cluster must be drained, with nothing running. A broker's unfinished jobs go to its standbys. The name
    keeps its place in the file and is not used again.
    """
    with asking() as client:
        answer = _change(client, lambda before: _with_retired_member(before, name), force, dry_run)
        _print_answer(answer, dry_run, as_json)


def _change(
    client: "LeagueClient", edit: "Callable[[LeagueConfig], LeagueConfig]", force: bool, dry_run: bool
) -> "ApplyAnswer":
    """Change the present league file; try again if another change came first."""
    from hanse.client.client import ConflictError  # noqa: PLC0415  help need not wait
    from hanse.league.file import league_to_text  # noqa: PLC0415  as above

    for _ in range(CHANGES_MAX - 1):
        with suppress(ConflictError):
            return client.apply_league_file(league_to_text(edit(_current_league(client))), force, dry_run)
    return client.apply_league_file(league_to_text(edit(_current_league(client))), force, dry_run)


def _with_member(before: "LeagueConfig", kind: str, entry: dict[str, object]) -> "LeagueConfig":
    """Return the league with a member added at the end of its list; unchanged if it has that member."""
    from hanse.league.config import LeagueConfig  # noqa: PLC0415  help need not wait
    from hanse.league.reader import league_from_data  # noqa: PLC0415  as above
    from hanse.league.writer import league_to_data  # noqa: PLC0415  as above

    def with_entry(members: tuple[str, ...]) -> "LeagueConfig | tuple[Problem, ...]":
        data = league_to_data(before)
        entries = data[kind]
        assert isinstance(entries, list), "a league file has lists of members"
        data[kind] = [one for one in entries if one["name"] not in members] + [entry]
        return league_from_data(data)

    name = str(entry["name"])
    if name in [one.name for one in getattr(before, kind)]:
        replaced = with_entry((name,))
        if isinstance(replaced, LeagueConfig) and getattr(replaced, kind)[-1] in getattr(before, kind):
            return before
    after = with_entry(())
    if isinstance(after, tuple):
        raise CommandError("; ".join(f"{one.field}: {one.rule}" for one in after), ExitCode.USAGE)
    return after


def _with_retired_member(before: "LeagueConfig", name: str) -> "LeagueConfig":
    """Return the league with a member retired."""
    from hanse.live.membership.league_file_diff import retire_member  # noqa: PLC0415  help need not wait

    after = retire_member(before, name)
    if after is None:
        brokers, clusters = before.serving_brokers, before.serving_clusters
        names = [*(one.name for one in brokers), *(one.name for one in clusters)]
        raise CommandError(
            f"the league has no broker and no cluster called '{name}'", ExitCode.USAGE,
            f"there are: {', '.join(names)}",
        )  # fmt: skip
    return after


def _current_league(client: "LeagueClient") -> "LeagueConfig":
    from hanse.league.file import parse  # noqa: PLC0415  help need not wait

    return parse(client.league_file().text.encode(), "the league file")


def _print_answer(answer: "ApplyAnswer", dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for sentence in answer.changes:
        click.echo(sentence)
    if not answer.changes:
        click.echo(f"The league file has no change: it is version {answer.version}.")
        return
    if dry_run:
        click.echo(f"This would be version {answer.version}. Nothing was changed.")
        return
    click.echo(f"The league file is version {answer.version} now. Its members restart with it, in turn.")
    for name, problem in answer.problems.items():
        warn(f"{name} cannot use it yet: {problem}")
    if answer.untold:
        warn(f"not reached; they get it when they can be reached: {', '.join(answer.untold)}")
