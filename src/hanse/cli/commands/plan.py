"""``hanse plan``: forecast of what would happen to the tasks of a job, without submitting it."""

from typing import TYPE_CHECKING

import click

from hanse.cli.common_options import league_client, league_options, print_json
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from hanse.api.plan_records import PlanAnswer


@click.command("plan")
@click.argument("file", metavar="FILE")
@league_options
@click.pass_context
def plan(ctx: click.Context, /, file: str, as_json: bool) -> None:
    """Show whether the job in FILE ('-': standard input) would start now and where, or when.

    Of a job of several tasks it says how many would start now and where, how many would wait and for what.
    Nothing is submitted. The times, of its first task, are estimates from running tasks, waiting tasks and
    earlier durations; what cannot be estimated is called unknown.

    Ends with 0 if it, or some of its tasks, would start now, 1 if all would wait, 255 if there is no answer.
    """
    try:
        answer = _fetch_plan(file)
    except click.ClickException as error:
        error.show()
        ctx.exit(ExitCode.UNDETERMINED)
    except OSError as error:
        click.echo(f"hanse: {file}: {error.strerror or error}", err=True)
        ctx.exit(ExitCode.UNDETERMINED)
    if as_json:
        print_json(answer)
    else:
        _print_plan(answer)
    ctx.exit(ExitCode.OK if answer.starts_now else ExitCode.FAILED)


def _fetch_plan(file: str) -> "PlanAnswer":
    from hanse.client.job_form import check_drafts, read_drafts  # noqa: PLC0415  keeps help fast

    drafts = read_drafts(file)
    if len(drafts) != 1:
        raise click.UsageError(f"{file} holds {len(drafts)} jobs; a plan is for one")
    check_drafts(drafts)
    with league_client() as client:
        return client.plan(drafts[0].form)


def _print_plan(answer: "PlanAnswer") -> None:
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.cli.tables import console, table  # noqa: PLC0415  as above

    out = console()
    chosen = escape(next((candidate.cluster for candidate in answer.candidates if candidate.chosen), ""))
    outlook = answer.outlook
    is_single = outlook.starting + outlook.waiting + outlook.blocked == 1
    if answer.starts_now and is_single:
        out.print(f"[green]It would start now[/], in {chosen}.")
    elif not answer.starts_now:
        out.print(
            f"[yellow]{'It' if is_single else 'The first task'} would wait[/]{_delay_text(answer, chosen)}."
        )
    if not is_single:
        for sentence in outlook.sentences:
            out.print(escape(sentence))
    if answer.unknown:
        out.print(escape(answer.unknown))
    if len(outlook.groups) > 1:
        first = next((group for group in outlook.groups if not group.blocked), outlook.groups[0])
        out.print(f"Group {escape(first.group)}:")
    rows = [
        (
            "*" if candidate.chosen else "",
            escape(candidate.cluster),
            str(candidate.slots),
            f"{candidate.score / 10:.0f} %" if candidate.score else "",
            escape(candidate.reason),
        )
        for candidate in answer.candidates
    ]
    columns = ("", "cluster", "room for", "starts there", "because")
    out.print(table(columns, rows, right=("room for", "starts there")))
    for caveat in answer.caveats:
        out.print(f"[dim]{escape(caveat)}[/]")


def _delay_text(answer: "PlanAnswer", chosen: str) -> str:
    """Format how long a task would wait, and where it would then start."""
    from hanse.cli.formatting import span_text  # noqa: PLC0415  only to draw

    early, middle, late = answer.start.p10, answer.start.p50, answer.start.p90
    if middle is None:
        return ", and how long is unknown"
    span = (
        f", between {span_text((early or 0) / 1e6)} and {span_text(late / 1e6)}" if late is not None else ""
    )
    where = f", most likely in {chosen}" if chosen else ""
    return f" about {span_text(middle / 1e6)}{span}{where}"
