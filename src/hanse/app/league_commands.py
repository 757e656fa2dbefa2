"""``hanse league``: show the league file, and change it while the league runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hanse.app.exit_codes import ExitCode
from hanse.app.league_options import league as asking
from hanse.app.league_options import league_options, print_json
from hanse.app.told import CommandError, warn

if TYPE_CHECKING:
    from hanse.app.client import Client
    from hanse.live.door.league_records import ApplyAnswer
    from hanse.live.league import League


@click.group()
def league() -> None:
    """The league file: who the members are, and what each cluster has.

    It has a version, which a majority of the brokers agrees on, and is the same everywhere. A change is made
    at any broker; every member then starts again with it, one after the other. Tasks go on meanwhile.
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


_force = click.option("--force", is_flag=True, help="Retire a cluster although tasks may run there.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")


@league.command("apply")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_force
@_dry_run
@league_options
def apply(file: Path, force: bool, dry_run: bool, as_json: bool) -> None:
    """Change the league to FILE: what 'hanse league show' prints, with your changes."""
    text = file.read_text(encoding="utf-8")
    with asking() as client:
        _tell(client.apply_league_file(text, force, dry_run), dry_run, as_json)


@league.command("add")
@click.argument("kind", type=click.Choice(["broker", "cluster"]))
@click.argument("name")
@click.option("--address", required=True, metavar="HOST:PORT", help="Where its peers reach it.")
@click.option("--door", required=True, metavar="HOST:PORT", help="Where people reach it.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes of a cluster.")
@click.option("--cpus", default="1", show_default=True, help="Of each node.")
@click.option("--memory", default="1GiB", show_default=True, help="Of each node.")
@_dry_run
@league_options
def add(kind: str, name: str, address: str, door: str, dry_run: bool, as_json: bool, **nodes: object) -> None:
    """Add a member at the end of the league file; then make a token for it, and join from its machine.

    For a cluster with unequal nodes, other backends or runners: 'hanse league show', then 'apply'.
    """
    from hanse.live.league_file import league_from_data, league_to_data, text_of  # noqa: PLC0415  help need not wait

    with asking() as client:
        before = _known(client)
        data = league_to_data(before)
        entry: dict[str, object] = {"name": name, "address": address, "door": door}
        if kind == "cluster":
            entry["nodes"] = [{"count": nodes["nodes"], "cpus": nodes["cpus"], "memory": nodes["memory"]}]
        members = data[f"{kind}s"]
        assert isinstance(members, list), "a league file has lists of members"
        members.append(entry)
        after = league_from_data(data)
        if isinstance(after, tuple):
            raise CommandError("; ".join(f"{one.field}: {one.rule}" for one in after), ExitCode.USAGE)
        _tell(client.apply_league_file(text_of(after), False, dry_run), dry_run, as_json)
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

    A cluster must be drained, with nothing running. A broker's unfinished jobs go to its heirs. The name
    keeps its place in the file and is not used again.
    """
    from hanse.live.league_file import text_of  # noqa: PLC0415  help need not wait
    from hanse.live.membership.changes import with_retired  # noqa: PLC0415  as above

    with asking() as client:
        before = _known(client)
        after = with_retired(before, name)
        if after is None:
            members = [
                *(one.name for one in before.serving_brokers),
                *(one.name for one in before.serving_clusters),
            ]
            raise CommandError(
                f"the league has no broker and no cluster called '{name}'", ExitCode.USAGE,
                f"there are: {', '.join(members)}",
            )  # fmt: skip
        _tell(client.apply_league_file(text_of(after), force, dry_run), dry_run, as_json)


def _known(client: "Client") -> "League":
    from hanse.live.league_file import parse  # noqa: PLC0415  help need not wait

    return parse(client.league_file().text.encode(), "the league file")


def _tell(answer: "ApplyAnswer", dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for sentence in answer.changes:
        click.echo(sentence)
    if not answer.changes:
        click.echo(f"Nothing changes: the league file is version {answer.version}.")
        return
    if dry_run:
        click.echo(f"This would be version {answer.version}. Nothing was changed.")
        return
    click.echo(f"The league file is version {answer.version} now. Its members start again with it, in turn.")
    for name, problem in answer.problems.items():
        warn(f"{name} cannot live by it yet: {problem}")
    if answer.untold:
        warn(f"not told yet, and told when they can be reached: {', '.join(answer.untold)}")
