"""``hanse drain`` and ``undrain``: closing parts of the league to new tasks, and reopening them."""

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from hanse.cli.common_options import PLACE, league_client, league_options, print_json, seconds_option
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from hanse.api.records import DrainAnswer
    from hanse.client.client import LeagueClient

POLL_SECONDS: Final = 1.0
"""Seconds between two checks of what still runs."""

Places = tuple[tuple[str, int | None], ...]


def _parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time of day (the next such), or a date and a time; local unless it names its zone."""
    if value is None:
        return None
    now = datetime.now().astimezone()
    try:
        clock = datetime.strptime(value, "%H:%M")
    except ValueError:
        try:
            return datetime.fromisoformat(value).astimezone()
        except ValueError:
            rule = "write a time as 14:30, '2027-01-31 14:30' or 2027-01-31T14:30+01:00"
            raise click.BadParameter(rule, ctx, param) from None
    today = now.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


@click.command("drain")
@click.argument("places", type=PLACE, nargs=-1, required=True, metavar="CLUSTER[/NODE]...")
@click.option("--reason", default="", metavar="TEXT", help="Reason shown to users whose jobs wait.")
@click.option("--until", metavar="TIME", callback=_parse_time, help="End the drain then: 14:30, or a date.")
@seconds_option("--for", "End the drain after this time: 90s, 2h.")
@click.option("--wait", "wait", is_flag=True, help="Wait until nothing runs there.")
@league_options
def drain(
    places: Places, reason: str, until: datetime | None, wait: bool, as_json: bool, **options: float | None
) -> None:
    """Stop new tasks from starting on a cluster or a node. Running tasks run to their end.

    The drain lasts until 'hanse undrain', or until the time of --until or --for. The cluster keeps who asked
    for it, when and why; 'hanse clusters', 'nodes', 'status', 'why' and 'plan' show it.
    """
    from hanse.model.drains import reason_problem  # noqa: PLC0415  help need not wait for it

    span = options["for"]
    if span is not None and until is not None:
        raise click.UsageError("--until and --for exclude each other.")
    end = until.timestamp() if until is not None else None if span is None else time.time() + span
    if end is not None and end <= time.time():
        raise click.UsageError("The end of a drain must be in the future.")
    problem = reason_problem(reason)
    if problem is not None:
        raise click.UsageError(f"--reason: {problem}.")
    wanted = _nodes_by_cluster(places)
    with league_client() as client:
        answers = _set_drain(client, wanted, True, reason, None if end is None else int(end * 1e6))
        if not as_json:
            _print_answers(answers, wanted, "takes no new tasks")
        if wait:
            for cluster, numbers in wanted.items():
                _await_empty(client, cluster, numbers)
    if as_json:
        print_json({"places": answers})


@click.command("undrain")
@click.argument("places", type=PLACE, nargs=-1, required=True, metavar="CLUSTER[/NODE]...")
@league_options
def undrain(places: Places, as_json: bool) -> None:
    """Let tasks start again on a drained cluster or node."""
    wanted = _nodes_by_cluster(places)
    with league_client() as client:
        answers = _set_drain(client, wanted, False)
    if as_json:
        print_json({"places": answers})
    else:
        _print_answers(answers, wanted, "is open again")


def _nodes_by_cluster(places: Places) -> dict[str, list[int] | None]:
    """Return the nodes of each cluster; None means all of them."""
    wanted: dict[str, list[int] | None] = {}
    for cluster, node in places:
        numbers = wanted.setdefault(cluster, [])
        if node is None or numbers is None:
            wanted[cluster] = None  # the whole cluster contains its nodes
        else:
            numbers.append(node)
    return wanted


def _set_drain(
    client: "LeagueClient",
    wanted: dict[str, list[int] | None],
    draining: bool,
    reason: str = "",
    until: int | None = None,
) -> "list[DrainAnswer]":
    answers = []
    for cluster, numbers in wanted.items():
        try:
            answers.append(client.drain(cluster, numbers, draining, reason, until))
        except CommandError as error:
            if error.status != ExitCode.BAD_JOB or numbers is None or until is not None:
                raise
            places = ", ".join(f"{cluster}/{number}" for number in numbers)
            raise CommandError(
                f"not all of these are nodes of {cluster}: {places}",
                ExitCode.USAGE,
                f"'hanse nodes {cluster}' lists them",
            ) from None
    return answers


def _print_answers(answers: "list[DrainAnswer]", wanted: dict[str, list[int] | None], what: str) -> None:
    for answer in answers:
        numbers = wanted.get(answer.cluster)
        places = answer.cluster if numbers is None else ", ".join(f"{answer.cluster}/{n}" for n in numbers)
        end = ""
        if answer.until is not None:
            end = f" until {datetime.fromtimestamp(answer.until / 1e6).astimezone():%Y-%m-%d %H:%M}"
        click.echo(f"{places} {what}{end}")


def _await_empty(client: "LeagueClient", cluster: str, numbers: list[int] | None) -> None:
    """Wait until none of these nodes runs a task; print each change of the number."""
    from hanse.client.transport import NoAnswerError  # noqa: PLC0415  help need not wait for it

    last_running = -1
    while True:
        try:
            detail = client.cluster(cluster)
        except NoAnswerError as error:
            raise CommandError(
                f"the cluster {cluster} does not answer any more: {error}",
                ExitCode.UNAVAILABLE,
                "it stays drained; repeat the command when its warden runs",
            ) from None
        places = [node for node in detail.nodes if numbers is None or node.node in numbers]
        running = sum(node.running or 0 for node in places)
        if not running:
            click.echo(f"{cluster}: nothing runs there any more", err=True)
            return
        if not all(node.draining for node in places):
            raise CommandError(
                f"{cluster} was opened again while {_task_count_text(running)} ran there",
                ExitCode.FAILED,
                f"'hanse drain {cluster} --wait' closes it again",
            )
        if running != last_running:
            click.echo(f"{cluster}: {_task_count_text(running)} still to end", err=True)
            last_running = running
        time.sleep(POLL_SECONDS)


def _task_count_text(tasks: int) -> str:
    return f"{tasks} task{'' if tasks == 1 else 's'}"
